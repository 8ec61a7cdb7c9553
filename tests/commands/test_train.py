"""``valuetrack train``, ``evaluate``, ``envs`` and ``algos`` from the command line."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import textwrap
import zipfile
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import valuetrack as vt
from valuetrack.cli import app
from valuetrack.commands import session
from valuetrack.commands.arguments import assignments, read_observations
from valuetrack.commands.lists import obstacles
from valuetrack.io.run_folder import RunFolder
from valuetrack.training.compiled_trainer import CompiledTrainer

runner = CliRunner()
TINY = ["--set", "hidden=[8]", "--set", "batch_size=8", "--set", "learning_starts=20",
        "--set", "replay_capacity=200", "--set", "samples=5"]  # fmt: skip


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def train(out, *arguments, env="CartPole-v1", steps=120):
    return invoke("train", "--env", env, "--steps", steps, "--out", out, *TINY, *arguments)


def progress(out, *, timed=False):
    """Return the records of a training; without their rates, which depend on the machine."""
    folder = RunFolder.open(out)
    return [
        {name: value for name, value in record.items() if timed or name != "rate"}
        for path in out.glob("units/*/*/progress.jsonl")
        for record in folder.read_progress(path.parent.parent.name, path.parent.name)
    ]


def rounded(records):
    """Return records whose numbers have six digits: the last bits depend on the compiler."""
    return json.loads(json.dumps(records), parse_float=lambda text: f"{float(text):.6g}")


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    assert "Means of 2 greedy episodes" in printed
    agent = vt.load(out / "agent.vt")
    assert agent.seeds == (5, 6)
    assert agent.num_timesteps == 120
    assert agent.options.hidden == (8,)
    records = progress(out, timed=True)
    assert records[-1]["steps"] == 120
    assert all(record["rate"] > 0 for record in records)
    evaluated = [record["evaluation"] for record in records if "evaluation" in record]
    assert np.shape(evaluated) == (2, 2, 2)
    assert np.shape(records[-1]["values"]["low"]) == (2, 2, 2)  # seeds, states, actions


def test_tracked_values_are_written_and_drawn(trained):
    out, _ = trained
    with np.load(out / "tracking.npz", allow_pickle=False) as arrays:
        assert arrays["samples"].shape[1:] == (2, 1, 2, 2)
        assert len(arrays["steps"]) == len(arrays["samples"]) > 20
    assert (out / "tracking.png").read_bytes().startswith(b"\x89PNG")


def test_intervals_are_tracked_and_go_on(tmp_path):
    np.save(tmp_path / "states.npy", np.zeros((2, 4), np.float32))
    track = ["--track", tmp_path / "states.npy", "--track-intervals-every", 5]
    for steps, more in ((80, ()), (120, ("--resume",))):
        result = train(tmp_path / "run", *track, *more, steps=steps)
        assert result.exit_code == 0, result.output
    with np.load(tmp_path / "run" / "tracking.npz", allow_pickle=False) as arrays:
        points, mean = arrays["solved.updates"], arrays["solved.mean"]
    assert len(points) > 3
    np.testing.assert_array_equal(points, 5 * np.arange(1, len(points) + 1))
    assert mean.shape == (len(points), 1, 2, 2)
    last = progress(tmp_path / "run")[-1]["values"]
    assert np.all(np.less(last["solved_low"], last["solved_high"]))
    np.testing.assert_allclose(last["solved"], mean[-1], rtol=1e-5)
    result = train(tmp_path / "other", "--track-intervals-every", 5)
    assert result.exit_code == 2
    assert "--track-intervals-every needs observations to solve for: --track." in result.output


def test_a_saved_agent_is_evaluated(trained):
    out, _ = trained
    results = [invoke("evaluate", out / "agent.vt", "--episodes", 3) for _ in range(2)]
    assert results[0].exit_code == 0, results[0].output
    assert results[0].output == results[1].output
    assert "Means of 3 greedy episodes" in results[0].output


def test_resuming_is_the_same_as_one_go(tmp_path):
    np.save(tmp_path / "states.npy", np.eye(3, 4))
    track = ["--track", tmp_path / "states.npy"]
    assert train(tmp_path / "whole", *track).exit_code == 0
    assert train(tmp_path / "cut", *track, steps=60).exit_code == 0
    # As after a stop between the writing of the files: the record goes beyond the agent.
    shutil.copy(tmp_path / "whole" / "tracking.npz", tmp_path / "cut" / "tracking.npz")
    result = train(tmp_path / "cut", "--resume", "--seed", 0, "--backend", "compiled", *track)
    assert result.exit_code == 0, result.output
    with (
        np.load(tmp_path / "whole" / "tracking.npz") as whole,
        np.load(tmp_path / "cut" / "tracking.npz") as cut,
    ):
        assert len(whole["updates"]) > 20
        for name in ("steps", "updates", "samples", "observations"):
            np.testing.assert_array_equal(whole[name], cut[name], err_msg=name)
    agents = [vt.load(tmp_path / name / "agent.vt") for name in ("whole", "cut")]
    arrays = [agent.trainer.arrays() for agent in agents]
    assert arrays[0].keys() == arrays[1].keys()
    for name, array in arrays[0].items():
        np.testing.assert_array_equal(array, arrays[1][name], err_msg=name)
    assert progress(tmp_path / "whole")[-1]["steps"] == 120
    assert progress(tmp_path / "cut")[-1] == progress(tmp_path / "whole")[-1]


DIFFERENT = [
    (["--set", "batch_size=16"], "--set batch_size is 16", "made with 8;"),
    (["--set", "hidden=[16]"], "--set hidden is [16]", "made with [8];"),
    (["--set", "batch_size=8", "--set", "stepsize=1"], "did you mean step_size?", ""),
    (["--set", "step_size=-1"], "step_size is wrong", ""),
    (["--env-set", "gravity=1.5"], "--env-set gravity is 1.5", "made with its default;"),
    (["--seed", 6], "--seed is 6", "made with 5;"),
    (["--seed", 0], "--seed is 0", "made with 5;"),
    (["--seeds", 1], "--seeds is 1", "made with 2;"),
    (["--backend", "host"], "--backend is host", "made with compiled;"),
    (["--track", "other.npy"], "tracking.npz is a record at other observations", "elsewhere"),
    (["--tensorboard"], "tensorboard is a file", "folder"),
]


@pytest.mark.parametrize(("arguments", "part", "saved"), DIFFERENT)
def test_what_differs_from_the_saved_agent_is_refused(
    trained, arguments, part, saved, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    shutil.copytree(trained[0], out)
    (out / "tensorboard").write_text("mine")
    before = files(out)
    np.save(tmp_path / "other.npy", np.ones((2, 4), np.float32))
    monkeypatch.chdir(tmp_path)
    options = ["--env", "CartPole-v1", "--steps", 200, "--out", out, "--resume"]
    result = invoke("train", *options, *arguments)
    assert result.exit_code == 2, result.output
    assert part in result.stderr
    assert saved in result.stderr
    assert result.stderr.count("\n") == 1
    assert files(out) == before


def test_a_record_that_does_not_say_where_it_was_made_is_kept(trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained[0], out)
    np.savez(out / "tracking.npz", steps=np.arange(3))
    np.save(tmp_path / "states.npy", np.zeros((2, 4), np.float32))
    result = invoke(
        "train", "--env", "CartPole-v1", "--out", out, "--resume",
        "--track", tmp_path / "states.npy",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "does not say which observations were tracked" in result.stderr


def after_three_runs(monkeypatch, happens):
    """Let something happen when the compiled trainer has run for the third time."""
    calls, run = itertools.count(1), CompiledTrainer.run

    def watched(self, cycles):
        found = run(self, cycles)
        if next(calls) == 3:
            happens()
        return found

    monkeypatch.setattr(CompiledTrainer, "run", watched)


def stop_at_once():
    raise KeyboardInterrupt


STOPS = {
    "SIGINT": lambda: signal.raise_signal(signal.SIGINT),
    "SIGTERM": lambda: signal.raise_signal(signal.SIGTERM),
    "at once": stop_at_once,
}


@pytest.mark.parametrize("kind", STOPS)
def test_a_stopped_training_is_saved(kind, tmp_path, monkeypatch):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    after_three_runs(monkeypatch, STOPS[kind])
    np.save(tmp_path / "states.npy", np.zeros((2, 4), np.float32))
    out = tmp_path / "run"
    # One report is a hundredth of this, so that three pieces come before the first one.
    result = train(out, "--track", tmp_path / "states.npy", steps=100_000)
    assert result.exit_code == 130, result.output
    assert result.stderr.startswith("Interrupted after ")
    assert f"saved in {out / 'agent.vt'}, and --resume goes on" in result.stderr
    assert result.stderr.count("\n") == 1
    agent = vt.load(out / "agent.vt")
    assert 0 < agent.num_timesteps < 1_000
    if kind != "at once":  # which ends between the values and their record
        assert progress(out) == []  # there is no record between two points
        with np.load(out / "tracking.npz", allow_pickle=False) as arrays:
            assert arrays["updates"].tolist() == list(range(1, agent.trainer.clock.updates + 1))
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_training_that_fails_was_saved_in_time(tmp_path, monkeypatch):
    def fail():
        raise OSError("the machine stops")

    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    after_three_runs(monkeypatch, fail)
    result = train(tmp_path / "run", steps=100_000)
    assert result.exit_code == 2
    assert vt.load(tmp_path / "run" / "agent.vt").num_timesteps > 0


def test_what_was_learned_before_an_environment_fails_is_saved(tmp_path, monkeypatch):
    (tmp_path / "my_failing.py").write_text(
        textwrap.dedent(
            """
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Failing(CartPoleEnv):
                steps = 0

                def step(self, action):
                    self.steps += 1
                    if self.steps > 100:
                        raise KeyError("boom")
                    return super().step(action)

            gymnasium.register("mine/Failing-v0", Failing)
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    result = train(out, "--import", "my_failing", env="mine/Failing-v0", steps=400)
    assert result.exit_code == 1, result.output
    assert "mine/Failing-v0 failed in step: KeyError: 'boom'" in result.stderr
    assert result.stderr.count("\n") == 1
    assert vt.load(out / "agent.vt").trainer.clock.updates > 5


def test_what_was_cut_in_the_middle_is_not_called_saved(tmp_path):
    def fail():
        raise RuntimeError("Array has been deleted.")

    recorder, stop = SimpleNamespace(path=tmp_path / "agent.vt", save=fail), session.Stop()
    with pytest.raises(RuntimeError, match="deleted"):
        session.Recorder.finish(recorder, stop)
    stop.asked = True
    with pytest.raises(KeyboardInterrupt, match="nothing is saved"):
        session.Recorder.finish(recorder, stop)


def test_a_diverged_training_says_so_in_one_sentence(tmp_path):
    out = tmp_path / "run"
    result = train(out, "--set", "step_size=1e12", "--set", "guard=false", "--seeds", 2)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("LKTD diverged: seed 0 at update ")
    assert "a smaller step_size than 1e+12" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "train.py" not in result.output
    assert vt.load(out / "agent.vt").num_timesteps == 120


def test_numbered_observations_are_tracked(tmp_path):
    np.save(tmp_path / "fl.npy", np.arange(16))
    result = train(tmp_path / "run", "--track", tmp_path / "fl.npy", env="FrozenLake-v1", steps=60)
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "run" / "tracking.npz", allow_pickle=False) as arrays:
        assert arrays["samples"].shape[1:] == (1, 1, 16, 4)
        np.testing.assert_array_equal(arrays["observations"], np.eye(16))


def test_without_an_update_there_is_nothing_to_draw(tmp_path):
    np.save(tmp_path / "fl.npy", np.arange(16))
    result = train(tmp_path / "run", "--track", tmp_path / "fl.npy", env="FrozenLake-v1", steps=8)
    assert result.exit_code == 0, result.output
    assert "Nothing was tracked" in result.output


class Keyed(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        place=gymnasium.spaces.Discrete(3), wind=gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"place": 0, "wind": np.zeros(2, np.float32)}, {}

    def step(self, action):
        return {"place": 1, "wind": np.ones(2, np.float32)}, 1.0, bool(action), False, {}


def test_observations_of_several_parts_are_an_array_each(tmp_path, monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry,
        "mine/Keyed-v0",
        gymnasium.envs.registration.EnvSpec("mine/Keyed-v0", Keyed, max_episode_steps=10),
    )
    np.save(tmp_path / "flat.npy", np.zeros((2, 3)))
    np.savez(tmp_path / "parts.npz", place=np.array([0, 2]), wind=np.zeros((2, 2)))
    chosen = {"env": "mine/Keyed-v0", "steps": 40}
    result = train(tmp_path / "flat", "--track", tmp_path / "flat.npy", **chosen)
    assert result.exit_code == 2
    assert "flat.npy does not fit mine/Keyed-v0" in result.stderr
    assert "take an .npz file" in result.stderr
    assert not (tmp_path / "flat").exists()
    result = train(tmp_path / "parts", "--track", tmp_path / "parts.npz", **chosen)
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "parts" / "tracking.npz", allow_pickle=False) as arrays:
        assert arrays["observations"].tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]


def test_the_backend_is_chosen(tmp_path):
    option = ["--env-set", "sutton_barto_reward=true"]
    result = train(tmp_path / "run", *option)
    assert result.exit_code == 2
    assert "--backend host takes Gymnasium's options" in result.stderr
    assert "backend=" not in result.stderr
    result = train(tmp_path / "run", *option, "--backend", "host", steps=40)
    assert result.exit_code == 0, result.output
    assert vt.load(tmp_path / "run" / "agent.vt").env.in_jax is None


BROKEN = {
    "raise RuntimeError('no\\nlicence')": "RuntimeError: no licence.",
    "x = (": "SyntaxError: '(' was never closed",
    "1 / 0": "ZeroDivisionError: division by zero.",
    "{}['a']": "KeyError: 'a'.",
    "import no_such_thing": "ModuleNotFoundError: No module named 'no_such_thing'.",
    "raise SystemExit": "SystemExit.",
    "assert False": "AssertionError.",
}


@pytest.mark.parametrize(("number", "code"), list(enumerate(BROKEN)))
@pytest.mark.parametrize("command", [["envs"], ["train", "--env", "CartPole-v1"]])
def test_a_module_that_fails_is_named(command, number, code, tmp_path, monkeypatch):
    (tmp_path / f"broken_{number}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke(*command, "--import", f"broken_{number}")
    assert result.exit_code == 1, result.output
    start = f"Error: The module broken_{number} cannot be imported: {BROKEN[code]}"
    assert result.stderr.startswith(start)
    assert result.stderr.count("\n") == 1


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
    for name in ("lktd", "sgld", "sghmc", "kova", "ktd", "akq", "dqn", "bootdqn", "qrdqn"):
        assert name in printed
    options = re.sub(" +", " ", invoke("algos", "lktd").output)
    assert "pseudo_population" in options
    assert "how many parameter samples are kept" in options
    for row in (
        '│ "data" │ number > 0 or data ',
        "│ [256, 256] │ whole number >= 1 or ",
    ):
        assert row in options
    assert "CartPole-v1" in invoke("envs").output


def test_environments_that_do_not_train_are_marked(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rows = {line.split()[1]: line for line in invoke("envs").output.splitlines() if "-v" in line}
    assert "not part of Gymnasium any more" in rows["Ant-v2"]
    assert "continuous actions; mujoco is not installed" in rows["Ant-v5"]
    assert "continuous actions" in rows["LunarLanderContinuous-v3"]
    assert "host │" in rows["FrozenLake-v1"].replace("  ", "")
    assert "Discrete actions train" in invoke("envs").output


def test_the_marks_are_true():
    light = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
    specs = [s for s in gymnasium.registry.values() if str(s.entry_point).startswith(light)]
    assert len(specs) > 8
    for spec in specs:
        with gymnasium.make(spec) as env:
            trains = isinstance(env.action_space, gymnasium.spaces.Discrete)
        assert obstacles(spec) == ([] if trains else ["continuous actions"]), spec.id


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
    (["--env", "CartPole-v1", "--set", "hidden=[99999999999999999999]"], "hidden"),
    (["--env", "CartPole-v1", "--set", "replay_capacity=1000000000000000"], "replay_capacity"),
    (["--env", "CartPole-v1", "--set", "exploration_steps=99999999999999"], "exploration_steps"),
    (["--env", "CartPole-v1", "--set", "activation=relux"], "activation"),
    (["--env", "CartPole-v1", "--set", "seed=1"], "LKTD has no option 'seed'"),
    (["--env", "CartPole-v1", "--backend", "gpu"], "--backend"),
    (["--env", "Taxi-v4", "--backend", "compiled"], "does not exist in JAX"),
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
    assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_finished_training_is_not_trained_less(trained):
    out, _ = trained
    before = (out / "agent.vt").read_bytes()
    result = train(out, "--resume", "--seed", 5, "--seeds", 2, steps=100)
    assert result.exit_code == 0
    assert "the agent has 120 steps" in " ".join(result.output.split())
    assert (out / "agent.vt").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\x80\x04\x95K\x00."])
def test_files_that_are_no_models(content, tmp_path):
    path = tmp_path / "agent.vt"
    path.write_bytes(content)
    result = invoke("evaluate", path)
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_values_are_json_or_python_or_text():
    pairs = ["a=1", "b=1e-5", "c=[1, 2]", "d=relu", "e=null", "f=x=y", "g=False", "h=None",
             "i=(64, 64)", "j='tanh'", "k=true", "l=print(1)", f"m={'[' * 100_000}"]  # fmt: skip
    expected = {"a": 1, "b": 1e-5, "c": [1, 2], "d": "relu", "e": None, "f": "x=y", "g": False,
                "h": None, "i": (64, 64), "j": "tanh", "k": True, "l": "print(1)",
                "m": "[" * 100_000}  # fmt: skip
    assert assignments(pairs, "--set") == expected


def test_an_environments_option_may_be_written_as_python_does(tmp_path):
    out = tmp_path / "run"
    words = ["--env", "FrozenLake-v1", "--env-set", "is_slippery=False", "--set", "hidden=(8,)"]
    result = invoke("train", *words, "--algo", "dqn", "--steps", 8, "--episodes", 1, "--out", out)
    assert result.exit_code == 0, result.output
    agent = vt.load(out / "agent.vt")
    assert agent.env.options == {"is_slippery": False}
    assert len(agent.env.in_python.envs[0].unwrapped.P[0][1]) == 1  # a step leads to one place


def test_progress_does_not_depend_on_how_often_a_training_was_stopped(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert train(whole, steps=2_000).exit_code == 0
    for _ in range(2):
        with monkeypatch.context() as patch:
            after_three_runs(patch, STOPS["SIGTERM"])
            result = train(cut, *(["--resume"] if cut.exists() else []), steps=2_000)
            assert result.exit_code == 130, result.output
    assert train(cut, "--resume", steps=2_000).exit_code == 0
    assert len(progress(whole)) == 100
    assert rounded(progress(cut)) == rounded(progress(whole))


def test_a_finished_training_says_so(trained):
    out, _ = trained
    before = files(out)
    words = ["train", "--env", "CartPole-v1", "--steps", 120, "--out", out, "--resume"]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "is finished: the agent has 120 steps" in " ".join(result.output.split())
    assert files(out) == before


def test_two_trainings_do_not_share_a_folder(trained, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(trained[0], out)
    before = (out / "agent.vt").read_bytes()
    with RunFolder.open(out).lock(["lktd"]):
        result = train(out, "--resume", "--seed", 5, "--seeds", 2, steps=200)
    assert result.exit_code == 2
    assert "Another process" in result.stderr
    assert (out / "agent.vt").read_bytes() == before


@pytest.mark.parametrize("name", ["run[/x]", "run[bold]x"])
def test_a_path_is_not_markup(name, tmp_path):
    result = train(tmp_path / name)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / name / "agent.vt") in result.output.replace("\n", "")


def test_a_failed_save_leaves_a_folder_to_go_on_in(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", str(tmp_path / "run" / "agent.vt"))

    with monkeypatch.context() as patch:
        patch.setattr("valuetrack.io.array_file.write_atomically", full)
        result = train(tmp_path / "run")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    assert train(tmp_path / "run").exit_code == 0  # the same command
    assert train(tmp_path / "again", "--resume").exit_code == 0


def test_a_periodic_save_that_fails_is_tried_again(tmp_path, monkeypatch):
    saves, save = itertools.count(1), vt.LKTD.save

    def sometimes(self, path, **options):
        if next(saves) <= 2:
            raise OSError(28, "No space left on device", str(path))
        save(self, path, **options)

    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(vt.LKTD, "save", sometimes)
    result = train(tmp_path / "run", steps=2_000)
    assert result.exit_code == 0, result.output
    assert "will try again" in " ".join(result.output.split())
    assert vt.load(tmp_path / "run" / "agent.vt").num_timesteps == 2_000


def test_an_interrupt_waits_until_the_agent_is_made(tmp_path, monkeypatch):
    made = []

    def begin(*arguments):
        signal.raise_signal(signal.SIGINT)
        made.append(True)
        return SimpleNamespace(num_timesteps=0)

    monkeypatch.setattr("valuetrack.commands.train._begin", begin)
    result = train(tmp_path / "run")
    assert (result.exit_code, made) == (130, [True])
    assert "Interrupted before the first step" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_observations_are_plain_arrays(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(tmp_path / "single.npy", np.zeros(()))
    np.savez(tmp_path / "parts.npz", np.zeros((2, 3)), np.arange(2))
    (tmp_path / "text.npy").write_text("0 0 0 0")
    (tmp_path / "zip.npy").write_bytes(b"PK\x03\x04 no zip")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("a.txt", "no array")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d, 4), }" % 2**50
    huge = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "huge.npy").write_bytes(huge)
    assert [part.shape for part in read_observations(tmp_path / "parts.npz")] == [(2, 3), (2,)]
    for name in ("objects.npy", "text.npy", "zip.npy", "other.npz", "huge.npy"):
        with pytest.raises(ValueError, match=r"is not an \.npy file of numbers"):
            read_observations(tmp_path / name)
    with pytest.raises(ValueError, match="one row each"):
        read_observations(tmp_path / "single.npy")


def test_a_single_observation_is_no_batch(tmp_path):
    np.save(tmp_path / "single.npy", np.zeros(4))
    result = train(tmp_path / "run", "--track", tmp_path / "single.npy")
    assert result.exit_code == 2
    assert "one row each" in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_best_agent_is_kept(tmp_path):
    result = train(tmp_path / "run", "--evaluate-every", 40, "--episodes", 2, "--keep-best")
    assert result.exit_code == 0, result.output
    best = vt.load(tmp_path / "run" / "best.vt")
    evaluated = [one["evaluation"] for one in progress(tmp_path / "run") if "evaluation" in one]
    assert best.best_return == max(np.mean(returns) for returns in evaluated)
    result = train(tmp_path / "other", "--keep-best")
    assert (result.exit_code, "add --evaluate-every" in result.stderr) == (2, True)
