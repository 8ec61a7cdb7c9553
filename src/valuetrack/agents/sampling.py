"""What LKTD, SGLD and SGHMC share: the model of the values, its prior, and their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import jax

from valuetrack import priors, samplers
from valuetrack.api.options import (
    Count,
    CountOrZero,
    NotNegative,
    Options,
    Positive,
    Rate,
    Share,
    as_rate,
    default_of,
)
from valuetrack.learner import Learner, Task, build_learner
from valuetrack.measurement import (
    Gradient,
    Measurement,
    expected_sarsa,
    q_learning,
    sarsa,
    sarsa_target,
)
from valuetrack.networks import InitName, Network
from valuetrack.priors import Prior
from valuetrack.samplers.base import Sampler
from valuetrack.schedules import Schedule
from valuetrack.types import Apply, Array, Params


class SamplerOptions(Options):
    """What LKTD, SGLD and SGHMC share: the model of the values, and the sampler.

    Attributes
    ----------
    step_size
        The step epsilon of the sampler: a number, or a schedule such as
        ``{"schedule": "polynomial", "initial": 1e-5, "power": 0.5}`` (also ``"cyclical"`` with
        ``cycle_length`` and ``"linear"`` with ``final`` and ``updates``).
    pseudo_population
        The number N of transitions that the posterior speaks of.
    observation_sd
        sigma, the sd of an observation around its prediction.
    prior_sd, prior_narrow_sd, prior_wide_weight, prior_phase_in
        The prior's sd; with a narrow one, a mixture of both with that weight on the wide part,
        which falls from 1 over the first ``prior_phase_in`` updates.
    init
        Also ``"prior"``: the first parameters are a draw from the prior, as in Algorithm 1.
    form, double, target_every, gradient
        ``"q_learning"`` compares Q(s, a) with r + gamma max Q of a target network, refreshed
        every ``target_every`` updates; with ``double``, the network itself chooses the maximising
        action. ``"sarsa"`` compares Q(s, a) - gamma Q(s', a') with r, differentiated as a
        ``"semi"`` or ``"full"`` gradient; a' is the action really taken. ``"sarsa_target"`` takes
        Q(s', a') from the target network, ``"expected_sarsa"`` its mean over the actions of the
        present epsilon-greedy policy.
    inner_iterations, inner_power
        Iterations of an update on its batch, and how fast the step shrinks within it.
    likelihood_weight
        Factor on the gradient of the log-likelihood; 1 is the model as written.
    """

    init: InitName | Literal["prior"] = "he"  # type: ignore[assignment]
    step_size: Rate = 5e-5
    pseudo_population: Positive = 20_000
    observation_sd: Positive = 1.0
    prior_sd: Positive = 1.0
    prior_narrow_sd: Positive | None = None
    prior_wide_weight: Share = default_of(priors.gaussian_mixture, "wide_weight")
    prior_phase_in: CountOrZero = default_of(priors.gaussian_mixture, "phase_in")
    form: Literal["q_learning", "sarsa", "sarsa_target", "expected_sarsa"] = "q_learning"
    double: bool = default_of(q_learning, "double")
    target_every: Count = 50
    gradient: Gradient = default_of(sarsa, "gradient")
    inner_iterations: Count = default_of(samplers.lktd, "inner_iterations")
    inner_power: NotNegative = default_of(samplers.lktd, "inner_power")
    likelihood_weight: Positive = default_of(samplers.lktd, "likelihood_weight")

    def prior(self) -> Prior:
        """Return the prior over the parameters."""
        if self.prior_narrow_sd is None:
            return priors.gaussian(self.prior_sd)
        return priors.gaussian_mixture(
            self.prior_sd, self.prior_narrow_sd, self.prior_wide_weight, self.prior_phase_in
        )

    def network(self, task: Task, outputs: int | tuple[int, ...]) -> Network:
        """Build the network for a task; its first parameters may be drawn from the prior."""
        if self.init != "prior":
            return super().network(task, outputs)
        drawn = self.model_copy(update={"init": "he"}).network(task, outputs)
        prior = self.prior()

        def init(key: Array) -> Params:
            shapes_key, sample_key = jax.random.split(key)
            return prior.sample(sample_key, drawn.init(shapes_key))

        return Network(init, drawn.apply)


def sampling_learner(
    sampler: Callable[..., Sampler], task: Task, options: SamplerOptions
) -> Learner:
    r"""Build a learner around a posterior sampler, which gets its own options by their names.

    ``form="sarsa"`` is the paper's Q-function form :math:`r = Q(s,a) - \gamma Q(s',a') + \eta`,
    ``form="q_learning"`` its second model, :math:`y = Q(s,a) + \eta` with a target network.
    """
    network = options.network(task, task.actions)
    forms: dict[str, Callable[[Apply], Measurement]] = {
        "q_learning": partial(q_learning, double=options.double),
        "sarsa": partial(sarsa, gradient=options.gradient),
        "sarsa_target": sarsa_target,
        "expected_sarsa": expected_sarsa,
    }
    own = type(options).model_fields.keys() - SamplerOptions.model_fields.keys()
    return build_learner(
        network,
        build_chain(sampler, forms[options.form](network.apply), options, own),
        target_every=None if options.form == "sarsa" else options.target_every,
        exploration=exploration_by_update(options),
    )


def build_chain(
    sampler: Callable[..., Sampler],
    measurement: Measurement,
    options: SamplerOptions,
    own: Iterable[str],
) -> Sampler:
    """Build a posterior sampler for a measurement model; ``own`` names its own options."""
    return sampler(
        measurement,
        options.prior(),
        step_size=as_rate(options.step_size),
        pseudo_population=options.pseudo_population,
        observation_sd=options.observation_sd,
        inner_iterations=options.inner_iterations,
        inner_power=options.inner_power,
        likelihood_weight=options.likelihood_weight,
        **{name: getattr(options, name) for name in own},
    )


def exploration_by_update(options: Options) -> Schedule:
    """Return epsilon as a function of the updates made, for a training in one go.

    A training whose replay memory was emptied on the way fills it anew without updates, so that its
    exploration has fallen further than this says.
    """
    cycle = options.steps_per_update * options.environments
    warmup = max(0, -(-options.learning_starts // cycle) - 1)
    by_step = options.exploration()
    return lambda updates: by_step((warmup + 1 + updates // options.updates_per_cycle) * cycle)
