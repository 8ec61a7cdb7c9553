from tests.programs import remember_programs
from tests.samplers.conftest import compile_quickly

__all__ = ["compile_quickly", "remember_programs"]
