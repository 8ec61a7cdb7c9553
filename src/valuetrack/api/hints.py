"""What to write instead of an option that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection

NETWORK = "hidden, activation and convolutions"
NAMES_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "gamma": ("discount",),
    "buffer_size": ("replay_capacity",),
    "memory_size": ("replay_capacity",),
    "train_freq": ("steps_per_update",),
    "train_frequency": ("steps_per_update",),
    "gradient_steps": ("updates_per_cycle",),
    "target_update_interval": ("target_every",),
    "target_network_frequency": ("target_every",),
    "exploration_initial_eps": ("exploration_initial",),
    "exploration_final_eps": ("exploration_final",),
    "start_e": ("exploration_initial",),
    "end_e": ("exploration_final",),
    "epsilon_start": ("exploration_initial",),
    "epsilon_end": ("exploration_final",),
    "exploration_fraction": ("exploration_steps",),
    "n_envs": ("environments",),
    "num_envs": ("environments",),
    "net_arch": ("hidden",),
    "hidden_sizes": ("hidden",),
    "hidden_layers": ("hidden",),
    "layers": ("hidden",),
    "n_quantiles": ("quantiles",),
    "n_steps": ("n_step",),
    "max_grad_norm": ("max_gradient_norm",),
    "lr": ("learning_rate", "step_size"),
    "learn_rate": ("learning_rate", "step_size"),
    "step_size": ("learning_rate",),
    "stepsize": ("step_size", "learning_rate"),
    "ddqn": ("double",),
    "double_q": ("double",),
}
"""What users of Stable-Baselines3, CleanRL and rejax may write -> the options that it may be here,
the first of them that the algorithm has."""
COUNTS = {
    "target_update_interval": "counts updates",
    "target_network_frequency": "counts updates",
    "exploration_fraction": "counts environment steps",
}
"""What is said of the option, where it means something else."""
PRIORITISED = ("prioritised", "importance", "importance_updates")
"""The options of a prioritised replay memory, which not every algorithm has."""
NOT_PRIORITISED = (
    ": a posterior and a filter count how often each transition was seen, so that all are drawn "
    "evenly; DQN, BootDQN, QRDQN and IQN have it."
)
NOT_NOISY = (
    ": samples, heads and filters have opinions of their own to explore by, see `behaviour`; DQN, "
    "QRDQN and IQN have it."
)
NO_OPTIONS = {
    "policy": f"the network follows from the observations; {NETWORK} shape it.",
    "policy_kwargs": f"here it is {NETWORK}.",
    "tensorboard_log": "here it is tensorboard, of learn.",
    "verbose": "here it is progress_bar, of learn.",
    "total_timesteps": "it is the first argument of learn.",
    "num_timesteps": "it is the first argument of learn.",
    "callback": "it is an argument of learn.",
    "n_eval_episodes": "here it is evaluation_episodes, of learn.",
    "eval_freq": "here it is evaluate_every, of learn.",
    "render_mode": 'it belongs to the environment: env_options={"render_mode": ...}.',
    "device": "JAX chooses it; the variable JAX_PLATFORMS=cpu asks for another one.",
    "num_seeds": "here it is seeds, an argument beside the options.",
}
"""What is no option here, and what to do instead."""
POLICY_NAMES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
"""What comes first in Stable-Baselines3."""


def instead_of(key: str, names: Collection[str]) -> str:
    """Return the rest of the sentence that begins with "There is no option ``key``".

    Examples
    --------
    >>> instead_of("lr", ["hidden", "learning_rate"])
    '; did you mean learning_rate?'
    >>> instead_of("gamma", ["discount"])
    ': here it is discount.'
    """
    if key in NO_OPTIONS:
        return f": {NO_OPTIONS[key]}"
    if key in PRIORITISED:
        return NOT_PRIORITISED
    if key == "noisy":
        return NOT_NOISY
    meant = [name for name in NAMES_ELSEWHERE.get(key, ()) if name in names]
    if meant and key in ("lr", "learn_rate", "step_size", "stepsize"):
        return f"; did you mean {meant[0]}?"
    if meant:
        return f": here it is {meant[0]}{f', which {COUNTS[key]}' if key in COUNTS else ''}."
    close = difflib.get_close_matches(key, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(names)}."


def refuse_policy_name(agent: str, given: tuple[object, ...], most: int) -> None:
    """Refuse more than so many positional arguments, and what SB3's users write there.

    Raises
    ------
    TypeError
        With the line that they mean.
    """
    named = [one for one in given if isinstance(one, str) and one in POLICY_NAMES]
    if named:
        others = [one for one in given if one not in named]
        env = repr(others[0]) if others and isinstance(others[0], str) else "env"
        raise TypeError(
            f"{agent} takes the environment first, and no {named[0]}: write {agent}({env}, ...); "
            f"the network follows from the observations, and {NETWORK} shape it."
        )
    if len(given) > most:
        raise TypeError(
            f"{agent} takes options by their names: "
            f"{agent}(env, name=value), such as {agent}(env, hidden=(64, 64))."
        )
