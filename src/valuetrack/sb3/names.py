"""Which options keep valuetrack's names and which have Stable-Baselines3's; checks of both."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.type_aliases import TrainFrequencyUnit

from valuetrack.api.options import Options
from valuetrack.types import Json

if TYPE_CHECKING:
    from valuetrack.sb3.base import SamplingAlgorithm

NO_NEXT_ACTION = "SB3's replay buffer does not keep the next action, so the form is Q-learning's"

NO_OPINIONS = "SB3 chooses actions itself; valuetrack's own class explores by several opinions"

NAMED_BY_SB3 = {
    "discount": "SB3 calls it gamma",
    "batch_size": "it is SB3's own",
    "learning_starts": "it is SB3's own",
    "n_step": "SB3 calls it n_steps",
    "replay_capacity": "SB3 calls it buffer_size",
    "steps_per_update": "SB3 calls it train_freq",
    "updates_per_cycle": "SB3 calls it gradient_steps",
    "target_every": "give target_update_interval, which counts environment steps",
    "exploration_initial": "SB3 calls it exploration_initial_eps",
    "exploration_final": "SB3 calls it exploration_final_eps",
    "exploration_steps": "give exploration_fraction, a share of the training",
    "random_warmup": "SB3 always acts at random before learning_starts",
    "environments": "pass a VecEnv with that many environments",
    "normalise_observations": "wrap the environment in SB3's VecNormalize",
    "hidden": "give policy_kwargs=dict(net_arch=[...])",
    "activation": "give policy_kwargs=dict(activation_fn=...)",
    "convolutions": "give policy_kwargs=dict(convolutions=[...])",
    "form": NO_NEXT_ACTION,
    "gradient": NO_NEXT_ACTION,
    "replay_half_life": "SB3's replay buffer draws all transitions alike",
    "chains": NO_OPINIONS,
    "behaviour": NO_OPINIONS,
    "behaviour_every": NO_OPINIONS,
    "optimism_level": NO_OPINIONS,
    "prior_scale": NO_OPINIONS,
}
"""The options of valuetrack's agents that are not keywords here, and what replaces them."""
ELSEWHERE = {
    **NAMED_BY_SB3,
    "noisy": "samples of a posterior explore by themselves",
    "prioritised": "posterior samples count how often each transition was seen",
    "seeds": "train one model per seed, or use valuetrack's own class",
}
SHARES = ("gamma", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
COUNTS = ("batch_size", "buffer_size", "target_update_interval")


def option_defaults(kind: type[Options]) -> Json:
    """Return the options that keep valuetrack's name here, with their defaults."""
    return {
        name: field.default for name, field in kind.model_fields.items() if name not in NAMED_BY_SB3
    }


def under_our_names(model: SamplingAlgorithm) -> Json:
    """Return what SB3 has other names for and a sampler asks for: how much data there will be.

    After how many steps an episode ends is not known: then one update stands for as many steps as
    by default, or for one, with ``gradient_steps=-1``.
    """
    options: Json = {
        "discount": model.gamma,  # which the scale of values and the guard's bound follow
        "n_step": getattr(model.replay_buffer, "n_steps", 1),  # it adds up the rewards
        "replay_capacity": model.buffer_size,
        "learning_starts": model.learning_starts,
        "environments": model.n_envs,
    }
    steps: Any = model.train_freq  # SB3 has made a TrainFreq of it
    if model.gradient_steps < 0:
        cadence = {"steps_per_update": 1, "updates_per_cycle": model.n_envs}
    elif steps.unit is TrainFrequencyUnit.STEP and model.gradient_steps:
        cadence = {"steps_per_update": steps.frequency, "updates_per_cycle": model.gradient_steps}
    else:
        cadence = {}
    return {**options, **cadence}


def check_names(
    given: Iterable[str], known: Iterable[str], algorithm: str, *, only_mistakes: bool = False
) -> None:
    """Refuse options that do not exist, as Python does, and say what to write instead.

    ``only_mistakes`` lets through names that resemble no option: at loading, SB3 lets users
    replace any attribute of a model.
    """
    known = list(known)
    for name in given:
        close = difflib.get_close_matches(name, known, n=1)
        if name in known or (only_mistakes and not close and name not in ELSEWHERE):
            continue
        if name in ELSEWHERE:
            raise TypeError(f"valuetrack.sb3.{algorithm} has no {name!r}: {ELSEWHERE[name]}.")
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
        raise TypeError(f"valuetrack.sb3.{algorithm} has no {name!r}; {hint}")


def check_numbers(model: object) -> None:
    """Refuse shares outside [0, 1] and counts below 1, which SB3 would accept."""
    algorithm = type(model).__name__
    for name in SHARES:
        value = getattr(model, name)
        if not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1:
            raise ValueError(f"{algorithm}'s {name} lies between 0 and 1, and {value!r} does not.")
    for name in COUNTS:
        value = getattr(model, name)
        if value is None and name == "target_update_interval":  # after every update
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
            raise ValueError(
                f"{algorithm}'s {name} is a whole number of at least 1, not {value!r}."
            )
