"""Where numbers come from: versions, the commit, the machine."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from valuetrack import __version__
from valuetrack.training.seed_groups import available_cores
from valuetrack.types import Json


def describe(source: str | None) -> Json:
    """Return what a manifest says about its origin; ``source`` is the commit."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {
        "versions": {"valuetrack": __version__, "python": platform.python_version(), **packages},
        "commit": source,
        "machine": machine(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def machine() -> Json:
    """Describe the machine without naming it."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "workers": available_cores()}


def commit() -> str | None:
    """Return the commit of the source tree, marked if it has been changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    here = Path(__file__).parent
    try:
        found = subprocess.check_output(
            command, cwd=here, stderr=subprocess.DEVNULL, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.strip() or None
