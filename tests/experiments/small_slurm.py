"""A SLURM of one machine, with as much of its commands as submitit calls.

Installed as ``sbatch``, ``srun``, ``sacct`` and ``scancel`` into a folder by :func:`install`. It
runs the jobs of an array at once, as processes that outlive whoever submitted them. The real one is
not to be had in a test; what it would do beyond this is not tested.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "scancel")


def install(folder: Path) -> None:
    """Write the commands into a folder, which goes to the front of PATH."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -P -S {__file__} {name} "$@"\n')
        path.chmod(0o755)
    (folder / "jobs").mkdir()


def sbatch(jobs: Path, script: str) -> None:
    """Start a job for each index of the array, and print the array's number."""
    text = Path(script).read_text()
    last = re.search(r"--array=0-(\d+)", text)
    number = 100 + len(list(jobs.iterdir()))
    for index in range(int(last.group(1)) + 1) if last else [None]:
        name = f"{number}" if index is None else f"{number}_{index}"
        own = {"SLURM_JOB_ID": str(number), "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
        if index is not None:
            own |= {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(index)}
        process = subprocess.Popen(
            ["bash", script], env={**os.environ, **own}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        (jobs / name).write_text(str(process.pid))
    print(f"Submitted batch job {number}")


def srun(_: Path, *words: str) -> None:
    """Run a command, whose options come first."""
    start = next(i for i, word in enumerate(words) if "python" in word)
    os.execvp(words[start], words[start:])


def sacct(jobs: Path, *_: str) -> None:
    """Print the state of all jobs."""
    print("JobID|State|NodeList")
    for path in sorted(jobs.iterdir()):
        pid = path.read_text()
        is_running = Path(f"/proc/{pid}").exists()
        print(f"{path.name}|{'RUNNING' if is_running else 'COMPLETED'}|here")


def scancel(jobs: Path, name: str, *_: str) -> None:
    """Kill a job."""
    os.killpg(int((jobs / name).read_text()), signal.SIGKILL)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    folder = Path(next(p for p in os.environ["PATH"].split(":") if (Path(p) / "jobs").is_dir()))
    globals()[command](folder / "jobs", *arguments)
