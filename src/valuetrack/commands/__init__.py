"""The commands: what users can choose (``options``), and a module for each group of commands."""

from __future__ import annotations

FAILED = 1
"""Exit code of a command that did its work and found something wrong."""
WRONG_USE = 2
"""Exit code of a command that could not do its work."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
