"""What a search varies: a range or a list of values for each option, as data.

::

    [learning_rate]
    low = 1e-5
    high = 1e-2
    log = true

    [batch_size]                 # whole numbers, as both ends are
    low = 16
    high = 256

    [hidden]
    choices = [[64, 64], [256, 256]]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import Field, ValidationError, model_validator

from valuetrack.api.options import parse
from valuetrack.experiments.spec import Section, SpecError, read_toml, spec_error, with_none
from valuetrack.registry import agent_type
from valuetrack.types import Json

if TYPE_CHECKING:
    from optuna.trial import Trial

Number = int | float


class Parameter(Section):
    """The values that an option may take.

    Attributes
    ----------
    low, high
        The ends of a range, both included; whole numbers if both are.
    log
        Whether the range is drawn from on a logarithmic scale.
    choices
        In place of a range: the values themselves, of any kind.
    """

    low: Number | None = None
    high: Number | None = None
    log: bool = False
    choices: list[object] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("takes choices, or low and high")
            if len({json.dumps(choice) for choice in self.choices}) < len(self.choices):
                raise ValueError("has a choice twice")
            return self
        if self.low is None or self.high is None:
            raise ValueError("takes choices, or low and high")
        if not self.low < self.high:
            raise ValueError(f"low is below high, not {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError("low is above 0 on a logarithmic scale")
        return self

    @property
    def examples(self) -> list[object]:
        """Values that the option must be able to have: all choices, or both ends."""
        return [self.low, self.high] if self.choices is None else list(self.choices)

    def holds(self, value: object) -> bool:
        """Return whether a value is one of those to be tried."""
        if self.choices is not None:
            return json.dumps(value) in map(json.dumps, self.choices)
        low, high = self.low, self.high
        assert low is not None
        assert high is not None
        is_number = isinstance(value, Number) and not isinstance(value, bool)
        return is_number and low <= value <= high  # type: ignore[operator]

    def suggest(self, trial: Trial, name: str) -> object:
        """Let a trial choose a value; choices go by their text, as some are lists."""
        if self.choices is not None:
            written = [json.dumps(choice) for choice in self.choices]
            return json.loads(trial.suggest_categorical(name, written))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        assert self.low is not None
        assert self.high is not None
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def written(self, value: object) -> object:
        """Return a value as a trial's parameters have it."""
        if self.choices is not None:
            return json.dumps(value)
        return value if isinstance(self.low, int) and isinstance(self.high, int) else float(value)  # type: ignore[arg-type]

    def read(self, value: object) -> object:
        """Return the value of an option from a trial's parameters."""
        return json.loads(str(value)) if self.choices is not None else value


Space = dict[str, Parameter]
"""An option's name -> what it may be."""


def read_space(data: Json, source: str) -> Space:
    """Check the content of a file, or of a default space.

    Raises
    ------
    SpecError
        With the first thing that is wrong.
    """
    space: Space = {}
    for name, given in data.items():
        try:
            space[name] = Parameter.model_validate(given)
        except ValidationError as error:
            told = spec_error(error, f"{source}: {name}")
            raise SpecError(str(told).replace("the file: ", "")) from error
    if not space:
        raise SpecError(f"{source} varies nothing; name an option and what it may be.")
    return space


def load_space(path: Path) -> Space:
    """Read a space from a file."""
    return read_space(read_toml(path), path.name)


def check_space(space: Mapping[str, Parameter], algorithm: str, fixed: Json, source: str) -> None:
    """Refuse options that the algorithm lacks, that are fixed, or that cannot have a value.

    Raises
    ------
    SpecError
        With the first thing that is wrong.
    """
    kind = agent_type(algorithm)
    for name, parameter in space.items():
        if name in fixed:
            raise SpecError(f"{source}: {name} is given with --set, so it cannot be varied.")
        for value in parameter.examples:
            try:
                parse(kind.options_type, options_of({**fixed, name: value}, algorithm), kind.label)
            except ValueError as error:
                raise SpecError(f"{source}: {name}: {error}") from error


def options_of(settings: Json, algorithm: str) -> Json:
    """Return settings as options, where the word ``"none"`` is None."""
    return with_none(settings, agent_type(algorithm).options_type.model_fields)
