"""Deep reinforcement learning that knows how sure it is of its values."""

__version__ = "0.1.0.dev0"
