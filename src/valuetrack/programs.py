"""Compiled programs, kept on disk: who starts the same training again does not compile it again.

The command line keeps them from the start. A script asks for it, before its first agent::

    import valuetrack as vt

    vt.keep_programs()

They are JAX's persistent compilation cache, in a folder of valuetrack's own that may be deleted at
any time: ``$XDG_CACHE_HOME/valuetrack`` or ``~/.cache/valuetrack``. JAX's own variables come first:
``JAX_COMPILATION_CACHE_DIR`` names another folder, ``JAX_ENABLE_COMPILATION_CACHE=false`` keeps
nothing.

An entry that cannot be read, because a disk was full or a bit has changed, is deleted and stored
anew: see :func:`replace_damaged`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import Any

CHOICES = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
"""The variables with which a user has chosen already."""
SECONDS = 0.1
"""What compiles faster is not worth a file."""


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep the programs that are compiled from now on, and use those that were kept.

    Returns their folder, or ``None`` if it cannot be made. If no folder is given and nothing is
    chosen by JAX's variables, it is the default one.
    """
    import jax  # noqa: PLC0415 - the command line's help does without it
    from jax.experimental.compilation_cache import compilation_cache  # noqa: PLC0415

    replace_damaged()
    config: Any = jax.config
    if folder is None and _is_chosen():
        chosen: str | None = config.jax_compilation_cache_dir
        return Path(chosen) if chosen else None
    kept = _made(folder)
    if kept is not None:
        config.update("jax_compilation_cache_dir", str(kept))
        config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)
        compilation_cache.reset_cache()  # one that is in use keeps its old folder
    return kept


def keep_programs_by_environment() -> None:
    """Set the variables that JAX reads when it is imported, here and in processes begun here."""
    if _is_chosen():
        return
    kept = _made()
    if kept is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(kept)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SECONDS))


def replace_damaged() -> None:
    """Let JAX delete an entry of the cache that it cannot read, so that it is stored anew.

    JAX itself compiles the program, but never overwrites an entry: it would warn and compile again
    at every start. Where a version of JAX has no such function, nothing is changed.
    """
    try:
        from jax._src import compilation_cache  # noqa: PLC0415 - the help of commands needs no JAX

        read = compilation_cache.get_executable_and_time
    except (ImportError, AttributeError):
        return
    if hasattr(read, "__wrapped__"):
        return

    @functools.wraps(read)
    def read_or_delete(cache_key: str, *args: Any, **options: Any) -> Any:
        try:
            return read(cache_key, *args, **options)
        except Exception:  # whatever the reason, JAX compiles it again
            _delete_entry(cache_key)
            return None, None

    setattr(compilation_cache, read.__name__, read_or_delete)


def _delete_entry(cache_key: str) -> None:
    import jax  # noqa: PLC0415

    config: Any = jax.config
    with contextlib.suppress(OSError, TypeError):  # TypeError: no folder
        (Path(config.jax_compilation_cache_dir) / f"{cache_key}-cache").unlink()


def default_folder() -> Path:
    """Return where programs are kept: a folder for each kind of processor.

    They use its instructions, and a home directory may be shared with other machines.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "valuetrack" / f"programs-{_processor()}"


def _processor() -> str:
    described = f"{platform.machine()} {platform.processor()}"
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text().splitlines()
        # One processor is like the other: its name, and the instructions that it knows.
        described = "".join(sorted({x for x in lines if x.startswith(("model name", "flags"))}))
    return hashlib.sha256(described.encode()).hexdigest()[:12]


def _is_chosen() -> bool:
    return any(choice in os.environ for choice in CHOICES)


def _made(folder: str | os.PathLike[str] | None = None) -> Path | None:
    try:
        made = default_folder() if folder is None else Path(folder)  # there may be no home
        made.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return made if os.access(made, os.W_OK) else None
