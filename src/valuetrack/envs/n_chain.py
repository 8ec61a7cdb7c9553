"""The N-chain: a small reward near the start, and a large one at the far end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Shape
from valuetrack.envs.finite import FiniteTask, Outcomes, PlaceState, whole_number
from valuetrack.envs.registry import register
from valuetrack.types import AnyArray, Array

N_CHAIN_ID = "valuetrack/NChain-v0"
SMALL, LARGE = 0.001, 1.0
"""What the left end and the right end pay."""
EXTRA_STEPS = 8
"""Steps of an episode beyond the number of states: ten of them can pay at the right end."""

Encoding = Literal["thermometer", "one-hot"]


@register(N_CHAIN_ID)
@dataclass(frozen=True)
class NChain(FiniteTask[PlaceState]):
    r"""The N-chain: a :class:`~valuetrack.envs.finite.FiniteTask` of N states in a row.

    An episode begins in the second state from the left. Actions are left (0) and right (1). Left in
    the leftmost state stays there and pays 0.001; right in the rightmost one stays there and
    pays 1; nothing else pays. The best return is 10 for every N: N - 2 steps to the right, and 10
    that pay.

    Parameters
    ----------
    size
        N, at least 3.
    encoding
        What is observed in state s = 0, ..., N - 1. ``"thermometer"`` has N bits
        :math:`1\{x \le s\}`, which is what the papers take; ``"one-hot"`` has
        :math:`1\{x = s\}`.
    horizon
        Steps of an episode; N + 8 unless given. The papers write N + 9, and count the first state:
        with N + 9 actions the best return would be 11.
    limit_terminates
        If true, the end of the time terminates an episode, as in the published code. If false, it
        truncates it.

    Notes
    -----
    *Which values a learner finds.* By default the time limit truncates, and truncation bootstraps:
    what is learned are the discounted values without end, in the best case

    .. math:: Q^*(s, \text{right}) = \frac{\gamma^{N-1-s}}{1 - \gamma},

    or 0.001 :math:`\gamma^s / (1 - \gamma)` by way of the left end, where that is more. They come
    from ``table``. Values of the finite horizon depend on the steps that are left, which is not
    observed; ``values_to_go(env.table, N + 8)`` has them. With ``limit_terminates`` a network
    learns some average of these over the times at which a state was visited, and there is no
    ``table`` to compare it with.

    *Scale.* Thermometer codes stay as they are when observations are normalised: half of the bits
    are ones in the mean, so that they have the scale of other inputs. One-hot vectors are brought
    to the mean square 1.

    References
    ----------
    Osband et al. (2016), Deep exploration via bootstrapped DQN, NeurIPS 29, arXiv:1602.04621.
    Ishfaq et al. (2024), Provable and practical: efficient exploration in reinforcement learning
    via Langevin Monte Carlo, ICLR, arXiv:2305.18246.

    Examples
    --------
    >>> env = NChain(size=5)
    >>> state = env.reset(jnp.zeros(env.reset_uniforms))
    >>> env.observe(state).astype(int).tolist(), env.steps_at_most, env.optimal_return()
    ([1, 1, 0, 0, 0], 13, 10.0)
    """

    num_actions: ClassVar[int] = 2

    size: int = 10
    encoding: Encoding = "thermometer"
    horizon: int | None = None
    limit_terminates: bool = False

    def __post_init__(self) -> None:
        """Refuse options that make no environment."""
        object.__setattr__(self, "size", whole_number("size", self.size, 3))
        if self.horizon is not None:
            object.__setattr__(self, "horizon", whole_number("horizon", self.horizon, 1))
        if self.encoding not in get_args(Encoding):
            allowed = " or ".join(map(repr, get_args(Encoding)))
            raise ValueError(f"encoding must be {allowed}, but is {self.encoding!r}.")

    @property
    def observation_shape(self) -> Shape:
        """One bit for each state."""
        return (self.size,)

    @property
    def one_hot(self) -> bool:
        """Whether observations are one-hot vectors."""
        return self.encoding == "one-hot"

    @property
    def steps_at_most(self) -> int:
        """The horizon."""
        return self.size + EXTRA_STEPS if self.horizon is None else self.horizon

    def make_outcomes(self) -> Outcomes:
        """Make the table."""
        state, last = np.arange(self.size), self.size - 1
        moves = np.stack([state - 1, state + 1], axis=1)
        reward = np.zeros((self.size, 2))
        reward[0, 0], reward[last, 1] = SMALL, LARGE
        return Outcomes(
            np.ones((self.size, 2, 1)),
            np.clip(moves, 0, last)[..., None],
            reward[..., None],
            (state == 1).astype(float),
            np.zeros(self.size, bool),
        )

    def begin(self, place: Array) -> PlaceState:
        """Return the state in which an episode begins."""
        return PlaceState(place, jnp.int32(0))

    def encode(self, places: AnyArray) -> AnyArray:
        """Return what is observed in some states, (..., size)."""
        if self.one_hot:
            return super().encode(places)
        return np.arange(self.size) <= places[..., None]

    @property
    def _endless(self) -> NChain:
        """The same transitions without a limit that terminates."""
        return replace(self, limit_terminates=False)
