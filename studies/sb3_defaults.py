"""Stable-Baselines3's DQN with its own defaults, beside the experiment ``defaults``.

Trains SB3's DQN on the first six tasks of experiments/defaults.toml, for as many steps, and scores
it as the experiment scores its rows: greedy return, value at the start and what comes of it, error
of the values against the exact ones of its own greedy policy. `valuetrack report` of the folder
shows it beside the others. It knows no action masks (Taxi), and no Tuple spaces: Blackjack's
observation is flattened, each part one-hot. It goes on where it stopped.

    python studies/sb3_defaults.py --out runs/defaults --seed 100 --seeds 8
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import FlattenObservation

import valuetrack as vt
from valuetrack.envs.gym.tabular import has_table, table_values, transition_table
from valuetrack.experiments.measure import options_of
from valuetrack.experiments.spec import Row, load
from valuetrack.io.atomic import write_atomically
from valuetrack.report.defaults.sb3 import FILE

try:
    import stable_baselines3
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError:
    sys.exit("This study needs Stable-Baselines3: pip install 'valuetrack[sb3]'.")

TASKS = ("frozenlake", "frozenlake-8x8", "cliffwalking", "taxi", "blackjack", "cartpole")


def make(row: Row) -> gymnasium.Env[Any, Any]:
    """Make the environment of a task as SB3 can take it."""
    env = gymnasium.make(row.env, **row.env_options)
    is_tuple = isinstance(env.observation_space, gymnasium.spaces.Tuple)
    return FlattenObservation(env) if is_tuple else env


def q_values(model: DQN, observations: Any) -> Any:
    """Return the values of all actions, (n, actions)."""
    seen, _ = model.policy.obs_to_tensor(np.asarray(observations))
    with torch.no_grad():
        return model.q_net(seen).numpy()


def play(model: DQN, env: gymnasium.Env[Any, Any], episodes: int, seed: int) -> Any:
    """Play greedy episodes; return returns, discounted returns and values at the start."""
    found = np.zeros((3, episodes))
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        found[2, episode] = q_values(model, [observation]).max()
        over, power = False, 1.0
        while not over:
            action = int(q_values(model, [observation]).argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            found[:2, episode] += float(reward), power * float(reward)
            power *= model.gamma
            over = terminated or truncated
    return found


def value_scores(model: DQN, env: gymnasium.Env[Any, Any]) -> dict[str, float]:
    """Compare the values with the exact ones of the greedy policy, where the world is a table."""
    if not has_table(env):
        return {}
    table = transition_table(env)
    acts = table.legal.any(axis=1)
    table = table._replace(legal=np.repeat(acts[:, None], table.legal.shape[1], axis=1))
    q = q_values(model, np.arange(len(acts)))
    exact = table_values(table, np.eye(q.shape[1])[q.argmax(axis=1)], model.gamma)
    memory = model.replay_buffer
    last = memory.buffer_size if memory.full else memory.pos
    seen = np.zeros(q.shape, bool)
    seen[memory.observations[:last].astype(int).ravel(), memory.actions[:last].ravel()] = True
    error = (q - exact)[seen]
    own = np.where(acts, exact[np.arange(len(q)), q.argmax(axis=1)], 0.0)
    return {
        "state_actions": int(seen.sum()),
        "value_rmse": float(np.sqrt(np.mean(error**2))),
        "value_bias": float(error.mean()),
        "policy_value": float(table.starts @ own),
    }


class Curves(BaseCallback):
    """Plays greedy episodes at points evenly over the training."""

    def __init__(self, row: Row, points: int, episodes: int) -> None:
        super().__init__()
        self.steps = [round(row.steps * (i + 1) / points) for i in range(points)]
        self.env, self.episodes = make(row), episodes
        self.found: list[dict[str, float]] = []
        self.seconds = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps in self.steps:
            began = time.monotonic()
            index = self.steps.index(self.num_timesteps)
            returns, discounted, expected = play(self.model, self.env, self.episodes, index + 1)
            self.found.append(
                {
                    "step": self.num_timesteps,
                    "evaluation_return": returns.mean(),
                    "discounted_return": discounted.mean(),
                    "start_value": expected.mean(),
                }
            )
            self.seconds += time.monotonic() - began
        return True


def train(row: Row, task: str, seed: int, measure: Any) -> dict[str, Any]:
    """Train one seed on one task, and score it."""
    curves = Curves(row, min(measure.points, row.steps), measure.episodes)
    model = DQN("MlpPolicy", make(row), seed=seed, device="cpu")
    began = time.monotonic()
    model.learn(row.steps, callback=curves)
    seconds = time.monotonic() - began - curves.seconds
    returns, discounted, expected = play(model, curves.env, measure.final_episodes, seed=0)
    return {
        "task": task,
        "env": row.env,
        "steps": row.steps,
        "seed": seed,
        "diverged": not np.isfinite(expected).all(),
        "final_return": returns.mean(),
        "discounted_return": discounted.mean(),
        "start_value": expected.mean(),
        **value_scores(model, curves.env),
        "seconds": seconds,
        "points": curves.found,
    }


def main() -> None:
    """Train what is missing in the folder, one seed after the other."""
    given = options()
    torch.set_num_threads(1)
    spec = load("defaults", steps=given.steps)
    measure = options_of(spec)
    if given.quick:
        measure = measure.model_copy(update={"points": 2, "episodes": 2, "final_episodes": 5})
    path: Path = given.out / FILE
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    for seed in range(given.seed, given.seed + given.seeds):
        for task in given.tasks.split(","):
            if any((row["task"], row["seed"]) == (task, seed) for row in rows):
                continue
            rows.append(train(spec.row(f"{task}-dqn"), task, seed, measure))
            versions = {
                "valuetrack": vt.__version__,
                "stable-baselines3": stable_baselines3.__version__,
            }
            text = json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda file, text=text: file.write(text.encode()))
            print(f"{task}, seed {seed}: {rows[-1]['final_return']:.2f}", flush=True)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"), help="the run's folder")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--steps", type=int, help="environment steps of a training")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--tasks", default=",".join(TASKS), help="which tasks")
    given = parser.parse_args()
    if given.quick and given.steps is None:
        given.steps = 500
    return given


if __name__ == "__main__":
    main()
