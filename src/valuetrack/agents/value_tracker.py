"""ValueTracker: the values of a given policy, with the posterior samplers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
from pydantic import Field

from valuetrack import samplers, schedules
from valuetrack.agents.sampling import SamplerOptions, build_chain
from valuetrack.api.agent import Agent
from valuetrack.api.environment import AgentEnvironment, Backend
from valuetrack.api.estimate import Estimate
from valuetrack.api.options import Share, default_of, parse
from valuetrack.api.playing import Stage
from valuetrack.api.policy import Given, PolicyError, backend_for, compiled_policy
from valuetrack.api.settings import settings_of
from valuetrack.api.tracking import Tracking
from valuetrack.api.training import Schedule as Reports
from valuetrack.envs.gym.vectorised import Observed
from valuetrack.learner import (
    Acted,
    Learner,
    LearnerState,
    Task,
    act_without_values,
    build_learner,
)
from valuetrack.measurement import sarsa, state_value
from valuetrack.policies import greedy, uniform_legal
from valuetrack.samplers.base import Info, Sampler
from valuetrack.samplers.lktd import Latent
from valuetrack.samplers.sghmc import Momentum
from valuetrack.schedules import Schedule
from valuetrack.training.evaluation import Choose, Episodes, values_key
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Trainer
from valuetrack.types import Array, Batch, NDArray, Weighted

BEHAVIOUR_UNIFORMS = 3
"""Uniform numbers per action: whether to explore, where to, and the policy's own."""
SAMPLERS: dict[str, tuple[Callable[..., Sampler], tuple[str, ...]]] = {
    "lktd": (samplers.lktd, ("alpha", "latent")),
    "sgld": (samplers.sgld, ()),
    "sghmc": (samplers.sghmc, ("friction", "momentum")),
}
"""The samplers by name, each with the options that are its own."""


class ValueTrackerOptions(SamplerOptions):
    """What the values are of, and how the policy is asked.

    The policy is given, so the options of exploration, ``form``, ``double``, ``target_every`` and
    ``tau`` do not exist here; nor do ``n_step``, whose rewards are not the policy's where others
    act, and ``dueling``, as V-values have no actions.

    Attributes
    ----------
    of
        ``"v"`` for the values of states, V(s) - gamma V(s') compared with r; ``"q"`` for those of
        actions, Q(s, a) - gamma Q(s', a') compared with r, where a' is the policy's action.
    sampler
        ``"lktd"``, ``"sgld"`` or ``"sghmc"``.
    alpha, latent
        LKTD's own; see :class:`~valuetrack.agents.lktd.LKTDOptions`.
    friction, momentum
        SGHMC's own; see :class:`~valuetrack.agents.sghmc.SGHMCOptions`.
    probabilities
        Whether the policy is a function that returns the probabilities of all actions, rather than
        an action.
    deterministic
        What ``predict`` is told, of policies that have it. One of our agents explores with its
        present epsilon if this is False.
    explore
        The share of random legal actions among those taken, for ``of="q"``: Q of actions that the
        policy does not take is learned only if somebody takes them. The values remain those of
        the policy itself.
    """

    exploration_initial: ClassVar[None] = None  # type: ignore[assignment,misc]
    exploration_final: ClassVar[None] = None  # type: ignore[assignment,misc]
    exploration_steps: ClassVar[None] = None  # type: ignore[assignment,misc]
    random_warmup: ClassVar[None] = None  # type: ignore[assignment,misc]
    form: ClassVar[None] = None  # type: ignore[assignment,misc]
    double: ClassVar[None] = None  # type: ignore[assignment,misc]
    target_every: ClassVar[None] = None  # type: ignore[assignment,misc]
    tau: ClassVar[None] = None  # type: ignore[assignment,misc]
    n_step: ClassVar[int] = 1  # type: ignore[misc]
    dueling: ClassVar[bool] = False  # type: ignore[misc]

    of: Literal["v", "q"] = "v"
    sampler: Literal["lktd", "sgld", "sghmc"] = "lktd"
    alpha: Annotated[float, Field(gt=0, lt=1)] = default_of(samplers.lktd, "alpha")
    latent: Latent = default_of(samplers.lktd, "latent")
    friction: Annotated[float, Field(gt=0, le=1)] = default_of(samplers.sghmc, "friction")
    momentum: Momentum = default_of(samplers.sghmc, "momentum")
    probabilities: bool = False
    deterministic: bool = True
    explore: Share = 0.0

    @pydantic.field_validator("explore")
    @classmethod
    def _explores_for_q(cls, explore: float, info: pydantic.ValidationInfo) -> float:
        if explore and info.data.get("of") == "v":
            raise ValueError("V-values are learned from the policy's own steps; it should be 0")
        return explore

    @pydantic.field_validator("alpha", "latent", "friction", "momentum")
    @classmethod
    def _belongs_to_the_sampler(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        chosen, name = info.data.get("sampler"), str(info.field_name)
        # The default is let through: a file holds all options.
        if chosen and name not in SAMPLERS[chosen][1] and value != cls.model_fields[name].default:
            raise ValueError(f"{chosen} has no such option; leave it out")
        return value

    def exploration(self) -> Schedule:
        """Return the share of random actions, which never changes."""
        return schedules.constant(self.explore)


class ValueTracker(Agent[ValueTrackerOptions]):
    r"""The values of a given policy, tracked by posterior samples.

    The model is the paper's V-function form,

    .. math:: r = V_\theta(s) - \gamma\, V_\theta(s') + \eta,

    or its Q-function form with ``of="q"``. Truncated episodes bootstrap, terminated ones do not.
    It learns from the policy's own steps, and has the interface of the agents.

    Parameters
    ----------
    env
        As for the agents.
    policy
        A function ``(observation) -> action`` or ``(observation, mask) -> action``, where the mask
        marks the legal actions; with ``probabilities=True``, such a function that returns the
        probabilities of all actions. Or anything with ``predict(observation, deterministic=...)``,
        such as a model of Stable-Baselines3. Or one of our agents: its first seed's policy as it
        is now. ``None`` gives a tracker that cannot learn.
    seed, seeds, env_options
        As for the agents.
    backend
        ``"compiled"`` insists on an environment and a policy in JAX, ``"host"`` on calling both
        from Python. ``"auto"`` compiles agents, and functions with ``probabilities=True`` that JAX
        can trace, wherever the environment exists in JAX.
    **options
        Hyperparameters; ``help(tracker.options)`` explains them.

    Examples
    --------
    >>> import valuetrack as vt
    >>> policy = lambda observation: int(observation[2] > 0)  # towards where the pole leans
    >>> tracker = vt.ValueTracker("CartPole-v1", policy, hidden=(8,), seed=0).learn(2_000)
    >>> v = tracker.posterior([0.0, 0.1, 0.02, -0.1])
    >>> v.mean.shape, v.samples.shape[1:]
    ((), ())

    References
    ----------
    Shih and Liang (2024). Fast value tracking for deep reinforcement learning. ICLR.
    https://openreview.net/forum?id=uZtpwtsxr1
    """

    name, label = "value_tracker", "Value tracker"
    options_type = ValueTrackerOptions
    is_sampler = True
    _positional = 2

    def __init__(
        self,
        env: Any,
        policy: Any,
        *,
        seed: int = 0,
        seeds: int = 1,
        env_options: Mapping[str, Any] | None = None,
        backend: Backend = "auto",
        **options: Any,
    ) -> None:
        checked = parse(self.options_type, options, type(self).__name__)
        if isinstance(policy, ValueTracker):
            raise PolicyError("A ValueTracker has no policy of its own; give the one it tracks.")
        self._asked = Given(policy, checked.probabilities, checked.deterministic)
        self._asked.check()
        self._given = (policy,)
        super().__init__(
            env,
            seed=seed,
            seeds=seeds,
            env_options=env_options,
            backend=backend_for(self._asked, env, env_options or {}, backend),
            **options,
        )

    @property
    def policy(self) -> Any:
        """The policy, as it was given."""
        return self._asked.policy

    @property
    def sample_name(self) -> str:  # type: ignore[override]
        """What its samples are."""
        return f"posterior samples of {self.options.sampler.upper()}"

    @staticmethod
    def build(task: Task, options: ValueTrackerOptions) -> Learner:
        """Build the learner, without the policy; it takes the first legal action."""
        of_states = options.of == "v"
        network = options.network(task, 1 if of_states else task.actions)
        form = state_value if of_states else sarsa
        sampler, names = SAMPLERS[options.sampler]
        measurement = form(network.apply, options.gradient)
        chain = build_chain(sampler, measurement, network.apply, options, names)
        learner = build_learner(network, chain, following="taken")
        return learner._replace(
            act=lambda state, observation, mask, uniforms, epsilon: act_without_values(
                greedy(0.0 * mask, mask)
            ),
            acting_uniforms=BEHAVIOUR_UNIFORMS,
            on_host=None,
        )

    def _make_learner(self) -> Learner:
        learner = super()._make_learner()
        if self.policy is None or self.env.in_jax is None:
            return learner
        return follow(learner, compiled_policy(self._asked.in_jax(self.task)))

    def _make_trainer(self) -> Trainer:
        if self.env.in_python is None:
            return super()._make_trainer()
        how = settings_of(self.options, self.learner, len(self.seeds))
        on_host = self._asked.on_host(self.task, self.env.actions)
        return HostTrainer(self.learner, how, self.env.in_python, self.seeds, on_host)

    def posterior(self, observation: Any, *, member: int | Literal["all"] = 0) -> Estimate:
        """Return samples of the values at one observation, or at a batch of them.

        V-values have no axis of actions: ``mean`` is one number, or one per observation.
        """
        found = super().posterior(observation, member=member)
        if self.options.of == "q":
            return found
        samples, latest, solve = found.samples[..., 0], found.latest[..., 0], found.solve
        acted_on = None if found.acted_on is None else found.acted_on[..., 0]
        return dataclasses.replace(
            found,
            samples=samples,
            latest=latest,
            acted_on=acted_on,
            of="v",
            solve=None if solve is None else lambda: solve().at((..., 0)),
        )

    def tracking(self) -> Tracking:
        """Return the values recorded so far; those of states have no axis of actions."""
        found = super().tracking()
        if self.options.of == "q":
            return found
        return found.of_states()

    @property
    def _values_per_state(self) -> int:
        return self.task.actions if self.options.of == "q" else 1

    def export(self, path: object, *, member: int = 0) -> NoReturn:
        """Refuse: the policy that it follows is not its own."""
        raise ValueError(
            "A tracker acts by the policy that it was given; only agents are exported."
        )

    def to_arviz(self, observation: Any, name: str | None = None) -> Any:
        """Export the samples for ArviZ, as ``"v"`` or ``"q"`` unless they get another name."""
        return super().to_arviz(observation, name or self.options.of)

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: Any = None, policy: Any = None) -> Self:
        """Load a tracker; its file does not hold its policy, without which it cannot learn."""
        return cls._load(path, env, policy)

    def predict(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse: the policy chooses the actions."""
        raise TypeError("A ValueTracker chooses no actions; ask its policy: tracker.policy.")

    def play_on(
        self, stage: Stage, episodes: int, seed: int, limit: int, *, shown: bool = False
    ) -> Episodes:
        """Play episodes by the policy.

        Where the values are right, ``start_values`` and ``discounted_returns`` agree in the mean,
        as far as no time limit cuts episodes off.
        """
        self._check_policy()
        played = super().play_on(stage, episodes, seed, limit, shown=shown)
        if np.isnan(played.returns).any():
            raise PolicyError(NO_LEGAL_ACTION.format("an episode"))
        return played

    def record(self, values: NDArray, every: int) -> None:
        """Keep the tracked values of the last cycles, unless the policy has failed meanwhile."""
        for member, update in enumerate(self.trainer.diverged):
            if update >= 0 and _is_finite(self.trainer.member(member).learner):
                raise PolicyError(NO_LEGAL_ACTION.format(f"a step before update {update}"))
        super().record(values, every)

    def _choice(self, states: LearnerState, seed: int, env: AgentEnvironment) -> Choose:
        follow_policy = self._asked.on_host(self.task, env.actions)
        generator = np.random.default_rng([seed, 4])
        values = jax.jit(jax.vmap(lambda state, seen: self._values(state, seen[None])[0]))

        def choose(seen: Observed) -> tuple[NDArray, NDArray]:
            uniforms = generator.random((len(seen.mask), BEHAVIOUR_UNIFORMS), np.float32)
            # At the end of an episode of some vector environments, nobody takes the action.
            action = follow_policy(seen, np.asarray(seen.mask.any(axis=1)), uniforms)
            found = np.asarray(values(states, seen.observation))
            column = action if self.options.of == "q" else 0 * action
            return action, np.take_along_axis(found, column[:, None], axis=1)[:, 0]

        return choose

    def _values(self, state: LearnerState, observations: Array) -> Array:
        return jnp.mean(self.actor.learner.values(values_key(), state, observations), axis=0)

    def _check_learning(self, schedule: Reports, evaluation_env: Any) -> None:
        self._check_policy()
        super()._check_learning(schedule, evaluation_env)

    def _check_playing(self) -> None:
        self._check_policy()

    def _check_policy(self) -> None:
        if self.policy is None:
            raise PolicyError(
                "This tracker has no policy: valuetrack.load(path, policy=...) gives it one."
            )


NO_LEGAL_ACTION = (
    "The policy had no probabilities of legal actions in {}: they are not negative and sum to one "
    "over the legal actions, which a function of (observation, mask) is told."
)


def follow(learner: Learner, policy: Callable[[Array, Array, Array], Array]) -> Learner:
    """Return the learner with a given policy to follow in compiled code.

    A failure of the policy, whose action is then below zero, cannot be raised there: an update that
    sees one says that something was not finite.
    """

    def act(state: Any, observation: Array, mask: Array, uniforms: Array, epsilon: Any) -> Acted:
        own = policy(observation, mask, uniforms)
        explores = (uniforms[..., 0] < epsilon) & (own >= 0)
        return act_without_values(jnp.where(explores, uniform_legal(uniforms[..., 1], mask), own))

    def update(key: Array, state: LearnerState, batch: Batch) -> tuple[LearnerState, Info]:
        transitions = batch.transitions if isinstance(batch, Weighted) else batch
        state, info = learner.update(key, state, transitions)
        bootstraps = transitions.discount > 0
        failed = (transitions.action < 0) | ((transitions.next_action < 0) & bootstraps)
        return state, info._replace(finite=info.finite & ~jnp.any(failed))

    return learner._replace(act=act, update=update, policy=policy)


def _is_finite(state: LearnerState) -> bool:
    leaves = jax.tree.leaves(state.sampler.params)
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)
