"""What a process that computes a unit finds around it: variables, threads, cores.

All engines go through here, so that a unit rounds the same way wherever it runs.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from valuetrack.programs import default_folder

try:
    import fcntl
except ImportError:  # Windows, where nothing is pinned
    fcntl = None  # type: ignore[assignment]

PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
DECISIVE = ("JAX_", "XLA_")
"""How variables begin that decide about the compiled code, and so about its rounding."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def single_threaded(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which NumPy, SciPy and XLA compute with one thread.

    Examples
    --------
    >>> single_threaded({})["OMP_NUM_THREADS"]
    '1'
    """
    before = variables.get("XLA_FLAGS", "")
    flags = before if FLAGS in before else f"{before} {FLAGS}".strip()
    return {**ONE_THREAD, "XLA_FLAGS": flags}


def carried_variables() -> dict[str, str]:
    """Return the variables of this process that decide about numbers, to be set on every node.

    Where compiled programs are kept is each node's own affair, unless someone has chosen a folder:
    the default one is for one kind of processor.
    """
    found = {name: value for name, value in os.environ.items() if name.startswith(DECISIVE)}
    if found.get(PROGRAMS) == str(default_folder()):
        del found[PROGRAMS]
    return found


def variables_here(carried: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a process that computes on this node.

    Units compute on processors: several would share an accelerator, and round otherwise.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(DECISIVE) or name == PROGRAMS
    }
    return {**own, "JAX_PLATFORMS": "cpu", **carried, **single_threaded(carried)}


def pin(cores: int) -> list[IO[bytes]]:
    """Keep this process on free cores, if the system does not do so already.

    Whoever pins itself locks a file for each of its cores. If too few are free, the process stays
    where the system puts it.

    Returns
    -------
    list
        The locked files, to be kept for as long as the process computes.
    """
    if fcntl is None or not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    held: list[IO[bytes]] = []
    if len(allowed) <= cores:
        return held
    folder = Path(tempfile.gettempdir()) / f"valuetrack-cores-{os.getuid()}"
    chosen = []
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for core in allowed:
            file = open(folder / str(core), "ab")  # noqa: SIM115 - it is kept
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            held.append(file)
            chosen.append(core)
            if len(chosen) == cores:
                os.sched_setaffinity(0, chosen)
                return held
    for taken in held:
        taken.close()
    return []
