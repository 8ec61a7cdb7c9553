"""What LKTD, SGLD and SGHMC share: the model of the values, its prior, and their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import pydantic
from pydantic import Field

from valuetrack import priors, samplers
from valuetrack.agents.exploring import ExploringOptions, he_network
from valuetrack.api.options import (
    Count,
    CountOrZero,
    NotNegative,
    Options,
    Positive,
    PositiveShare,
    Rate,
    Share,
    as_rate,
    default_of,
)
from valuetrack.learner import Following, Learner, Task, build_learner
from valuetrack.measurement import (
    Gradient,
    Measurement,
    expected_sarsa,
    q_learning,
    sarsa,
    sarsa_target,
    squared_scale_of,
)
from valuetrack.networks import InitName, Network, several
from valuetrack.priors import Prior
from valuetrack.replay import remembered
from valuetrack.samplers.base import Sampler
from valuetrack.samplers.units import Preconditioner, on_last_layer
from valuetrack.schedules import Schedule
from valuetrack.types import Apply, Array, Keywords, Params, Scalar

FOLLOWING: dict[str, Following] = {
    "q_learning": "greedy",
    "sarsa": "taken",
    "sarsa_target": "taken",
    "expected_sarsa": "expected",
}
"""Which next action the values of each form are of."""
FIRST_VALUES = 1e-3
"""How large values begin where their scale is estimated, as a share of He's initialisation."""
STEPS = ("step_size", "learning_rate")
"""Two words for the step: in the paper's units, and in an optimiser's."""
WITH_STEP_SIZE: Keywords = {
    "preconditioner": "none",
    "value_scale": 1,
    "double": False,
    "tau": 1.0,
}
"""What else is the paper's where the step is, unless it is given."""


WITH_PRIOR_FUNCTION: Keywords = {"value_scale": 1, "guard": False}
"""What follows from a prior function, unless it is given."""


class SamplerOptions(ExploringOptions, Options):
    """What LKTD, SGLD and SGHMC share: the model of the values, and the sampler.

    Attributes
    ----------
    learning_rate
        The step on the mean gradient of a batch, as optimisers have it: a number, or a schedule
        such as ``{"schedule": "polynomial", "initial": 1e-3, "power": 0.5}`` (also ``"cyclical"``
        with ``cycle_length`` and ``"linear"`` with ``final`` and ``updates``).
    step_size
        In its place, the paper's epsilon, which is 2 learning_rate sigma^2 / batch_size. With it,
        ``preconditioner="none"``, ``value_scale=1``, ``double=False`` and ``tau=1`` unless they
        are given: the paper's sampler.
    preconditioner, preconditioner_decay, preconditioner_floor
        ``"rmsprop"`` divides each parameter's step by the root mean square of its past gradients,
        with a floor; see :func:`valuetrack.samplers.rmsprop`. ``"none"`` is the paper's step.
    value_scale
        ``"estimated"`` lets the last layer's step and prior follow the scale of the rewards, so
        that their unit does not matter; 1 is the paper's.
    pseudo_population
        The number N of transitions that the posterior speaks of; ``"data"`` for as many as have
        been seen, up to those that the replay memory holds.
    observation_sd
        sigma, the sd of an observation around its prediction; ``"estimated"`` follows the
        temporal-difference errors.
    prior_sd, prior_narrow_sd, prior_wide_weight, prior_phase_in
        The prior's sd, or ``"he"`` for that of He's initialisation, layer by layer. With a narrow
        sd, a mixture of both with that weight on the wide part, which falls from 1 over the first
        ``prior_phase_in`` updates.
    init
        Also ``"prior"``: the first parameters are a draw from the prior, as in Algorithm 1.
    form, double, target_every, tau, gradient
        ``"q_learning"`` compares Q(s, a) with r + gamma max Q of a target network, which moves
        towards the network by the share ``tau`` every ``target_every`` updates; with ``double``,
        the network itself chooses the maximising action. ``"sarsa"`` compares
        Q(s, a) - gamma Q(s', a') with r, differentiated as a ``"semi"`` or ``"full"`` gradient; a'
        is the action really taken. ``"sarsa_target"`` takes Q(s', a') from the target network,
        ``"expected_sarsa"`` its mean over the actions of the present epsilon-greedy policy.
    inner_iterations, inner_power
        Iterations of an update on its batch, and how fast the step shrinks within it.
    likelihood_weight
        Factor on the gradient of the log-likelihood; 1 is the model as written.
    guard
        Whether values are kept within what rewards and discount allow, and the step is halved
        where they run beyond; see :mod:`valuetrack.samplers.guard`.
    chains
        Independent chains that learn from the same batches of one replay memory. ``posterior`` has
        the samples of all; agents act by their mean, or as ``behaviour`` says.
    prior_scale
        With one, ``value_scale=1`` and ``guard=False`` unless they are given: both judge values
        by rewards that were seen, and a prior function hopes for others.
    """

    init: InitName | Literal["prior"] = "he"  # type: ignore[assignment]
    learning_rate: Rate | None = 1e-3
    step_size: Rate | None = None
    preconditioner: Literal["none", "rmsprop"] = "rmsprop"
    preconditioner_decay: Share = default_of(samplers.rmsprop, "decay")
    preconditioner_floor: Positive = default_of(samplers.rmsprop, "floor")
    value_scale: Literal[1] | samplers.Estimated = "estimated"
    pseudo_population: Positive | Literal["data"] = "data"
    observation_sd: Positive | samplers.Estimated = "estimated"
    prior_sd: Positive | Literal["he"] = "he"
    prior_narrow_sd: Positive | None = None
    prior_wide_weight: Share = default_of(priors.gaussian_mixture, "wide_weight")
    prior_phase_in: CountOrZero = default_of(priors.gaussian_mixture, "phase_in")
    form: Literal["q_learning", "sarsa", "sarsa_target", "expected_sarsa"] = "q_learning"
    double: bool = True
    target_every: Count = 1
    tau: PositiveShare = 0.015
    gradient: Gradient = default_of(sarsa, "gradient")
    inner_iterations: Count = 1
    inner_power: NotNegative = default_of(samplers.lktd, "inner_power")
    likelihood_weight: Positive = default_of(samplers.lktd, "likelihood_weight")
    guard: bool = True
    chains: Annotated[int, Field(ge=1, le=1_000)] = 1

    @pydantic.model_validator(mode="before")
    @classmethod
    def _one_step(cls, given: Keywords) -> Keywords:
        """Let the one of step size and learning rate that is given take the other's place."""
        chosen = one_step(given)
        if given.get("prior_scale"):
            chosen = {**WITH_PRIOR_FUNCTION, **chosen}
        return {name: chosen[name] for name in chosen if name in cls.model_fields or name in given}

    def population(self) -> float | Schedule:
        """Return N, or how it grows: with the transitions seen, up to those remembered."""
        if self.pseudo_population != "data":
            return self.pseudo_population
        cycle = self.steps_per_update * self.environments
        warmup = max(0, -(-self.learning_starts // cycle) - 1)
        most = float(self.replay_capacity or cycle)
        if self.replay_half_life is not None:
            most = min(most, float(remembered(self.replay_half_life)))

        def seen(updates: Scalar) -> Array:
            return jnp.minimum((warmup + 1.0 + updates // self.updates_per_cycle) * cycle, most)

        return seen

    def prior(self) -> Prior:
        """Return the prior over the parameters."""
        if self.prior_sd == "he":
            if self.prior_narrow_sd is not None:
                raise ValueError("prior_narrow_sd belongs to a prior_sd that is a number.")
            return priors.he()
        if self.prior_narrow_sd is None:
            return priors.gaussian(self.prior_sd)
        return priors.gaussian_mixture(
            self.prior_sd, self.prior_narrow_sd, self.prior_wide_weight, self.prior_phase_in
        )

    def make_preconditioner(self) -> Preconditioner | None:
        """Return the diagonal preconditioner, if there is one."""
        if self.preconditioner == "none":
            return None
        return samplers.rmsprop(self.preconditioner_decay, self.preconditioner_floor)

    def network(self, task: Task, outputs: int | tuple[int, ...], action_axis: int = -1) -> Network:
        """Build the network for a task; its first parameters may be drawn from the prior."""
        shaped = self.model_copy(update={"init": "he"}) if self.init == "prior" else self
        drawn = Options.network(shaped, task, outputs, action_axis)
        prior = self.prior()

        def init(key: Array) -> Params:
            if self.init == "prior":
                shapes_key, sample_key = jax.random.split(key)
                return prior.sample(sample_key, drawn.init(shapes_key))
            params = drawn.init(key)
            if self.value_scale == 1:
                return params
            # Values begin near zero, whatever their scale will turn out to be.
            return on_last_layer(lambda leaf: FIRST_VALUES * leaf, params)

        return drawn._replace(init=init)


def one_step(given: Keywords) -> Keywords:
    """Return options with a step size or a learning rate, whichever is given, and not both.

    Raises
    ------
    ValueError
        If both are given.

    Examples
    --------
    >>> one_step({"learning_rate": 1e-3, "step_size": None})
    {'learning_rate': 0.001, 'step_size': None}
    >>> one_step({"step_size": 1e-5, "tau": 0.5})["value_scale"]
    1
    """
    said = [name for name in STEPS if given.get(name) is not None]
    if len(said) > 1:
        raise ValueError("step_size and learning_rate are two words for one step: give one of them")
    others = {name: value for name, value in given.items() if name not in STEPS}
    if not said:
        return others
    if said == ["step_size"]:
        others = {**WITH_STEP_SIZE, **others}
    return {**others, said[0]: given[said[0]], **{n: None for n in STEPS if n != said[0]}}


def sampling_learner(
    sampler: Callable[..., Sampler], task: Task, options: SamplerOptions
) -> Learner:
    r"""Build a learner around a posterior sampler, which gets its own options by their names.

    ``form="sarsa"`` is the paper's Q-function form :math:`r = Q(s,a) - \gamma Q(s',a') + \eta`,
    ``form="q_learning"`` its second model, :math:`y = Q(s,a) + \eta` with a target network.
    """
    network = options.around_prior(
        options.network(task, task.actions), he_network(options, task, task.actions)
    )
    forms: dict[str, Callable[[Apply], Measurement]] = {
        "q_learning": partial(q_learning, double=options.double),
        "sarsa": partial(sarsa, gradient=options.gradient),
        "sarsa_target": sarsa_target,
        "expected_sarsa": expected_sarsa,
    }
    own = type(options).model_fields.keys() - SamplerOptions.model_fields.keys()

    def build(apply: Apply) -> Sampler:
        return build_chain(sampler, forms[options.form](apply), apply, options, own)

    chain = build(network.apply)
    if options.prior_scale:
        chain = samplers.around_prior_function(build, network.apply)
    assemble = partial(
        build_learner,
        target_every=None if options.form == "sarsa" else options.target_every,
        tau=options.tau,
        exploration=exploration_by_update(options),
        following=FOLLOWING[options.form],
    )
    learner = assemble(network, chain)
    if options.chains > 1:
        learner = assemble(
            several(network, options.chains),
            samplers.parallel(chain, options.chains),
            to_values=lambda outputs: outputs,
            heads=options.chains,
        )._replace(chain=learner)
    return options.behaving(learner)


def build_chain(
    sampler: Callable[..., Sampler],
    measurement: Measurement,
    apply: Apply,
    options: SamplerOptions,
    own: Iterable[str],
) -> Sampler:
    """Build a posterior sampler for a measurement model; ``own`` names its own options.

    Rewards of n steps come at the discount gamma^n: that is what the scale of values and the bound
    of the guard follow from.
    """
    discount = options.discount**options.n_step
    if options.n_step > 1:
        scale = squared_scale_of(options.discount, options.n_step)
        measurement = measurement._replace(square=scale)
    make = partial(
        sampler,
        prior=options.prior(),
        step_size=None if options.step_size is None else as_rate(options.step_size),
        learning_rate=None if options.learning_rate is None else as_rate(options.learning_rate),
        pseudo_population=options.population(),
        observation_sd=options.observation_sd,
        preconditioner=options.make_preconditioner(),
        value_scale=options.value_scale,
        inner_iterations=options.inner_iterations,
        inner_power=options.inner_power,
        likelihood_weight=options.likelihood_weight,
        **{name: getattr(options, name) for name in own},
    )
    if not options.guard:
        return make(measurement)
    return samplers.guarded(make, measurement, apply, discount)


def exploration_by_update(options: Options) -> Schedule:
    """Return epsilon as a function of the updates made, for a training in one go.

    A training whose replay memory was emptied on the way fills it anew without updates, so that its
    exploration has fallen further than this says.
    """
    cycle = options.steps_per_update * options.environments
    warmup = max(0, -(-options.learning_starts // cycle) - 1)
    by_step = options.exploration()
    return lambda updates: by_step((warmup + 1 + updates // options.updates_per_cycle) * cycle)
