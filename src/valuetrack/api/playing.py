"""How an agent sees how good it is, and how good its values are: it plays episodes."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np

from valuetrack.api import calibration, export, video
from valuetrack.api.acting import Actor
from valuetrack.api.arguments import check_count, check_member
from valuetrack.api.calibration import Calibrations
from valuetrack.api.environment import AgentEnvironment, GivenEnvironment
from valuetrack.api.options import Options
from valuetrack.api.progress_bar import Bar, show_bar
from valuetrack.api.queries import EPISODE_LIMIT, Queries
from valuetrack.api.solving import Solver
from valuetrack.learner import LearnerState
from valuetrack.training.evaluation import Choose, Episodes, evaluate_on_host
from valuetrack.training.trainer import Trainer
from valuetrack.types import NDArray

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent


class Stage(NamedTuple):
    """Where an agent plays: an environment, and what can be asked of the agent in it."""

    env: AgentEnvironment
    queries: Queries


class Player:
    """What plays greedy episodes; the base class of the agents."""

    seeds: tuple[int, ...]
    env: AgentEnvironment
    trainer: Trainer
    actor: Actor
    _solver: Solver
    calibration = Calibrations()
    """What :meth:`calibrate` has learned."""

    @property
    def _discount(self) -> float:
        options: Options = self.options  # type: ignore[attr-defined]
        return options.discount

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = 0,
        env: GivenEnvironment = None,
        max_episode_steps: int = EPISODE_LIMIT,
        progress_bar: bool = False,
    ) -> NDArray:
        """Play greedy episodes as ``predict`` does; return (seeds, episodes) returns.

        Parameters
        ----------
        episodes, seed
            How many of each seed, and the seed of the environments.
        env
            Another environment than the agent's own, in any form that the agent takes. By default
            it is a new one like that of the training; one that was given as an object is made
            again from its ``spec``, as ``gymnasium.make`` leaves one.
        max_episode_steps
            An episode that takes longer counts with what it has by then, and a warning says so.
        progress_bar
            Show how many episodes are finished.
        """
        played = self._played(episodes, seed, env, max_episode_steps, progress_bar)
        return np.asarray(played.returns)

    def play(
        self,
        episodes: int = 10,
        *,
        seed: int = 0,
        env: GivenEnvironment = None,
        max_episode_steps: int = EPISODE_LIMIT,
        progress_bar: bool = False,
    ) -> Episodes:
        """Play greedy episodes; also say what was expected of them, and their discounted returns.

        Where Q-values are right, ``start_values`` and ``discounted_returns`` agree in the mean.
        The arguments are those of :meth:`evaluate`.
        """
        return self._played(episodes, seed, env, max_episode_steps, progress_bar)

    def _played(
        self, episodes: int, seed: int, env: GivenEnvironment, limit: int, shown: bool
    ) -> Episodes:
        check_count("episodes", episodes)
        check_count("seed", seed, least=0)
        check_count("max_episode_steps", limit)
        with self.stage(env) as stage:
            return self.play_on(stage, episodes, seed, limit, shown=shown)

    @contextlib.contextmanager
    def stage(self, env: GivenEnvironment = None) -> Iterator[Stage]:
        """Yield where to play: the agent's own environment, or another one until the end."""
        if env is None:
            yield Stage(self.env, self.actor.queries)
            return
        other = AgentEnvironment(
            env, {}, "host" if self.env.in_jax is None else "auto", len(self.seeds)
        )
        try:
            other.check_like(self.env.task)
            yield Stage(other, Queries(self.actor.learner, lambda: other.in_jax))
        finally:
            other.close()

    def play_on(
        self, stage: Stage, episodes: int, seed: int, limit: int, *, shown: bool = False
    ) -> Episodes:
        """Play episodes on a stage; see :meth:`play`."""
        bar = Bar(type(self).__name__, len(self.seeds) * episodes, "episodes")
        with show_bar(bar) if shown else contextlib.nullcontext(lambda finished: None) as move:
            if stage.env.in_jax is not None:
                played = stage.queries.play(
                    self.actor.states, seed, episodes, self._discount, limit
                )
                move(bar.total)
            else:
                envs = stage.env.for_playing(len(self.seeds), self.env)
                starts = np.random.SeedSequence([seed, 1]).generate_state(envs.count) >> 1
                played = evaluate_on_host(
                    self._choice(self.actor.states, seed, stage.env),
                    envs,
                    starts.tolist(),
                    episodes,
                    limit=limit,
                    discount=self._discount,
                    after_step=move,
                )
        _warn_of_limit(played, limit)
        return played

    def record_video(
        self,
        path: str | os.PathLike[str],
        *,
        episodes: int = 1,
        seed: int = 0,
        member: int = 0,
        max_episode_steps: int = 1_000,
    ) -> list[float]:
        """Play greedy episodes and write a video of them; return their returns.

        The file ends with ``.gif`` (needs the extra ``video``) or ``.mp4`` (needs MoviePy).
        ``member`` is the position of a seed among those trained side by side. An environment that
        was given as a function must be made with ``render_mode="rgb_array"``.
        """
        check_count("episodes", episodes)
        check_count("seed", seed, least=0)
        check_count("max_episode_steps", max_episode_steps)
        return video.record(
            cast("AnyAgent", self),
            path,
            episodes=episodes,
            seed=seed,
            member=member,
            max_episode_steps=max_episode_steps,
        )

    def calibrate(self, episodes: int = 50, *, seed: int = 0) -> Self:
        r"""Play greedy episodes with the frozen policy, and keep what they teach about the values.

        From then on, until the agent learns on, ``q.interval(level, kind="value")`` is corrected
        for what returns say about the value, and ``q.interval(level, kind="return")`` exists.
        ``agent.calibration`` has the numbers, and a file of :meth:`save` holds them.

        Parameters
        ----------
        episodes
            How many episodes of each seed, at least 20. The first half corrects the bias and finds
            the spread, the other half calibrates: an interval of a level takes ``level / (1 -
            level)`` of these, so 50 episodes are enough for 95 %, and 198 for 99 %.
        seed
            Of the episodes. They are never those of the training.

        Notes
        -----
        Every episode is seen from states that are drawn uniformly from its steps. An episode that
        was cut off does not show the end of its return. So if any was, only early steps are used,
        from which what is missing is discounted to at most 1 %, in all episodes alike; the
        correction and the factor let the missing part be as large as the part that was seen.

        1. *Bias.* What to add to the values of visited states: a shift or a line in the value, or
           nothing unless it helps at episodes left out; see
           :func:`~valuetrack.values.conformal.fit_bias`.
        2. *The value.* One state per episode is left several times, independently, which shows
           the noise of returns and takes most of it away; see
           :class:`~valuetrack.values.conformal.Agreement`. In Gymnasium, a visit repeats the
           actions after the same seed, and then replaces ``np_random``; an environment that draws
           from elsewhere looks as if its returns had no noise, and intervals become wider.
        3. *The return.* Split conformal prediction with the score :math:`|G - f(v)| / s(v)` of one
           random state per episode, where f and s come from the other half; see
           :meth:`~valuetrack.api.estimate.Estimate.interval`.

        Raises
        ------
        ValueError
            If the episodes are too few, or cut off where too much is missing.

        Examples
        --------
        >>> import valuetrack as vt
        >>> agent = vt.DQN("CartPole-v1", hidden=(8,), seed=0).learn(500).calibrate(40)
        >>> low, high = agent.posterior([0.0, 0.1, 0.02, -0.1]).interval(0.9, kind="return")
        >>> bool((low < high).all())
        True
        """
        self.calibration = calibration.calibrate(self, episodes, seed)
        return self

    def export(self, path: str | os.PathLike[str], *, member: int = 0) -> None:
        """Write the values and the policy of one seed to a file that runs without this library.

        Its input are ``observations`` as the network sees them, (n, ...) with any n, and its
        outputs their ``values``, (n, actions), and the greedy ``actions``, (n,), in the
        environment's numbers (several choices at once are numbered by their combinations): what
        ``predict`` goes by, which for LKTD, SGLD and SGHMC is the mean over samples of the pool. A
        ``Box`` is a flat vector, a ``Discrete`` observation a one-hot one; normalisation is inside.
        Masks are not: where some actions are illegal, take the largest of the legal values.

        Parameters
        ----------
        path
            ``policy.onnx`` for an ONNX model (extra ``onnx``), ``policy.stablehlo`` or
            ``policy.bin`` for ``jax.export.deserialize``.
        member
            The position of the seed.
        """
        check_member(member, len(self.seeds))
        export.export(self, path, int(member))

    def _choice(self, states: LearnerState, seed: int, env: AgentEnvironment) -> Choose:
        del seed, env
        return self.actor.queries.greedily(states)

    def _check_playing(self) -> None:
        """Refuse to play where there is nothing to play with."""


def _warn_of_limit(played: Episodes, limit: int) -> None:
    cut = int(np.sum(played.cut_off))
    if cut:
        warnings.warn(
            f"{cut} of {played.cut_off.size} episodes did not end within {limit:,} steps and count "
            "with what they had by then; max_episode_steps chooses another limit, and "
            "gymnasium.wrappers.TimeLimit gives the environment one of its own.",
            RuntimeWarning,
            stacklevel=5,
        )
