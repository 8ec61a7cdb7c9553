"""The specification of an experiment, read from TOML; an unknown key is an error."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Algorithm = Literal["lktd", "sgld", "sghmc", "dqn", "bootdqn", "qrdqn", "kova"]
PresetName = Literal["reference", "paper"]

SAMPLERS: tuple[Algorithm, ...] = ("lktd", "sgld", "sghmc")
LABELS: dict[Algorithm, str] = {
    "lktd": "LKTD",
    "sgld": "SGLD",
    "sghmc": "SGHMC",
    "dqn": "DQN",
    "bootdqn": "BootDQN",
    "qrdqn": "QR-DQN",
    "kova": "KOVA",
}
PRESETS: tuple[PresetName, ...] = get_args(PresetName)


class SpecError(ValueError):
    """A specification cannot be used; the message says where and why."""


class Section(BaseModel):
    """A part of a specification, in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EnvironmentSpec(Section):
    """The grid; the options of :class:`~valuetrack.envs.indoor_escape.IndoorEscape`."""

    width: Count = 10
    height: Count = 10
    walls: tuple[tuple[int, int], ...] = ()
    start: tuple[int, int] = (0, 0)
    goal: tuple[int, int] | None = None
    reward_mean: float = -1.0
    reward_sd: Annotated[float, Field(ge=0)] = 0.1
    horizon: Count = 200
    masked: bool = True
    ties: Literal["uniform", "reference"] = "reference"


class NetworkSpec(Section):
    """A fully connected network."""

    hidden: tuple[Count, ...] = (32, 32)
    activation: str = "relu"
    init_sd: Positive = 0.1


class TrainingSpec(Section):
    """How acting and learning take turns."""

    steps: Count
    steps_per_update: Count = 10
    learning_starts: Annotated[int, Field(ge=0)] = 1_000
    batch_size: Count = 100
    replay_capacity: Count = 10_000
    discount: Probability = 0.9
    exploration_initial: Probability = 1.0
    exploration_final: Probability = 0.01
    exploration_fraction: Probability = 0.1


class MetricsSpec(Section):
    """What is measured, and how often."""

    pool_size: Count = 3_000
    level: Probability = 0.95
    windows: Count = 100
    windows_between_evaluations: Count = 5
    final_windows: Count = 5
    evaluations_per_final_window: Count = 10
    calibration_levels: tuple[Probability, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class SamplingSpec(Section):
    """What LKTD, SGLD and SGHMC have in common."""

    observation_sd: Positive = 0.1
    prior_wide_sd: Positive = 0.5
    prior_narrow_sd: Positive = 0.05
    prior_wide_weight: Probability = 0.5


class PresetSpec(Section):
    """The choices on which the authors' code and the paper's equations differ."""

    gradient: Literal["semi", "full"]
    likelihood_weight: Positive
    inner_iterations: Count
    inner_power: Annotated[float, Field(ge=0)]
    prior_phase_in: Annotated[int, Field(ge=0)]
    lktd_alpha: Annotated[float, Field(gt=0, lt=1)]
    lktd_latent: Literal["restart", "conditional", "conditional_tempered"]
    sghmc_friction: Annotated[float, Field(gt=0, le=1)]
    sghmc_momentum: Literal["carried", "restarted", "none"]
    kova_jacobian: Literal["plain", "differenced"]
    kova_forgetting: Annotated[float, Field(ge=0, lt=1)]


class BaselineSpec(Section):
    """Settings of DQN, BootDQN, QR-DQN and KOVA."""

    target_every: Count = 10
    double: bool = True
    bootdqn_heads: Count = 10
    bootdqn_mask_probability: Positive = 0.5
    bootdqn_head_every: Count = 10
    qrdqn_quantiles: Count = 10
    max_gradient_norm: Positive | None = 1.0
    kova_initial_variance: Positive = 1.0
    kova_observation_variance: Positive = 100.0


class QuickSpec(Section):
    """The run that gives a first look."""

    rows: tuple[str, ...]
    seeds: Count
    steps: Count


class RowSpec(Section):
    """One row of the tables."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    algorithm: Algorithm
    step_size: Positive
    pseudo_population: Positive | None = None

    @model_validator(mode="after")
    def _population_for_samplers(self) -> RowSpec:
        if (self.algorithm in SAMPLERS) != (self.pseudo_population is not None):
            raise ValueError(
                "pseudo_population belongs to LKTD, SGLD and SGHMC, and to all of them"
            )
        return self


class Rows(Section):
    """What every experiment has: a name, rows, and a quick run of some of them."""

    name: str
    quick: QuickSpec
    rows: tuple[Any, ...]

    def _find(self, row_id: str) -> Any:
        for row in self.rows:
            if row.id == row_id:
                return row
        known = ", ".join(row.id for row in self.rows)
        raise SpecError(f"There is no row {row_id!r} in {self.name}; there are {known}.")

    def hash(self, preset: PresetName) -> str:
        """Return a fingerprint of all that decides a row's numbers, except which rows are run."""
        data = self.model_dump(mode="json", exclude={"quick"})
        text = json.dumps([data, preset], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class ExperimentSpec(Rows):
    """The indoor escape."""

    environment: EnvironmentSpec
    network: NetworkSpec
    training: TrainingSpec
    metrics: MetricsSpec
    sampling: SamplingSpec
    presets: dict[PresetName, PresetSpec]
    baselines: BaselineSpec
    rows: tuple[RowSpec, ...]

    def row(self, row_id: str) -> RowSpec:
        """Return a row by its id."""
        found: RowSpec = self._find(row_id)
        return found

    def steps_of(self, row_id: str) -> int:
        """Return how many environment steps a seed of a row takes; here the same for all."""
        self.row(row_id)
        return self.training.steps

    def label(self, row_id: str) -> str:
        """Return a row's name for readers: its algorithm."""
        return LABELS[self.row(row_id).algorithm]

    def with_steps(self, steps: int) -> ExperimentSpec:
        """Return the same experiment with another number of environment steps."""
        data = self.model_dump()
        data["training"]["steps"] = steps
        return parse(data, f"{self.name} with {steps} steps")


def parse(data: dict[str, Any], source: str) -> ExperimentSpec:
    """Check a specification, and say in one sentence what is wrong with it."""
    try:
        return ExperimentSpec.model_validate(data)
    except ValidationError as error:
        raise spec_error(error, source) from error


def spec_error(error: ValidationError, source: str) -> SpecError:
    """Say in one sentence what is wrong first with a specification."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    return SpecError(f"{source}: {where}: {what.removeprefix('Value error, ')}.")


def load(name: str) -> ExperimentSpec:
    """Read one of the experiments that come with the library, for instance ``indoor_escape``."""
    return load_file(specs_folder() / f"{name}.toml")


def load_file(path: Path) -> ExperimentSpec:
    """Read an experiment from a TOML file."""
    return parse(read_toml(path), path.name)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"There is no file {path}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not valid TOML: {error}.") from error


def specs_folder() -> Path:
    """Return the folder of the TOML files: beside this file if installed, else the repository's."""
    here = Path(__file__).resolve().parent
    installed = here / "specs"
    return installed if installed.is_dir() else here.parents[2] / "experiments"
