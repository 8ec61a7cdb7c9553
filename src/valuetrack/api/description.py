"""What an agent says of itself: in words, and in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from valuetrack import __version__
from valuetrack.api.watch import divergence
from valuetrack.types import Keywords

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent


def in_words(agent: AnyAgent) -> str:
    """Return what an agent is, in a few lines."""
    defaults = agent.options_type()
    given = agent.options.model_dump().items()
    usual = {**dict(defaults), "normalise_observations": agent.options.normalise_observations}
    own = {name: value for name, value in given if value != usual[name]}
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
        lines.append(f"  diverged: {divergence(agent.diverged)}")
    return "\n".join(lines)


def for_file(agent: AnyAgent, *, replay: bool) -> Keywords:
    """Return what a file says of an agent besides its arrays."""
    env, env_options = agent.env.saved
    return {
        "algorithm": agent.name,
        "options": agent.options.model_dump(mode="json"),
        "env": env,
        "env_options": env_options,
        "spaces": agent.env.spaces if env is None else None,
        "backend": agent.backend,
        "seeds": list(agent.seeds),
        "replay": replay,
        "task": {**agent.task._asdict(), "shape": list(agent.task.shape)},
        "version": __version__,
    }
