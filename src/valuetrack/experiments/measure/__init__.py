"""What experiments record, by the ``kind`` in their specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from valuetrack.api.agent import AnyAgent
from valuetrack.experiments.measure import (
    changes,
    control,
    exploration,
    intervals,
    outcome,
    training,
    values,
)
from valuetrack.experiments.measure.base import Measure
from valuetrack.experiments.spec import Experiment, Row, Section, SpecError, spec_error
from valuetrack.types import Json


class _Kind(NamedTuple):
    options: type[Section]
    plan: Callable[[Any, Row], list[int]]
    build: Callable[[Any, Row, AnyAgent], Measure]
    keeps_samples: bool = True
    """Whether agents have the pool that they have for users; else only the latest sample."""


KINDS: dict[str, _Kind] = {
    "values": _Kind(values.ValuesOptions, values.plan_points, values.ValuesMeasure, False),
    "control": _Kind(control.ControlOptions, control.plan_points, control.ControlMeasure, False),
    "exploration": _Kind(
        exploration.ExplorationOptions,
        exploration.plan_points,
        exploration.ExplorationMeasure,
        False,
    ),
    "intervals": _Kind(
        intervals.IntervalsOptions, intervals.plan_points, intervals.IntervalsMeasure, False
    ),
    "outcome": _Kind(outcome.OutcomeOptions, outcome.plan_points, outcome.OutcomeMeasure),
    "changes": _Kind(changes.ChangesOptions, changes.plan_points, changes.ChangesMeasure),
    "training": _Kind(training.TrainingOptions, training.plan_points, training.TrainingMeasure),
}


def options_of(spec: Experiment) -> Any:
    """Return the checked options of an experiment's measure."""
    kind = spec.measure.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SpecError(f"{spec.name} measures {kind!r}; there are {', '.join(KINDS)}.")
    try:
        return KINDS[kind].options.model_validate(spec.measure)
    except ValidationError as error:
        raise spec_error(error, f"{spec.name}: measure") from error


def pool_options(spec: Experiment) -> Json:
    """Return the options of the pool that rows have unless they say otherwise."""
    return {} if KINDS[spec.measure["kind"]].keeps_samples else {"samples": 1}


def check(spec: Experiment, rows: Sequence[str]) -> None:
    """Refuse rows that do not exist, or cannot be measured as the experiment wants."""
    options = options_of(spec)
    for row in rows:
        KINDS[spec.measure["kind"]].plan(options, spec.row(row))


def build_measure(spec: Experiment, row: Row, agent: AnyAgent) -> Measure:
    """Return what records a unit of this row."""
    return KINDS[spec.measure["kind"]].build(options_of(spec), row, agent)
