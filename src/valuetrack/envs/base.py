"""What an environment written in JAX is: pure functions whose randomness is passed in.

An environment draws nothing itself. It says how many uniforms a reset and a step consume and
receives them as arrays, so that a trainer can draw the randomness of a whole block of steps in one
large call: splitting keys inside a scan costs more than a small environment's dynamics.

:class:`Environment` is the protocol, :class:`TimedTask` a base class for tasks with a time limit,
and :class:`ObservationSpec` decides whether observations are images.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import ndtri

from valuetrack.types import Array, DType, Floats

State = TypeVar("State")
Timed = TypeVar("Timed", bound="TimedState")
Shape = tuple[int, ...]

FLOAT32: DType = np.dtype(np.float32)
UINT8: DType = np.dtype(np.uint8)
MIN_IMAGE_SIDE = 5
"""Height and width of the smallest image, unless its dtype says that it is one (uint8)."""

# The smallest step between float32 numbers just below one; keeps the normal quantile finite at
# both ends, for a uniform may be exactly 0 and one rounded to float32 may become 1.
_MARGIN = 2.0**-24


class ObservationSpec(NamedTuple):
    """Shape and dtype of an observation, and whether it is an image.

    Make one with :meth:`of` or :meth:`of_env`, which decide what is an image for all environments,
    those written in JAX and Gymnasium's. An image has the shape (height, width, channels) and is
    for :func:`valuetrack.networks.cnn`; everything else is flattened for
    :func:`valuetrack.networks.mlp`. Networks convert any dtype to floats.
    """

    shape: Shape
    dtype: DType
    is_image: bool

    @classmethod
    def of(cls, shape: Shape, dtype: npt.DTypeLike) -> ObservationSpec:
        """Decide whether observations of this shape and dtype are images.

        An image has three axes (height, width, channels) and any dtype: booleans, integers or
        floats. It is at least 5 x 5, for smaller arrays of three axes are rather tables; but uint8
        is the dtype of pixels, so that such an array is an image of any size.

        Examples
        --------
        >>> ObservationSpec.of((10, 10, 4), bool).is_image
        True
        >>> [ObservationSpec.of(shape, "float32").is_image for shape in ((4,), (8, 8), (2, 3, 4))]
        [False, False, False]
        """
        shape, dtype = tuple(int(side) for side in shape), np.dtype(dtype)
        is_large = len(shape) == 3 and min(shape[:2]) >= MIN_IMAGE_SIDE
        return cls(shape, dtype, is_large or (len(shape) == 3 and dtype == UINT8))

    @classmethod
    def of_env(cls, env: JaxEnvironment) -> ObservationSpec:
        """Return what the observations of an environment written in JAX are."""
        return cls.of(env.observation_shape, env.observation_dtype)

    @property
    def size(self) -> int:
        """How many numbers an observation holds: the inputs of a network without convolutions."""
        return math.prod(self.shape)


class Step(NamedTuple, Generic[State]):
    """What one step leaves behind.

    Attributes
    ----------
    state : State
        The state s' after the step; the final one when the episode is over, never a fresh start.
    observation : Array
        The observation of s', of ``observation_shape`` and ``observation_dtype``.
    reward : Array
        The reward r, a float32 scalar.
    terminated : Array
        Whether s' is terminal, so that its value is zero; a boolean scalar.
    truncated : Array
        Whether the episode is cut here although s' still has a value, so that a learner bootstraps
        through it; a boolean scalar, never true together with ``terminated``.
    """

    state: State
    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


class Environment(Protocol[State]):
    """An environment as a set of pure functions that work under ``jit``, ``vmap`` and ``scan``.

    Implementations are immutable and hashable, so that an environment can be closed over or passed
    as a static argument. All methods are written for one environment; the caller maps them over
    many. A state is a pytree of arrays. ``observation_bounds``, the lowest and the highest
    observation, may be added, and so may ``one_hot``, true if every observation is a one-hot
    vector; see :func:`bounds_in_jax` and :func:`factors_in_jax`. One whose episodes have something
    in common has ``restart``; see :func:`restarted`. The source has one to copy in
    ``skeletons/environment.py``; :func:`valuetrack.envs.register` gives it an id.
    """

    @property
    def observation_shape(self) -> Shape:
        """Shape of one observation: (height, width, channels) for an image, else any."""

    @property
    def observation_dtype(self) -> DType:
        """Dtype of one observation: floats, integers or booleans."""

    @property
    def num_actions(self) -> int:
        """Number of actions; they are the integers 0, ..., ``num_actions`` - 1."""

    @property
    def reset_uniforms(self) -> int:
        """How many uniforms in [0, 1) a reset consumes; may be zero."""

    @property
    def step_uniforms(self) -> int:
        """How many uniforms in [0, 1) a step consumes; may be zero."""

    def reset(self, uniforms: Array) -> State:
        """Start an episode, with ``reset_uniforms`` independent draws from [0, 1)."""

    def step(self, state: State, action: Array, uniforms: Array) -> Step[State]:
        """Take one step, without starting a new episode when this one ends.

        The action is an integer scalar; it is not checked, for it may be traced. ``uniforms`` are
        ``step_uniforms`` independent draws from [0, 1).
        """

    def observe(self, state: State) -> Array:
        """Return the observation of a state: ``observation_shape``, ``observation_dtype``."""

    def action_mask(self, state: State) -> Array:
        """Return which actions are legal in a state: booleans of shape (``num_actions``,).

        The mask of a terminal state may be empty (all false).
        """


JaxEnvironment = Environment[Any]
"""An environment whatever its states are."""


def bounds_in_jax(env: JaxEnvironment) -> Floats:
    """Return the lowest and the highest observation of an environment, (2, *shape).

    An environment may say so with ``observation_bounds``, two numbers or arrays. Otherwise those
    of booleans are 0 and 1, and other observations count as unbounded.
    """
    is_bits = np.dtype(env.observation_dtype).kind == "b"
    unknown = (0.0, 1.0) if is_bits else (-np.inf, np.inf)
    given = getattr(env, "observation_bounds", unknown)
    return np.stack([np.broadcast_to(bound, env.observation_shape) for bound in given])


def factors_in_jax(env: JaxEnvironment) -> Floats:
    """Return what brings one-hot vectors to the mean square 1, and 1 for all others, (*shape,).

    An environment says with ``one_hot`` that its observations are such vectors.

    Examples
    --------
    >>> from valuetrack.envs import CartPole, RiverSwim
    >>> factors_in_jax(RiverSwim(size=4)), factors_in_jax(CartPole())
    (array([2., 2., 2., 2.]), array([1., 1., 1., 1.]))
    """
    shape = env.observation_shape
    factor = math.sqrt(math.prod(shape)) if getattr(env, "one_hot", False) else 1.0
    return np.full(shape, factor)


def restarted(env: Environment[State], state: State, uniforms: Array) -> State:
    """Start an episode after another one, which was left in a state.

    That is a reset, unless the environment has a method ``restart(state, uniforms)``, for what
    does not end with an episode; see :class:`~valuetrack.envs.changing.ChangingWorld`.
    """
    restart = getattr(env, "restart", None)
    begun: State = env.reset(uniforms) if restart is None else restart(state, uniforms)
    return begun


class TimedState(Protocol):
    """A NamedTuple of scalars whose last field counts the ``steps`` of the episode."""

    @property
    def steps(self) -> Array:
        """The steps taken so far, int32."""

    def __getitem__(self, part: slice, /) -> tuple[Array, ...]: ...


@dataclass(frozen=True)
class TimedTask(Generic[Timed]):
    """A task with a time limit, whose actions are always legal and whose observations are floats.

    Subclasses add ``reset``, ``step`` and the sizes that :class:`Environment` asks for; the
    observation is what the state holds besides its ``steps``, unless they say otherwise.

    Parameters
    ----------
    horizon : int
        An episode is truncated after this many steps, unless the last of them terminates it.
    """

    observation_dtype: ClassVar[DType] = FLOAT32
    num_actions: ClassVar[int]
    step_uniforms: ClassVar[int] = 0

    horizon: int

    def __post_init__(self) -> None:
        """Refuse a horizon that makes no episode."""
        object.__setattr__(self, "horizon", operator.index(self.horizon))
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, but is {self.horizon}.")

    def arrived(self, after: Timed, reward: Array, terminated: Array) -> Step[Timed]:
        """Return the step that led to a state."""
        truncated = self.truncated(after, terminated)
        return Step(after, self.observe(after), reward, terminated, truncated)

    def truncated(self, after: Timed, terminated: Array) -> Array:
        """Return whether the time is up in a state that does not end the episode anyway."""
        return (after.steps >= self.horizon) & ~terminated

    def observe(self, state: Timed) -> Array:
        """Return all fields of a state but its ``steps``."""
        return jnp.stack(state[:-1])

    def action_mask(self, state: Timed) -> Array:
        """Return that all actions are always legal."""
        del state
        return jnp.ones(self.num_actions, dtype=bool)


def evenly(uniforms: Array, bound: float) -> Array:
    """Turn uniforms in [0, 1) into uniforms in [-bound, bound), float32."""
    return bound * (2.0 * jnp.asarray(uniforms, jnp.float32) - 1.0)


def standard_normal(uniform: Array) -> Array:
    """Turn uniforms in [0, 1) into draws from N(0, 1), float32, by the quantile function.

    Examples
    --------
    >>> standard_normal(jnp.array([0.5, 0.8413447])).round(3).tolist()
    [0.0, 1.0]
    """
    inside = jnp.clip(jnp.asarray(uniform, jnp.float32), _MARGIN, 1.0 - _MARGIN)
    drawn: Array = ndtri(inside)
    return drawn
