"""What an agent says of itself: in words, and in its file."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from valuetrack import __version__
from valuetrack.types import Keywords

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent


def in_words(agent: AnyAgent) -> str:
    """Return what an agent is, in a few lines."""
    defaults = agent.options_type()
    given = agent.options.model_dump().items()
    own = {name: value for name, value in given if value != getattr(defaults, name)}
    seeds = f"seed {agent.seeds[0]}"
    if len(agent.seeds) > 1:
        seeds = f"seeds {agent.seeds[0]} to {agent.seeds[-1]}"
    lines = [
        f"{type(agent).__name__} on {agent.env.label}, {seeds}",
        f"  task: {agent.task.actions} actions, observations {agent.task.shape}; "
        f"{agent.backend} trainer",
        f"  learned: {agent.num_timesteps:,} steps, {agent.trainer.clock.updates:,} updates",
    ]
    if own:
        lines.append(f"  options: {', '.join(f'{k}={v!r}' for k, v in own.items())}")
    if agent.diverged:
        lines.append(f"  diverged: {_divergence(agent)}")
    return "\n".join(lines)


def for_file(agent: AnyAgent, *, replay: bool) -> Keywords:
    """Return what a file says of an agent besides its arrays."""
    env, env_options = agent.env.saved
    return {
        "algorithm": agent.name,
        "options": agent.options.model_dump(mode="json"),
        "env": env,
        "env_options": env_options,
        "backend": agent.backend,
        "seeds": list(agent.seeds),
        "replay": replay,
        "task": {**agent.task._asdict(), "shape": list(agent.task.shape)},
        "version": __version__,
    }


def warn_of_divergence(agent: AnyAgent, stacklevel: int) -> None:
    """Name the seeds that diverged, if there are any."""
    if agent.diverged:
        warnings.warn(
            f"{type(agent).__name__} diverged: {_divergence(agent)}. Its values are NaN from "
            "there on; use a smaller step size.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _divergence(agent: AnyAgent) -> str:
    return ", ".join(f"seed {s} at update {u}" for s, u in agent.diverged.items())
