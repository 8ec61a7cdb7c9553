"""Training loops: compiled for environments written in JAX."""
