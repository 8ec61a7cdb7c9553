"""The agent that users hold in their hands: learn, predict, posterior, save, load."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from valuetrack import __version__, posterior
from valuetrack.api import settings, training
from valuetrack.api.arguments import check_count, legal_actions, seed_range
from valuetrack.api.environment import AgentEnvironment, Backend, Observation
from valuetrack.api.estimate import INITIAL, Estimate
from valuetrack.api.options import OptionsType, parse, with_options
from valuetrack.api.pieces import Heartbeat
from valuetrack.api.queries import EPISODE_LIMIT, Queries
from valuetrack.api.solving import Solver
from valuetrack.api.tracking import Tracking
from valuetrack.api.training import Callback
from valuetrack.api.watch import Watch, divergence, warn_of_divergence
from valuetrack.io import array_file
from valuetrack.learner import Learner, LearnerState, Task
from valuetrack.normalisation import normalised
from valuetrack.posterior import Pool
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.evaluation import Choose, Episodes, evaluate_on_host
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Trainer
from valuetrack.types import Keywords, NDArray

if TYPE_CHECKING:
    import arviz


class Agent(Generic[OptionsType]):
    """A value-based agent in an environment.

    Parameters
    ----------
    env
        A Gymnasium id, environment, vector environment, a function that makes an environment, or
        an environment written in JAX. Ids that exist in JAX train under one ``jit``.
    seed, seeds
        The first seed, and how many are trained side by side, each in environments of its own.
    env_options
        Keyword arguments for ``gymnasium.make``.
    backend
        ``"compiled"`` insists on an environment in JAX, ``"host"`` on stepping it in Python.
    **options
        Hyperparameters; ``help(agent.options)`` explains them.

    Notes
    -----
    Observations may be Box, Discrete, MultiBinary, MultiDiscrete, and Dict and Tuple of these;
    actions are Discrete. An ``info["action_mask"]`` is obeyed.
    """

    name: ClassVar[str]
    """The name in files and on the command line."""
    label: ClassVar[str]
    """The name in tables and figures."""
    colour: ClassVar[str]
    marker: ClassVar[str]
    """The colour in figures, and the marker on lines."""
    options_type: ClassVar[Any]
    is_sampler: ClassVar[bool] = False
    """Whether its samples are draws from a posterior."""
    sample_name: ClassVar[str] = "recent iterates of the optimiser, not a posterior"
    """What its samples are."""
    _given: tuple[object, ...] = ()
    """What it was made with besides the environment and the options."""

    @staticmethod
    def build(task: Task, options: Any) -> Learner:
        """Build the learner for a task; every agent has its own."""
        raise TypeError("Choose an agent, such as valuetrack.LKTD: this is their base class.")

    def __init_subclass__(cls) -> None:
        """Let editors and ``help`` show the options as keyword arguments."""
        super().__init_subclass__()
        cls.__signature__ = with_options(cls.__init__, cls.options_type)  # type: ignore[attr-defined]

    def __init__(
        self,
        env: object,
        *,
        seed: int = 0,
        seeds: int = 1,
        env_options: Mapping[str, Any] | None = None,
        backend: Backend = "auto",
        **options: Any,
    ) -> None:
        self.seeds = seed_range(seed, seeds)
        if isinstance(env, VectorEnv) and env.num_envs % len(self.seeds) == 0:
            options.setdefault("environments", env.num_envs // len(self.seeds))
        self.options: OptionsType = parse(self.options_type, options, type(self).__name__)
        count = len(self.seeds) * self.options.environments
        self.env = AgentEnvironment(env, env_options or {}, backend, count)
        self._meant = self.env.components(self.options.normalise_observations)
        decided = {"normalise_observations": self._meant is not None}
        self.options = self.options.model_copy(update=decided)
        self.learner = self._make_learner()
        self._queries = Queries(self.learner, self.env.in_jax)
        self._random = np.random.default_rng([self.seeds[0], 2])
        self._records: list[tuple[NDArray, NDArray, NDArray]] = []
        self._tracked: NDArray | None = None
        self.trainer: Trainer = self._make_trainer()
        self.watch = Watch(
            type(self).__name__, self.seeds, self.options.discount, self.learner.target_every
        )
        self._solver = Solver(self.trainer, of_mean=self.is_sampler)

    def _make_learner(self) -> Learner:
        return normalised(self.build(self.task, self.options), self._meant)

    def _make_trainer(self) -> Trainer:
        how = settings.settings_of(self.options, self.learner, len(self.seeds))
        if self.env.in_python is None:
            return CompiledTrainer(self.learner, how, self.env.in_jax, self.seeds)
        return HostTrainer(self.learner, how, self.env.in_python, self.seeds)

    @property
    def task(self) -> Task:
        """The shape of observations, and the number of actions."""
        return self.env.task

    @property
    def backend(self) -> Backend:
        """Which trainer it has, ``"compiled"`` or ``"host"``."""
        return "host" if self.env.in_jax is None else "compiled"

    @property
    def num_timesteps(self) -> int:
        """Environment steps per seed so far."""
        return self.trainer.steps

    @property
    def diverged(self) -> dict[int, int]:
        """The seeds that diverged, each with the update at which it did."""
        at = zip(self.seeds, self.trainer.diverged, strict=True)
        return {seed: int(update) for seed, update in at if update >= 0}

    def learn(
        self,
        total_timesteps: int,
        *,
        callback: Callback | None = None,
        heartbeat: Heartbeat | None = None,
        progress_bar: bool = False,
        report_every: int | None = None,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 5,
        tensorboard: str | os.PathLike[str] | None = None,
        track: Observation | None = None,
        track_every: int = 1,
    ) -> Self:
        """Train for this many more environment steps per seed, rounded up to whole cycles.

        Parameters
        ----------
        total_timesteps
            Environment steps per seed.
        callback
            Called every ``report_every`` steps (a hundredth of the training by default).
        heartbeat
            Called about twice a second, between two cycles; returning False ends the training
            there, with a last call of the callback.
        progress_bar
            Show a bar with speed and time left.
        evaluate_every, evaluation_episodes
            Every this many steps, play this many greedy episodes and tell the callback.
        tensorboard
            A folder for TensorBoard (needs the extra ``tensorboard``).
        track, track_every
            Observations whose Q-values are recorded after every ``track_every``-th update; see
            :meth:`tracking`. Other observations than before begin a new record.
        """
        check_count("total_timesteps", total_timesteps)
        schedule = training.Schedule(report_every, evaluate_every, evaluation_episodes, track_every)
        self._check_learning(schedule)
        self._start_tracking(track)
        training.train(
            self,
            total_timesteps,
            schedule,
            callback=callback,
            heartbeat=heartbeat,
            progress_bar=progress_bar,
            tensorboard=tensorboard,
        )
        warn_of_divergence(type(self).__name__, self.diverged)
        return self

    def predict(
        self,
        observation: Observation,
        state: None = None,
        episode_start: object = None,
        deterministic: bool = True,
        *,
        action_mask: npt.ArrayLike | None = None,
        member: int = 0,
    ) -> tuple[int | NDArray, None]:
        """Choose an action for one observation, or for a batch of them.

        ``deterministic=False`` explores with the present epsilon. ``member`` is the position of
        a seed among those trained side by side. ``action_mask`` marks the legal actions, one row
        for all or one per observation. The second value is there for users of SB3.
        """
        encoded, single = self.env.encode(observation)
        mask = legal_actions(action_mask, len(encoded), self.task.actions)
        chosen, _ = self._queries.choose(self._member(member), encoded, mask)
        if not deterministic:
            epsilon = float(self.trainer.settings.exploration(self.num_timesteps))
            for row in np.flatnonzero(self._random.random(len(chosen)) < epsilon):
                chosen[row] = self._random.choice(np.flatnonzero(mask[row]))
        chosen = chosen + self.env.offset
        return (int(chosen[0]) if single else chosen), None

    def posterior(self, observation: Observation, *, member: int = 0) -> Estimate:
        """Return samples of the Q-values at one observation, or at a batch of them.

        For LKTD, SGLD and SGHMC they are draws from the posterior. For the others they are what
        ``what`` says, and ``is_posterior`` is False.
        """
        encoded, single = self.env.encode(observation)
        state = self._member(member)
        latest = self._queries.values(state, encoded)
        pool = self.trainer.member(member).pool
        drawn, weights = latest[None], None
        if isinstance(pool, Pool) and self.trainer.clock.updates:
            # All slots at once, so that one program serves pools that fill up; then those in use.
            every = self._queries.values_of_pool(state, pool.samples, encoded)
            drawn, weights = posterior.in_order(pool._replace(samples=(every, pool.weights)))
            weights = np.repeat(weights, drawn.shape[1])
        drawn = drawn.reshape(-1, *drawn.shape[2:])  # heads count as samples
        latest = latest.mean(axis=0)
        if single:
            drawn, latest = drawn[:, 0], latest[0]
        solve = self._solver.later(int(member), encoded, single)
        if not self.trainer.clock.updates:
            return Estimate(drawn, latest, INITIAL, is_posterior=False, solve=solve)
        what, is_sampler = self.sample_name, self.is_sampler
        return Estimate(drawn, latest, what, is_sampler, weights, solve=solve)

    def to_arviz(self, observation: Observation, name: str = "q") -> arviz.InferenceData:
        """Export the samples at one observation, or at a batch of them, for ArviZ.

        The seeds are the chains; the variable has the axes (chain, draw, ..., action). Needs the
        extra ``arviz``.
        """
        chains = [self.posterior(observation, member=m).samples for m in range(len(self.seeds))]
        return posterior.inference_data({name: np.stack(chains)})

    def evaluate(self, episodes: int = 10, *, seed: int = 0) -> NDArray:
        """Play greedy episodes with the current parameters; return (seeds, episodes) returns."""
        return np.asarray(self.play(episodes, seed=seed).returns)

    def play(self, episodes: int = 10, *, seed: int = 0) -> Episodes:
        """Play greedy episodes; also say what was expected of them, and their discounted returns.

        Where Q-values are right, ``start_values`` and ``discounted_returns`` agree in the mean.
        """
        check_count("episodes", episodes)
        check_count("seed", seed, least=0)
        states, discount = self.trainer.states, self.options.discount
        if self.env.in_jax is not None:
            return self._queries.play(states, seed, episodes, discount)
        envs = self.env.for_evaluation(len(self.seeds))
        starts = (np.random.SeedSequence([seed, 1]).generate_state(envs.count) >> 1).tolist()
        choose, limit = self._choice(states, seed), EPISODE_LIMIT
        return evaluate_on_host(choose, envs, starts, episodes, limit=limit, discount=discount)

    def _choice(self, states: LearnerState, seed: int) -> Choose:
        return self._queries.greedily(states)

    def tracking(self) -> Tracking:
        """Return the values recorded so far; see ``track`` of :meth:`learn`."""
        if not self._records:
            shape = (0, len(self.seeds), 1, 0, self.task.actions)
            return Tracking(np.zeros(0, int), np.zeros(0, int), np.zeros(shape))
        steps, updates, values = (np.concatenate(part) for part in zip(*self._records, strict=True))
        return Tracking(steps, updates, values)

    def close(self) -> None:
        """Close the environments that the agent made; those it was given stay open."""
        self.env.close()

    def save(self, path: str | os.PathLike[str], *, replay: bool = True) -> None:
        """Write the agent to one file; with its replay memory, it goes on bit for bit."""
        self.env.warn_of_statistics()
        array_file.save(path, self.trainer.arrays(replay=replay), self.describe(replay=replay))

    def describe(self, *, replay: bool = True) -> Keywords:
        """Return what a file says of the agent besides its arrays."""
        env, env_options = self.env.saved
        return {
            "algorithm": self.name,
            "options": self.options.model_dump(mode="json"),
            "env": env,
            "env_options": env_options,
            "backend": self.backend,
            "seeds": list(self.seeds),
            "replay": replay,
            "task": {**self.task._asdict(), "shape": list(self.task.shape)},
            "version": __version__,
        }

    def record(self, values: NDArray, every: int) -> None:
        """Keep the tracked values of the last cycles, those of every ``every``-th update."""
        if not len(values):
            return
        clock, how = self.trainer.clock, self.trainer.settings
        updates = clock.updates - len(values) + 1 + np.arange(len(values))
        # Updates come at the end of a cycle; the last cycle has just ended.
        behind = (clock.updates - updates) // how.updates_per_cycle
        steps = self.trainer.steps - behind * how.transitions_per_cycle
        wanted = updates % every == 0
        self._records.append((steps[wanted], updates[wanted], values[wanted]))

    def __repr__(self) -> str:
        """Say what it is in a few lines."""
        defaults = self.options_type()
        given = self.options.model_dump().items()
        usual = {**dict(defaults), "normalise_observations": self.options.normalise_observations}
        own = {name: value for name, value in given if value != usual[name]}
        seeds = f"seed {self.seeds[0]}"
        if len(self.seeds) > 1:
            seeds = f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        lines = [
            f"{type(self).__name__} on {self.env.label}, {seeds}",
            f"  task: {self.task.actions} actions, observations {self.task.shape}; "
            f"{self.backend} trainer",
            f"  learned: {self.num_timesteps:,} steps, {self.trainer.clock.updates:,} updates",
        ]
        if own:
            lines.append(f"  options: {', '.join(f'{k}={v!r}' for k, v in own.items())}")
        if self.diverged:
            lines.append(f"  diverged: {divergence(self.diverged)}")
        return "\n".join(lines)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return an agent of its own that has learned the same; on the host it starts episodes."""
        twin = type(self)(
            self.env.copied(),
            *self._given,
            seed=self.seeds[0],
            seeds=len(self.seeds),
            env_options=self.env.options,
            backend="auto" if self.env.id is None else self.backend,
            **dict(self.options),
        )
        twin.trainer.restore(self.trainer.arrays())
        twin._random = copy.deepcopy(self._random, memo)
        twin._records, twin._tracked = list(self._records), self._tracked
        memo[id(self)] = twin
        return twin

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a pickle can hold code."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled; write it with agent.save(path) and read it "
            "with valuetrack.load(path)."
        )

    def _check_learning(self, schedule: training.Schedule) -> None:
        if schedule.evaluate_every:
            self.env.check_evaluation()

    def _start_tracking(self, observations: Observation | None) -> None:
        if observations is None:
            self.trainer.track(None)
            return
        encoded, single = self.env.encode(observations)
        if single:
            raise ValueError("`track` takes a batch of observations; wrap a single one: [obs].")
        self.trainer.track(encoded)
        if self._tracked is None or not np.array_equal(encoded, self._tracked):
            self._tracked, self._records = encoded, []

    def _member(self, member: int) -> LearnerState:
        if not isinstance(member, int | np.integer) or not 0 <= member < len(self.seeds):
            raise ValueError(f"There are {len(self.seeds)} seeds, so no member {member!r}.")
        return self.trainer.member(int(member)).learner


AnyAgent = Agent[Any]
"""An agent of whatever class."""
