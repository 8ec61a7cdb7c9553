"""Experiments as data: a specification, what it measures, and the runner for all of them."""
