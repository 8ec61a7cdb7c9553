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

from valuetrack.api import card as model_card
from valuetrack.api import description, settings
from valuetrack.api.acting import Actor
from valuetrack.api.alarms import Alarms
from valuetrack.api.arguments import check_member, legal_actions, seed_range
from valuetrack.api.calibration import Calibrations
from valuetrack.api.environment import AgentEnvironment, Backend, GivenEnvironment, Space
from valuetrack.api.estimate import Estimate
from valuetrack.api.estimation import Estimator
from valuetrack.api.hints import refuse_policy_name
from valuetrack.api.learning import Student
from valuetrack.api.loading import load_agent
from valuetrack.api.observations import Observation
from valuetrack.api.options import OptionsType, parse
from valuetrack.api.queries import Queries
from valuetrack.api.records import Records
from valuetrack.api.signatures import with_options
from valuetrack.api.solving import Solver, TrainerSource
from valuetrack.api.watch import Watch
from valuetrack.arviz_data import InferenceData, inference_data
from valuetrack.io import array_file
from valuetrack.io.arrays import Arrays
from valuetrack.io.errors import file_error, shortened
from valuetrack.learner import Learner, LearnerState, Task
from valuetrack.normalisation import normalised
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Trainer
from valuetrack.types import Keywords, NDArray

BEST_RETURN = "evaluation.best"
"""The name of a saved array."""


class Agent(Student, Generic[OptionsType]):
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
    actions are Discrete, or MultiDiscrete and MultiBinary with few combinations. An
    ``info["action_mask"]`` is obeyed.
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
    _positional: ClassVar[int] = 1
    """How many arguments it takes without a name."""
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

    if not TYPE_CHECKING:  # type checkers go by the signature of __init__

        def __new__(cls, *given: object, **options: object) -> Self:
            """Say what to write to those who begin as in Stable-Baselines3."""
            refuse_policy_name(cls.__name__, given, cls._positional)
            return super().__new__(cls)

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
        self._scaling = self.env.scaling(self.options.normalise_observations)
        decided = {"normalise_observations": self._scaling.decided}
        self.options = self.options.model_copy(update=decided)
        self.learner = self._make_learner()
        self._random = np.random.default_rng([self.seeds[0], 2])
        self._records, self.best_return = Records(), -np.inf
        self._alarms = Alarms(len(self.seeds))
        self._equip(self._make_trainer())
        how, count = self.trainer.settings, len(self.seeds)
        settings.warn_of_small_pool(self.options, self.learner, how, count, stacklevel=2)
        self.watch = Watch(
            type(self).__name__, self.seeds, self.options.discount, self.learner.target_every
        )

    def _equip(self, trainer: Trainer) -> None:
        """Take a trainer, and what asks it for actions and values."""
        self.trainer = trainer
        self._queries = Queries(self.learner, lambda: trainer.present_env)
        self.actor = Actor(trainer, self.learner, self.is_sampler)
        self._source = TrainerSource(trainer)
        self._solver = Solver(self._source, of_mean=self.is_sampler, actor=self.actor)
        self._estimator = Estimator(
            trainer, self._queries, self._solver, self.sample_name, self.is_sampler
        )

    def _make_learner(self) -> Learner:
        return normalised(self.build(self.task, self.options), self._scaling)

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
    def observation_space(self) -> Space:
        """Gymnasium's space of the observations."""
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        """Gymnasium's space of the actions."""
        return self.env.action_space

    @property
    def backend(self) -> Backend:
        """Which trainer it has, ``"compiled"`` or ``"host"``."""
        return "host" if self.env.in_jax is None else "compiled"

    @property
    def num_timesteps(self) -> int:
        """Environment steps per seed so far."""
        return self.trainer.steps

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
        flat = self.env.actions.flat_mask(action_mask)
        mask = legal_actions(flat, len(encoded), self.task.actions)
        self._member(member)
        chosen, _ = self.actor.queries.choose(self.actor.member(int(member)), encoded, mask)
        if not deterministic:
            epsilon = float(self.trainer.settings.exploration(self.num_timesteps))
            for row in np.flatnonzero(self._random.random(len(chosen)) < epsilon):
                chosen[row] = self._random.choice(np.flatnonzero(mask[row]))
        given = self.env.actions.given(chosen)
        if not single:
            return given, None
        return (given[0] if self.env.actions.sizes else int(given[0])), None

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

    def to_arviz(self, observation: Observation, name: str = "q") -> InferenceData:
        """Export the samples at one observation, or at a batch of them, for ArviZ.

        The seeds are the chains; the variable has the dimensions (chain, draw, observation,
        action), without ``observation`` for a single one. The coordinates are positions in the
        batch, and the environment's own actions. Needs the extra ``arviz``.
        """
        found = [self.posterior(observation, member=m) for m in range(len(self.seeds))]
        samples = np.stack([one.samples for one in found])
        axes = ["action"] if found[0].of == "q" else []
        axes = ["observation"] * (samples.ndim - 2 - len(axes)) + axes
        coords: dict[str, Sequence[object]] = {"action": self.env.actions.names}
        if "observation" in axes:
            coords["observation"] = range(samples.shape[2])
        named = {axis: coords[axis] for axis in axes}
        return inference_data({name: samples}, {name: axes}, named)

    def set_env(
        self, env: GivenEnvironment, *, env_options: Mapping[str, Any] | None = None
    ) -> Self:
        """Go on in another environment with the same observations and actions.

        What was learned stays. So does the replay memory where both are stepped in Python;
        otherwise it is filled anew. A calibration and the best return were those of the other
        environment and are forgotten.
        """
        count = len(self.seeds) * self.options.environments
        before, learner, trained = self.env, self.learner, self.trainer
        backend: Backend = "auto" if not isinstance(env, str) else self.backend
        found = AgentEnvironment(env, env_options or {}, backend, count)
        found.check_like(self.task)
        self.env = found
        try:
            self.learner = self._make_learner()
            trainer = self._make_trainer()
            if isinstance(trainer, HostTrainer) and isinstance(trained, HostTrainer):
                trainer.restore(trained.arrays())
            else:
                trainer.adopt(trained.learned, trained.clock)
        except BaseException:
            self.env, self.learner = before, learner
            found.close()
            raise
        self._equip(trainer)
        self.calibration, self.best_return = Calibrations(), -np.inf
        before.close()
        return self

    def close(self) -> None:
        """Close the environments that the agent made; those it was given stay open."""
        self.env.close()

    def save(
        self, path: str | os.PathLike[str], *, replay: bool = True, card: bool = False
    ) -> None:
        """Write the agent to one file; with its replay memory, it goes on bit for bit.

        ``card=True`` plays ten greedy episodes and writes a model card beside it, with the ending
        ``.md``: environment, options, returns and calibration, as Hugging Face's hub reads it.
        """
        self.env.warn_of_statistics()
        arrays = {
            **self.trainer.arrays(replay=replay),
            **self._records.arrays(),
            **self._alarms.arrays(),
            **self.calibration.arrays(),
        }
        if np.isfinite(self.best_return):
            arrays[BEST_RETURN] = np.array(self.best_return)
        array_file.save(path, arrays, self.describe(replay=replay))
        if card:
            model_card.write(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: GivenEnvironment = None) -> Self:
        """Load an agent of this class from a file; ``valuetrack.load`` takes those of any class.

        ``env`` replaces the saved environment.

        Raises
        ------
        ModelFileError
            If the file is not whole, or holds something else.
        """
        return cls._load(path, env)

    @classmethod
    def _load(cls, path: str | os.PathLike[str], env: object, *given: object) -> Self:
        arrays, saved = array_file.load(path)
        if saved.get("algorithm") != cls.name:
            told = shortened(repr(saved.get("algorithm")))
            raise file_error(
                path, f"holds the algorithm {told}, not {cls.name}; valuetrack.load reads any"
            )
        return load_agent(cls, path, arrays, saved, env, given)

    def restore(self, arrays: Arrays, *, replay: bool = True) -> None:
        """Go on from the arrays of a file, with or without its replay memory.

        Raises
        ------
        ValueError
            If they are not those of such an agent.
        """
        self.trainer.restore(arrays, replay=replay)
        self._records.restore(arrays, len(self.seeds), self.task)
        self._alarms.restore(arrays)
        best = arrays.get(BEST_RETURN)
        if best is not None:
            if best.shape != () or best.dtype.kind != "f":
                raise ValueError("the best return is no number")
            self.best_return = float(best)

    def describe(self, *, replay: bool = True) -> Keywords:
        """Return what a file says of the agent besides its arrays."""
        return description.for_file(self, replay=replay)

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
        twin.calibration, twin.best_return = self.calibration, self.best_return
        twin._random = copy.deepcopy(self._random, memo)
        twin._records, twin._alarms = self._records.copy(), self._alarms.copy()
        memo[id(self)] = twin
        return twin

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a pickle can hold code."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled; write it with agent.save(path) and read it "
            "with valuetrack.load(path)."
        )

    def _member(self, member: int) -> LearnerState:
        check_member(member, len(self.seeds))
        return self.trainer.member(int(member)).learner


AnyAgent = Agent[Any]
"""An agent of whatever class."""
