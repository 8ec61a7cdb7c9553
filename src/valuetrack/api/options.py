"""The hyperparameters that all agents share, and how they are checked.

An option that does not exist, or a value that cannot be right, is refused in one sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import jax.numpy as jnp
import numpy as np
import pydantic
from pydantic import Field

from valuetrack import networks, schedules
from valuetrack.api.hints import instead_of
from valuetrack.learner import Task
from valuetrack.networks import InitName, Network
from valuetrack.normalisation import Wanted
from valuetrack.schedules import Schedule
from valuetrack.types import Keywords

LARGEST_COUNT = 2**31 - 1
"""What a compiled program can count to."""
POOL_BYTES = 64_000_000
"""How much memory the pool of a seed takes, unless its size is given or that is too little for the
fewest samples."""
POOL_SPAN = 3_000
"""How many updates the pool reaches back, unless thinning is given."""


def _refuse_bool_and_text(value: object) -> object:
    """Refuse what Pydantic would accept as a whole number although nobody means it as one."""
    if isinstance(value, bool | str):
        raise ValueError("Input should be a whole number")
    return value


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
WholeNumber = pydantic.BeforeValidator(_refuse_bool_and_text)
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT), WholeNumber]
Steps = Annotated[int, Field(ge=1, le=100), WholeNumber]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST_COUNT), WholeNumber]


def _one_layer(value: object) -> object:
    """Let a number stand for a single layer."""
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return (value,) if is_number else value


Layers = Annotated[
    tuple[Count, ...],
    pydantic.BeforeValidator(_one_layer, json_schema_input_type=Count | tuple[Count, ...]),
]
"""The widths of layers; a number is one layer."""


class _ScheduleOptions(pydantic.BaseModel):
    """A step size that changes with the number of updates."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    initial: Positive


class Polynomial(_ScheduleOptions):
    """See :func:`valuetrack.schedules.polynomial`."""

    schedule: Literal["polynomial"]
    power: NotNegative
    offset: Positive = 1.0


class Cyclical(_ScheduleOptions):
    """See :func:`valuetrack.schedules.cyclical`."""

    schedule: Literal["cyclical"]
    cycle_length: Count


class Linear(_ScheduleOptions):
    """See :func:`valuetrack.schedules.linear`."""

    schedule: Literal["linear"]
    final: NotNegative = 0.0
    updates: Count


Rate = Positive | Annotated[Polynomial | Cyclical | Linear, Field(discriminator="schedule")]
"""A step size: a number, or a schedule such as
``{"schedule": "polynomial", "initial": 1e-5, "power": 0.5}``."""


def as_rate(rate: Rate) -> float | Schedule:
    """Return the number, or the schedule that an option describes."""
    match rate:
        case Polynomial():
            return schedules.polynomial(rate.initial, rate.power, offset=rate.offset)
        case Cyclical():
            return schedules.cyclical(rate.initial, rate.cycle_length)
        case Linear():
            return schedules.linear(rate.initial, rate.final, rate.updates)
    return rate


class Options(pydantic.BaseModel):
    """What all agents share.

    Attributes
    ----------
    hidden, activation
        The network's hidden layers (those after the convolutions, for images); a number is one
        layer.
    convolutions
        (channels, kernel, stride) of each convolution, for images; by default those of Mnih et
        al. (2015), or smaller ones for images too small for them.
    dueling
        Whether the last hidden layer exists twice, once for the value of a state and once for the
        advantages of its actions: Q = V + A - mean A.
    init, init_sd
        How weights and biases begin: ``"he"``, ``"pytorch"``, or ``"normal"`` with that sd.
    discount, batch_size
        gamma, and the transitions of an update.
    n_step
        How many steps of rewards a target has before it takes up a value: r + gamma r' + ... +
        gamma^n Q. Fewer where an episode ends. Actions that explore on the way are not corrected
        for; see :mod:`valuetrack.replay.n_step`.
    replay_capacity
        Transitions kept, rounded up to whole cycles; ``None`` for on-policy training, where an
        update uses the transitions of its own cycle.
    replay_half_life
        After how many transitions one is drawn half as often as the newest, for worlds that change;
        ``None`` draws all that are kept alike. See :mod:`valuetrack.replay.forgetting`.
    learning_starts
        Environment steps before the first update.
    steps_per_update, updates_per_cycle
        A cycle is this many steps in each environment, then this many updates.
    exploration_initial, exploration_final, exploration_steps
        Epsilon falls linearly from the first to the second over this many environment steps.
        Steps rather than a share of the training, so that a training that is resumed later is the
        same as one in one go.
    random_warmup
        Whether all actions before ``learning_starts`` are random, as in SB3.
    environments
        Environments side by side, per seed.
    normalise_observations
        Whether observations are brought to a common scale, by the running mean and sd of what a
        seed has seen; ``"auto"`` does so if they are unbounded or of different scales, and leaves
        images and numbers between 0 and 1 alone. One-hot vectors of n places are multiplied by the
        root of n, and nothing else is with ``"one-hot"``. See :mod:`valuetrack.normalisation`.
    samples, thinning
        The pool behind ``posterior``: how many parameter samples are kept, one per ``thinning``
        updates. By default as many as fit into 64 MB per seed, at most 1000 and at least 100,
        reaching back over 3000 updates.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Let ``help`` explain the inherited options as well."""
        super().__pydantic_init_subclass__(**kwargs)
        inherited = [inspect.getdoc(base) or "" for base in cls.__bases__]
        cls.__doc__ = "\n\n".join([inspect.cleandoc(cls.__doc__ or ""), *inherited])

    hidden: Layers = (256, 256)
    activation: Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu"] = "relu"
    convolutions: tuple[tuple[Count, Count, Count], ...] | None = None
    dueling: bool = False
    init: InitName = "he"
    init_sd: Positive = 0.1
    discount: Share = 0.99
    n_step: Steps = 1
    batch_size: Count = 64
    replay_capacity: Count | None = 50_000
    replay_half_life: Positive | None = None
    learning_starts: CountOrZero = 1_000
    steps_per_update: Count = 4
    updates_per_cycle: Count = 1
    exploration_initial: Share = 1.0
    exploration_final: Share = 0.05
    exploration_steps: CountOrZero = 10_000
    random_warmup: bool = False
    environments: Count = 1
    normalise_observations: Wanted = "auto"
    samples: Count | None = None
    thinning: Count | None = None

    def exploration(self) -> Schedule:
        """Return epsilon as a schedule of the environment steps taken."""
        epsilon = schedules.linear(
            self.exploration_initial, self.exploration_final, self.exploration_steps
        )
        if not self.random_warmup:
            return epsilon
        return lambda step: jnp.where(step < self.learning_starts, 1.0, epsilon(step))

    def priorities(self) -> Keywords:
        """Return the trainer's settings of a prioritised replay memory, if there is one."""
        return {}

    def network(self, task: Task, outputs: int | tuple[int, ...], action_axis: int = -1) -> Network:
        """Build the network for a task, with outputs of this number or shape."""
        return networks.for_observations(
            task.shape,
            task.is_image,
            outputs,
            hidden=self.hidden,
            convolutions=self.convolutions,
            activation=self.activation,
            init=self.init,
            init_sd=self.init_sd,
            dueling=action_axis if self.dueling else None,
        )


OptionsType = TypeVar("OptionsType", bound=Options)
Model = TypeVar("Model", bound=pydantic.BaseModel)


def default_of(function: Callable[..., Any], name: str) -> Any:
    """Return the default of a function's argument, so that an option need not repeat it."""
    return inspect.signature(function).parameters[name].default


def parse(kind: type[Model], given: Keywords, name: str) -> Model:
    """Check options; say in one sentence what is wrong.

    Raises
    ------
    ValueError
        With the first thing that is wrong.
    """
    for key in given:
        if key not in kind.model_fields:
            raise ValueError(f"{name} has no option {key!r}{instead_of(key, kind.model_fields)}")
    try:
        return kind.model_validate(given)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # several options at once
            raise ValueError(f"{name}: {message}.") from None
        option, *rest = first["loc"]  # of a union, pydantic also names the member that failed
        where = ".".join([str(option), *(str(part) for part in rest if isinstance(part, int))])
        value = " ".join(repr(first["input"]).split())
        raise ValueError(f"{name}'s {where} is wrong: {message}, not {value}.") from None


def tuples(options: Keywords) -> Keywords:
    """Turn the lists of JSON and TOML back into tuples."""

    def convert(value: object) -> object:
        return tuple(map(convert, value)) if isinstance(value, list) else value

    return {name: convert(value) for name, value in options.items()}


def written_setting(name: str, value: object) -> str:
    """Write an option and its value for readers.

    Examples
    --------
    >>> written_setting("learning_rate", 0.00030000000000000003)
    'learning_rate = 0.0003'
    """
    return f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
