"""RiverSwim: swimming up the river is tiring, and pays at the very top alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np

from valuetrack.envs.base import Shape
from valuetrack.envs.finite import FiniteTask, Outcomes, PlaceState, whole_number
from valuetrack.envs.registry import register
from valuetrack.types import Array

RIVER_SWIM_ID = "valuetrack/RiverSwim-v0"
LEFT, RIGHT = 0, 1

Variant = Literal["strehl", "osband"]


class River(NamedTuple):
    """A variant: chances of (back, stay, forward) when swimming right, rewards and starts."""

    bottom: tuple[float, float, float]
    middle: tuple[float, float, float]
    top: tuple[float, float, float]
    small: float
    large: float
    pays_if_it_stays: bool
    starts: tuple[int, ...]


RIVERS: dict[Variant, River] = {
    "strehl": River(
        bottom=(0.0, 0.7, 0.3),
        middle=(0.1, 0.6, 0.3),
        top=(0.7, 0.3, 0.0),
        small=0.0005,
        large=1.0,
        pays_if_it_stays=True,
        starts=(1, 2),
    ),
    "osband": River(
        bottom=(0.0, 0.4, 0.6),
        middle=(0.05, 0.6, 0.35),
        top=(0.4, 0.6, 0.0),
        small=0.005,
        large=1.0,
        pays_if_it_stays=False,
        starts=(0,),
    ),
}


@register(RIVER_SWIM_ID)
@dataclass(frozen=True)
class RiverSwim(FiniteTask[PlaceState]):
    r"""The river: a :class:`~valuetrack.envs.finite.FiniteTask` of ``size`` places in a row.

    Left (0) goes one place down the river, with certainty, and pays a little in the lowest place.
    Right (1) may go up, stay, or be carried back, and pays much in the highest place. Nothing
    terminates.

    Parameters
    ----------
    size
        How many places there are, at least 3; 6 in the papers.
    variant
        ``"strehl"`` is that of Strehl and Littman, whose rewards of 5 and 10,000 are divided by
        10,000 here; ``"osband"`` that of Osband et al. The table below has their numbers.
    horizon
        An episode is truncated after this many steps; never with ``None``, and then an evaluation
        needs ``max_episode_steps``.

    Notes
    -----
    ====================  ======================================  ===========================
    right                 strehl                                  osband
    ====================  ======================================  ===========================
    in the lowest place   stays 0.7, up 0.3                       stays 0.4, up 0.6
    between               back 0.1, stays 0.6, up 0.3             back 0.05, stays 0.6, up 0.35
    in the highest        back 0.7, stays 0.3                     back 0.4, stays 0.6
    pays there            1, if it stays                          1, in any case
    left, lowest place    0.0005                                  0.005
    begins in             the second or third place, evenly       the lowest place
    ====================  ======================================  ===========================

    The observation is a one-hot vector. Truncation bootstraps, so that learners find the discounted
    values without end, those of ``table``.

    References
    ----------
    Strehl and Littman (2008), An analysis of model-based interval estimation for Markov decision
    processes, Journal of Computer and System Sciences 74. Osband, Russo and Van Roy (2013), (More)
    efficient reinforcement learning via posterior sampling, NeurIPS 26, arXiv:1306.0940.

    Examples
    --------
    >>> env = RiverSwim()
    >>> state = env.reset(jnp.array([0.3]))
    >>> int(state.place), int(env.step(state, jnp.int32(RIGHT), jnp.array([0.75])).state.place)
    (1, 2)
    """

    num_actions: ClassVar[int] = 2

    size: int = 6
    variant: Variant = "strehl"
    horizon: int | None = 200

    def __post_init__(self) -> None:
        """Refuse options that make no environment."""
        object.__setattr__(self, "size", whole_number("size", self.size, 3))
        if self.horizon is not None:
            object.__setattr__(self, "horizon", whole_number("horizon", self.horizon, 1))
        if self.variant not in get_args(Variant):
            allowed = " or ".join(map(repr, get_args(Variant)))
            raise ValueError(f"variant must be {allowed}, but is {self.variant!r}.")

    @property
    def observation_shape(self) -> Shape:
        """One bit for each place."""
        return (self.size,)

    @property
    def steps_at_most(self) -> int | None:
        """The horizon."""
        return self.horizon

    def make_outcomes(self) -> Outcomes:
        """Make the table; outcomes are back, stay and forward."""
        river, place, last = RIVERS[self.variant], np.arange(self.size), self.size - 1
        chance = np.zeros((self.size, 2, 3))
        chance[:, LEFT] = (1.0, 0.0, 0.0)
        chance[:, RIGHT] = [river.bottom, *[river.middle] * (self.size - 2), river.top]
        moves = np.clip(place[:, None] + [-1, 0, 1], 0, last)
        reward = np.zeros(chance.shape)
        reward[0, LEFT] = river.small
        reward[last, RIGHT] = [0.0, river.large, 0.0] if river.pays_if_it_stays else river.large
        return Outcomes(
            chance,
            np.broadcast_to(moves[:, None], chance.shape),
            reward,
            np.isin(place, river.starts) / len(river.starts),
            np.zeros(self.size, bool),
        )

    def begin(self, place: Array) -> PlaceState:
        """Return the state in which an episode begins."""
        return PlaceState(place, jnp.int32(0))
