"""Environments whose own code goes wrong: one sentence that names them, and no traceback."""

from __future__ import annotations

import fractions
import sys
import textwrap
import types

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from typer.testing import CliRunner

from tests.small_envs import Counter
from valuetrack.agents.dqn import DQN
from valuetrack.api.environment import AgentEnvironment
from valuetrack.cli import app
from valuetrack.envs import ESCAPE_ID
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.envs.gym.vectorised import SequentialEnvs, WrappedVectorEnv
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import load

TINY = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "samples": 4}
ERRORS = [
    KeyError("boom"),
    ValueError("boom"),
    TypeError("boom"),
    IndexError("boom."),
    AttributeError("boom"),
    ZeroDivisionError("boom"),
    AssertionError(),
    RuntimeError("boom\n  on two lines"),
    NotImplementedError("boom"),
    StopIteration("boom"),
    OSError(2, "boom"),
    ImportError("boom"),
    MemoryError(),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "boom"),
    gymnasium.error.InvalidAction("boom"),
]
WRONG_FLAG = np.array([True, False])


def kind(error):
    return type(error).__name__


class Failing(Counter):
    """A counter that raises an error in one of its calls, in ``step`` the second time."""

    def __init__(self, where="nowhere", error=None):
        super().__init__(last=99)
        self.where, self.error = where, error
        if where == "constructor":
            raise error

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            raise self.error
        return super().reset(seed=seed)

    def step(self, action):
        if self.where == "step" and self.steps == 1:
            raise self.error
        return super().step(action)


class Answering(Counter):
    """A counter that returns what it is told to."""

    def __init__(self, reset=None, step=None, **parts):
        super().__init__()
        self.answers, self.parts = {"reset": reset, "step": step}, parts

    def reset(self, *, seed=None, options=None):
        seen = super().reset(seed=seed)
        return seen if self.answers["reset"] is None else self.answers["reset"]

    def step(self, action):
        names = ("observation", "reward", "terminated", "truncated", "info")
        seen = dict(zip(names, super().step(action), strict=True))
        if self.answers["step"] is not None:
            return self.answers["step"]
        return tuple({**seen, **self.parts}.values())


def walk(envs, steps=3):
    envs.reset(range(envs.count))
    return [envs.step(np.zeros(envs.count, int)) for _ in range(steps)]


def check_sentence(raised, beginning, error):
    text = str(raised.value)
    assert text.startswith(f"{beginning}: {kind(error)}")
    assert text.endswith(".")
    assert not text.endswith("..")
    assert "\n" not in text
    assert raised.value.__cause__ is error
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("error", ERRORS, ids=kind)
@pytest.mark.parametrize(
    ("where", "beginning"),
    [
        ("constructor", "The function that makes an environment failed"),
        ("reset", "The environment Failing failed in reset"),
        ("step", "The environment Failing failed in step"),
    ],
)
def test_an_error_of_the_environment_is_one_exception(where, beginning, error):
    with pytest.raises(EnvironmentFailedError) as raised:
        walk(make_vectorised(lambda: Failing(where, error), 2))
    check_sentence(raised, beginning, error)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("error", [KeyError("boom"), gymnasium.error.Error("boom")], ids=kind)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_error_in_a_vector_environment(where, error, mode):
    vector = SyncVectorEnv([lambda: Failing(where, error)] * 2, autoreset_mode=mode)
    with pytest.raises(EnvironmentFailedError) as raised:
        walk(WrappedVectorEnv(vector))
    check_sentence(raised, f"The environment SyncVectorEnv failed in {where}", error)


def test_the_sentence_is_as_documented():
    with pytest.raises(EnvironmentFailedError) as raised:
        walk(SequentialEnvs([Failing("step", KeyError("boom"))]))
    assert str(raised.value) == "The environment Failing failed in step: KeyError: 'boom'."


@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_program_is_let_through(where, stop):
    with pytest.raises(stop):
        walk(make_vectorised(lambda: Failing(where, stop()), 1))


@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
def test_an_agent_passes_the_error_on(where):
    error = KeyError("boom")
    with pytest.raises(EnvironmentFailedError) as raised:
        DQN(lambda: Failing(where, error), backend="host", **TINY).learn(8)
    assert raised.value.__cause__ is error


# -- by id ----------------------------------------------------------------------------------------


@pytest.fixture
def register():
    known = set(gymnasium.registry)
    yield lambda name, *arguments: gymnasium.register(
        name, Failing, kwargs=dict(zip(("where", "error"), arguments, strict=True))
    )
    for name in set(gymnasium.registry) - known:
        del gymnasium.registry[name]


def test_an_id_is_named(register):
    error = KeyError("boom")
    register("FailsEarly-v0", "constructor", error)
    with pytest.raises(EnvironmentFailedError) as raised:
        make_vectorised("FailsEarly-v0", 1)
    assert raised.value.__cause__.args == error.args
    assert str(raised.value).startswith("The constructor of the environment FailsEarly-v0 failed: ")
    register("FailsLate-v0", "step", error)
    with pytest.raises(EnvironmentFailedError, match="environment FailsLate-v0 failed in step: K"):
        walk(make_vectorised("FailsLate-v0", 1))


def test_a_class_is_named():
    class NeedsMore(Counter):
        def __init__(self, more):
            super().__init__()

    telling = "The constructor of the environment NeedsMore failed: TypeError: .*'more'"
    with pytest.raises(EnvironmentFailedError, match=telling):
        make_vectorised(NeedsMore, 1)


def test_spaces_that_are_missing():
    class Empty(gymnasium.Env):
        pass

    with pytest.raises(EnvironmentFailedError, match="Empty failed in observation_space: Attr"):
        make_vectorised(Empty, 1)


def test_a_wrong_option_of_our_own_environment_keeps_its_sentence():
    with pytest.raises(ValueError, match="width"):
        make_vectorised(ESCAPE_ID, 1, width=0)


@pytest.mark.parametrize("env", ["this:Poem-v0", "os:Some-v0", "a:b:c-v0", ":Some-v0", "os:"])
def test_an_id_imports_nothing(env, monkeypatch):
    def refuse(name, *_):
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ValueError, match="There is no environment") as raised:
        make_vectorised(env, 1)
    rest = env.partition(":")[2]
    assert str(raised.value).endswith(f"and give the id alone: {rest!r}.")


def test_a_file_imports_nothing(tmp_path, monkeypatch):
    path = tmp_path / "agent.safetensors"
    agent = DQN("FrozenLake-v1", backend="host", **TINY)
    monkeypatch.setattr(AgentEnvironment, "saved", ("this:Poem-v0", {}))
    agent.save(path)
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with pytest.raises(ModelFileError, match="There is no environment 'this:Poem-v0'"):
        load(path)
    assert "this" not in sys.modules


# -- what comes back ------------------------------------------------------------------------------

OBSERVATION = np.zeros(2, np.float32)
STEP = "Gymnasium's step returns observation, reward, terminated, truncated, info."
RESET = "Gymnasium's reset returns observation, info."
WRONG = [
    ({"step": (OBSERVATION, 0.0, False, {})}, f"returned 4 values from step; {STEP}"),
    ({"step": (OBSERVATION,) * 6}, f"returned 6 values from step; {STEP}"),
    ({"step": 7}, f"returned 7 from step; {STEP}"),
    ({"step": np.zeros(5)}, f"returned a ndarray of shape (5,) from step; {STEP}"),
    ({"reset": OBSERVATION}, f"returned a ndarray of shape (2,) from reset; {RESET}"),
    ({"reset": (OBSERVATION,)}, f"returned 1 values from reset; {RESET}"),
    ({"reset": {"a": 1, "b": 2}}, f"returned a dict from reset; {RESET}"),
    ({"reset": (OBSERVATION, None)}, "returned None as info from reset; it should be a dict"),
    ({"info": None}, "returned None as info from step; it should be a dict"),
    ({"info": []}, "returned a list as info from step; it should be a dict"),
    ({"reward": None}, "returned None as its reward; it should be a single number."),
    ({"reward": "1.5"}, "returned '1.5' as its reward; it should be a single number."),
    ({"reward": 1j}, "returned a complex as its reward; it should be a single number."),
    ({"reward": np.zeros(2)}, "returned a ndarray of shape (2,) as its reward; it should"),
    ({"reward": [[1.0], 2]}, "returned a list as its reward; it should be a single number."),
    ({"reward": []}, "returned a list as its reward; it should be a single number."),
    ({"reward": 1e300}, "a reward that is no finite number of single precision: 1e+300."),
    ({"reward": -(10**50)}, "a reward that is no finite number of single precision: -1e+50."),
    ({"reward": 10**400}, "a reward that is no finite number: inf."),
    ({"reward": np.array([np.nan])}, "a reward that is no finite number: nan."),
    ({"reward": np.float32(np.inf)}, "a reward that is no finite number: inf."),
    ({"terminated": WRONG_FLAG}, "as terminated or truncated; each should be True or False."),
    ({"truncated": WRONG_FLAG}, "as terminated or truncated; each should be True or False."),
]


@pytest.mark.parametrize(("answers", "telling"), WRONG, ids=[telling for _, telling in WRONG])
def test_what_an_environment_may_not_return(answers, telling):
    with pytest.raises(ValueError, match="The environment Answering returned ") as raised:
        walk(SequentialEnvs([Answering(**answers)]))
    text = str(raised.value)
    assert telling in text
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize(
    "reward",
    [
        1,
        True,
        1.0,
        np.float64(1),
        np.float32(1),
        np.int8(1),
        np.bool_(True),
        np.array(1.0),
        np.array([1.0]),
        np.array([[1]]),
        [1.0],
        fractions.Fraction(1),
    ],
    ids=repr,
)
def test_rewards_that_are_one_number(reward):
    (arrived, *_) = walk(SequentialEnvs([Answering(reward=reward)]))
    assert (arrived.reward.dtype, arrived.reward.tolist()) == (np.float32, [1.0])


@pytest.mark.parametrize("yes", [True, 1, np.bool_(True), np.array(True), np.array([1])], ids=repr)
def test_flags_that_are_one_boolean(yes):
    (arrived, *_) = walk(SequentialEnvs([Answering(terminated=yes)]))
    assert arrived.terminated.tolist() == [True]


def test_any_mapping_is_an_info():
    info = types.MappingProxyType({"action_mask": np.array([True, False, True])})
    (arrived, *_) = walk(SequentialEnvs([Answering(info=info)]))
    assert arrived.next.mask.tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("rewards", "telling"),
    [
        (np.zeros(3), "a ndarray of shape (3,) as rewards; they should be 2 numbers"),
        (None, "None as rewards; they should be 2 numbers"),
        (["a", "b"], "a list as rewards; they should be 2 numbers"),
        (np.array([0, 1e300]), "no finite number of single precision: 1e+300."),
        (np.array([[np.nan], [0]]), "no finite number: nan."),
    ],
)
def test_rewards_of_a_vector_environment(rewards, telling, monkeypatch):
    vector = SyncVectorEnv([Counter] * 2)
    original = vector.step

    def step(actions):
        observation, _, *rest = original(actions)
        return observation, rewards, *rest

    monkeypatch.setattr(vector, "step", step)
    with pytest.raises(ValueError, match="The environment SyncVectorEnv returned ") as raised:
        walk(WrappedVectorEnv(vector))
    assert telling in str(raised.value)


def test_a_vector_environment_that_does_not_tell_where_an_episode_ended(monkeypatch):
    vector = SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    original = vector.step
    monkeypatch.setattr(vector, "step", lambda actions: (*original(actions)[:4], {}))
    with pytest.raises(ValueError, match=r'give it in info\["final_obs"\]'):
        walk(WrappedVectorEnv(vector), 5)


# -- the command line -----------------------------------------------------------------------------


def test_on_the_command_line_it_is_one_line(tmp_path, monkeypatch):
    name = "module_of_a_failing_environment"
    (tmp_path / f"{name}.py").write_text(
        textwrap.dedent("""
            import gymnasium
            from tests.envs.gym.test_guards import Failing

            options = {"where": "step", "error": KeyError("boom")}
            gymnasium.register("failing/Counter-v0", Failing, kwargs=options)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["train", "--env", "failing/Counter-v0", "--import", name, "--steps", "50"]
    arguments += ["--out", str(tmp_path / "run"), "--backend", "host"]
    for setting in ("hidden=[8]", "batch_size=8", "replay_capacity=200", "samples=4"):
        arguments += ["--set", setting]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert result.stderr.splitlines() == [
        "Error: The environment failing/Counter-v0 failed in step: KeyError: 'boom'."
    ]
    gymnasium.registry.pop("failing/Counter-v0")
