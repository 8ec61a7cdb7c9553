"""Fixtures for tests that build many agents of few kinds."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="module", autouse=True)
def remember_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile what is the same in two agents once."""
    changes = {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")), **SETTINGS}
    before = {name: getattr(jax.config, name) for name in changes}
    for name, value in changes.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
