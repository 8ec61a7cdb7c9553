"""Which options have valuetrack's names here, which have Stable-Baselines3's, and what is wrong."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Mapping
from typing import Any

from valuetrack.algorithms.options import Options

NO_NEXT_ACTION = "SB3's replay buffer does not keep the next action, so the form is Q-learning's"

NAMED_BY_SB3 = {
    "discount": "SB3 calls it gamma",
    "batch_size": "it is SB3's own",
    "learning_starts": "it is SB3's own",
    "replay_capacity": "SB3 calls it buffer_size",
    "steps_per_update": "SB3 calls it train_freq",
    "updates_per_cycle": "SB3 calls it gradient_steps",
    "target_every": "give target_update_interval, which counts environment steps",
    "exploration_initial": "SB3 calls it exploration_initial_eps",
    "exploration_final": "SB3 calls it exploration_final_eps",
    "exploration_steps": "give exploration_fraction, a share of the training",
    "environments": "pass a VecEnv with so many environments",
    "hidden": "give policy_kwargs=dict(net_arch=[...])",
    "activation": "give policy_kwargs=dict(activation_fn=...)",
    "convolutions": "give policy_kwargs=dict(convolutions=[...])",
    "form": NO_NEXT_ACTION,
    "gradient": NO_NEXT_ACTION,
}
"""The options of valuetrack's classes that are no keywords here, and what is there instead."""
ELSEWHERE = {
    **NAMED_BY_SB3,
    "learning_rate": "a sampler has a step_size",
    "seeds": "train one model a seed, or use valuetrack's own class",
}


def option_defaults(kind: type[Options]) -> dict[str, Any]:
    """Return the options that have the same name here as in valuetrack, with their defaults."""
    return {
        name: field.default for name, field in kind.model_fields.items() if name not in NAMED_BY_SB3
    }


def check_names(given: Mapping[str, Any], known: Mapping[str, Any], algorithm: str) -> None:
    """Refuse options that do not exist, with a word about what is there instead.

    Raises
    ------
    TypeError
        As Python does for a keyword that a function does not have.
    """
    for name in given:
        if name in known:
            continue
        if name in ELSEWHERE:
            raise TypeError(f"valuetrack.sb3.{algorithm} has no {name!r}: {ELSEWHERE[name]}.")
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
        raise TypeError(f"valuetrack.sb3.{algorithm} has no {name!r}; {hint}")


def check_loaded_names(given: Mapping[str, Any], known: Mapping[str, Any], algorithm: str) -> None:
    """Refuse what the constructor refuses, save for attributes of SB3 that no option resembles."""
    for name in given:
        if name in ELSEWHERE or difflib.get_close_matches(name, known, n=1):
            check_names({name: None}, known, algorithm)


def check_share(algorithm: str, name: str, value: Any) -> None:
    """Refuse a number outside of [0, 1], which SB3 takes without a word."""
    if not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{algorithm}'s {name} lies between 0 and 1, and {value!r} does not.")


def check_count(algorithm: str, name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise ValueError(f"{algorithm}'s {name} is a whole number of at least 1, not {value!r}.")
