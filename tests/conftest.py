"""What makes the tests quick: nearly all of their time is compilation.

``XLA_FLAGS= make pytest`` compiles as users do, and takes longer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import jax
import pytest

SIMPLER_CODE = "--xla_cpu_use_fusion_emitters=false"
"""Takes half the time to make, and runs a little slower."""
KEEP_ALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def pytest_configure() -> None:
    """Let Ctrl-C through, and ask for simpler code if this JAX knows how, here and in children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "XLA_FLAGS" in os.environ:  # someone's choice, or that of the process that began this one
        return
    trial = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": SIMPLER_CODE},
        check=False,
        capture_output=True,
    )
    os.environ["XLA_FLAGS"] = "" if trial.returncode else SIMPLER_CODE


def as_users_compile() -> dict[str, bool]:
    """Return the compiler's options for tests of what a program takes, which is users' code."""
    return {"xla_cpu_use_fusion_emitters": True} if os.environ["XLA_FLAGS"] == SIMPLER_CODE else {}


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile what is the same in two tests once, whichever process they run in."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose folders lie side by side
        folder = folder.parent
    folder /= "programs"
    folder.mkdir(exist_ok=True)
    for name, value in {"jax_compilation_cache_dir": str(folder), **KEEP_ALL}.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
