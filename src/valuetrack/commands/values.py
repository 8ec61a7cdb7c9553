"""``valuetrack values``: what a saved agent thinks that actions are worth, and how sure it is."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from valuetrack.api.agent import AnyAgent
from valuetrack.api.estimate import Estimate
from valuetrack.commands.arguments import import_modules, read_observations, read_value
from valuetrack.commands.options import Values
from valuetrack.commands.session import AGENT, say
from valuetrack.registry import load
from valuetrack.types import NDArray

MEANING = {
    "value": "The interval is for the value of the policy, given all that the agent remembers.",
    "credible": "The interval is where the samples are.",
    "prediction": "The interval is where the next sample will be.",
    "return": "The interval is for the discounted return of one episode.",
}


def values(given: Values, console: Console) -> None:
    """Print the values at some observations with their intervals."""
    import_modules(given.import_)
    if not given.observation and given.observations is None:
        raise ValueError(
            "Say where: --observation '[0, 0.1, 0.02, -0.1]', once or more, or --observations "
            "FILE.npy with a row for each."
        )
    with contextlib.closing(
        load(given.model / AGENT if given.model.is_dir() else given.model, given.env)
    ) as agent:
        member = _member(agent, given.seed)
        for text in given.observation or ():
            _show(agent, text, read_value(text), member, given, console)
        if given.observations is not None:
            batch = read_observations(given.observations)
            _show(agent, str(given.observations), batch, member, given, console)
    console.print(MEANING[given.kind.value])


def _member(agent: AnyAgent, seed: int | None) -> int:
    """Return the position of a seed."""
    if seed is None:
        return 0
    if seed not in agent.seeds:
        there = ", ".join(map(str, agent.seeds))
        raise ValueError(f"The agent has no seed {seed}; it has {there}.")
    return agent.seeds.index(seed)


def _show(
    agent: AnyAgent, what: str, observation: object, member: int, given: Values, console: Console
) -> None:
    found = agent.posterior(observation, member=member)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        low, high = found.interval(given.level, kind=given.kind.value)
    for warning in caught:
        say(console, str(warning.message))
    title = f"{type(agent).__name__} in {agent.env.label}, seed {agent.seeds[member]}, at {what}"
    names = ("value", f"{given.level:.0%} from", "to", "best")
    is_batch, first = _is_batch(found), ("observation", "action")
    columns = first if is_batch else first[1:]
    table = Table(
        *(Column(name, justify="right") for name in (*columns, *names)), title=escape(title)
    )
    for place, (value, least, most, best) in enumerate(zip(*_rows(found, low, high), strict=True)):
        where = divmod(place, max(1, _actions(found)))
        action = str(agent.env.actions.names[where[1]]) if _actions(found) else "V(s)"
        cells = (str(where[0]), action) if is_batch else (action,)
        share = "" if np.isnan(best) else f"{best:.0%}"
        table.add_row(*cells, *(f"{number:.4g}" for number in (value, least, most)), share)
    console.print(table)


def _actions(found: Estimate) -> int:
    """Return how many actions have values; none where they are those of states."""
    return 0 if found.of == "v" else found.latest.shape[-1]


def _is_batch(found: Estimate) -> bool:
    return found.latest.ndim > (found.of == "q")


def _rows(found: Estimate, low: NDArray, high: NDArray) -> tuple[NDArray, ...]:
    """Return the values that the agent acts on, the ends, and how often each action is the best."""
    acted_on = found.latest if found.acted_on is None else found.acted_on
    best = np.full(acted_on.shape, np.nan)
    if found.of == "q":
        best = found.policy_probabilities()
    return tuple(np.asarray(part, np.float64).ravel() for part in (acted_on, low, high, best))
