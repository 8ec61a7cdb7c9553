"""What comes of a search: the best settings as a sweep's file, and rows that try them afresh."""

from __future__ import annotations

import json
from collections.abc import Mapping

from valuetrack.api.options import parse
from valuetrack.experiments import run as runs
from valuetrack.experiments.spec import Row
from valuetrack.experiments.tuning.search import Search, add_rows
from valuetrack.experiments.tuning.study import ROW, TuneStudy
from valuetrack.io.atomic import write_atomically
from valuetrack.registry import agent_type
from valuetrack.types import Json

BEST = "best.toml"
FRESH, DEFAULTS = "fresh-", "fresh-defaults"
"""How the rows on fresh seeds begin, and that of the algorithm's defaults among them."""
SEEDS_PER_UNIT = 5


def write_best(study: TuneStudy) -> Json:
    """Write the best settings as the file of a sweep, and return them.

    Raises
    ------
    ValueError
        If no trial has come to its end.
    """
    best, search = study.best, study.search
    if best is None:
        raise ValueError(
            "No trial has come to its end without diverging, so there are no best settings; search "
            "smaller learning rates, or more trials."
        )
    settings = search.settings(best.params)
    text = (
        f"# Trial {best.number} of {study.count('COMPLETE', 'PRUNED')}: {search.objective} "
        f"{best.value:g}. Run it again: valuetrack sweep {BEST}\n{sweep_text(search, settings)}"
    )
    path = study.folder.path / BEST
    write_atomically(path, lambda file: file.write(text.encode()))
    return settings


def sweep_text(search: Search, settings: Json) -> str:
    """Return settings as the file of a sweep with one row."""
    place = {"env": search.env, "env_options": search.env_options}
    head = {
        "environments": [place if search.env_options else search.env],
        "algorithms": [search.algorithm],
        "steps": search.steps,
        "seeds": SEEDS_PER_UNIT,
        "first_seed": search.first_seed + search.seeds,
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in head.items()]
    options = {**search.options, **settings}
    lines += ["", "[options]", *(f"{key} = {toml_value(v)}" for key, v in options.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """Write a value as TOML has it; None is the word that experiments read as it.

    Examples
    --------
    >>> toml_value([1, 0.5, True, None, {"a": "b"}])
    '[1, 0.5, true, "none", { a = "b" }]'
    """
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(key))} = {toml_value(part)}" for key, part in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else json.dumps(name)


def plan_fresh(study: TuneStudy, settings: Json, seeds: int) -> tuple[str, ...]:
    """Add rows that train the best settings, and the defaults, with seeds that no trial had.

    Returns
    -------
    tuple
        Their ids; the defaults have no row if they are the best.
    """
    search, best = study.search, study.best
    assert best is not None
    number = best.user_attrs[ROW].removeprefix("trial-")
    rows = [search.row(f"{FRESH}{number}", settings, f"best (trial {best.number})")]
    usual = search.row(DEFAULTS, {}, f"{agent_type(search.algorithm).label}, defaults")
    if not _same(rows[0], usual):
        rows.append(usual)
    first = search.first_seed + search.seeds
    with study.folder.changing():
        add_rows(study.folder, rows, runs.split_seeds(first, seeds, SEEDS_PER_UNIT))
    return tuple(row.id for row in rows)


def _same(one: Row, other: Row) -> bool:
    """Return whether two rows of an algorithm have the same options, the defaults included."""
    kind = agent_type(one.algorithm).options_type
    return bool(parse(kind, one.options, one.id) == parse(kind, other.options, other.id))
