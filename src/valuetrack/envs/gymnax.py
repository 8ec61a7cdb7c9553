"""The environments of gymnax, as they are, behind our protocol.

::

    import gymnax
    import valuetrack as vt
    from valuetrack.envs.gymnax import GymnaxEnv

    agent = vt.DQN("gymnax/Breakout-MinAtar")  # by id, with gymnax's default parameters
    agent = vt.DQN("gymnax/Breakout-MinAtar", env_options={"max_steps_in_episode": 500})
    agent = vt.DQN(GymnaxEnv(*gymnax.make("Breakout-MinAtar")))  # an environment of your own

Needs gymnax 1.0 or later: ``pip install 'valuetrack[gymnax]'``. Nothing of it is imported before
an environment is made.

References
----------
Lange (2022), gymnax: A JAX-based reinforcement learning environment library,
https://github.com/RobertTLange/gymnax. Young and Tian (2019), MinAtar: An Atari-inspired testbed
for thorough and reproducible reinforcement learning experiments, arXiv:1903.03176.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import rng
from valuetrack.envs.base import Shape, Step
from valuetrack.envs.gym.guards import failed, one_line
from valuetrack.types import Array, DType

KEY_UNIFORMS = 2
"""How many uniforms make a random key."""
UNIFORM_BITS = 24
"""Bits that are read from a uniform; JAX fills 23 of them in single precision, NumPy all 24."""


class GymnaxState(NamedTuple):
    """gymnax's own ``state``, and what is observed in it.

    The observation is part of the state, for in gymnax it may be random, or depend on the action
    that led here; ours is a function of the state.
    """

    state: Any
    observation: Array


@dataclass(frozen=True, eq=False)
class GymnaxEnv:
    """An environment of gymnax with discrete actions; observations must be one array.

    Parameters
    ----------
    env : gymnax.environments.environment.Environment
        The environment, as ``gymnax.make`` returns it.
    params : gymnax.EnvParams, optional
        Its parameters; ``env.default_params`` unless given.

    Notes
    -----
    *Randomness.* gymnax takes random keys, and our environments take uniforms. Two uniforms make a
    key, see :func:`key_from_uniforms`; a reset and a step each use one key.

    *Ends.* gymnax's ``step`` resets an environment that is over. This calls ``step_env``, which
    does not, so that the last state and observation of an episode are the real ones. ``step_env``
    says whether s' is terminal, and ``is_truncated`` whether the time
    (``params.max_steps_in_episode``) is up, as in gymnax's own ``step``. An episode that ends both
    ways at once is terminated and not truncated.

    *Observations* keep gymnax's shape and dtype; integers from a ``Discrete`` space become one-hot
    vectors, as those of Gymnasium do.

    *Equality.* gymnax's environments cannot be compared, so two of these are equal only if they
    are the same object.

    Examples
    --------
    >>> import gymnax
    >>> env = GymnaxEnv(*gymnax.make("Breakout-MinAtar"))
    >>> env.observation_shape, env.num_actions
    ((10, 10, 4), 3)
    >>> state = env.reset(jnp.array([0.3, 0.6]))
    >>> result = env.step(state, jnp.int32(1), jnp.array([0.1, 0.9]))
    >>> float(result.reward), bool(result.terminated)
    (0.0, False)
    """

    reset_uniforms: ClassVar[int] = KEY_UNIFORMS
    step_uniforms: ClassVar[int] = KEY_UNIFORMS

    env: Any
    params: Any = None
    observation_shape: Shape = field(init=False, repr=False)
    observation_dtype: DType = field(init=False, repr=False)
    num_actions: int = field(init=False, repr=False)
    _state_types: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Fill in the parameters, and refuse what does not fit the protocol."""
        if self.params is None:
            object.__setattr__(self, "params", self.env.default_params)
        name, actions = self.env.name, self.env.action_space(self.params)
        if not hasattr(actions, "n"):
            raise ValueError(
                f"The actions of gymnax/{name} are {actions!r}; valuetrack chooses among finitely "
                "many actions (Discrete)."
            )
        raw, state = jax.eval_shape(self.env.reset_env, rng.key(0), self.params)
        if len(jax.tree.leaves(raw)) != 1 or not hasattr(raw, "shape"):
            raise ValueError(
                f"An observation of gymnax/{name} has several parts, and valuetrack takes one "
                "array; put them into one in an environment of your own."
            )
        encoded = jax.eval_shape(self._encoded, raw)
        object.__setattr__(self, "observation_shape", encoded.shape)
        object.__setattr__(self, "observation_dtype", np.dtype(encoded.dtype))
        object.__setattr__(self, "num_actions", int(actions.n))
        object.__setattr__(self, "_state_types", state)

    @property
    def observation_bounds(self) -> tuple[Any, Any]:
        """The lowest and the highest observation."""
        space = self.env.observation_space(self.params)
        return (0.0, 1.0) if hasattr(space, "n") else (space.low, space.high)

    @property
    def one_hot(self) -> bool:
        """Whether observations are one-hot vectors, of the numbers of discrete states."""
        return hasattr(self.env.observation_space(self.params), "n")

    def reset(self, uniforms: Array) -> GymnaxState:
        """Start an episode, with gymnax's ``reset_env``."""
        observation, state = self.env.reset_env(key_from_uniforms(uniforms), self.params)
        return self._with_fixed_types(state, observation)

    def step(self, state: GymnaxState, action: Array, uniforms: Array) -> Step[GymnaxState]:
        """Take one step, with gymnax's ``step_env``."""
        observation, inner, reward, terminated, _ = self.env.step_env(
            key_from_uniforms(uniforms), state.state, action, self.params
        )
        after = self._with_fixed_types(inner, observation)
        terminated = jnp.asarray(terminated, bool).reshape(())
        out_of_time = jnp.asarray(self.env.is_truncated(inner, self.params), bool).reshape(())
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return Step(after, after.observation, reward, terminated, out_of_time & ~terminated)

    def observe(self, state: GymnaxState) -> Array:
        """Return the observation that came with the state."""
        return state.observation

    def action_mask(self, state: GymnaxState) -> Array:
        """Return that all actions are always legal: gymnax knows no masks."""
        del state
        return jnp.ones(self.num_actions, bool)

    def _with_fixed_types(self, state: Any, observation: Array) -> GymnaxState:
        """Give a state the types of a first one: some begin as Python's numbers."""
        same = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), state, self._state_types)
        return GymnaxState(same, self._encoded(observation))

    def _encoded(self, observation: Array) -> Array:
        """Return an observation as one array, one-hot if it is the number of a discrete state."""
        space = self.env.observation_space(self.params)
        if hasattr(space, "n"):
            return jnp.asarray(jax.nn.one_hot(observation, int(space.n), dtype=jnp.float32))
        return jnp.asarray(observation)


def make(name: str, **options: object) -> GymnaxEnv:
    """Make a gymnax environment by its name in gymnax, such as ``"Breakout-MinAtar"``.

    Options are the environment's parameters (fields of ``env.default_params``); whatever is no
    parameter goes to its constructor.

    Examples
    --------
    >>> make("CartPole-v1", max_steps_in_episode=100).params.max_steps_in_episode
    100
    """
    try:
        import gymnax  # noqa: PLC0415 (optional, and slow to import)
    except ImportError as error:
        raise ValueError(
            f"gymnax/{name} needs gymnax; install it with `pip install 'valuetrack[gymnax]'` "
            f"({error})."
        ) from error
    if name not in gymnax.registered_envs:
        known = ", ".join(gymnax.registered_envs)
        raise ValueError(f"gymnax has no environment {name!r}; it has {known}.")
    try:
        # The parameters' names are the same whatever the constructor is given.
        fields = {field.name for field in dataclasses.fields(gymnax.make(name)[1])}
        changed = {key: options.pop(key) for key in list(options) if key in fields}
        env, params = gymnax.make(name, **options)
    except TypeError as error:
        raise ValueError(
            f"gymnax/{name} cannot be made: {one_line(error)} "
            f"Its parameters are {', '.join(sorted(fields))}."
        ) from error
    except Exception as error:
        raise failed(f"The constructor of gymnax/{name}", error) from error
    return GymnaxEnv(env, dataclasses.replace(params, **changed))


def key_from_uniforms(uniforms: Array) -> Array:
    """Turn two uniforms in [0, 1) into a random key of Threefry.

    The leading 24 bits of each uniform are one of the key's two words. In single precision
    ``jax.random.uniform`` draws 23 bits, so that a key has 46 bits of entropy: two of 10 million
    keys agree with a probability of one half. Threefry is a cipher: keys that differ in one bit
    give unrelated numbers.

    Examples
    --------
    >>> key = key_from_uniforms(jnp.array([0.25, 0.5]))
    >>> jax.random.uniform(key, (2,)).shape
    (2,)
    """
    words = jnp.floor(jnp.asarray(uniforms) * 2**UNIFORM_BITS).astype(jnp.uint32)
    key: Array = jax.random.wrap_key_data(words, impl=rng.THREEFRY)
    return key
