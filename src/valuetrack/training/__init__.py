"""Training: one update, one protocol, and a trainer each for environments in JAX and in Python."""

from valuetrack.programs import replace_damaged

replace_damaged()  # here, since every process that compiles a training comes past
