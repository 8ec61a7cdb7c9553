"""The agent that users hold in their hands: learn, predict, posterior, save, load."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from valuetrack import __version__, modelfile, posterior
from valuetrack.algorithms.build import Task, loop_settings
from valuetrack.algorithms.estimate import INITIAL, Estimate
from valuetrack.algorithms.loading import load_agent
from valuetrack.algorithms.options import Options, parse
from valuetrack.algorithms.pieces import Heartbeat
from valuetrack.algorithms.place import Backend, Place
from valuetrack.algorithms.playing import play
from valuetrack.algorithms.running import Callback, run_training
from valuetrack.algorithms.tracking import Tracking
from valuetrack.algorithms.views import Views
from valuetrack.learner import Learner, LearnerState
from valuetrack.posterior import Pool
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.evaluation import Episodes
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import Trainer

NDArray = npt.NDArray[Any]


class Algorithm:
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
    options_type: ClassVar[type[Options]] = Options
    build: ClassVar[Any]
    """``(task, options) -> Agent``."""
    is_sampler: ClassVar[bool] = False
    sample_name: ClassVar[str] = "recent iterates of the optimiser, not a posterior"

    def __init__(
        self,
        env: Any,
        *,
        seed: int = 0,
        seeds: int = 1,
        env_options: Mapping[str, Any] | None = None,
        backend: Backend = "auto",
        **options: Any,
    ) -> None:
        self.seeds = _seeds(seed, seeds)
        if isinstance(env, VectorEnv) and env.num_envs % len(self.seeds) == 0:
            options.setdefault("environments", env.num_envs // len(self.seeds))
        self.options = parse(self.options_type, options, type(self).__name__)
        lanes = len(self.seeds) * self.options.environments
        self.place = Place(env, env_options or {}, backend, lanes)
        self.agent: Learner = type(self).build(self.task, self.options)
        self._settings = loop_settings(self.options, self.agent, len(self.seeds))
        self._views = Views(self.agent, self.place.in_jax)
        self._random = np.random.default_rng([self.seeds[0], 2])
        self._records: list[tuple[NDArray, NDArray, NDArray]] = []
        self._tracked: NDArray | None = None
        self.trainer: Trainer
        if self.place.lanes is None:
            self.trainer = CompiledTrainer(
                self.agent, self._settings, self.place.in_jax, self.seeds
            )
        else:
            self.trainer = HostTrainer(self.agent, self._settings, self.place.lanes, self.seeds)

    @property
    def task(self) -> Task:
        """The shape of observations, and the number of actions."""
        return self.place.task

    @property
    def backend(self) -> str:
        """Which trainer it has, ``"compiled"`` or ``"host"``."""
        return "host" if self.place.in_jax is None else "compiled"

    @property
    def num_timesteps(self) -> int:
        """Environment steps of each seed so far."""
        return self.trainer.steps

    @property
    def diverged(self) -> dict[int, int]:
        """The seeds that diverged, each with the update at which it did."""
        at = self.trainer.diverged
        return {s: int(u) for s, u in zip(self.seeds, at, strict=True) if u >= 0}

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
        track: Any = None,
        track_every: int = 1,
    ) -> Self:
        """Train for so many more environment steps of each seed, rounded up to whole cycles.

        Parameters
        ----------
        total_timesteps
            Environment steps of each seed.
        callback
            Called every ``report_every`` steps (a hundredth of the training by default).
        heartbeat
            Called about twice a second, between two cycles; returning False ends the training
            there, with a last call of the callback.
        progress_bar
            Show a bar with speed and time left.
        evaluate_every, evaluation_episodes
            Play so many greedy episodes every so many steps, and tell the callback.
        tensorboard
            A folder for TensorBoard (needs the extra ``tensorboard``).
        track, track_every
            Observations whose Q-values are recorded after every ``track_every``-th update; see
            :meth:`tracking`. Other observations than before begin a new record.
        """
        _check_count("total_timesteps", total_timesteps)
        _check_count("report_every", report_every, optional=True)
        _check_count("evaluate_every", evaluate_every, optional=True)
        _check_count("evaluation_episodes", evaluation_episodes)
        _check_count("track_every", track_every)
        if evaluate_every:
            self.place.check_evaluation()
        self._start_tracking(self._to_track(track))
        run_training(
            self,
            total_timesteps,
            callback=callback,
            heartbeat=heartbeat,
            progress_bar=progress_bar,
            report_every=report_every,
            evaluate_every=evaluate_every,
            evaluation_episodes=evaluation_episodes,
            tensorboard=tensorboard,
            track_every=track_every,
        )
        self._warn_of_divergence()
        return self

    def predict(
        self,
        observation: Any,
        state: None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        action_mask: Any = None,
        member: int = 0,
    ) -> tuple[Any, None]:
        """Choose an action for one observation, or for a batch of them.

        ``deterministic=False`` explores with the present epsilon. ``member`` is the seed's place
        among those trained side by side. ``action_mask`` marks the legal actions, one row for all
        or one for each observation. The second value is there for users of SB3.
        """
        encoded, single = self.place.encode(observation)
        mask = self._legal(action_mask, len(encoded))
        chosen = np.array(self._views.choose(self._member(member), encoded, mask)[0])
        if not deterministic:
            epsilon = float(self._settings.exploration(self.num_timesteps))
            for row in np.flatnonzero(self._random.random(len(chosen)) < epsilon):
                chosen[row] = self._random.choice(np.flatnonzero(mask[row]))
        chosen = chosen + self.place.offset
        return (int(chosen[0]) if single else chosen), None

    def posterior(self, observation: Any, *, member: int = 0) -> Estimate:
        """Return samples of the Q-values at one observation, or at a batch of them.

        For LKTD, SGLD and SGHMC they are draws from the posterior. For the others they are what
        ``what`` says, and ``is_posterior`` is False.
        """
        encoded, single = self.place.encode(observation)
        state = self._member(member)
        latest = np.asarray(self._views.values(state, encoded))
        pool = self.trainer.member(member).pool
        if isinstance(pool, Pool) and self.trainer.clock.updates:
            every = self._views.values_of_pool(state, pool.samples, encoded)
            drawn = np.asarray(every)[posterior.order(pool)]
            drawn = drawn.reshape(-1, *drawn.shape[2:])  # heads count as samples
        else:  # before the first update, or no pool fits: the present parameters alone
            drawn = latest
        latest = latest.mean(axis=0)
        if single:
            drawn, latest = drawn[:, 0], latest[0]
        if not self.trainer.clock.updates:
            return Estimate(drawn, latest, INITIAL, is_posterior=False)
        return Estimate(drawn, latest, self.sample_name, self.is_sampler)

    def to_arviz(self, observation: Any, name: str = "q") -> Any:
        """Export the samples at one observation, or at a batch of them, for ArviZ.

        The seeds are the chains; the variable has the axes (chain, draw, ..., action). Needs the
        extra ``arviz``.
        """
        chains = [self.posterior(observation, member=m).samples for m in range(len(self.seeds))]
        return posterior.inference_data({name: np.stack(chains)})

    def evaluate(self, episodes: int = 10, *, seed: int = 0) -> NDArray:
        """Play greedy episodes with the current parameters; return (seeds, episodes) returns."""
        returns: NDArray = self.play(episodes, seed=seed).returns
        return returns

    def play(self, episodes: int = 10, *, seed: int = 0) -> Episodes:
        """Play greedy episodes; also say what was expected of them, and their discounted returns.

        Where Q-values are right, ``start_values`` and ``discounted_returns`` agree in the mean.
        """
        _check_count("episodes", episodes)
        _check_count("seed", seed, least=0)
        return play(self, self._views, episodes, seed)

    def tracking(self) -> Tracking:
        """Return the values recorded so far; see ``track`` of :meth:`learn`."""
        if not self._records:
            shape = (0, len(self.seeds), 1, 0, self.task.actions)
            return Tracking(np.zeros(0, int), np.zeros(0, int), np.zeros(shape))
        steps, updates, values = (np.concatenate(part) for part in zip(*self._records, strict=True))
        return Tracking(steps, updates, values)

    def close(self) -> None:
        """Close the environments that the agent made; those it was given stay open."""
        self.place.close()

    def save(self, path: str | os.PathLike[str], *, replay: bool = True) -> None:
        """Write the agent to one file; with its replay memory, it goes on bit for bit."""
        env, env_options = self.place.saved
        description = {
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
        modelfile.save(path, self.trainer.arrays(replay=replay), description)

    @classmethod
    def from_file(
        cls, path: Any, arrays: Mapping[str, NDArray], description: dict[str, Any], env: Any
    ) -> Self:
        """Make an agent from the content of a model file."""
        agent: Self = load_agent(cls, path, arrays, description, env)
        return agent

    def record(self, values: NDArray, every: int) -> None:
        """Keep the tracked values of the last cycles, those of every so many updates."""
        if not len(values):
            return
        per_cycle = self._settings.updates_per_cycle
        done = self.trainer.clock.updates
        updates = done - len(values) + 1 + np.arange(len(values))
        # Updates come at the end of a cycle; the last cycle has just ended.
        behind = (done - updates) // per_cycle
        steps = self.trainer.steps - behind * self._settings.transitions_per_cycle
        wanted = updates % every == 0
        self._records.append((steps[wanted], updates[wanted], values[wanted]))

    def _start_tracking(self, observations: NDArray | None) -> None:
        self.trainer.track(observations)
        if observations is None:
            return
        if self._tracked is None or not np.array_equal(observations, self._tracked):
            self._tracked, self._records = observations, []

    def _legal(self, given: Any, count: int) -> NDArray:
        """Return a mask as booleans, (count, actions)."""
        shape = (count, self.task.actions)
        if given is None:
            return np.ones(shape, bool)
        mask = np.asarray(given, bool)
        if mask.shape not in (shape, shape[1:]):
            raise ValueError(
                f"action_mask is {shape[1]} booleans, or as many for each of {count} observations; "
                f"its shape is {mask.shape}."
            )
        if not mask.any(axis=-1).all():
            raise ValueError("action_mask allows no action.")
        return np.broadcast_to(mask, shape)

    def _to_track(self, observations: Any) -> NDArray | None:
        if observations is None:
            return None
        encoded, single = self.place.encode(observations)
        if single:
            raise ValueError("`track` takes a batch of observations; wrap a single one: [obs].")
        return encoded

    def _member(self, member: int) -> LearnerState:
        if not isinstance(member, int | np.integer) or not 0 <= member < len(self.seeds):
            raise ValueError(f"There are {len(self.seeds)} seeds, so no member {member!r}.")
        state: LearnerState = jax.tree.map(lambda leaf: leaf[member], self.trainer.states)
        return state

    def _warn_of_divergence(self) -> None:
        if self.diverged:
            told = ", ".join(f"seed {s} at update {u}" for s, u in self.diverged.items())
            warnings.warn(
                f"{type(self).__name__} diverged: {told}. Its values are no numbers from there on; "
                "use a smaller step size.",
                RuntimeWarning,
                stacklevel=3,
            )


def _seeds(seed: int, seeds: int) -> tuple[int, ...]:
    _check_count("seed", seed, least=0)
    _check_count("seeds", seeds)
    if seed + seeds > 2**32:
        raise ValueError(f"Seeds must lie below 2^32, which {seed + seeds - 1} does not.")
    return tuple(range(int(seed), int(seed) + int(seeds)))


def _check_count(name: str, value: Any, least: int = 1, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}.")
