"""Run an experiment: plan its units, spread them over the cores, go on where it stopped."""

from __future__ import annotations

import copy
import datetime
import os
import platform
import subprocess
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax

from valuetrack import __version__
from valuetrack.experiments.kinds import Spec, kind_of
from valuetrack.experiments.spec import PresetName
from valuetrack.experiments.unit import Unit
from valuetrack.experiments.workers import run_here, run_in_processes
from valuetrack.store import RunFolder, StoreError
from valuetrack.training.seed_groups import available_cores

FORMAT = 1


class Request(NamedTuple):
    """What to run."""

    spec: Spec
    preset: PresetName
    rows: tuple[str, ...]
    first_seed: int
    seeds: int
    seeds_by_default: bool = False  # then a run that is there keeps its number


def worker_count() -> int:
    """Return how many units are run at a time: one a core, as far as this process may use them."""
    return available_cores()


def open_or_create(path: str | os.PathLike[str], request: Request, *, resume: bool) -> RunFolder:
    """Return the folder of a run, new or to go on with.

    Rows may be added to a run of the same preset and first seed, also rows that its experiment did
    not have then, as long as those it had are the same; and seeds to a row. A row that is there
    keeps the units it was begun with, and what is finished stays as it is. A row that another
    commit goes on with names both.
    """
    kind_of(request.spec.name).check(request.spec)
    for row in request.rows:
        request.spec.row(row)
    if not (Path(path) / "manifest.json").is_file():
        return RunFolder.create(path, _manifest(request))
    folder = RunFolder.open(path)
    with folder.changing():
        _take_up(folder, request, resume=resume)
    return folder


def _take_up(folder: RunFolder, request: Request, *, resume: bool) -> None:
    """Add to a manifest what it lacks of a request."""
    path, manifest = folder.path, folder.manifest()
    _check_same(path, manifest, request)
    if request.seeds_by_default:
        request = request._replace(seeds=manifest["seeds"]["count"])
    entries = {entry["id"]: entry for entry in manifest["rows"]}
    there = [row for row in request.rows if row in entries]
    if not resume and not all(_done(folder, entries[row]) for row in there):
        raise StoreError(f"{path} holds an unfinished run; go on with --resume.")
    before, source = copy.deepcopy(entries), commit()
    for row in request.rows:
        if row not in there:
            entries[row] = _row_entry(request, row, source)
            continue
        entry = entries[row]
        entry["units"] += _more_units(entry, request)
        if not _done(folder, entry):
            entry["commit"] = _with_source(entry.get("commit"), source)
    changed = [row for row, entry in entries.items() if entry != before.get(row)]
    if not changed:
        return
    manifest |= _fingerprint(request)
    manifest["seeds"]["count"] = max(manifest["seeds"]["count"], request.seeds)
    for entry in entries.values():  # which row is the first of its kind may have changed
        entry["label"] = request.spec.label(entry["id"])
    order = [row.id for row in request.spec.rows]
    manifest["rows"] = sorted(entries.values(), key=lambda entry: order.index(entry["id"]))
    with folder.lock(changed):  # a row that another process is running stays as it is
        folder.write_json("manifest.json", manifest)


def run(
    folder: RunFolder,
    *,
    rows: Sequence[str] | None = None,
    advance: Callable[[str, int], None] = lambda row, steps: None,
    stop: threading.Event | None = None,
    workers: int | None = None,
) -> bool:
    """Run all unfinished units of a folder, in a process for each core.

    ``advance`` is told of a row's progress in environment steps over all its seeds. Returns
    whether all is finished; False if ``stop`` was set meanwhile, with the state saved. With
    ``workers=0``, or where there is an accelerator, the units run in this process.
    """
    stop = stop or threading.Event()
    manifest = folder.manifest()
    spec = read_spec(manifest)
    pending = [
        unit
        for unit in planned_units(manifest, spec)
        if (rows is None or unit.row.id in rows) and not folder.is_finished(unit.row.id, unit.name)
    ]
    if workers is None:
        workers = worker_count() if jax.default_backend() == "cpu" else 0
    with folder.lock(sorted({unit.row.id for unit in pending})):
        if workers:
            run_in_processes(pending, folder, workers=workers, advance=advance, stop=stop)
        else:
            run_here(pending, folder, advance=advance, stop=stop)
    return not stop.is_set()


def read_spec(manifest: dict[str, Any]) -> Any:
    """Return the specification that a run was made with."""
    return kind_of(manifest["experiment"]).parse(manifest["spec"], "manifest.json")


def planned_units(manifest: dict[str, Any], spec: Spec) -> list[Unit]:
    """Return all units of a run: the first of every row, then the second, and so on.

    In this order every row has some seeds early.
    """
    lists = [
        [Unit(spec.row(entry["id"]), first, count) for first, count in entry["units"]]
        for entry in manifest["rows"]
    ]
    longest = max(map(len, lists), default=0)
    return [units[i] for i in range(longest) for units in lists if i < len(units)]


def _manifest(request: Request) -> dict[str, Any]:
    source = commit()
    return {
        "format": FORMAT,
        "experiment": request.spec.name,
        "preset": request.preset,
        **_fingerprint(request),
        "seeds": {"first": request.first_seed, "count": request.seeds},
        "rows": [
            _row_entry(request, row.id, source)
            for row in request.spec.rows
            if row.id in request.rows
        ],
        "versions": versions(),
        "commit": source,
        "machine": machine(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _fingerprint(request: Request) -> dict[str, Any]:
    return {
        "spec": request.spec.model_dump(mode="json", exclude_none=True),
        "spec_hash": request.spec.hash(request.preset),
    }


def _decisive(spec: dict[str, Any], rows: set[str]) -> dict[str, Any]:
    """Return all of a specification that decides the numbers of some rows."""
    own = sorted((row for row in spec["rows"] if row["id"] in rows), key=lambda row: row["id"])
    return {**spec, "rows": own, "quick": None}


def _row_entry(request: Request, row_id: str, source: str | None) -> dict[str, Any]:
    row = request.spec.row(row_id)
    most = kind_of(request.spec.name).seeds_per_unit
    return {
        **row.model_dump(mode="json"),
        "label": request.spec.label(row_id),
        "units": split_seeds(request.first_seed, request.seeds, worker_count(), most),
        "commit": source,  # of its own: rows may be added to a folder later
    }


def _more_units(entry: dict[str, Any], request: Request) -> list[list[int]]:
    """Return the groups of the seeds that a row does not have yet."""
    there = _seeds(entry)
    if there == request.seeds or request.seeds_by_default:
        return []
    most = kind_of(request.spec.name).seeds_per_unit
    return split_seeds(request.first_seed + there, request.seeds - there, worker_count(), most)


def _seeds(entry: dict[str, Any]) -> int:
    return sum(count for _, count in entry["units"])


def _with_source(named: str | None, source: str | None) -> str | None:
    """Add the commit of the source tree to those a row names."""
    sources = dict.fromkeys([*(named or "").split(", "), source or ""])
    return ", ".join(filter(None, sources)) or None


def split_seeds(first: int, count: int, workers: int, most: int) -> list[list[int]]:
    """Cut seeds into [first, count] groups of nearly equal size, enough to keep workers busy."""
    groups = -(-count // most)
    groups = min(count, -(-groups // workers) * workers)
    base, extra = divmod(count, groups)
    sizes = [base + (i < extra) for i in range(groups)]
    return [[first + sum(sizes[:i]), size] for i, size in enumerate(sizes)]


def _check_same(path: Any, manifest: dict[str, Any], request: Request) -> None:
    rows = {entry["id"] for entry in manifest["rows"]}
    specs = manifest["spec"], _fingerprint(request)["spec"]
    differs = []
    if _decisive(specs[0], rows) != _decisive(specs[1], rows):
        differs.append("with other steps or options")
    there = {"preset": manifest["preset"], "first seed": manifest["seeds"]["first"]}
    here = {"preset": request.preset, "first seed": request.first_seed}
    differs += [f"{k} is {v!r} there, {here[k]!r} here" for k, v in there.items() if here[k] != v]
    if differs:
        raise StoreError(
            f"{path} holds another run ({differs[0]}); choose another folder with --out."
        )
    for entry in manifest["rows"]:
        too_many = _seeds(entry) > request.seeds and not request.seeds_by_default
        if entry["id"] in request.rows and too_many:
            raise StoreError(
                f"{path} holds {entry['id']} with {_seeds(entry)} seeds, more than "
                f"{request.seeds}; ask for as many or choose another folder with --out."
            )


def _done(folder: RunFolder, entry: dict[str, Any]) -> bool:
    return all(
        folder.is_finished(entry["id"], Unit(None, first, count).name)
        for first, count in entry["units"]
    )


def machine() -> dict[str, Any]:
    """Describe the machine without naming it."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "workers": worker_count()}


def versions() -> dict[str, str]:
    """Return the versions of what decides the numbers."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {"valuetrack": __version__, "python": platform.python_version(), **packages}


def commit() -> str | None:
    """Return the commit of the source tree, marked if it has been changed since."""
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        result = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
