"""From an id to the environment written in JAX.

An environment that has the id of one of Gymnasium's replaces it wherever the training is compiled;
it must have the same dynamics and the same time limit. The ids ``gymnax/...`` are those of gymnax,
where that is installed; see :mod:`valuetrack.envs.gymnax`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from valuetrack.envs import gymnax
from valuetrack.envs.base import JaxEnvironment

Builder = Callable[..., JaxEnvironment]
"""What makes an environment from its options: its class, as a rule."""
Registered = TypeVar("Registered", bound=Builder)

GYMNAX_PREFIX = "gymnax/"

IN_JAX: dict[str, Builder] = {}
"""From the id to the builder of each registered environment; :func:`register` adds to it."""


def register(env_id: str) -> Callable[[Registered], Registered]:
    """Register a builder of environments written in JAX, under a free id; a decorator.

    Examples
    --------
    >>> from valuetrack.envs import CartPole
    >>> short = register("ShortCartPole-v0")(lambda: CartPole(horizon=50))
    >>> find("ShortCartPole-v0")().horizon
    50
    """
    if env_id.startswith(GYMNAX_PREFIX):
        raise ValueError(f"Ids that begin with {GYMNAX_PREFIX} are those of gymnax, as {env_id}.")

    def add(build: Registered) -> Registered:
        known = IN_JAX.get(env_id)
        # A module that is imported again brings a new class of the same name.
        if known is not None and _name(known) != _name(build):
            raise ValueError(f"The id {env_id} belongs to {_name(known)} already.")
        IN_JAX[env_id] = build
        return build

    return add


def find(env_id: str) -> Builder | None:
    """Return what makes the environment with this id in JAX; ``None`` if there is none in JAX.

    A builder takes the environment's options as keyword arguments. That of a gymnax environment
    raises a ``ValueError`` in one sentence if gymnax is not installed or does not have it.

    Examples
    --------
    >>> find("MountainCar-v0")(horizon=100).horizon
    100
    >>> find("LunarLander-v3") is None
    True
    """
    if env_id.startswith(GYMNAX_PREFIX):
        return partial(gymnax.make, env_id.removeprefix(GYMNAX_PREFIX))
    return IN_JAX.get(env_id)


def ids_in_jax() -> list[str]:
    """Return all ids that :func:`find` knows, in alphabetical order; gymnax's if it is installed.

    Those of gymnax with continuous actions are among them, and refused when they are made.

    Examples
    --------
    >>> "CartPole-v1" in ids_in_jax()
    True
    """
    ids = set(IN_JAX)
    if importlib.util.find_spec("gymnax") is not None:
        from gymnax import registered_envs  # noqa: PLC0415 (optional, and slow to import)

        ids |= {GYMNAX_PREFIX + name for name in registered_envs}
    return sorted(ids)


def _name(build: Builder) -> str:
    named = getattr(build, "__qualname__", repr(build))
    return f"{getattr(build, '__module__', '')}.{named}"
