"""What a growing file of JSON lines says: only new lines are read, and a bounded number is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from valuetrack.io.errors import StoreError
from valuetrack.live_page.files import Folder, Names, Stamp, read_at
from valuetrack.types import Floats, Json

MOST_LINE = 8_000_000
MOST_FILE = 400_000_000
"""How long a line, and how large a file may be, in bytes."""
CHUNK = 8_000_000
MOST_POINTS = 2_000
"""How many records of a unit are kept; of more, every second one goes."""
MOST_NAMES = 24
MOST_STATES = 12
"""How many kinds of numbers, and how many tracked states, are shown."""
OWN_NAMES = {"steps", "updates", "rate", "values", "diverged"}


class Tail:
    """Follows a file that others append to, or replace by a shorter one.

    Parameters
    ----------
    folder, names
        The file.
    take
        Is given every new record; what it refuses with ``ValueError`` is a damaged one.
    begin
        Is called when the file starts anew: what was taken before is no longer true.
    """

    def __init__(
        self, folder: Folder, names: Names, take: Callable[[Json], None], begin: Callable[[], None]
    ) -> None:
        self.folder, self.names = folder, tuple(names)
        self._take, self._begin = take, begin
        self._seen: Stamp | None = None
        self._offset = self._lines = 0
        self.problem = ""
        """What is wrong with the file, in one sentence."""

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        now = self.folder.stamp(self.names)
        if now == self._seen:
            return False
        before, self._seen = self._seen, now
        is_other = before is not None and (now is None or now.inode != before.inode)
        if is_other or (now is not None and now.size < self._offset):
            self._offset = self._lines = 0
            self.problem = ""
            self._begin()
        if now is not None:
            try:
                self._read()
            except StoreError as error:
                self.problem = str(error)
        return True

    def _read(self) -> None:
        with self.folder.opened(self.names) as handle:
            while self._offset < MOST_FILE:
                data = read_at(handle, self._offset, CHUNK)
                end = data.rfind(b"\n") + 1
                if not end:
                    break
                for line in data[:end].splitlines():
                    self._lines += 1
                    self._parse(line)
                self._offset += end
        if self._offset >= MOST_FILE:
            raise self.folder.error(
                self.names, f"is larger than {MOST_FILE / 1e6:.0f} MB; its beginning is shown"
            )
        if len(data) >= MOST_LINE:
            raise self.folder.error(
                self.names,
                f"is damaged: line {self._lines + 1} is longer than {MOST_LINE / 1e6:.0f} MB",
            )

    def _parse(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("no object")
            self._take(record)
        except (ValueError, TypeError, OverflowError, RecursionError):
            self.problem = self.problem or str(
                self.folder.error(
                    self.names, f"is damaged: line {self._lines} is not a record and is left out"
                )
            )


class UnitRecords:
    """The numbers of one unit over its training, by name, each an array (records, seeds)."""

    def __init__(self, folder: Folder, names: Names, seeds: range) -> None:
        self.seeds = seeds
        self.tail = Tail(folder, names, self.take, self.begin)
        self.begin()

    def begin(self) -> None:
        """Forget all records."""
        self.steps: list[int] = []
        self.columns: dict[str, dict[int, Floats]] = {}
        self.tracked: dict[int, dict[str, Floats]] = {}
        self.rate, self.updates, self.diverged = 0.0, 0, dict[int, int]()

    def take(self, record: Json) -> None:
        """Keep a record."""
        steps = _whole(record["steps"]) if "steps" in record else -1
        if steps < 0 or (self.steps and steps < self.steps[-1]):
            raise ValueError("steps never go down")
        rate = _numbers(record.get("rate", 0.0), 0)
        columns = dict(self._columns(record))
        tracked = self._tracked(record.get("values"))
        self.diverged |= _pairs(record.get("diverged", {}), set(self.seeds))
        self.rate = float(rate) if np.isfinite(rate) and rate > 0 else 0.0
        self.updates = _whole(record.get("updates", 0))
        if self.steps[-1:] != [steps]:
            self.steps.append(steps)
        for name, column in columns.items():
            self.columns.setdefault(name, {})[steps] = column
        if tracked:
            self.tracked[steps] = tracked
        if len(self.steps) > 2 * MOST_POINTS:
            self._thin()

    def _columns(self, record: Json) -> Iterator[tuple[str, Floats]]:
        """Yield what has one number per seed; several, such as those of episodes, are averaged."""
        for name, value in record.items():
            is_wanted = name not in OWN_NAMES and isinstance(value, list)
            if not is_wanted or not is_name(name):
                continue
            if name not in self.columns and len(self.columns) >= MOST_NAMES:
                continue
            numbers = _numbers(value)
            if numbers.ndim == 2 and numbers.shape[1]:
                numbers = numbers.mean(axis=1)
            if numbers.shape == (len(self.seeds),):
                yield name, numbers

    def _tracked(self, values: object) -> dict[str, Floats]:
        """Return the tracked values by kind, each (seeds, states, actions)."""
        if not isinstance(values, dict):
            return {}
        found = {}
        for name in ("mean", "low", "high", "solved", "solved_low", "solved_high"):
            if isinstance(values.get(name), list):
                numbers = _numbers([seed[:MOST_STATES] for seed in values[name]])
                numbers = numbers[..., None] if numbers.ndim == 2 else numbers
                if numbers.ndim == 3 and len(numbers) == len(self.seeds):
                    found[name] = numbers
        return found if "mean" in found else {}

    def _thin(self) -> None:
        """Drop every second record."""
        kept = set(self.steps[1::2])
        self.steps = [step for step in self.steps if step in kept]
        self.tracked = {step: found for step, found in self.tracked.items() if step in kept}
        for name, column in self.columns.items():
            self.columns[name] = {step: row for step, row in column.items() if step in kept}


def is_name(text: str) -> bool:
    """Return whether a name in a file can head a plot."""
    return 0 < len(text) <= 40 and text.isprintable()


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError("not a count")
    return value


def _numbers(value: object, axes: int | None = None) -> Floats:
    """Return nested lists of numbers, with NaN for null; refuse text."""
    found = np.asarray(value)
    if found.dtype.kind not in "biuf":
        if found.dtype.kind != "O":
            raise ValueError("not numbers")
        found = np.asarray(value, np.float64)
    if axes is not None and found.ndim != axes:
        raise ValueError("numbers of another shape")
    return found.astype(np.float64)


def _pairs(value: object, seeds: set[int]) -> dict[int, int]:
    """Return at which update seeds diverged."""
    if not isinstance(value, dict) or len(value) > len(seeds):
        raise ValueError("not seeds with updates")
    found = {int(seed): _whole(at) for seed, at in value.items()}
    return {seed: at for seed, at in found.items() if seed in seeds}
