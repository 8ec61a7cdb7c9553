"""What it costs to maximise over the legal actions of the wrong state.

With (s, a, r, s', a') the authors' loop stores the legal actions of s'', the state to which a'
leads from s', where those of s' belong. DQN, QR-DQN and KOVA, all double Q-learners, therefore
choose the action of their target at s' among the legal actions of s''. Three things go wrong:

* One step before the goal the set is empty, and the argmax falls on the first action, E. West of
  the goal that is right. South of it E is illegal: its value, which no transition trains, is the
  target of every step that arrives there.
* On the way off an edge the set has one action too many, the one into the wall, which is not
  trained either.
* On the way onto an edge the set lacks the action a' itself. On this grid another is as good.

The samplers take a' itself and are not touched.

Every row is trained twice with the same seeds, with the mask of s' and with that of s''; all else,
the measure included, is that of ``experiments/indoor_escape.toml``. A transition says where s' is
and what a' is, so the wrong mask is computed when a batch is drawn and the loop stays as it is.

Run ``python studies/wrong_mask.py --out results/studies/wrong-mask``, with ``--quick`` to see only
that it works. KOVA takes hours: ``--rows dqn,qrdqn`` leaves it out, and the same command goes on
where a run in ``--runs`` was stopped. The tables have what is finished.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import common
from valuetrack.envs.indoor_escape import (
    EAST,
    NORTH,
    EscapeState,
    IndoorEscape,
    observations,
    optimal_q,
)
from valuetrack.experiments.run import Request, open_or_create, pending_units
from valuetrack.experiments.runner import UnitRun
from valuetrack.experiments.spec import load
from valuetrack.io.run_folder import MANIFEST, RunFolder
from valuetrack.policies import greedy
from valuetrack.registry import agent_type
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.data import LIKELY, GridRow
from valuetrack.report.indoor_escape.data import load as load_run
from valuetrack.report.run_data import read_manifest

NAME = "wrong-mask"
FIRST_SEED = 300
SEEDS = {"dqn": 10, "qrdqn": 20, "kova": 3}
MASKS = {"right": "s'", "wrong": "s''"}
"""Whose legal actions the target maximises over."""
DIGITS = {"mse": 5, "coverage": 3, "width": 3}
LATE = (0.5, 0.8)
"""The part of a run that is compared without regard to how it ends."""
Q_FILE = "q.npy"
"""The mean Q-values of a unit's last pool, (seeds, cells, actions)."""


def mask_of_the_state_after_next(env: IndoorEscape, observation: Any, action: Any) -> jax.Array:
    """Return which actions are legal in the state to which an action leads; none in the goal.

    Parameters
    ----------
    env
        The grid.
    observation, action
        The next observation of a transition, which says where s' is, and the next action a'.
    """
    x, y = jnp.floor(jnp.asarray(observation) * jnp.array([env.width, env.height])).astype(int)
    here = EscapeState(y * env.width + x, jnp.int32(0))
    after = env.step(here, action, jnp.zeros(env.step_uniforms)).state
    return env.action_mask(after)


def with_wrong_mask(name: str) -> type[Any]:
    """Return an algorithm whose targets maximise over the legal actions of s''."""
    kind: Any = agent_type(name)

    class Mistaken(kind):  # type: ignore[misc]
        def _make_learner(self) -> Any:
            learner, env = super()._make_learner(), self.env.in_jax

            def update(key: Any, state: Any, batch: Any) -> Any:
                found = jax.vmap(lambda *next_: mask_of_the_state_after_next(env, *next_))
                wrong = found(batch.next_observation, batch.next_action)
                return learner.update(key, state, batch._replace(next_mask=wrong))

            return learner._replace(update=update)

    return Mistaken


KINDS: dict[str, Callable[[str], type[Any]]] = {"wrong": with_wrong_mask, "right": agent_type}
"""What is trained; the wrong mask first, as it is the question."""


def train(runs: Path, rows: Sequence[str], seeds: Mapping[str, int], steps: int) -> None:
    """Train what is not finished yet, with both masks, into a run folder for each."""
    spec = load("indoor-escape", steps=steps)
    for row in rows:
        for mask, kind_of in KINDS.items():
            request = Request(spec, rows=(row,), first_seed=FIRST_SEED, seeds=seeds[row])
            folder = open_or_create(runs / mask, request, resume=True)
            with folder.lock([row]):
                for unit in pending_units(folder, [row]):
                    print(f"{row}, mask of {MASKS[mask]}, {unit.name}", flush=True)
                    run = UnitRun(unit, spec, folder, kind_of)
                    run.run(threading.Event(), lambda steps: None)
                    q = run.measure.ring.mean(axis=(0, 2))
                    np.save(folder.unit_path(row, unit.name) / Q_FILE, q)


def summarise(runs: Path) -> dict[str, Any]:
    """Return the figures of every finished row, with either mask."""
    found: dict[str, dict[str, Any]] = {}
    for mask in MASKS:
        if not (runs / mask / MANIFEST).is_file():
            continue
        folder = RunFolder.open(runs / mask)
        if not any(True for _ in folder.finished_units()):
            continue
        run = load_run(folder, read_manifest(folder))
        for row in run.rows:
            found.setdefault(row.id, {})[mask] = {
                "label": row.label,
                "seeds": list(row.seeds),
                "commit": row.entry.commit,
                "steps": row.entry.steps,
                "metrics": {
                    action: {metric: row.trimmed(action, metric) for metric in DIGITS}
                    for action in LIKELY
                },
                "untrimmed": {
                    action: {metric: row.metrics[action][metric]["untrimmed"] for metric in DIGITS}
                    for action in LIKELY
                },
                "diverged_at": dict(sorted(row.diverged.items())),
                "values": values_of(folder, row, run.environment),
                "late_mse": late_mse(folder, row),
            }
    return {row: found[row] for row in SEEDS if row in found}


def late_mse(folder: RunFolder, row: GridRow) -> list[float]:
    """Return each seed's mean squared error over all actions, from half to four fifths of the run.

    Nothing is cut, and seeds that diverge later count. The mean is over the evaluations.
    """
    found: list[float] = []
    begin, end = (share * row.entry.steps for share in LATE)
    for name, unit, _ in folder.finished_units():
        if name == row.id:
            records = [r for r in folder.read_progress(name, unit) if begin <= r["steps"] <= end]
            found += np.mean([r["mse"] for r in records if "mse" in r], axis=0).tolist()
    return found


def values_of(folder: RunFolder, row: GridRow, env: IndoorEscape) -> dict[str, list[float]]:
    """Return what the mean Q-values of seeds that did not diverge say of the wrong mask."""
    units = folder.path / "units" / row.id
    q = np.concatenate([np.load(path) for path in sorted(units.glob(f"*/{Q_FILE}"))])
    return read_values(q[np.isin(row.seeds, row.used)], env)


def read_values(q: np.ndarray[Any, Any], env: IndoorEscape) -> dict[str, list[float]]:
    """Return what the wrong mask does to greedy targets with these values, one number per seed.

    Parameters
    ----------
    q
        (seeds, cells, actions).
    env
        The grid.
    """
    truth, at = optimal_q(env, ties="reference"), jnp.asarray(observations(env))
    inside = truth.legal.any(axis=1)
    x, y = env.goal_position
    south = env.index((x, y - 1))  # of the goal
    best = np.asarray(greedy(q, truth.legal))
    found = jax.vmap(lambda *next_: mask_of_the_state_after_next(env, *next_))
    chosen = np.asarray(greedy(q, jax.vmap(found, in_axes=(None, 0))(at, jnp.asarray(best))))
    illegal = ~truth.legal[np.arange(len(at)), chosen]
    lost = _picked(q, best) - _picked(q, chosen)
    error = np.where(truth.legal, q - truth.values, np.nan)[..., : len(LIKELY)]
    return {
        "N_south_of_goal": q[:, south, NORTH].tolist(),
        "E_south_of_goal": q[:, south, EAST].tolist(),
        "illegal_choices": (illegal & inside).sum(axis=1).tolist(),
        "other_legal_choices": ((chosen != best) & ~illegal & inside).sum(axis=1).tolist(),
        "lost": lost[:, inside].mean(axis=1).tolist(),
        "bias": np.nanmean(error, axis=(1, 2)).tolist(),
    }


def _picked(q: np.ndarray[Any, Any], action: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.take_along_axis(q, action[..., None], axis=-1)[..., 0]


def apart(right: Mapping[str, Any], wrong: Mapping[str, Any]) -> float | None:
    """Return the wrong mask's figure minus the right one's, in standard errors."""
    if right["se"] is None or wrong["se"] is None:  # fewer than two seeds
        return None
    error = math.hypot(right["se"], wrong["se"])
    return float((wrong["mean"] - right["mean"]) / error) if error else None


def table(rows: Mapping[str, Any]) -> str:
    """Write the figures as Markdown: the two masks, the paper, and the authors' public results."""
    heads = ["algorithm", "action", "legal actions of", "seeds"]
    for metric in ("MSE", "coverage", "width"):
        heads += [metric, f"{metric} Δ/se"]
    lines = [f"| {' | '.join(heads)} |", f"| :-- | :-- | :-- |{' --: |' * (len(heads) - 3)}"]
    for row, masks in rows.items():
        for action in LIKELY:
            lines += [_line(_own_cells(masks, mask, action)) for mask in MASKS if mask in masks]
            label = next(iter(masks.values()))["label"]
            for source, figures in _printed(row).items():
                own = figures[row][action]
                cells = [cell for m in DIGITS for cell in (_number(*own[m], DIGITS[m]), "–")]
                runs = str(paper.RUNS) if source == "paper" else "–"
                lines.append(_line([label, action, source, runs, *cells]))
    return "\n".join([*lines, "", robust_table(rows), "", values_table(rows)])


def values_table(rows: Mapping[str, Any]) -> str:
    """Write what the untrained actions are worth, means over seeds with their standard errors."""
    names = {
        "N_south_of_goal": "Q(south of the goal, N)",
        "E_south_of_goal": "Q(south of the goal, E)",
        "illegal_choices": "cells with an illegal choice",
        "other_legal_choices": "cells with another legal choice",
        "lost": "lost by the choice",
        "bias": "bias of Q, E and N",
    }
    heads = ["algorithm", "legal actions of", "seeds", *names.values()]
    lines = [f"| {' | '.join(heads)} |", f"| :-- | :-- |{' --: |' * (len(heads) - 2)}"]
    for masks in rows.values():
        for mask, found in masks.items():
            cells = [_mean_se(found["values"][name]) for name in names]
            lines.append(_line([found["label"], MASKS[mask], _seeds(found), *cells]))
    return "\n".join(lines)


def robust_table(rows: Mapping[str, Any]) -> str:
    """Write what the paper's rule for outliers hides: all windows, and seeds that diverge."""
    heads = ["algorithm", "legal actions of", "seeds", "diverged", "windows cut"]
    heads += ["MSE E uncut", "MSE N uncut", "late MSE, median of seeds", "late MSE, worst seed"]
    lines = [f"| {' | '.join(heads)} |", f"| :-- | :-- |{' --: |' * (len(heads) - 2)}"]
    for masks in rows.values():
        for mask, own in masks.items():
            mse, late = own["metrics"]["E"]["mse"], own["late_mse"]
            whole = [own["untrimmed"][action]["mse"]["mean"] for action in LIKELY]
            cells = [
                own["label"],
                MASKS[mask],
                str(len(own["seeds"])),
                str(len(own["diverged_at"])),
            ]
            cells += [f"{mse['dropped']}/{mse['kept'] + mse['dropped']}"]
            cells += [_number(mean, None, 5) for mean in (*whole, np.median(late), max(late))]
            lines.append(_line(cells))
    return "\n".join(lines)


def _seeds(own: Mapping[str, Any]) -> str:
    """Say how many seeds count: those that did not diverge."""
    return str(len(own["seeds"]) - len(own["diverged_at"]))


def _own_cells(masks: Mapping[str, Any], mask: str, action: str) -> list[str]:
    own = masks[mask]
    cells = [own["label"], action, MASKS[mask], _seeds(own)]
    for metric, digits in DIGITS.items():
        figures, delta = own["metrics"][action][metric], None
        if mask == "wrong" and "right" in masks:
            delta = apart(masks["right"]["metrics"][action][metric], figures)
        cells.append(_number(figures["mean"], figures["sd"], digits))
        cells.append("–" if delta is None else f"{delta:+z.1f}")
    return cells


def _printed(row: str) -> dict[str, paper.Figures]:
    """Return the paper's figures, and what the authors list publicly where that is not the same."""
    printed = {"paper": paper.indoor_escape()}
    return printed | ({"authors' list": paper.all_actions()} if row == "qrdqn" else {})


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(mean: float | None, sd: float | None, digits: int) -> str:
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ({sd:.{digits}f})"


def _mean_se(values: Sequence[float]) -> str:
    if not values:
        return "–"
    se = "" if len(values) < 2 else f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"
    return f"{np.mean(values):z.3f}{se}"


def draw(rows: Mapping[str, Any]) -> Figure:
    """Draw the figures with two standard errors, and the paper's."""
    figure = Figure(figsize=(4 * len(DIGITS), 3), layout="constrained")
    for axis, metric in zip(figure.subplots(1, len(DIGITS)), DIGITS, strict=True):
        places = {(row, action): i for i, (row, action) in enumerate(_places(rows))}
        for shift, (mask, colour) in enumerate((("right", "#0072B2"), ("wrong", "#D55E00"))):
            shown = [(row, action) for row, action in places if mask in rows[row]]
            own = [rows[row][mask]["metrics"][action][metric] for row, action in shown]
            own = [{"mean": math.nan, "se": None} if e["mean"] is None else e for e in own]
            axis.errorbar(
                [places[place] + 0.2 * shift - 0.2 for place in shown],
                [entry["mean"] for entry in own],
                [2 * (entry["se"] or 0.0) for entry in own],
                fmt="o",
                color=colour,
                label=f"legal actions of {MASKS[mask]}",
            )
        values = [paper.indoor_escape()[row][action][metric].mean for row, action in places]
        at = [place + 0.2 for place in places.values()]
        axis.plot(at, values, "_", color="0.3", markersize=9, label="paper")
        axis.set_xticks(range(len(places)), [f"{row}\n{action}" for row, action in places])
        axis.set_title({"mse": "mean squared error"}.get(metric, metric))
        axis.spines[["top", "right"]].set_visible(False)
        if metric == "mse":
            axis.set_yscale("log")
            axis.legend(frameon=False, fontsize=7)
    return figure


def _places(rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(row, action) for row in rows for action in LIKELY]


def study(runs: Path, rows: Sequence[str], seeds: Mapping[str, int], steps: int) -> dict[str, Any]:
    """Train both masks of some rows, and return what is kept of all finished ones."""
    train(runs, rows, seeds, steps)
    return {"first_seed": FIRST_SEED, "rows": summarise(runs)}


def main() -> None:
    """Train, or read what is there; write wrong-mask.json, wrong-mask.md and wrong-mask.png."""
    parser = common.parser(__doc__, "results/studies/wrong-mask", steps=1_000_000)
    parser.add_argument("--runs", type=Path, default=Path("runs/wrong-mask"), help="run folders")
    parser.add_argument("--rows", default=",".join(SEEDS), help="which to train, by comma")
    given = parser.parse_args()
    rows = given.rows.split(",")
    if unknown := [row for row in rows if row not in SEEDS]:
        parser.error(f"There is no row {unknown[0]!r}; there are {', '.join(SEEDS)}.")
    if given.redraw:
        document = common.read(given.out, NAME)
    elif given.quick:
        with tempfile.TemporaryDirectory() as folder:
            document = study(Path(folder), ["qrdqn"], {"qrdqn": 2}, 40_000)
    else:
        document = study(given.runs, rows, SEEDS, given.steps)
    common.write(given.out, NAME, document, table(document["rows"]), draw(document["rows"]))


if __name__ == "__main__":
    main()
