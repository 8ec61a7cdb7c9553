"""The kinds of experiments there are: how each is read, planned and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from valuetrack.experiments import spec as escape
from valuetrack.experiments.control_spec import ControlSpec, parse_control
from valuetrack.experiments.control_unit import ControlRun
from valuetrack.experiments.spec import SpecError
from valuetrack.experiments.unit import StopFlag, UnitRun, plan_segments

Spec = escape.ExperimentSpec | ControlSpec


class Runner(Protocol):
    """One unit, ready to be run."""

    def run(self, stop: StopFlag, advance: Callable[[int], None]) -> bool:
        """Run it to the end; return False if it was stopped before."""
        ...


class Kind(NamedTuple):
    """One kind of experiment.

    Attributes
    ----------
    file
        The TOML file that comes with the library.
    parse
        From the file's content to the specification.
    check
        Refuses a specification that cannot be planned.
    runner
        (unit, spec, preset, folder) -> what runs a unit.
    seeds_per_unit
        Most seeds that are trained side by side; wider is hardly faster on a CPU.
    """

    file: str
    parse: Callable[[dict[str, Any], str], Any]
    check: Callable[[Any], Any]
    runner: Callable[..., Runner]
    seeds_per_unit: int


_CONTROL = Kind("classic_control", parse_control, lambda spec: None, ControlRun, seeds_per_unit=5)

KINDS = {
    "indoor-escape": Kind("indoor_escape", escape.parse, plan_segments, UnitRun, 10),
    "classic-control": _CONTROL,
    "lktd-settings": _CONTROL._replace(file="lktd_settings"),
}
"""The experiment's name, in files and on the command line -> its kind."""


def load_spec(name: str) -> Any:
    """Read the specification of an experiment that comes with the library."""
    kind = kind_of(name)
    path = escape.specs_folder() / f"{kind.file}.toml"
    return kind.parse(escape.read_toml(path), path.name)


def kind_of(name: str) -> Kind:
    """Return the kind of an experiment."""
    if name not in KINDS:
        raise SpecError(f"There is no experiment {name!r}; there are {', '.join(KINDS)}.")
    return KINDS[name]
