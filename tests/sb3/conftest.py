from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

__all__ = ["compile_quickly"]


@pytest.fixture(scope="module", autouse=True)
def compile_quickly() -> Iterator[None]:
    """As for the samplers, and for the models that the tests of a file share too."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
