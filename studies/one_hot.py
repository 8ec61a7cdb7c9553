r"""What the scale of one-hot observations does: a van on a grid, 720 states by their number.

He's initialisation gives a layer of n inputs weights of variance 2 / n, for inputs of mean square
1. A one-hot vector has the mean square 1 / n, so that its state moves the first layer by a
:math:`\sqrt n`-th of what was meant, and the larger the world, the slower it is learned. Times
:math:`\sqrt n` it has the mean square 1 (:mod:`valuetrack.normalisation`).

The van fetches a parcel in one corner and brings it to another: -1 per step, 20 for the delivery,
at most 200 steps. Illegal actions are masked. It is stepped in Python, as environments of
Gymnasium are.

Run ``python studies/one_hot.py --out results/studies/one-hot``. It takes some six minutes;
``--quick`` trains for a moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from matplotlib.figure import Figure

import common
from valuetrack.registry import agent_type

NAME = "one-hot"
SIZE = 6
CORNERS = (0, SIZE - 1, SIZE * (SIZE - 1), SIZE * SIZE - 1)
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0), (0, 0))
LOADED, FETCH, LEAVE = 4, 4, 5
"""Where a parcel is that is in no corner; the two actions after the four moves."""
FIRST_SEED, SEEDS, EPISODES = 20, 2, 100
SCALES = {"plain": False, "times the root of n": "one-hot"}
ALGORITHMS = ("lktd", "dqn")


class Deliveries(gymnasium.Env[int, int]):
    """Fetch a parcel, bring it to another corner."""

    observation_space = gymnasium.spaces.Discrete(SIZE * SIZE * 5 * 4)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Put van, parcel and address anywhere, the last two apart."""
        super().reset(seed=seed)
        draw = self.np_random.integers
        self.van, self.parcel = int(draw(SIZE * SIZE)), int(draw(4))
        self.address = (self.parcel + 1 + int(draw(3))) % 4
        self.steps = 0
        return self._seen()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move, fetch or leave the parcel."""
        x, y = divmod(self.van, SIZE)
        dx, dy = MOVES[action]
        self.van = (x + dx) * SIZE + y + dy
        if action == FETCH:
            self.parcel = LOADED
        elif action == LEAVE:
            self.parcel = CORNERS.index(self.van)
        done = action == LEAVE and self.parcel == self.address
        self.steps += 1
        seen, info = self._seen()
        return seen, 20.0 if done else -1.0, done, self.steps >= 200 and not done, info

    def _seen(self) -> tuple[int, dict[str, Any]]:
        x, y = divmod(self.van, SIZE)
        in_corner, loaded = self.van in CORNERS, self.parcel == LOADED
        fetches = in_corner and not loaded and CORNERS[self.parcel] == self.van
        legal = [x < SIZE - 1, y < SIZE - 1, x > 0, y > 0, fetches, in_corner and loaded]
        seen = (self.van * 5 + self.parcel) * 4 + self.address
        return seen, {"action_mask": np.array(legal, np.int8)}


def measure(algorithm: str, scale: str, steps: int, seeds: int, episodes: int) -> dict[str, Any]:
    """Train an algorithm with its defaults; return what its greedy policy comes to."""
    agent = agent_type(algorithm)(
        Deliveries, seed=FIRST_SEED, seeds=seeds, normalise_observations=SCALES[scale]
    ).learn(steps)
    played = agent.play(episodes)
    means = {
        "returns": played.returns,
        "value_at_start": played.start_values,
        "discounted_return": played.discounted_returns,
    }
    found = {name: [float(x) for x in part.mean(axis=1)] for name, part in means.items()}
    return {"algorithm": algorithm, "scale": scale, **found}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    names = ("algorithm", "one-hot vectors", "greedy returns", "at the start", "discounted return")
    lines = [f"| {' | '.join(names)} |", "| :-- | :-- | :-- | --: | --: |"]
    for row in rows:
        label = agent_type(row["algorithm"]).label
        each = ", ".join(f"{value:.1f}" for value in row["returns"])
        value, came = (np.mean(row[name]) for name in ("value_at_start", "discounted_return"))
        lines.append(f"| {label} | {row['scale']} | {each} | {value:.2f} | {came:.2f} |")
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]]) -> Figure:
    """Draw the return of every seed."""
    made = Figure(figsize=(6, 3), layout="constrained")
    axes = made.subplots()
    for place, row in enumerate(rows):
        kind = agent_type(row["algorithm"])
        spread = np.linspace(-0.12, 0.12, len(row["returns"]))
        axes.plot(place + spread, row["returns"], kind.marker, color=kind.colour)
    names = [f"{agent_type(row['algorithm']).label}\n{row['scale']}" for row in rows]
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("greedy return")
    return made


def main() -> None:
    """Run the study from the command line."""
    given = common.options(__doc__, f"results/studies/{NAME}", steps=50_000)
    if given.redraw:
        document = common.read(given.out, NAME)
    else:
        steps, seeds, episodes = (300, 1, 2) if given.quick else (given.steps, SEEDS, EPISODES)
        rows = []
        for algorithm in ALGORITHMS:
            for scale in SCALES:
                rows.append(measure(algorithm, scale, steps, seeds, episodes))
                print(rows[-1], flush=True)
        document = {"steps": steps, "first_seed": FIRST_SEED, "rows": rows}
    kept = {name: document[name] for name in ("steps", "first_seed", "rows")}
    common.write(Path(given.out), NAME, kept, table(document["rows"]), figure(document["rows"]))


if __name__ == "__main__":
    main()
