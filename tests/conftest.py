"""What makes the tests quick: nearly all of their time is tracing and compilation.

``XLA_FLAGS= make pytest`` compiles as users do, and takes longer. Compiled programs are kept in
``.pytest_cache``: what has not changed since the last time is not compiled again.

In the time that remains, a test that calls JAX operation by operation compiles each of them for
each shape; inside ``jax.jit`` they are one program.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SIMPLER_CODE = "--xla_cpu_use_fusion_emitters=false"
"""Takes half the time to make, and runs a little slower."""
UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
"""Takes a third of the time to make, and twice as long to run, which here is short."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Small matrices gain nothing by a second thread, which spins while it waits: with more processes
than cores, KOVA takes twenty times as long."""
KEEP_ALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
MOST_BYTES = 500_000_000
"""Of programs that are kept: those of several days of changes."""


def ask_for_quick_programs() -> None:
    """Ask for what is quick to compile, here and in children.

    Nothing here may import JAX, SciPy or PyTorch: they read the variables when they are imported.
    """
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    if "XLA_FLAGS" in os.environ:  # someone's choice
        return
    os.environ.setdefault(UNOPTIMISED, "1")
    trial = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": SIMPLER_CODE},
        check=False,
        capture_output=True,
    )
    os.environ["XLA_FLAGS"] = "" if trial.returncode else SIMPLER_CODE


# Now, and not in a hook: a conftest.py of a folder below that is named on the command line is
# imported before any hook is called, and imports JAX. Processes of xdist inherit the variables.
if "PYTEST_XDIST_WORKER" not in os.environ:
    ask_for_quick_programs()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C through, and forget programs when too many are kept."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:  # the process that began this one has done it
        forget_programs(config)


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported, which stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def as_users_compile() -> dict[str, bool]:
    """Return the compiler's options for tests of what a program takes, which is users' code."""
    return {"xla_cpu_use_fusion_emitters": True} if os.environ["XLA_FLAGS"] == SIMPLER_CODE else {}


@pytest.fixture
def optimised() -> Iterator[None]:
    """Optimise programs after all, here and in children, as users do."""
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNOPTIMISED, "0")
        before = jax.config.read(UNOPTIMISED.lower())
        jax.config.update(UNOPTIMISED.lower(), False)
        yield
        jax.config.update(UNOPTIMISED.lower(), before)


def kept_programs(config: pytest.Config) -> Path | None:
    """Return where programs are kept for the next time, if pytest keeps anything."""
    from valuetrack.programs import default_folder

    cache = getattr(config, "cache", None)  # not with -p no:cacheprovider
    return cache and cache.mkdir(default_folder().name)  # which names the processor


def forget_programs(config: pytest.Config) -> None:
    """Begin anew when too many programs are kept; JAX itself forgets none."""
    folder = kept_programs(config)
    if folder and sum(entry.stat().st_size for entry in folder.iterdir()) > MOST_BYTES:
        shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def programs(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile what is the same in two tests once, whichever process they run in."""
    import jax

    folder = kept_programs(pytestconfig)
    if folder is None:
        folder = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:  # whose folders lie side by side
            folder = folder.parent
        folder /= "programs"
        folder.mkdir(exist_ok=True)
    for name, value in {"jax_compilation_cache_dir": str(folder), **KEEP_ALL}.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
