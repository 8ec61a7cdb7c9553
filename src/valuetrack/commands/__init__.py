"""The commands that need more than a few lines; ``valuetrack.cli`` registers them."""
