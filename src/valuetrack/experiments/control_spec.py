"""The specification of the classic control experiment, read from TOML."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from valuetrack.algorithms import ALGORITHMS
from valuetrack.algorithms.options import parse as parse_options
from valuetrack.experiments.spec import (
    LABELS,
    Algorithm,
    Count,
    Rows,
    Section,
    spec_error,
)


class EvaluationSpec(Section):
    """How often a policy is tried out, and on how many episodes."""

    points: Count = 100
    episodes: Count = 5


class ControlRow(Section):
    """One algorithm on one task.

    Attributes
    ----------
    id, algorithm, env, steps
        The row's name, who learns where, and for how many environment steps.
    options
        Those of the algorithm's class; what is not given stands in the file's ``[options]``.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    algorithm: Algorithm
    env: str
    steps: Count
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _options_exist(self) -> ControlRow:
        parse_options(ALGORITHMS[self.algorithm].options_type, self.options, self.id)
        return self


class ControlSpec(Rows):
    """The whole experiment."""

    evaluation: EvaluationSpec
    rows: tuple[ControlRow, ...]

    def row(self, row_id: str) -> ControlRow:
        """Return a row by its id."""
        found: ControlRow = self._find(row_id)
        return found

    def steps_of(self, row_id: str) -> int:
        """Return how many environment steps a seed of a row takes."""
        return self.row(row_id).steps

    def label(self, row_id: str) -> str:
        """Return a row's name for readers: its algorithm, and what sets it apart.

        That is every option in which it differs from the first row of the same algorithm and task.
        """
        row = self.row(row_id)
        kind = (row.algorithm, row.env)
        first = next(other for other in self.rows if (other.algorithm, other.env) == kind)
        own = (f"{k} = {v:g}" if isinstance(v, float) else f"{k} = {v}"
               for k, v in row.options.items() if first.options.get(k) != v)  # fmt: skip
        return ", ".join([LABELS[row.algorithm], *own])

    def with_steps(self, steps: int) -> ControlSpec:
        """Return the same experiment with another number of environment steps in all rows."""
        data = self.model_dump()
        for row in data["rows"]:
            row["steps"] = steps
        return parse_control(data, f"{self.name} with {steps} steps")


def parse_control(data: dict[str, Any], source: str) -> ControlSpec:
    """Check a specification, and say in one sentence what is wrong with it."""
    data = dict(data)
    common = data.pop("options", {})
    rows = [
        {**row, "options": {**common.get(row.get("algorithm"), {}), **row.get("options", {})}}
        for row in data.get("rows", [])
    ]
    try:
        return ControlSpec.model_validate({**data, "rows": rows})
    except ValidationError as error:
        raise spec_error(error, source) from error
