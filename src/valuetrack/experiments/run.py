"""Run an experiment: plan its units, hand them to an engine, go on where it stopped."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Container
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import jax

from valuetrack.experiments import measure, provenance
from valuetrack.experiments.engines import Engine, InlineEngine, LocalEngine
from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import DEFAULT_PRESET, Experiment, Row
from valuetrack.io.errors import StoreError, StrPath
from valuetrack.io.manifest import FORMAT
from valuetrack.io.run_folder import MANIFEST, RunFolder, StopFlag
from valuetrack.training.seed_groups import available_cores
from valuetrack.types import Json

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


def open_or_create(path: StrPath, request: Request, *, resume: bool) -> RunFolder:
    """Return the folder of a run, new or to go on with.

    Rows may be added to a run of the same preset and first seed, also rows that its experiment did
    not have then, as long as those it had are the same; and seeds to a row. A row that exists
    keeps the units it was begun with, and what is finished stays as it is. A row that another
    commit goes on with names both.
    """
    measure.check(request.spec, request.rows)
    if not (Path(path) / MANIFEST).is_file():
        return RunFolder.create(path, new_manifest(request))
    folder = RunFolder.open(path)
    with folder.changing():
        _extend(folder, request, resume=resume)
    return folder


def new_manifest(request: Request) -> Json:
    """Return what a new run's folder says about it."""
    source = provenance.commit()
    spec = request.spec
    return {
        "format": FORMAT,
        "experiment": spec.name,
        "preset": request.preset,
        **_fingerprint(spec),
        "seeds": {"first": request.first_seed, "count": request.seeds},
        "rows": [_entry(request, row, source) for row in spec.rows if row.id in request.rows],
        **provenance.describe(source),
    }


def _extend(folder: RunFolder, request: Request, *, resume: bool) -> None:
    """Add to a manifest what it lacks of a request."""
    manifest, spec = folder.manifest(), request.spec
    _check_same(folder.path, manifest, request)
    if request.seeds_by_default:
        request = request._replace(seeds=manifest["seeds"]["count"])
    entries = {entry["id"]: entry for entry in manifest["rows"]}
    begun = [entries[row] for row in request.rows if row in entries]
    if not resume and not all(_is_done(folder, entry) for entry in begun):
        raise StoreError(f"{folder.path} holds an unfinished run; go on with --resume.")
    before, source = copy.deepcopy(entries), provenance.commit()
    for entry in begun:
        missing = request.seeds - _seeds(entry)
        if missing and not request.seeds_by_default:
            first = request.first_seed + _seeds(entry)
            entry["units"] += split_seeds(first, missing, spec.seeds_per_unit)
        if not _is_done(folder, entry):
            entry["commit"] = _with_source(entry.get("commit"), source)
    for row in request.rows:
        entries.setdefault(row, _entry(request, spec.row(row), source))
    changed = [row for row, entry in entries.items() if entry != before.get(row)]
    if not changed:
        return
    manifest |= _fingerprint(spec)
    manifest["seeds"]["count"] = max(manifest["seeds"]["count"], request.seeds)
    # Which row is the first of its kind may have changed, and with it the labels.
    manifest["rows"] = [
        {**entries[row.id], "label": row.label} for row in spec.rows if row.id in entries
    ]
    with folder.lock(changed):  # a row that another process is running stays as it is
        folder.write_json(MANIFEST, manifest)


def run(
    folder: RunFolder,
    *,
    rows: Container[str] | None = None,
    advance: Callable[[str, int], None] = lambda row, steps: None,
    stop: StopFlag | None = None,
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
    if engine is None:
        has_accelerator = jax.default_backend() != "cpu"
        engine = InlineEngine(folder) if has_accelerator else LocalEngine(folder, available_cores())
    pending = pending_units(folder, rows)
    with folder.lock({unit.row for unit in pending}), engine:
        for unit in pending:
            engine.submit(unit)
        while engine.is_busy():
            for event in engine.follow(PATIENCE_SECONDS):
                advance(event.row, event.steps)
            if stop.is_set():
                engine.stop()
    return all(folder.is_finished(unit.row, unit.name) for unit in pending)


def planned_units(manifest: Json) -> list[Unit]:
    """Return all units of a run: the first of every row, then the second, and so on.

    In this order every row has some seeds early.
    """
    by_rank = zip_longest(*map(_units, manifest["rows"]))
    return [unit for units in by_rank for unit in units if unit is not None]


def pending_units(folder: RunFolder, rows: Container[str] | None = None) -> list[Unit]:
    """Return the planned units of some rows, or of all, that are not finished."""
    planned = planned_units(folder.manifest())
    chosen = [unit for unit in planned if rows is None or unit.row in rows]
    return [unit for unit in chosen if not folder.is_finished(unit.row, unit.name)]


def split_seeds(first: int, count: int, most: int) -> list[list[int]]:
    """Cut seeds into [first, count] groups of nearly equal size, of at most ``most`` each."""
    groups = -(-count // most)
    base, extra = divmod(count, groups)
    sizes = [base + (i < extra) for i in range(groups)]
    return [[first + sum(sizes[:i]), size] for i, size in enumerate(sizes)]


def _fingerprint(spec: Experiment) -> Json:
    return {"spec": spec.model_dump(mode="json"), "spec_hash": spec.hash()}


def _entry(request: Request, row: Row, source: str | None) -> Json:
    return {
        **row.model_dump(mode="json"),
        "units": split_seeds(request.first_seed, request.seeds, request.spec.seeds_per_unit),
        "commit": source,  # of its own: rows may be added to a folder later
    }


def _units(entry: Json) -> list[Unit]:
    return [Unit(entry["id"], first, count) for first, count in entry["units"]]


def _seeds(entry: Json) -> int:
    return sum(unit.seeds for unit in _units(entry))


def _is_done(folder: RunFolder, entry: Json) -> bool:
    return all(folder.is_finished(unit.row, unit.name) for unit in _units(entry))


def _with_source(named: str | None, source: str | None) -> str | None:
    """Add the commit of the source tree to those a row names."""
    sources = dict.fromkeys([*(named or "").split(", "), source or ""])
    return ", ".join(filter(None, sources)) or None


def _decisive(spec: Json, rows: set[str]) -> Json:
    """Return all of a specification that decides the numbers of some rows."""
    own = {row["id"]: {**row, "label": None} for row in spec["rows"] if row["id"] in rows}
    return {"name": spec["name"], "measure": spec["measure"], "rows": own}


def _check_same(path: Path, manifest: Json, request: Request) -> None:
    """Refuse a folder in which other numbers would stand beside those of the request."""
    rows = {entry["id"] for entry in manifest["rows"]}
    here = request.spec.model_dump(mode="json")
    differs = None
    if _decisive(manifest["spec"], rows) != _decisive(here, rows):
        differs = "with other steps or options"
    elif manifest["preset"] != request.preset:
        differs = f"preset is {manifest['preset']!r} there, {request.preset!r} here"
    elif manifest["seeds"]["first"] != request.first_seed:
        differs = f"first seed is {manifest['seeds']['first']} there, {request.first_seed} here"
    if differs:
        raise StoreError(f"{path} holds another run ({differs}); choose another folder with --out.")
    for entry in manifest["rows"]:
        too_many = _seeds(entry) > request.seeds and not request.seeds_by_default
        if entry["id"] in request.rows and too_many:
            raise StoreError(
                f"{path} holds {entry['id']} with {_seeds(entry)} seeds, more than "
                f"{request.seeds}; ask for as many or choose another folder with --out."
            )
