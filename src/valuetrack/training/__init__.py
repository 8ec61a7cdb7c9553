"""Training: one update, one protocol, and a trainer each for environments in JAX and in Python."""
