"""``python -m valuetrack`` is the command line."""

from valuetrack.cli import main

main()
