"""Experiments as data: what is run, how it is built, and the run itself."""
