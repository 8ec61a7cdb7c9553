from tests.samplers.conftest import compile_quickly

__all__ = ["compile_quickly"]
