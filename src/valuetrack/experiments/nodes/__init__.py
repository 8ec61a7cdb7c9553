"""Where a unit runs, on this machine or another: its process, and how its files travel.

Nothing here imports JAX or NumPy before the process that computes has its threads, flags and core.
"""
