"""The manifest of a run folder: what was asked for, and with what.

:class:`Manifest` lists what readers may rely on. A manifest may say more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from valuetrack.io.errors import StoreError, StrPath, check_format, shortened
from valuetrack.types import Json

FORMAT = 2
"""The layout of the manifest; a higher number is from a newer valuetrack."""

CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What could move a terminal's cursor or change its colours; not tab and line feed."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


def _file_name(text: str) -> str:
    if not is_file_name(text):
        raise ValueError("cannot be the name of a folder")
    return text


def is_file_name(text: str) -> bool:
    """Return whether a row or unit can be a folder of this name, on any system."""
    return (
        text.isprintable() and bool(text) and text[0] != "." and not set(text) & set('/\\:*?"<>|')
    )


Line = Annotated[str, AfterValidator(_printable)]
Name = Annotated[str, AfterValidator(_file_name)]
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the manifest; no value is converted, and it may say more than listed here."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Measure(Section):
    """What the experiment records."""

    kind: Line


class SpecRow(Section):
    """One row of the experiment: who learns where, how long and with which options."""

    id: Name
    algorithm: Line
    env: Line
    env_options: Json
    steps: Count
    options: Json


class Spec(Section):
    """The experiment as it was asked for."""

    name: Line
    measure: Measure
    rows: list[SpecRow]


class Row(SpecRow):
    """One row of the run: its label for readers, and its units as pairs [first seed, count]."""

    label: Line
    units: list[Annotated[list[Natural], Field(min_length=2, max_length=2)]]
    commit: Line | None = None


class Seeds(Section):
    """The seeds of the run."""

    first: Natural
    count: Count


class Manifest(Section):
    """What every manifest says, and the wall time and the command where they are known."""

    format: int
    experiment: Line
    preset: Line
    spec: Spec
    spec_hash: Line
    seeds: Seeds
    rows: list[Row]
    versions: dict[str, Line]
    commit: Line | None
    machine: Json
    created: Line
    wall_seconds: float | None = None
    command: Line | list[Line] | None = None

    @model_validator(mode="after")
    def _rows_fit_together(self) -> Manifest:
        ids = [row.id for row in self.rows]
        if len(set(ids)) < len(ids):
            raise ValueError("two rows have the same id")
        strangers = set(ids) - {row.id for row in self.spec.rows}
        if strangers:
            raise ValueError(f"the row {min(strangers)!r} is not in its spec")
        if any(count < 1 for row in self.rows for _, count in row.units):
            raise ValueError("a unit has no seeds")
        return self


def check_manifest(path: StrPath, content: Mapping[str, object]) -> None:
    """Raise a one-sentence error if readers could stumble over a manifest.

    They could if a key is missing or has a wrong type, the format is another one, or a text holds
    control characters.
    """
    version = content.get("format")
    if type(version) is not int or version < 1:
        raise _damaged(path, "it has no format number")
    again = "run the experiment again in another folder"
    check_format(StoreError, path, version, FORMAT, again)
    for where, text in _texts(content):
        if CONTROL_CHARACTER.search(text):
            raise _damaged(path, f"{shortened(where)} holds control characters")
    try:
        Manifest.model_validate(content)
    except ValidationError as error:
        raise _damaged(path, _first_problem(error)) from error


def _texts(content: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text, keys among them, with the place that it stands in."""
    if isinstance(content, str):
        yield where, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield f"a key in {where or 'it'}", str(key)
            yield from _texts(value, f"{where}.{key}".lstrip("."))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content):
            yield from _texts(value, f"{where}.{i}")


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = shortened(".".join(map(str, first["loc"])))
    what = shortened(first["msg"].removeprefix("Value error, "))
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what


def _damaged(path: StrPath, problem: str) -> StoreError:
    cure = "take another copy or run the experiment again"
    return StoreError.about(path, f"is damaged: {problem}", cure)
