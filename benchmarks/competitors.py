"""The competitors of ``peers.py``: three settings, what all have in common, and who trains."""

from __future__ import annotations

from typing import Any, NamedTuple


class Competitor(NamedTuple):
    """Someone who trains, and the labels of those it is held against."""

    label: str
    library: str
    algorithm: str
    rivals: tuple[str, ...] = ()
    seeds: int = 1
    own: dict[str, Any] = {}  # noqa: RUF012 - options of its own, never changed
    backend: str = "auto"


class Setting(NamedTuple):
    """An environment, the options that all have in common, LKTD's own, and who competes."""

    env: str
    options: dict[str, Any]
    lktd: dict[str, Any]
    competitors: tuple[Competitor, ...]
    peer_env_options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def settings() -> dict[str, Setting]:
    """Return the three settings."""
    from valuetrack.experiments.spec import load  # noqa: PLC0415 - imports JAX

    sb3, qr, sbx = "SB3 DQN", "sb3-contrib QR-DQN", "SBX DQN"
    one_gradient, five_gradients = {"inner_iterations": 1}, {"inner_iterations": 5}

    def ours(rivals: dict[str, tuple[str, ...]], seeds: int) -> list[Competitor]:
        """Return valuetrack's three, LKTD with one and with five gradients an update."""
        many = f", {seeds} seeds" if seeds > 1 else ""
        kinds = [
            ("LKTD, K = 1", "LKTD", one_gradient),
            ("LKTD, K = 5", "LKTD", five_gradients),
            ("DQN", "DQN", {}),
            ("QR-DQN", "QRDQN", {}),
        ]
        return [
            Competitor(f"{label}{many}", "valuetrack", kind, rivals[kind], seeds, chosen)
            for label, kind, chosen in kinds
        ]

    escape = Setting(
        "valuetrack/IndoorEscape-v0",
        {
            "hidden": [32, 32],
            "batch_size": 100,
            "steps_per_update": 10,
            "updates_per_cycle": 1,
            "replay_capacity": 10_000,
            "learning_starts": 1_000,
            "discount": 0.9,
            "learning_rate": 1e-3,
            "target_every": 10,
            "quantiles": 10,
            "exploration_initial": 0.01,
            "exploration_final": 0.01,
        },
        {
            "step_size": 1e-5,
            "pseudo_population": 10_000,
            "observation_sd": 0.1,
            "prior_sd": 0.5,
            "prior_narrow_sd": 0.05,
            "likelihood_weight": 2.0,
            "form": "sarsa",
        },
        (
            *ours({"LKTD": (sb3,), "DQN": (sb3,), "QRDQN": (sb3,)}, 1),
            Competitor(sb3, "sb3", "DQN"),
        ),
        {"masked": False},
    )
    rivals = {"LKTD": (sb3, sbx), "DQN": (sb3, sbx), "QRDQN": (qr,)}
    cartpole = Setting(
        "CartPole-v1",
        {
            "hidden": [256, 256],
            "batch_size": 64,
            "steps_per_update": 4,
            "updates_per_cycle": 1,
            "replay_capacity": 50_000,
            "learning_starts": 1_000,
            "discount": 0.99,
            "learning_rate": 5e-4,
            "target_every": 250,
            "quantiles": 200,
            "exploration_initial": 0.05,
            "exploration_final": 0.05,
        },
        {"step_size": 2.5e-5, "likelihood_weight": 2.0},
        (
            *ours(rivals, 1),
            Competitor(
                "DQN, stepped in Python", "valuetrack", "DQN", (sb3, sbx), 1, {}, backend="host"
            ),
            *ours(rivals, 8),
            Competitor(sb3, "sb3", "DQN"),
            Competitor(sbx, "sbx", "DQN"),
            Competitor(qr, "sb3-contrib", "QRDQN"),
        ),
    )
    row = load("classic-control").row("lunarlander-dqn")
    final = row.options["exploration_final"]
    # How a network begins and what it does before it learns cost nothing here.
    shared = {k: v for k, v in row.options.items() if k not in ("init", "random_warmup")}
    lander = Setting(
        row.env,
        {**shared, "hidden": list(row.options["hidden"]), "exploration_initial": final},
        {},
        (
            Competitor("DQN", "valuetrack", "DQN", (sb3,)),
            Competitor(sb3, "sb3", "DQN"),
        ),
    )
    return {"indoor-escape": escape, "cartpole": cartpole, "lunarlander": lander}


def job_of(setting: Setting, competitor: Competitor) -> dict[str, Any]:
    """Return the first job of a competitor's process."""
    options = dict(setting.options)
    job = {
        "library": competitor.library,
        "algorithm": competitor.algorithm,
        "env": setting.env,
        "seeds": competitor.seeds,
        "backend": competitor.backend,
    }
    if competitor.library != "valuetrack":
        return {**job, "options": options, "env_options": setting.peer_env_options}
    if competitor.algorithm != "QRDQN":
        options.pop("quantiles", None)
    if competitor.algorithm == "LKTD":
        del options["learning_rate"]
        options.update(setting.lktd)
    else:
        options["double"] = False  # as the peers have it
    return {**job, "options": {**options, **competitor.own}}
