"""Training loops: compiled for environments written in JAX."""

from valuetrack.programs import replace_damaged

replace_damaged()  # here, since every process that compiles a training comes past
