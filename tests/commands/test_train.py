"""``valuetrack train``, ``evaluate``, ``envs`` and ``algos`` from the command line."""

from __future__ import annotations

import json
import textwrap

import numpy as np
import pytest
from typer.testing import CliRunner

import valuetrack as vt
from valuetrack.cli import app
from valuetrack.commands.train import assignments, read_observations

runner = CliRunner()
TINY = ["--set", "hidden=[8]", "--set", "batch_size=8", "--set", "learning_starts=20",
        "--set", "replay_capacity=200", "--set", "samples=5"]  # fmt: skip


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def train(out, *arguments, env="CartPole-v1", steps=120):
    return invoke("train", "--env", env, "--steps", steps, "--out", out, *TINY, *arguments)


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly():
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    np.save(path / "states.npy", np.zeros((2, 4), np.float32))
    result = train(
        path / "run", "--seeds", 2, "--seed", 5, "--track", path / "states.npy",
        "--evaluate-every", 60, "--episodes", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return path / "run", result.output


def test_training_ends_in_a_table_an_agent_and_a_history(trained):
    out, printed = trained
    assert "LKTD in CartPole-v1, 120 steps" in printed
    assert "mean return of 2 greedy episodes" in printed
    agent = vt.load(out / "agent.vt")
    assert agent.seeds == (5, 6)
    assert agent.num_timesteps == 120
    assert agent.options.hidden == (8,)
    history = json.loads((out / "history.json").read_text())
    assert history[-1]["steps"] == 120
    evaluated = [entry["evaluation"] for entry in history if entry["evaluation"]]
    assert np.shape(evaluated) == (2, 2, 2)


def test_tracked_values_are_written_and_drawn(trained):
    out, _ = trained
    with np.load(out / "tracking.npz", allow_pickle=False) as arrays:
        assert arrays["samples"].shape[1:] == (2, 1, 2, 2)
        assert len(arrays["steps"]) == len(arrays["samples"]) > 20
    assert (out / "tracking.png").read_bytes().startswith(b"\x89PNG")


def test_a_saved_agent_is_evaluated(trained):
    out, _ = trained
    results = [invoke("evaluate", out / "agent.vt", "--episodes", 3) for _ in range(2)]
    assert results[0].exit_code == 0, results[0].output
    assert results[0].output == results[1].output
    assert "mean return of 3 greedy episodes" in results[0].output


def test_resuming_is_the_same_as_one_go(tmp_path):
    assert train(tmp_path / "whole").exit_code == 0
    assert train(tmp_path / "cut", steps=60).exit_code == 0
    result = train(tmp_path / "cut", "--resume")
    assert result.exit_code == 0, result.output
    agents = [vt.load(tmp_path / name / "agent.vt") for name in ("whole", "cut")]
    arrays = [agent.trainer.arrays() for agent in agents]
    assert arrays[0].keys() == arrays[1].keys()
    for name, array in arrays[0].items():
        np.testing.assert_array_equal(array, arrays[1][name], err_msg=name)
    steps = [json.loads((tmp_path / n / "history.json").read_text()) for n in ("whole", "cut")]
    assert steps[0][-1]["steps"] == steps[1][-1]["steps"] == 120


def test_an_environment_of_ones_own_is_imported(tmp_path, monkeypatch):
    module = """
        import gymnasium
        import numpy as np

        class Corridor(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
            action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.x = 0
                return np.zeros(1, np.float32), {}
            def step(self, action):
                self.x += 1 if action else -1
                at = np.array([abs(self.x) / 5], np.float32)
                return at, float(action), abs(self.x) >= 5, False, {}

        gymnasium.register("mine/Corridor-v0", Corridor, max_episode_steps=20)
    """
    (tmp_path / "my_corridors.py").write_text(textwrap.dedent(module))
    monkeypatch.chdir(tmp_path)
    listed = invoke("envs", "--import", "my_corridors")
    assert "mine/Corridor-v0" in listed.output
    result = train(tmp_path / "run", "--algo", "dqn", env="mine/Corridor-v0", steps=60)
    assert result.exit_code == 0, result.output
    again = invoke("evaluate", tmp_path / "run" / "agent.vt", "--episodes", 2)
    assert again.exit_code == 0, again.output


def test_lists_name_what_there_is():
    printed = invoke("algos").output
    for name in ("lktd", "sgld", "sghmc", "kova", "dqn", "bootdqn", "qrdqn"):
        assert name in printed
    options = invoke("algos", "lktd").output
    assert "pseudo_population" in options
    assert "CartPole-v1" in invoke("envs").output


BAD = [
    (["--env", "CartPole-v99"], "CartPole-v99"),
    (["--env", "NoSuch-v0"], "There is no environment 'NoSuch-v0'"),
    (["--env", "Pendulum-v1"], "continuous"),
    (["--env", "CartPole-v1", "--algo", "ppo"], "There is no algorithm 'ppo'"),
    (["--env", "CartPole-v1", "--set", "stepsize=1"], "did you mean step_size?"),
    (["--env", "CartPole-v1", "--set", "step_size=-1"], "step_size"),
    (["--env", "CartPole-v1", "--set", "step_size=fast"], "step_size"),
    (["--env", "CartPole-v1", "--set", "discount=2"], "discount"),
    (["--env", "CartPole-v1", "--set", "hidden=[0]"], "hidden"),
    (["--env", "CartPole-v1", "--set", "activation=relux"], "activation"),
    (["--env", "CartPole-v1", "--set", "alpha"], "key=value"),
    (["--env", "CartPole-v1", "--set", "alpha=0.5", "--set", "alpha=0.6"], "twice"),
    (["--env", "CartPole-v1", "--env-set", "colour=1"], "CartPole-v1 cannot be made"),
    (["--env", "CartPole-v1", "--import", "no_such_module"], "no_such_module"),
    (["--env", "CartPole-v1", "--track", "absent.npy"], "absent.npy"),
    (["--env", "CartPole-v1", "--resume"], "agent.vt"),
    (["--env", "CartPole-v1", "--steps", "0"], "--steps"),
    (["--env", "CartPole-v1", "--steps", "many"], "--steps"),
    (["--env", "CartPole-v1", "--seeds", "0"], "--seeds"),
    (["--env", "CartPole-v1", "--seed", "-1"], "--seed"),
    ([], "--env"),
]


@pytest.mark.parametrize(("arguments", "part"), BAD)
def test_wrong_use_is_one_sentence_and_leaves_nothing(arguments, part, tmp_path):
    result = invoke("train", *arguments, "--out", tmp_path / "new")
    assert result.exit_code == 2, result.output
    assert part in result.stderr
    assert "Traceback" not in result.output
    if result.stderr.startswith("Error"):
        assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    result = train(tmp_path)
    assert result.exit_code == 2
    assert "is there already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_finished_training_is_not_trained_less(trained):
    out, _ = trained
    before = (out / "agent.vt").read_bytes()
    result = train(out, "--resume", steps=100)
    assert result.exit_code == 2
    assert "has 120 steps already" in result.stderr
    assert (out / "agent.vt").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\x80\x04\x95K\x00."])
def test_files_that_are_no_models(content, tmp_path):
    path = tmp_path / "agent.vt"
    path.write_bytes(content)
    result = invoke("evaluate", path)
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_values_are_json_or_text():
    pairs = ["a=1", "b=1e-5", "c=[1, 2]", "d=relu", "e=null", "f=x=y"]
    expected = {"a": 1, "b": 1e-5, "c": [1, 2], "d": "relu", "e": None, "f": "x=y"}
    assert assignments(pairs, "--set") == expected


def test_observations_are_plain_arrays(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(tmp_path / "single.npy", np.zeros(4))
    (tmp_path / "text.npy").write_text("0 0 0 0")
    for name in ("objects.npy", "text.npy"):
        with pytest.raises(ValueError, match=r"is not an \.npy file of numbers"):
            read_observations(tmp_path / name)
    with pytest.raises(ValueError, match="one row each"):
        read_observations(tmp_path / "single.npy")
