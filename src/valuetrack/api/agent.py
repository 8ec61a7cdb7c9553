"""The agent that users hold in their hands: learn, predict, posterior, save, load."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from valuetrack import posterior
from valuetrack.api import description, settings, training
from valuetrack.api.acting import Actor
from valuetrack.api.arguments import check_count, legal_actions, seed_range
from valuetrack.api.environment import AgentEnvironment, Backend, Observation
from valuetrack.api.estimate import Estimate
from valuetrack.api.estimation import Estimator
from valuetrack.api.loggers import Logger
from valuetrack.api.options import OptionsType, parse, with_options
from valuetrack.api.pieces import Heartbeat
from valuetrack.api.playing import Player
from valuetrack.api.queries import Queries
from valuetrack.api.records import Records
from valuetrack.api.solving import Solver, TrainerSource
from valuetrack.api.tracking import Tracking
from valuetrack.api.training import Callback
from valuetrack.api.watch import Watch, warn_of_divergence
from valuetrack.io import array_file
from valuetrack.io.arrays import Arrays
from valuetrack.learner import Learner, LearnerState, Task
from valuetrack.normalisation import normalised
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Trainer
from valuetrack.types import Keywords, NDArray
from valuetrack.values.sandwich import Values

if TYPE_CHECKING:
    import arviz

TRACKED_TRANSITIONS = 5_000
"""From how many transitions intervals are solved during a training, unless told otherwise."""


class Agent(Player, Generic[OptionsType]):
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
        self._records = Records()
        self.trainer: Trainer = self._make_trainer()
        how, count = self.trainer.settings, len(self.seeds)
        settings.warn_of_small_pool(self.options, self.learner, how, count, stacklevel=2)
        self.actor = Actor(self.trainer, self.learner, self.env.in_jax, self.is_sampler)
        self._source = TrainerSource(self.trainer)
        self._solver = Solver(self._source, of_mean=self.is_sampler, actor=self.actor)
        self._estimator = Estimator(
            self.trainer, self._queries, self._solver, self.sample_name, self.is_sampler
        )
        self.watch = Watch(
            type(self).__name__, self.seeds, self.options.discount, self.learner.target_every
        )

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
        logger: Logger | Sequence[Logger] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        track: Observation | None = None,
        track_every: int = 1,
        track_intervals_every: int | None = None,
        track_intervals_from: int | None = TRACKED_TRANSITIONS,
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
        logger
            One or more :class:`~valuetrack.api.loggers.Logger`, told what callbacks are told. They
            stay open; close them when all is trained.
        tensorboard
            A folder for TensorBoard (needs the extra ``tensorboard``).
        track, track_every
            Observations whose Q-values are recorded after every ``track_every``-th update; see
            :meth:`tracking`. Other observations than before begin a new record.
        track_intervals_every, track_intervals_from
            After every this many updates, solve the intervals of the tracked values, from at most
            this many transitions drawn from the replay memory (``None`` for all, which takes
            longer and gives narrower intervals).
        """
        check_count("total_timesteps", total_timesteps)
        schedule = training.Schedule(
            report_every,
            evaluate_every,
            evaluation_episodes,
            track_every,
            track_intervals_every,
            track_intervals_from,
        )
        self._check_learning(schedule)
        self._start_tracking(track, schedule)
        training.train(
            self,
            total_timesteps,
            schedule,
            callback=callback,
            heartbeat=heartbeat,
            progress_bar=progress_bar,
            logger=logger,
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

        LKTD, SGLD and SGHMC act by the mean of posterior samples, see
        :mod:`valuetrack.api.acting`; others by their current parameters.
        ``deterministic=False`` explores with the present epsilon. ``member`` is the position of
        a seed among those trained side by side. ``action_mask`` marks the legal actions, one row
        for all or one per observation. The second value is there for users of SB3.
        """
        encoded, single = self.env.encode(observation)
        mask = legal_actions(action_mask, len(encoded), self.task.actions)
        self._member(member)
        chosen, _ = self.actor.queries.choose(self.actor.member(int(member)), encoded, mask)
        if not deterministic:
            epsilon = float(self.trainer.settings.exploration(self.num_timesteps))
            for row in np.flatnonzero(self._random.random(len(chosen)) < epsilon):
                chosen[row] = self._random.choice(np.flatnonzero(mask[row]))
        chosen = chosen + self.env.offset
        return (int(chosen[0]) if single else chosen), None

    def posterior(self, observation: Observation, *, member: int | Literal["all"] = 0) -> Estimate:
        """Return samples of the Q-values at one observation, or at a batch of them.

        For LKTD, SGLD and SGHMC they are draws from the posterior. For the others they are what
        ``what`` says, and ``is_posterior`` is False. ``member="all"`` puts those of all seeds
        together, with ``rhat`` and ``ess``, and warns if they disagree.
        """
        encoded, single = self.env.encode(observation)
        if isinstance(member, str) and member == "all":
            return self._estimator.of_all(encoded, single)
        self._member(member)
        found = self._estimator.of_one(int(member), encoded, single)
        learned = self.calibration.of(int(member), self.trainer.clock)
        acted_on = self.actor.values(int(member), encoded)
        return dataclasses.replace(
            found, calibration=learned, acted_on=acted_on[0] if single else acted_on
        )

    def to_arviz(self, observation: Observation, name: str = "q") -> arviz.InferenceData:
        """Export the samples at one observation, or at a batch of them, for ArviZ.

        The seeds are the chains; the variable has the axes (chain, draw, ..., action). Needs the
        extra ``arviz``.
        """
        chains = [self.posterior(observation, member=m).samples for m in range(len(self.seeds))]
        return posterior.inference_data({name: np.stack(chains)})

    def tracking(self) -> Tracking:
        """Return the values recorded so far; see ``track`` of :meth:`learn`."""
        return self._records.tracking(len(self.seeds), self.task)

    def close(self) -> None:
        """Close the environments that the agent made; those it was given stay open."""
        self.env.close()

    def save(self, path: str | os.PathLike[str], *, replay: bool = True) -> None:
        """Write the agent to one file; with its replay memory, it goes on bit for bit."""
        self.env.warn_of_statistics()
        arrays = {
            **self.trainer.arrays(replay=replay),
            **self._records.arrays(),
            **self.calibration.arrays(),
        }
        array_file.save(path, arrays, self.describe(replay=replay))

    def restore(self, arrays: Arrays, *, replay: bool = True) -> None:
        """Go on from the arrays of a file, with or without its replay memory.

        Raises
        ------
        ValueError
            If they are not those of such an agent.
        """
        self.trainer.restore(arrays, replay=replay)
        self._records.restore(arrays, len(self.seeds), self.task)

    def describe(self, *, replay: bool = True) -> Keywords:
        """Return what a file says of the agent besides its arrays."""
        return description.for_file(self, replay=replay)

    def record(self, values: NDArray, every: int) -> None:
        """Keep the tracked values of the last cycles, those of every ``every``-th update."""
        self._records.add(self.trainer, values, every)

    def solve_values(self, encoded: NDArray, member: int, transitions: int | None) -> Values:
        """Return a seed's values now, solved from at most this many transitions of its memory."""
        return self._solver.values_from_some(member, encoded, transitions)

    def record_intervals(self, transitions: int | None) -> None:
        """Keep the intervals of the tracked values as they are now."""
        self._records.solve(self.trainer, self._solver, transitions)

    def __repr__(self) -> str:
        """Say what it is in a few lines."""
        return description.in_words(self)

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
        twin.calibration = self.calibration
        twin._random = copy.deepcopy(self._random, memo)
        twin._records = self._records.copy()
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

    def _start_tracking(
        self, observations: Observation | None, schedule: training.Schedule
    ) -> None:
        if observations is None:
            if schedule.intervals_every is not None:
                raise ValueError(
                    "track_intervals_every solves the values of tracked observations; pass "
                    "`track=observations` as well."
                )
            self.trainer.track(None)
            return
        encoded, single = self.env.encode(observations)
        if single:
            raise ValueError("`track` takes a batch of observations; wrap a single one: [obs].")
        if schedule.intervals_every is not None:
            self._source.check()
            self._solver.check(encoded[0])
        self.trainer.track(encoded)
        self._records.start(encoded)

    def _member(self, member: int) -> LearnerState:
        if not isinstance(member, int | np.integer) or not 0 <= member < len(self.seeds):
            raise ValueError(f"There are {len(self.seeds)} seeds, so no member {member!r}.")
        return self.trainer.member(int(member)).learner


AnyAgent = Agent[Any]
"""An agent of whatever class."""
