"""Run an experiment: plan its units, hand them to an engine, go on where it stopped."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from valuetrack.experiments import measure, provenance
from valuetrack.experiments.engines import Engine, InlineEngine, LocalEngine
from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import DEFAULT_PRESET, Experiment, Row, from_manifest
from valuetrack.io.manifest import FORMAT
from valuetrack.io.run_folder import MANIFEST, RunFolder, StoreError
from valuetrack.training.seed_groups import available_cores

PATIENCE_SECONDS = 0.5


class Request(NamedTuple):
    """What to run.

    Attributes
    ----------
    spec, preset
        The experiment, resolved with that preset.
    rows, first_seed, seeds
        Which rows of it, and with which seeds.
    seeds_by_default
        Whether nobody asked for that number: a run that exists keeps its own then.
    """

    spec: Experiment
    preset: str = DEFAULT_PRESET
    rows: tuple[str, ...] = ()
    first_seed: int = 0
    seeds: int = 1
    seeds_by_default: bool = False


def open_or_create(path: str | os.PathLike[str], request: Request, *, resume: bool) -> RunFolder:
    """Return the folder of a run, new or to go on with.

    Rows may be added to a run of the same preset and first seed, also rows that its experiment did
    not have then, as long as those it had are the same; and seeds to a row. A row that exists
    keeps the units it was begun with, and what is finished stays as it is. A row that another
    commit goes on with names both.
    """
    measure.check(request.spec, request.rows)
    if not (Path(path) / MANIFEST).is_file():
        return RunFolder.create(path, _manifest(request))
    folder = RunFolder.open(path)
    with folder.changing():
        _extend(folder, request, resume=resume)
    return folder


def _extend(folder: RunFolder, request: Request, *, resume: bool) -> None:
    """Add to a manifest what it lacks of a request."""
    path, manifest = folder.path, folder.manifest()
    _check_same(path, manifest, request)
    if request.seeds_by_default:
        request = request._replace(seeds=manifest["seeds"]["count"])
    entries = {entry["id"]: entry for entry in manifest["rows"]}
    existing = [row for row in request.rows if row in entries]
    if not resume and not all(_is_done(folder, entries[row]) for row in existing):
        raise StoreError(f"{path} holds an unfinished run; go on with --resume.")
    before, source = copy.deepcopy(entries), provenance.commit()
    for row in request.rows:
        if row not in existing:
            entries[row] = _entry(request, request.spec.row(row), source)
            continue
        entry = entries[row]
        entry["units"] += _more_units(entry, request)
        if not _is_done(folder, entry):
            entry["commit"] = _with_source(entry.get("commit"), source)
    changed = [row for row, entry in entries.items() if entry != before.get(row)]
    if not changed:
        return
    manifest |= _fingerprint(request)
    manifest["seeds"]["count"] = max(manifest["seeds"]["count"], request.seeds)
    for entry in entries.values():  # which row is the first of its kind may have changed
        entry["label"] = request.spec.row(entry["id"]).label
    order = [row.id for row in request.spec.rows]
    manifest["rows"] = sorted(entries.values(), key=lambda entry: order.index(entry["id"]))
    with folder.lock(changed):  # a row that another process is running stays as it is
        folder.write_json(MANIFEST, manifest)


def run(
    folder: RunFolder,
    *,
    rows: Sequence[str] | None = None,
    advance: Callable[[str, int], None] = lambda row, steps: None,
    stop: threading.Event | None = None,
    engine: Engine | None = None,
) -> bool:
    """Run all unfinished units of a folder.

    Parameters
    ----------
    folder, rows
        The run, and which of its rows (all by default).
    advance
        Is told of a row's progress in environment steps over all its seeds.
    stop
        Set it to have all units save their state and end.
    engine
        What runs the units; by default a process per core, or this process where there is an
        accelerator.

    Returns
    -------
    bool
        Whether all is finished.
    """
    stop = stop or threading.Event()
    pending = [
        unit
        for unit in planned_units(folder.manifest())
        if (rows is None or unit.row in rows) and not folder.is_finished(unit.row, unit.name)
    ]
    with folder.lock(sorted({unit.row for unit in pending})), engine or default_engine(folder) as e:
        for unit in pending:
            e.submit(unit)
        while e.is_busy():
            for event in e.follow(PATIENCE_SECONDS):
                advance(event.row, event.steps)
            if stop.is_set():
                e.stop()
    return all(folder.is_finished(unit.row, unit.name) for unit in pending)


def default_engine(folder: RunFolder) -> Engine:
    """Return a process per core, or this process where there is an accelerator."""
    if jax.default_backend() == "cpu":
        return LocalEngine(folder, available_cores())
    return InlineEngine(folder)


def planned_units(manifest: dict[str, Any]) -> list[Unit]:
    """Return all units of a run: the first of every row, then the second, and so on.

    In this order every row has some seeds early.
    """
    lists = [
        [Unit(entry["id"], first, count) for first, count in entry["units"]]
        for entry in manifest["rows"]
    ]
    longest = max(map(len, lists), default=0)
    return [units[i] for i in range(longest) for units in lists if i < len(units)]


def _manifest(request: Request) -> dict[str, Any]:
    source = provenance.commit()
    return {
        "format": FORMAT,
        "experiment": request.spec.name,
        "preset": request.preset,
        **_fingerprint(request),
        "seeds": {"first": request.first_seed, "count": request.seeds},
        "rows": [
            _entry(request, row, source) for row in request.spec.rows if row.id in request.rows
        ],
        **provenance.describe(source),
    }


def _fingerprint(request: Request) -> dict[str, Any]:
    return {"spec": request.spec.model_dump(mode="json"), "spec_hash": request.spec.hash()}


def _entry(request: Request, row: Row, source: str | None) -> dict[str, Any]:
    return {
        **row.model_dump(mode="json"),
        "units": split_seeds(request.first_seed, request.seeds, request.spec.seeds_per_unit),
        "commit": source,  # of its own: rows may be added to a folder later
    }


def _more_units(entry: dict[str, Any], request: Request) -> list[list[int]]:
    """Return the groups of the seeds that a row does not have yet."""
    count = _seeds(entry)
    if count == request.seeds or request.seeds_by_default:
        return []
    first = request.first_seed + count
    return split_seeds(first, request.seeds - count, request.spec.seeds_per_unit)


def _seeds(entry: dict[str, Any]) -> int:
    return sum(count for _, count in entry["units"])


def _with_source(named: str | None, source: str | None) -> str | None:
    """Add the commit of the source tree to those a row names."""
    sources = dict.fromkeys([*(named or "").split(", "), source or ""])
    return ", ".join(filter(None, sources)) or None


def split_seeds(first: int, count: int, most: int) -> list[list[int]]:
    """Cut seeds into [first, count] groups of nearly equal size, of at most ``most`` each."""
    groups = -(-count // most)
    base, extra = divmod(count, groups)
    sizes = [base + (i < extra) for i in range(groups)]
    return [[first + sum(sizes[:i]), size] for i, size in enumerate(sizes)]


def _decisive(spec: dict[str, Any], rows: set[str]) -> dict[str, Any]:
    """Return all of a specification that decides the numbers of some rows."""
    own = [
        {key: value for key, value in row.items() if key != "label"}
        for row in sorted(spec["rows"], key=lambda row: row["id"])
        if row["id"] in rows
    ]
    return {"name": spec["name"], "measure": spec["measure"], "rows": own}


def _check_same(path: Path, manifest: dict[str, Any], request: Request) -> None:
    rows = {entry["id"] for entry in manifest["rows"]}
    specs = manifest["spec"], _fingerprint(request)["spec"]
    differs = []
    if _decisive(specs[0], rows) != _decisive(specs[1], rows):
        differs.append("with other steps or options")
    saved = {"preset": manifest["preset"], "first seed": manifest["seeds"]["first"]}
    here = {"preset": request.preset, "first seed": request.first_seed}
    differs += [f"{k} is {v!r} there, {here[k]!r} here" for k, v in saved.items() if here[k] != v]
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


def _is_done(folder: RunFolder, entry: dict[str, Any]) -> bool:
    return all(
        folder.is_finished(entry["id"], Unit(entry["id"], first, count).name)
        for first, count in entry["units"]
    )


__all__ = ["Request", "from_manifest", "open_or_create", "planned_units", "run", "split_seeds"]
