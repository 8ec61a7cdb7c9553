"""How an agent sees how good it is, and how good its values are: it plays episodes."""

from __future__ import annotations

from typing import Self

import numpy as np

from valuetrack.api import calibration
from valuetrack.api.acting import Actor
from valuetrack.api.arguments import check_count
from valuetrack.api.calibration import Calibrations
from valuetrack.api.environment import AgentEnvironment
from valuetrack.api.options import Options
from valuetrack.api.queries import EPISODE_LIMIT
from valuetrack.api.solving import Solver
from valuetrack.learner import LearnerState
from valuetrack.training.evaluation import Choose, Episodes, evaluate_on_host
from valuetrack.training.trainer import Trainer
from valuetrack.types import NDArray


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

    def evaluate(self, episodes: int = 10, *, seed: int = 0) -> NDArray:
        """Play greedy episodes as ``predict`` does; return (seeds, episodes) returns."""
        return np.asarray(self.play(episodes, seed=seed).returns)

    def play(self, episodes: int = 10, *, seed: int = 0) -> Episodes:
        """Play greedy episodes; also say what was expected of them, and their discounted returns.

        Where Q-values are right, ``start_values`` and ``discounted_returns`` agree in the mean.
        """
        check_count("episodes", episodes)
        check_count("seed", seed, least=0)
        discount = self._discount
        if self.env.in_jax is not None:
            return self.actor.queries.play(self.actor.states, seed, episodes, discount)
        envs = self.env.for_evaluation(len(self.seeds))
        starts = (np.random.SeedSequence([seed, 1]).generate_state(envs.count) >> 1).tolist()
        choose, limit = self._choice(self.actor.states, seed), EPISODE_LIMIT
        return evaluate_on_host(choose, envs, starts, episodes, limit=limit, discount=discount)

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

    def _choice(self, states: LearnerState, seed: int) -> Choose:
        return self.actor.queries.greedily(states)

    def _check_playing(self) -> None:
        """Refuse to play where there is nothing to play with."""
