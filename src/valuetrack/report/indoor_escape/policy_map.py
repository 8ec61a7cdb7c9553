"""Policy probabilities drawn as arrows on the grid."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from valuetrack.envs.indoor_escape import IndoorEscape, optimal_policy_probabilities, optimal_q
from valuetrack.report.indoor_escape.claims import OPEN, inner_cells, open_cells, open_shares
from valuetrack.report.indoor_escape.data import Run
from valuetrack.report.style import INK, Drawn, plain
from valuetrack.types import Floats

_DIRECTIONS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
_REACH = 0.9
_FAINTEST = 0.02


def policy_maps(run: Run) -> Drawn | None:
    """Draw the optimal policy beside one seed of LKTD and one of DQN, as far as the run has them.

    Notes
    -----
    An average over seeds would hide the point: seeds of DQN each commit to one way but disagree
    on which, so together they look undecided. One typical seed is drawn instead.
    """
    env = run.environment
    panels: list[tuple[str, Floats]] = [("exact optimal", optimal_policy_probabilities(env))]
    for row in filter(None, (run.largest("lktd"), run.largest("dqn"))):
        shares = open_shares(run, row)
        if shares:
            seed = _typical(shares)
            panels.append((f"{plain(row.name)}, seed {seed}", run.policies(row)[seed]))
    if len(panels) == 1:
        return None
    figure = Figure(figsize=(3.1 * len(panels), 3.7))
    for axes, (title, probabilities) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        share = _draw(axes, env, probabilities)
        axes.set_title(f"{title}\nboth ways open: {share:.0%}", fontsize=10)
    return figure, (
        "The longer and darker an arrow, the larger the mean probability of the action. Shaded: "
        f"inner states in which E and N each have probability {OPEN:g} or more; their share is "
        "given above each grid. LKTD and DQN are each shown by the seed with the median share, "
        "because an average over seeds that commit to different ways would look undecided. The "
        "optimal policy splits ties evenly. S: start, G: goal."
    )


def _typical(shares: dict[int, float]) -> int:
    """Return the seed with the (lower) median share."""
    ordered = sorted(shares, key=lambda seed: (shares[seed], seed))
    return ordered[(len(ordered) - 1) // 2]


def _draw(axes: Axes, env: IndoorEscape, probabilities: Floats) -> float:
    """Draw one grid and return the share of inner states that are shaded."""
    legal, inner = optimal_q(env).legal, inner_cells(env)
    shaded = inner & open_cells(probabilities)
    walls = [(cell % env.width, cell // env.width) in env.walls for cell in range(len(legal))]
    faces = np.where(walls, "#444444", np.where(shaded, "#CFE5F2", "#FFFFFF"))
    squares = [
        Rectangle((cell % env.width - 0.5, cell // env.width - 0.5), 1, 1)
        for cell in range(len(legal))
    ]
    axes.add_collection(
        PatchCollection(squares, facecolor=faces, edgecolor="#D0D0D0", linewidth=0.6)
    )
    _arrows(axes, env, np.where(legal, probabilities, 0.0))
    (sx, sy), (gx, gy) = env.start, env.goal_position
    axes.text(sx - 0.42, sy - 0.42, "S", fontsize=7, color=INK, va="bottom")
    axes.text(gx + 0.42, gy + 0.42, "G", fontsize=7, color=INK, ha="right", va="top")
    axes.set(xlim=(-0.55, env.width - 0.45), ylim=(-0.55, env.height - 0.45), aspect="equal")
    axes.axis("off")
    return float(shaded[inner].mean())


def _arrows(axes: Axes, env: IndoorEscape, probabilities: Floats) -> None:
    cells, actions = np.nonzero(probabilities >= _FAINTEST)
    strength = probabilities[cells, actions]
    y, x = np.divmod(cells, env.width)
    ways = _DIRECTIONS[actions] * strength[:, None] * _REACH
    colours = [to_rgba("#08306B", 0.35 + 0.65 * float(weight)) for weight in strength]
    # From the centre outwards; an arrow of probability one almost reaches the next centre.
    axes.plot(x, y, linestyle="none", marker="o", markersize=1.6, color="#08306B")
    axes.quiver(
        x, y, ways[:, 0], ways[:, 1], color=colours, angles="xy", scale_units="xy", scale=1.0,
        units="xy", width=0.07, headwidth=4, headlength=4, headaxislength=3.6, minlength=0.5,
    )  # fmt: skip
