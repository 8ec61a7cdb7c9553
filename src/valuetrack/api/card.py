"""A model card beside a model file: what the agent is, how it was trained, how good it is.

It is Markdown with a header in YAML, as Hugging Face's model hub reads it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from valuetrack import __version__
from valuetrack.io.atomic import write_atomically
from valuetrack.training.evaluation import Episodes

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

EPISODES = 10
"""How many greedy episodes of each seed a card is about."""
EPISODE_STEPS = 10_000
"""After how many steps they are cut off."""


def write(agent: AnyAgent, model: str | os.PathLike[str]) -> Path:
    """Play some episodes and write the card of a model file; return its path."""
    path = Path(model).with_suffix(".md")
    text = "\n".join(_lines(agent, Path(model))) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _lines(agent: AnyAgent, model: Path) -> Iterator[str]:
    played = _played(agent)
    name, env = type(agent).__name__, agent.env.label
    yield from _header(agent, played if isinstance(played, Episodes) else None)
    yield f"\n# {name} in {env}\n"
    summary = (type(agent).__doc__ or "").split("\n", 1)[0]
    yield f"{summary} Trained with valuetrack {__version__}.\n"
    given = "" if agent.env.saved[0] else ", env=..."
    yield f'```python\nimport valuetrack as vt\n\nagent = vt.load("{model.name}"{given})'
    if hasattr(agent.options, "discount") and agent.name != "value_tracker":
        yield "action, _ = agent.predict(observation)"
    yield "low, high = agent.posterior(observation).interval(0.95)\n```\n"
    yield from _training(agent)
    yield from _returns(agent, played)
    yield from _calibration(agent)
    yield "\n## Options\n"
    yield from _table("option", "value")
    for option, value in agent.options.model_dump(mode="json").items():
        yield f"| `{option}` | `{json.dumps(value)}` |"


def _header(agent: AnyAgent, played: Episodes | None) -> Iterator[str]:
    env = json.dumps(agent.env.label)
    yield "---\nlibrary_name: valuetrack\ntags:\n- reinforcement-learning"
    yield f"- uncertainty-quantification\n- {agent.name}\n- {env}"
    if played is not None:
        result = f"{played.returns.mean():.2f} +/- {played.returns.std():.2f}"
        yield f"model-index:\n- name: {type(agent).__name__}\n  results:\n  - task:"
        yield "      type: reinforcement-learning\n      name: reinforcement-learning"
        yield f"    dataset:\n      name: {env}\n      type: {env}\n    metrics:"
        yield f"    - type: mean_reward\n      value: {result}\n      name: mean_reward"
        yield "      verified: false"
    yield "---"


def _training(agent: AnyAgent) -> Iterator[str]:
    options = ", ".join(f"{name}={value!r}" for name, value in agent.env.options.items())
    seeds = ", ".join(map(str, agent.seeds))
    yield "## Training\n"
    yield from _table("", "")
    yield f"| environment | {agent.env.label}{f' with {options}' if options else ''} |"
    yield f"| observations | {agent.observation_space} |".replace("\n", " ")
    yield f"| actions | {agent.action_space} |"
    yield f"| seeds | {seeds} |"
    yield f"| steps per seed | {agent.num_timesteps:,} |"
    yield f"| updates | {agent.trainer.clock.updates:,} |"
    for seed, at in agent.diverged.items():
        yield f"| diverged | seed {seed} at update {at:,} |"


def _played(agent: AnyAgent) -> Episodes | str:
    """Return greedy episodes, or why there are none."""
    try:
        agent.env.check_evaluation()
        agent._check_playing()
    except ValueError:
        return "The environment could not be made again, so that returns were not measured."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the table says what was cut off
        return agent.play(EPISODES, max_episode_steps=EPISODE_STEPS)


def _returns(agent: AnyAgent, played: Episodes | str) -> Iterator[str]:
    yield "\n## Returns\n"
    if isinstance(played, str):
        yield played
        return
    yield (
        f"{EPISODES} greedy episodes per seed. The value is what the agent expected where they "
        "began: it is right if it agrees with the discounted return.\n"
    )
    yield from _table("seed", "return (sd)", "discounted return", "value at the start", "steps")
    columns = (played.discounted_returns, played.start_values, played.lengths)
    for place, seed in enumerate(agent.seeds):
        returns = played.returns[place]
        means = " | ".join(f"{column[place].mean():.2f}" for column in columns)
        yield f"| {seed} | {returns.mean():.2f} ({returns.std():.2f}) | {means} |"
    if cut := int(np.sum(played.cut_off)):
        yield f"\n{cut} of them were cut off after {EPISODE_STEPS:,} steps."


def _calibration(agent: AnyAgent) -> Iterator[str]:
    yield "\n## Calibration\n"
    found = [agent.calibration.of(place, agent.trainer.clock) for place in range(len(agent.seeds))]
    if not any(one.found for one in found):
        yield "Not calibrated: `agent.calibrate()` compares its values with returns."
        return
    yield (
        "What the agent's own episodes taught: what to add to a value, the factor for 95 % "
        "intervals for the value, and from how many episodes intervals for the return are.\n"
    )
    yield from _table("seed", "correction", "factor", "episodes")
    for seed, one in zip(agent.seeds, found, strict=True):
        if one.found is None:
            yield f"| {seed} | not calibrated | | |"
            continue
        bias, agreement = one.found.bias, one.found.agreement
        line = f"{bias.intercept:+.3g}" + (f" {bias.slope:+.3g} v" if bias.slope else "")
        factor = f"{agreement.factor(0.95):.2f}" if len(agreement.distances) else "unknown"
        yield f"| {seed} | {line} | {factor} | {len(one.found.scores)} |"


def _table(*names: str) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
