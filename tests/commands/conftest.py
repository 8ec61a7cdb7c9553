from tests.programs import remember_programs

__all__ = ["remember_programs"]
