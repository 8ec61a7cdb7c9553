"""How the host trainer chooses actions: in NumPy where it can, else by a compiled program.

A call of a compiled program takes longer than the forward pass of a small network for a few
observations, so that networks known in NumPy (``Learner.on_host``) are asked there. Their
parameters are looked at once per cycle, where they lie: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from valuetrack.envs.gym.vectorised import Observed
from valuetrack.host_networks import Forward
from valuetrack.learner import Acted, Following, Learner, LearnerState
from valuetrack.schedules import Schedule
from valuetrack.training.seed_groups import Groups
from valuetrack.training.trainer import COUNT_LIMIT, Settings
from valuetrack.training.update import Learned
from valuetrack.types import AnyArray, Array, NDArray, Params, Scalar, Tree

STEPS_TOGETHER = 1_024
"""For how many steps epsilon is computed at a time."""

HostPolicy = Callable[[Observed, NDArray, NDArray], NDArray]
"""A given policy: (observed, rows, uniforms) -> actions, one per environment. Only those where
``rows`` is true matter; ``uniforms`` are ``acting_uniforms`` numbers per environment."""


class _Acting(NamedTuple):
    """The part of a sampler's state that acts."""

    params: Params


class Chooser:
    """Chooses the actions of all seeds, each of which has environments of its own.

    A ``policy`` chooses in place of the learner; ``settings.exploration`` lays random actions over
    it.
    """

    def __init__(
        self, learner: Learner, settings: Settings, groups: Groups, policy: HostPolicy | None = None
    ) -> None:
        self._learner, self._settings, self._groups = learner, settings, groups
        self.policy = policy
        self._epsilon = _Exploration(settings.exploration, settings.environments)
        self._forward: list[Forward] = []
        self._known: list[Learned] | None = None
        self._act = groups.compile(self._act_one, in_axes=(0, 0, 0, 0, 0, None))

    def forget(self) -> None:
        """Let go of the parameters, whose memory the next update then takes over."""
        self._forward, self._known = [], None

    def choose(
        self,
        learned: list[Learned],
        observed: Observed,
        rows: NDArray,
        uniforms: NDArray,
        step: int,
        heads: NDArray | None = None,
    ) -> tuple[Acted, NDArray]:
        """Return the actions to take, and those that SARSA counts as the next ones.

        They differ where a given policy is explored around. Only those in ``rows`` matter.
        ``learned`` is that of each group; ``uniforms`` are (seeds, environments, n), and ``heads``,
        the opinions that act where episodes draw one, (seeds, environments).
        """
        if self.policy is not None:
            drawn = uniforms.reshape(len(rows), -1)
            own = self.policy(observed, rows, drawn)
            taken = explored(own, observed.mask, drawn, self._epsilon(step))
            unknown = np.full(len(own), np.nan, np.float32)
            return _on_host([taken], [unknown], [np.ones(len(own), bool)]), own
        if self._learner.on_host is not None:
            choice = self._in_numpy(learned, observed, uniforms, step)
        else:
            choice = self._compiled(learned, observed, uniforms, step, heads)
        return choice, np.asarray(choice.action)

    def _in_numpy(
        self, learned: list[Learned], observed: Observed, uniforms: NDArray, step: int
    ) -> Acted:
        if self._known is not learned:
            assert self._learner.on_host is not None
            states = [jax.tree.map(np.asarray, _acting(one.learner)) for one in learned]
            self._forward, self._known = [self._learner.on_host(one) for one in states], learned
        seen = observed.observation
        seen = seen.reshape(*uniforms.shape[:2], *seen.shape[1:])
        parts = zip(self._forward, self._groups.split(seen), strict=True)
        # A seed that diverges has values that are no numbers, which its updates notice.
        with np.errstate(over="ignore", invalid="ignore"):
            values = [forward(part) for forward, part in parts]
            q = values[0] if len(values) == 1 else np.concatenate(values)
            q, drawn = q.reshape(-1, q.shape[-1]), uniforms.reshape(-1, uniforms.shape[-1])
            return acted(q, observed.mask, drawn, self._epsilon(step), self._learner.following)

    def _compiled(
        self,
        learned: list[Learned],
        observed: Observed,
        uniforms: NDArray,
        step: int,
        heads: NDArray | None,
    ) -> Acted:
        by_seed = uniforms.shape[:2]
        seen = [part.reshape(*by_seed, *part.shape[1:]) for part in observed[:2]]
        given = self._groups.split((*seen, uniforms, () if heads is None else heads))
        parts = zip(self._act, learned, given, strict=True)
        chosen = [act(_acting(one.learner), *part, np.int32(step)) for act, one, part in parts]
        return _on_host(*zip(*chosen, strict=True))

    def _act_one(
        self,
        state: LearnerState,
        observation: Array,
        mask: Array,
        uniforms: Array,
        head: Tree,
        step: Array,
    ) -> Acted:
        epsilon = self._settings.exploration(step)
        state = state._replace(head=head) if self._learner.opinions else state
        return self._learner.act(state, observation, mask, uniforms, epsilon)


class _Exploration:
    """Epsilon on the host: a schedule may be any function that JAX can trace."""

    def __init__(self, schedule: Schedule, stride: int) -> None:
        self._schedule, self._stride = jax.jit(jax.vmap(schedule)), stride
        self._block, self._epsilons = -1, np.zeros(0, np.float32)

    def __call__(self, step: int) -> float:
        """Return epsilon at a step, a multiple of the stride."""
        block, place = divmod(step // self._stride, STEPS_TOGETHER)
        if block != self._block:
            places = block * STEPS_TOGETHER + np.arange(STEPS_TOGETHER)
            steps = np.minimum(places * self._stride, COUNT_LIMIT - 1)
            self._epsilons = np.asarray(self._schedule(steps.astype(np.int32)))
            self._block = block
        return float(self._epsilons[place])


def acted(
    q: NDArray, mask: NDArray, uniforms: NDArray, epsilon: float, following: Following
) -> Acted:
    """Choose epsilon-greedily as :func:`valuetrack.learner.acted` does, in NumPy.

    Q-values and masks are (environments, actions).
    """
    legal = q if mask.all() else np.where(mask, q, -np.inf)
    best = legal.argmax(axis=1)
    action = best
    if (uniforms[:, 0] < epsilon).any():
        action = explored(best, mask, uniforms, epsilon)
    if following == "greedy":
        largest = legal.max(axis=1)
        value = largest if legal is q else np.where(mask.any(axis=1), largest, np.float32(0))
        return _acted(action, value, action == best)
    rows = np.arange(len(q))
    value = q[rows, action]
    if following == "expected":
        even = np.where(mask, q, 0).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        greedy = np.where(mask[rows, best], q[rows, best], 0)
        value = (epsilon * even + (1 - epsilon) * greedy).astype(q.dtype)
    return _acted(action, value, np.ones(len(q), bool))


def explored(actions: NDArray, mask: NDArray, uniforms: NDArray, epsilon: Scalar) -> NDArray:
    """Replace actions by random legal ones with probability epsilon.

    Of the uniform numbers, the first says whether to explore, and the second where to.
    """
    taken = actions.copy()
    for row in np.flatnonzero(uniforms[:, 0] < epsilon):
        legal = np.flatnonzero(mask[row])
        if len(legal):
            taken[row] = legal[min(int(uniforms[row, 1] * len(legal)), len(legal) - 1)]
    return taken


def _acting(state: LearnerState) -> LearnerState:
    """Leave behind what only updates need: every array of an argument costs time."""
    return state._replace(sampler=_Acting(state.sampler.params), target=())


def _acted(*parts: NDArray) -> Acted:
    return Acted(*parts)  # type: ignore[arg-type]


def _on_host(*parts: Sequence[AnyArray]) -> Acted:
    """Return choices of all groups in NumPy, one per environment."""
    return _acted(
        *(np.concatenate([np.asarray(one) for one in part]).reshape(-1) for part in parts)
    )
