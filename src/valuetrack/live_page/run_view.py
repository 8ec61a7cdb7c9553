"""A run folder as the page shows it: how far it is, and the numbers of its rows."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import pairwise

from valuetrack.io.errors import StoreError, StrPath, shortened
from valuetrack.io.manifest import check_manifest
from valuetrack.io.run_folder import MANIFEST, PROGRESS, UNIT, UNITS
from valuetrack.live_page.files import Folder, Stamp
from valuetrack.live_page.maps import UnitMaps
from valuetrack.live_page.records import UnitRecords
from valuetrack.live_page.row_view import row_json
from valuetrack.live_page.tables import series_of_tables
from valuetrack.types import Floats, Json, NDArray

FRESH_SECONDS = 0.4
"""For how long what was read counts as present."""
QUIET_SECONDS = 120.0
"""After how long without a new record a unit counts as stopped, at least."""
MOST_UNITS = 20_000
MOST_PROBLEMS = 8
KEPT_MAPS = 4
"""Of how many units the maps are kept in memory."""


@dataclass
class UnitView:
    """One unit: its records, or the tables it left."""

    name: tuple[str, ...]
    seeds: range
    records: UnitRecords
    is_finished: bool = False
    diverged: dict[int, int | None] = field(default_factory=dict)
    modified: float = 0.0
    tables: dict[str, tuple[NDArray, Floats]] | None = None
    problem: str = ""


@dataclass
class RowView:
    """One row: what the manifest says of it, and its units."""

    entry: Json
    units: list[UnitView]
    version: int = 0
    is_wanted: bool = False
    """Whether somebody looks at it; else the records of finished units are not read."""

    @property
    def seeds(self) -> list[int]:
        """All its seeds."""
        return [seed for unit in self.units for seed in unit.seeds]

    def unit_of(self, seed: int) -> UnitView | None:
        """Return the unit that a seed belongs to."""
        return next((unit for unit in self.units if seed in unit.seeds), None)


class RunView:
    """A run folder, of which only what has changed is read again.

    Raises
    ------
    StoreError
        If the folder holds no run.
    """

    def __init__(self, path: StrPath) -> None:
        self.folder = Folder(path)
        if not self.folder.path.is_dir():
            raise StoreError.about(path, "is no folder", "name the folder of a run")
        if self.folder.stamp((MANIFEST,)) is None:
            raise StoreError.about(path, f"holds no run: it has no {MANIFEST}")
        self.lock = threading.RLock()
        self.version, self._problem = 0, ""
        self.rows: dict[str, RowView] = {}
        self._manifest: Json = {}
        self._seen: Stamp | None = None
        self._read_at = -1.0
        self._maps: OrderedDict[tuple[str, ...], UnitMaps] = OrderedDict()
        self._answers: OrderedDict[tuple[str, int | None], tuple[int, Json]] = OrderedDict()
        self._read_manifest()

    def refresh(self) -> int:
        """Read what has changed, unless that was just done; return a number that goes up."""
        with self.lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                try:
                    self._read_manifest()
                    self._problem = ""
                except StoreError as error:  # the one before is shown
                    self._problem = str(error)
                for row in self.rows.values():
                    self._refresh_row(row)
                self._read_at = time.monotonic()
            return self.version

    def overview(self) -> Json:
        """Return how far the run is."""
        with self.lock:
            self.refresh()
            rows = [self._row_state(row) for row in self.rows.values()]
            total = sum(row["total"] for row in rows)
            done = sum(row["done"] for row in rows)
            rate = sum(row["rate"] for row in rows)
            manifest = self._manifest
            return {
                "version": self.version,
                "name": self.folder.path.name,
                "experiment": manifest["experiment"],
                "preset": manifest["preset"],
                "created": manifest["created"],
                "done": done,
                "total": total,
                "rate": round(rate, 1),
                "left": round((total - done) / rate) if rate and done < total else None,
                "finished": all(row["finished"] == row["units"] for row in rows),
                "rows": rows,
                "problems": self.problems(),
            }

    def row(self, name: str, seed: int | None) -> Json | None:
        """Return the numbers of a row, and of one of its seeds; ``None`` if it does not exist."""
        with self.lock:
            self.refresh()
            row = self.rows.get(name)
            if row is None or (seed is not None and row.unit_of(seed) is None):
                return None
            if not row.is_wanted:
                row.is_wanted = True
                self._refresh_row(row)
            known = self._answers.get((name, seed))
            if known is None or known[0] != row.version:
                for unit in row.units:
                    self._read_tables(unit)
                known = row.version, row_json(row, seed)
                self._answers[name, seed] = known
                while len(self._answers) > 32:
                    self._answers.popitem(last=False)
            return known[1]

    def map(self, name: str, seed: int, start: int) -> Json | None:
        """Return the maps of a seed from a number on; ``None`` if it does not exist."""
        with self.lock:
            row = self.rows.get(name)
            unit = None if row is None else row.unit_of(seed)
            if row is None or unit is None:
                return None
            maps = self._maps.get(unit.name)
            if maps is None:
                ties = str(self._manifest["spec"]["measure"].get("ties", "uniform"))
                maps = UnitMaps(self.folder, unit.name, unit.seeds, row.entry, ties)
                self._maps[unit.name] = maps
            self._maps.move_to_end(unit.name)
            while len(self._maps) > KEPT_MAPS:
                self._maps.popitem(last=False)
            maps.refresh()
            return {"row": name, "seed": seed, "problem": maps.problem, **maps.of_seed(seed, start)}

    def problems(self) -> list[str]:
        """Return what is wrong with files, a sentence each, the first few."""
        said = [self._problem]
        for row in self.rows.values():
            for unit in row.units:
                said += [unit.records.tail.problem, unit.problem]
        found = [shortened(sentence, 300) for sentence in said if sentence]
        more = len(found) - MOST_PROBLEMS
        return [*found[:MOST_PROBLEMS], *([f"And {more} more files like these."] * (more > 0))]

    def _read_manifest(self) -> None:
        now = self.folder.stamp((MANIFEST,))
        if now == self._seen and self._manifest:
            return
        self._seen = now
        content = self.folder.read_json((MANIFEST,))
        check_manifest(MANIFEST, content)
        if sum(len(entry["units"]) for entry in content["rows"]) > MOST_UNITS:
            raise StoreError(f"{MANIFEST} names more than {MOST_UNITS:,} units, too many to show.")
        _check_units(content)
        self._manifest = content
        self.rows = {entry["id"]: self._row_of(entry) for entry in content["rows"]}
        self.version += 1

    def _row_of(self, entry: Json) -> RowView:
        """Return a row, with the units that were known before."""
        before = self.rows.get(entry["id"])
        known = {} if before is None else {unit.name: unit for unit in before.units}
        units = []
        for first, count in entry["units"]:
            name = (UNITS, entry["id"], f"seeds-{first:04d}-{first + count - 1:04d}")
            seeds = range(first, first + count)
            fresh = UnitView(name, seeds, UnitRecords(self.folder, (*name, PROGRESS), seeds))
            units.append(known.get(name, fresh))
        if before is None:
            return RowView(entry, units)
        return RowView(entry, units, before.version + 1, before.is_wanted)

    def _refresh_row(self, row: RowView) -> None:
        changed = [self._refresh_unit(unit, row.is_wanted) for unit in row.units]
        if any(changed):
            row.version += 1
            self.version += 1

    def _refresh_unit(self, unit: UnitView, is_wanted: bool) -> bool:
        """Read what is new; return whether anything was."""
        was_finished = unit.is_finished
        unit.is_finished = self.folder.stamp((*unit.name, UNIT)) is not None
        if unit.is_finished != was_finished:
            self._read_unit(unit)
        changed = (is_wanted or not unit.is_finished) and unit.records.tail.refresh()
        if changed:
            stamp = self.folder.stamp(unit.records.tail.names)
            unit.modified = 0.0 if stamp is None else stamp.modified / 1e9
            unit.diverged |= unit.records.diverged
        return changed or was_finished != unit.is_finished

    def _read_unit(self, unit: UnitView) -> None:
        """Take from a finished unit which seeds diverged."""
        if not unit.is_finished:
            return
        try:
            found = self.folder.read_json((*unit.name, UNIT)).get("diverged", [])
            for seed in found if isinstance(found, list) else []:
                if isinstance(seed, int) and seed in unit.seeds:
                    unit.diverged.setdefault(seed, None)
        except StoreError as error:
            unit.problem = str(error)

    def _read_tables(self, unit: UnitView) -> None:
        """Read the tables of a unit that is finished and has no records."""
        if unit.is_finished and not unit.records.steps and unit.tables is None:
            unit.tables = {}
            try:
                unit.tables = series_of_tables(self.folder, unit.name, unit.seeds)
            except StoreError as error:
                unit.problem = str(error)

    def _row_state(self, row: RowView) -> Json:
        """Return how far a row is; steps are those of all its seeds together."""
        done = finished = 0
        rate, latest = 0.0, 0.0
        steps = row.entry["steps"]
        for unit in row.units:
            reached = unit.records.steps[-1] if unit.records.steps else 0
            is_done = unit.is_finished or reached >= steps
            done += len(unit.seeds) * (steps if is_done else min(reached, steps))
            finished += is_done
            latest = max(latest, unit.modified)
            if not is_done and time.time() - unit.modified < _patience(unit):
                rate += unit.records.rate
        total = steps * len(row.seeds)
        return {
            "id": row.entry["id"],
            "label": row.entry["label"],
            "env": row.entry["env"],
            "algorithm": row.entry["algorithm"],
            "steps": steps,
            "seeds": [[unit.seeds.start, len(unit.seeds)] for unit in row.units],
            "version": row.version,
            "units": len(row.units),
            "finished": finished,
            "done": done,
            "total": total,
            "rate": round(rate, 1),
            "latest": round(latest) or None,
            "diverged": len({seed for unit in row.units for seed in unit.diverged}),
        }


def _patience(unit: UnitView) -> float:
    """Return how long a unit may be silent: some times as long as between its last records."""
    gaps = [later - earlier for earlier, later in pairwise(unit.records.steps[-5:])]
    rate = unit.records.rate / len(unit.seeds)
    return max(QUIET_SECONDS, 5 * max(gaps) / rate if gaps and rate else 0.0)


def _check_units(content: Json) -> None:
    """Refuse seeds that cannot be counted."""
    for entry in content["rows"]:
        if sum(count for _, count in entry["units"]) > 1_000_000:
            raise StoreError(f"{MANIFEST} is damaged: a row has more than a million seeds.")
