"""Train one competitor on request: jobs come as lines of JSON, answers go back the same way.

The first job says who trains where, with the options that valuetrack's classes have; for the other
libraries they are translated. The process compiles, warms up until updates are made, and answers
with its speed. Every further job is a number of steps; the answer has the seconds they took.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from common import agent_of_row, versions

SHORTEST = 0.2
"""Seconds that a warm-up must last before its speed is believed."""
PEERS = {
    "sb3": ("stable_baselines3", "stable_baselines3"),
    "sb3-contrib": ("sb3_contrib", "sb3_contrib"),
    "sbx": ("sbx", "sbx-rl"),
}
"""Library -> the module and the package that hold its algorithms."""


def peer_options(
    algorithm: str, options: dict[str, Any], *, images: bool = False
) -> dict[str, Any]:
    """Translate options of valuetrack's classes into those of Stable-Baselines3's.

    The target network is copied every so many updates there, every so many steps here.
    """
    steps, updates = options["steps_per_update"], options["updates_per_cycle"]
    policy: dict[str, Any] = {"net_arch": list(options["hidden"])}
    if images:  # their first layer after the convolutions belongs to the convolutions
        features, *layers = options["hidden"]
        policy = {"net_arch": layers, "features_extractor_kwargs": {"features_dim": features}}
    if algorithm == "QRDQN":
        policy["n_quantiles"] = options["quantiles"]
    return {
        "learning_rate": options["learning_rate"],
        "buffer_size": options["replay_capacity"],
        "learning_starts": options["learning_starts"],
        "batch_size": options["batch_size"],
        "gamma": options["discount"],
        "train_freq": steps,
        "gradient_steps": updates,
        "target_update_interval": options["target_every"] * steps // updates,
        "exploration_initial_eps": options["exploration_initial"],
        "exploration_final_eps": options["exploration_final"],
        "policy_kwargs": policy,
    }


class Own:
    """An algorithm of valuetrack, one or many seeds."""

    def __init__(self, job: dict[str, Any]) -> None:
        import valuetrack  # noqa: PLC0415 - after the core and the threads are chosen

        options = {k: tuple(v) if isinstance(v, list) else v for k, v in job["options"].items()}
        self.agent = getattr(valuetrack, job["algorithm"])(
            job["env"],
            env_options=job.get("env_options"),
            seeds=job.get("seeds", 1),
            backend=job.get("backend", "auto"),
            **options,
        )

    def train(self, steps: int) -> int:
        """Train every seed for so many steps; return the steps of all seeds."""
        before = self.agent.num_timesteps
        self.agent.learn(steps)
        return (self.agent.num_timesteps - before) * len(self.agent.seeds)


class Peer:
    """An algorithm of Stable-Baselines3, its contributions, or SBX."""

    def __init__(self, job: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415 - after the core and the threads are chosen

        if job["core"] is not None:
            torch.set_num_threads(1)
        self.env = make_env(job)
        kind = getattr(importlib.import_module(PEERS[job["library"]][0]), job["algorithm"])
        images = len(self.env.observation_space.shape) == 3
        options = peer_options(job["algorithm"], job["options"], images=images)
        policy = "CnnPolicy" if images else "MlpPolicy"
        self.model = kind(policy, self.env, device="cpu", seed=0, **options)

    def train(self, steps: int) -> int:
        """Train for so many steps, and return how many it became."""
        before = self.model.num_timesteps
        self.model.learn(steps, reset_num_timesteps=False)
        return int(self.model.num_timesteps - before)


class Reproduction:
    """A row of the indoor-escape experiment, in units of seeds as ``valuetrack reproduce`` has."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.row = job["algorithm"]
        self.units: dict[int, Any] = {}

    def train(self, steps: int, sizes: list[int]) -> int:
        """Train units of these sizes one after the other, each seed for so many steps."""
        done = 0
        for size in sizes:
            trainer = self._unit(size)
            per_cycle = trainer.settings.transitions_per_cycle
            cycles = -(-steps // per_cycle)
            trainer.run(cycles)
            done += cycles * per_cycle * size
        return done

    def _unit(self, size: int) -> Any:
        """Return the trainer of a unit, which has filled its replay memory."""
        if size not in self.units:
            trainer = agent_of_row("indoor-escape", self.row, size).trainer
            trainer.run(trainer.settings.warmup_cycles)
            self.units[size] = trainer
        return self.units[size]


def make_env(job: dict[str, Any]) -> Any:
    """Make the Gymnasium environment of a job."""
    import gymnasium  # noqa: PLC0415

    import valuetrack.envs  # noqa: F401, PLC0415 - registers its own

    return gymnasium.make(job["env"], **job.get("env_options") or {})


def environment_speed(job: dict[str, Any]) -> float:
    """Return the steps a second of the environment alone, under random actions."""
    env = make_env(job)
    env.reset(seed=0)
    env.action_space.seed(0)
    env.step(0)  # what is compiled is compiled now
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < SHORTEST:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset()
    return steps / (time.perf_counter() - began)


def timed(trainer: Any, steps: int, *arguments: Any) -> dict[str, Any]:
    """Train, and return the steps and the seconds.

    A process that has waited for its turn finds its memory cold, or even given away by the
    system, so a tenth of the steps goes before.
    """
    trainer.train(max(1, steps // 10), *arguments)
    began = time.perf_counter()
    steps = trainer.train(steps, *arguments)
    return {"steps": steps, "seconds": time.perf_counter() - began}


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Choose core and threads, build, compile and warm up; return the trainer and its speed."""
    if job["core"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {job["core"]})
    if "module" in job:  # which registers the environment
        importlib.import_module(job["module"])
    library = job["library"]
    answer: dict[str, Any] = {"versions": versions("valuetrack", "jax", "numpy", "gymnasium")}
    if library == "reproduce":
        return Reproduction(job), answer
    trainer = Own(job) if library == "valuetrack" else Peer(job)
    if library != "valuetrack":
        package = PEERS[library][1]
        answer["versions"] = versions("torch", package, "jax", "numpy", "gymnasium")
        answer["environment_steps_per_second"] = environment_speed(job)
    options = job["options"]
    steps = job.get("warmup_cycles", 10) * options["steps_per_update"]
    trainer.train(options["learning_starts"] + steps)
    took = timed(trainer, steps)
    while took["seconds"] < SHORTEST:
        steps *= 2
        took = timed(trainer, steps)
    answer["seconds_per_step"] = took["seconds"] / steps
    return trainer, answer


def main() -> None:
    """Answer jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not stand among the answers
    trainer: Any = None
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if trainer is None:
                trainer, answer = prepare(job)
            else:
                answer = timed(trainer, *job["train"])
        except Exception as error:  # the one who asked reports it
            answer = {"error": f"A worker failed: {type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
