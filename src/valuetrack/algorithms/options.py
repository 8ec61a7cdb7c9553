"""The hyperparameters of every algorithm: names, defaults and what is allowed.

An option that does not exist, or a value that cannot be, is refused in one sentence.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import Field

MOST = 2**31 - 1
"""What a program can count to."""


def _no_number(value: Any) -> Any:
    """Refuse what Python or Pydantic would count as a whole number, and nobody means as one."""
    if isinstance(value, bool | str):
        raise ValueError("Input should be a whole number")
    return value


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=MOST), pydantic.BeforeValidator(_no_number)]
MaybeCount = Annotated[int, Field(ge=0, le=MOST), pydantic.BeforeValidator(_no_number)]

NAMES_OF_SB3 = {
    "gamma": "discount",
    "buffer_size": "replay_capacity",
    "train_freq": "steps_per_update",
    "gradient_steps": "updates_per_cycle",
    "target_update_interval": "target_every, which counts updates",
    "exploration_initial_eps": "exploration_initial",
    "exploration_final_eps": "exploration_final",
    "exploration_fraction": "exploration_steps, which counts environment steps",
    "n_envs": "environments",
    "policy_kwargs": "hidden, activation and convolutions",
    "net_arch": "hidden",
    "n_quantiles": "quantiles",
    "learning_rate": "step_size",
    "tensorboard_log": "tensorboard, of learn",
    "verbose": "progress_bar, of learn",
}
"""What users of Stable-Baselines3 may write, and what it is called here."""
POOL_BYTES = 64_000_000
"""What the pool of parameter samples takes at most unless its size is given."""
POOL_SPAN = 3_000
"""How many updates the pool reaches back unless thinning is given."""


class Options(pydantic.BaseModel):
    """What all algorithms share.

    Attributes
    ----------
    hidden, activation
        The network's hidden layers (those after the convolutions, for images).
    convolutions
        (channels, kernel, stride) of each convolution, for images; by default those of Mnih et
        al. (2015), or smaller ones for images too small for them.
    discount, batch_size
        gamma, and the transitions of an update.
    replay_capacity
        Transitions kept, rounded up to whole cycles; ``None`` for on-policy training, where an
        update uses the transitions of its own cycle.
    learning_starts
        Environment steps before the first update.
    steps_per_update, updates_per_cycle
        After so many steps in each environment, so many updates.
    exploration_initial, exploration_final, exploration_steps
        Epsilon falls from the first to the second in a straight line over so many environment
        steps. Steps rather than a share of the training, so that a run that goes on later is the
        same as one in one go.
    environments
        Environments side by side, for one seed.
    samples, thinning
        The pool behind ``posterior``: how many parameter samples are kept, one of every
        ``thinning`` updates. By default as many as fit into 64 MB (over all seeds), at most 1000,
        reaching back over 3000 updates.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Let ``help`` explain the inherited options as well."""
        super().__pydantic_init_subclass__(**kwargs)
        inherited = inspect.getdoc(cls.__base__) or ""
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{inherited}"

    hidden: tuple[Count, ...] = (256, 256)
    activation: Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu"] = "relu"
    convolutions: tuple[tuple[Count, Count, Count], ...] | None = None
    discount: Share = 0.99
    batch_size: Count = 64
    replay_capacity: Count | None = 50_000
    learning_starts: MaybeCount = 1_000
    steps_per_update: Count = 4
    updates_per_cycle: Count = 1
    exploration_initial: Share = 1.0
    exploration_final: Share = 0.05
    exploration_steps: MaybeCount = 10_000
    environments: Count = 1
    samples: Count | None = None
    thinning: Count | None = None


class SamplerOptions(Options):
    """What LKTD, SGLD and SGHMC share: the model of the values, and the sampler.

    Attributes
    ----------
    step_size
        The step epsilon of the sampler.
    pseudo_population
        The number N of transitions that the posterior speaks of.
    observation_sd
        sigma, the sd of an observation around its prediction.
    prior_sd, prior_narrow_sd, prior_wide_weight
        The prior's sd; with a narrow one, a mixture of both with that weight on the wide part.
    form, gradient, target_every
        ``"q_learning"`` compares Q(s, a) with r + gamma max Q of a target network that is copied
        every so many updates, ``"sarsa"`` Q(s, a) - gamma Q(s', a') with r, differentiated as a
        ``"semi"`` or ``"full"`` gradient.
    inner_iterations, inner_power
        Iterations of an update on its batch, and how fast the step shrinks within it.
    likelihood_weight
        Factor on the gradient of the log-likelihood; 1 is the model as written.
    """

    step_size: Positive = 5e-5
    pseudo_population: Positive = 20_000
    observation_sd: Positive = 1.0
    prior_sd: Positive = 1.0
    prior_narrow_sd: Positive | None = None
    prior_wide_weight: Share = 0.5
    form: Literal["q_learning", "sarsa"] = "q_learning"
    gradient: Literal["semi", "full"] = "semi"
    target_every: Count = 50
    inner_iterations: Count = 5
    inner_power: NotNegative = 0.9
    likelihood_weight: Positive = 1.0


class LKTDOptions(SamplerOptions):
    """LKTD's own: how the observation noise is split, and the latent variable treated."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.9
    latent: Literal["restart", "conditional", "conditional_tempered"] = "restart"


class SGLDOptions(SamplerOptions):
    """SGLD has none of its own."""


class SGHMCOptions(SamplerOptions):
    """SGHMC's own: friction, and what becomes of the momentum between updates."""

    friction: Annotated[float, Field(gt=0, le=1)] = 0.1
    momentum: Literal["carried", "restarted", "none"] = "carried"


class BaselineOptions(Options):
    """What the algorithms with a target network and a point estimate share."""

    learning_rate: Positive = 5e-4
    double: bool = True
    target_every: Count = 250


class DQNOptions(BaselineOptions):
    """DQN's own: the largest norm of a gradient, and how residuals are weighed."""

    max_gradient_norm: Positive | None = 10.0
    loss: Literal["squared", "huber"] = "huber"


class BootDQNOptions(BaselineOptions):
    """BootDQN's own: its heads, who learns from what, and how long a head acts."""

    heads: Count = 10
    mask_probability: Annotated[float, Field(gt=0, le=1)] = 0.5
    head_every: Count = 10
    max_gradient_norm: Positive | None = 10.0


class QRDQNOptions(BaselineOptions):
    """QR-DQN's own: quantiles an action."""

    quantiles: Count = 50
    max_gradient_norm: Positive | None = 10.0


class KOVAOptions(BaselineOptions):
    """KOVA's own: the extended Kalman filter on all parameters, O(p^2) memory."""

    hidden: tuple[Count, ...] = (32, 32)
    learning_rate: Positive = 1.0
    target_every: Count = 10
    observation_variance: Positive = 64.0
    initial_variance: Positive = 1.0
    process_variance: NotNegative = 0.0
    forgetting: Annotated[float, Field(ge=0, lt=1)] = 1e-4
    jacobian: Literal["plain", "differenced"] = "plain"


OptionsType = TypeVar("OptionsType", bound=Options)


def parse(kind: type[OptionsType], given: dict[str, Any], name: str) -> OptionsType:
    """Check options; what is wrong is said in one sentence.

    Raises
    ------
    ValueError
        With the first thing that is wrong.
    """
    unknown = [key for key in given if key not in kind.model_fields]
    if unknown:
        close = _nearest(unknown[0], kind.model_fields)
        if unknown[0] in NAMES_OF_SB3:
            hint = f": here it is {NAMES_OF_SB3[unknown[0]]}."
        elif close:
            hint = f"; did you mean {close}?"
        else:
            hint = f"; there are {', '.join(kind.model_fields)}."
        raise ValueError(f"{name} has no option {unknown[0]!r}{hint}")
    try:
        return kind.model_validate(given)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        given_value = " ".join(repr(first["input"]).split())
        raise ValueError(f"{name}'s {where} is wrong: {message}, not {given_value}.") from None


def tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Turn JSON's lists back into tuples."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list) else value

    return {name: convert(value) for name, value in options.items()}


def _nearest(key: str, names: Any) -> str | None:
    import difflib  # noqa: PLC0415 - only after a mistake

    found = difflib.get_close_matches(key, names, n=1)
    return found[0] if found else None
