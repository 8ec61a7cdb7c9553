"""RL Baselines3 Zoo with valuetrack's algorithms, and its hyperparameters against the paper's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("rl_zoo3")

import yaml
from stable_baselines3.common.envs import FakeImageEnv

from valuetrack import registry
from valuetrack.experiments import spec
from valuetrack.sb3 import ALGORITHMS
from valuetrack.sb3.names import option_defaults
from valuetrack.zoo import HYPERPARAMETERS
from valuetrack.zoo.__main__ import main, with_own_hyperparameters

ROWS = {row.env: row for row in spec.load("classic-control").rows if row.algorithm == "lktd"}
SMALL = ["-params", "samples:5", "learning_starts:40", "policy_kwargs:{'net_arch': [8]}"]


def hyperparameters(algorithm):
    return yaml.safe_load((HYPERPARAMETERS / f"{algorithm}.yml").read_text("utf-8"))


@pytest.mark.parametrize("env", ROWS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_zoo_has_the_values_of_the_experiment(algorithm, env):
    options, row = ROWS[env].options, ROWS[env]
    shared = option_defaults(registry.SGLD.options_type)
    own = {name: options[name] for name in shared if name in options}
    # SB3's buffer keeps no next action: with the maximum in its place, fewer iterations diverge.
    own |= {"inner_iterations": 5, "inner_power": 0.9}
    if algorithm == "sghmc":
        friction = registry.SGHMC.options_type().friction
        own |= {"friction": friction, "step_size": pytest.approx(options["step_size"] * friction)}
    steps_per_update = options["steps_per_update"] / options["updates_per_cycle"]
    assert hyperparameters(algorithm)[env] == {
        **own,
        "policy": "MlpPolicy",
        "policy_kwargs": {"net_arch": list(options["hidden"])},
        "n_timesteps": row.steps,
        "gamma": options["discount"],
        "batch_size": options["batch_size"],
        "buffer_size": options["replay_capacity"],
        "learning_starts": options["learning_starts"],
        "train_freq": options["steps_per_update"],
        "gradient_steps": options["updates_per_cycle"],
        "target_update_interval": options["target_every"] * steps_per_update,
        "exploration_fraction": pytest.approx(options["exploration_steps"] / row.steps),
        "exploration_final_eps": options["exploration_final"],
    }


def test_every_algorithm_has_a_file_for_the_four_tasks_and_the_rest():
    assert set(ROWS) == {"CartPole-v1", "MountainCar-v0", "LunarLander-v3", "Acrobot-v1"}
    for algorithm in ALGORITHMS:
        assert set(hyperparameters(algorithm)) == {*ROWS, "atari", "default"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_options_for_atari_are_options(algorithm):
    options = hyperparameters(algorithm)["atari"]
    for name in ("env_wrapper", "frame_stack", "n_timesteps"):  # the zoo's own
        del options[name]
    env = FakeImageEnv(screen_height=84, screen_width=84, n_channels=4, discrete=True)
    model = ALGORITHMS[algorithm](env=env, **options | {"buffer_size": 10})
    assert model.policy.task.shape == (84, 84, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("zoo")
    subprocess.run(
        [
            sys.executable, "-m", "valuetrack.zoo", "train", "--algo", "lktd",
            "--env", "CartPole-v1", "-n", "200", "--eval-freq", "100", "--eval-episodes", "1",
            "--seed", "3", "--log-folder", str(path), *SMALL,
        ],
        check=True, capture_output=True, timeout=300,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )  # fmt: skip
    return path


def test_the_zoo_trains_and_writes_its_folder(folder):
    run = folder / "lktd" / "CartPole-v1_1"
    assert {"CartPole-v1.zip", "best_model.zip", "evaluations.npz", "0.monitor.csv"} <= {
        path.name for path in run.iterdir()
    }
    config = yaml.unsafe_load((run / "CartPole-v1" / "config.yml").read_text())
    assert dict(config)["step_size"] == ROWS["CartPole-v1"].options["step_size"]
    model = ALGORITHMS["lktd"].load(run / "CartPole-v1.zip")
    assert model.num_timesteps == 200
    assert model.learner.updates == 40


def test_the_zoo_plays_what_it_trained(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    arguments = ["--algo", "lktd", "--env", "CartPole-v1", "-f", str(folder), "-n", "60"]
    main(["enjoy", *arguments, "--no-render"])
    assert "Mean reward" in capsys.readouterr().out


def test_our_file_is_used_unless_another_is_given():
    added = ["--conf-file", str(HYPERPARAMETERS / "sgld.yml")]
    names = tuple(ALGORITHMS)
    assert with_own_hyperparameters(["--algo", "sgld"], names) == ["--algo", "sgld", *added]
    for untouched in (["--algo", "dqn"], [], ["--algo", "sgld", "-conf", "mine.yml"],
                      ["--algo=sgld", "--conf-file=mine.yml"]):  # fmt: skip
        assert with_own_hyperparameters(untouched, names) == untouched


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "The zoo's commands are train and enjoy; try train --help."),
        (["fly"], "The zoo's commands are train and enjoy, not 'fly'; try train --help."),
        (
            ["train", "--algo", "lktd", "-optimize"],
            "The zoo's search for hyperparameters has no search space for lktd.",
        ),
    ],
)
def test_wrong_commands_end_in_a_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip() == sentence


@pytest.mark.parametrize("missing", ["stable_baselines3", "rl_zoo3"])
def test_without_the_zoo_the_extra_is_named(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--algo", "lktd"])
    assert stopped.value.code == 1
    told = "RL Baselines3 Zoo needs an extra: pip install 'valuetrack[zoo]'."
    assert capsys.readouterr().err.strip() == told
