"""Checks of what users pass to an agent; what is wrong is said in one sentence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from valuetrack.types import Bools


def seed_range(seed: int, seeds: int) -> tuple[int, ...]:
    """Return the seeds from the first one on."""
    check_count("seed", seed, least=0)
    check_count("seeds", seeds)
    if seed + seeds > 2**32:
        raise ValueError(f"Seeds must lie below 2^32, which {seed + seeds - 1} does not.")
    return tuple(range(int(seed), int(seed) + int(seeds)))


def check_count(name: str, value: object, least: int = 1, *, optional: bool = False) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}.")


def check_member(member: object, seeds: int) -> None:
    """Refuse what is no position of one of the seeds."""
    if not isinstance(member, int | np.integer) or not 0 <= member < seeds:
        raise ValueError(f"There are {seeds} seeds, so no member {member!r}.")


def legal_actions(given: npt.ArrayLike | None, count: int, actions: int) -> Bools:
    """Return a mask as booleans, (count, actions); all actions are legal without one."""
    shape = (count, actions)
    if given is None:
        return np.ones(shape, bool)
    mask = np.asarray(given, bool)
    if mask.shape not in (shape, shape[1:]):
        raise ValueError(
            f"action_mask is {actions} booleans, or as many for each of {count} observations; "
            f"its shape is {mask.shape}."
        )
    if not mask.any(axis=-1).all():
        raise ValueError("action_mask allows no action.")
    return np.broadcast_to(mask, shape)
