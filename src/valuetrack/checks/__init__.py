"""Checks of the samplers against laws that are known in closed form."""
