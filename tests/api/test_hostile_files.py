"""Model files that are damaged, or made to do harm: one sentence, and nothing is loaded."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from tests.small_envs import Counter
from valuetrack.api import settings
from valuetrack.envs import CartPole
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.io import array_file
from valuetrack.io.errors import ModelFileError
from valuetrack.registry import DQN, LKTD, load

SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 20,
    "replay_capacity": 200,
    "samples": 4,
    "thinning": 1,
}
LONG = "x" * 5_000


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Return what good files hold, of two seeds on the host and of two in JAX."""
    folder, found = tmp_path_factory.mktemp("good"), {}
    for backend, env in (("host", Counter), ("compiled", "CartPole-v1")):
        DQN(env, seeds=2, **SMALL).learn(40).save(folder / backend)
        found[backend] = array_file.load(folder / backend)
    return found


def refused(path, **given):
    with pytest.raises(ModelFileError) as error:
        load(path, **given)
    text = str(error.value)
    assert text.startswith(f"{path} ")
    assert "\n" not in text
    assert len(text) <= 300
    return text


def counted():
    """Return a function that makes environments, and a list with an entry for each."""
    made = []

    def build():
        made.append(1)
        return Counter()

    return build, made


@pytest.fixture(params=["host", "compiled"])
def altered(request, contents, tmp_path):
    """Return a function that loads a file with another description or other arrays."""
    arrays, description = contents[request.param]

    def attempt(described=None, *, options=None, **changed):
        text = {**description, **(described or {})}
        if options:
            text["options"] = {**text["options"], **options}
        array_file.save(tmp_path / "m", {**arrays, **changed}, text)
        build, made = counted()
        said = refused(tmp_path / "m", **({"env": build} if request.param == "host" else {}))
        return said, made

    return attempt


def test_the_good_files_are_good(contents, tmp_path):
    for backend, env in (("host", Counter), ("compiled", None)):
        array_file.save(tmp_path / backend, *contents[backend])
        assert load(tmp_path / backend, env=env).num_timesteps == 40


# -- the description ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"seeds": 3},
        {"env": 1},
        {"backend": "host"},
        {"env_options": {}},
        {LONG: 1},
        {"hidden": LONG},
        {"hidden": [[[8]]]},
        {"batch_size": 0},
        {"batch_size": None},
    ],
    ids=lambda options: next(iter(options))[:9],
)
def test_options_that_there_are_not(altered, options):
    said, made = altered(options=options)
    assert "cannot be used" in said
    assert not made


@pytest.mark.parametrize(
    "options",
    [
        {"environments": 10**7},
        {"environments": 10**30},
        {"samples": 10**9},
        {"samples": 10**30},
        {"hidden": [10**6, 10**6]},
        {"hidden": [2**40, 2**40]},
        {"hidden": [1] * 100_000},
    ],
    ids=str,
)
def test_more_than_the_file_holds_is_not_built(altered, options):
    assert not altered(options=options)[1]


def test_a_ring_that_this_machine_does_not_hold(contents, monkeypatch, tmp_path):
    array_file.save(tmp_path / "m", *contents["compiled"])
    monkeypatch.setattr("valuetrack.api.loading.memory_of_machine", lambda: 20_000.0)
    assert "its replay memory takes" in refused(tmp_path / "m")


def test_a_ring_that_no_machine_holds(altered):
    assert "cannot be used" in altered(options={"replay_capacity": 10**15})[0]
    assert "cannot be used" in altered(options={"replay_capacity": 10**40})[0]
    assert "cannot be used" in altered(options={"steps_per_update": 10**16})[0]


@pytest.mark.parametrize(
    "seeds",
    [
        [],
        [0],
        [0, 1, 2],
        [0, 1.5],
        [0.0, 1.0],
        [-1, 0],
        [False, True],
        [0, 5],
        [1, 0],
        ["0", "1"],
        [2**32 - 1, 2**32],
        [2**32, 2**32 + 1],
        [10**4000, 1],
        [None, 1],
        2,
        "01",
        None,
        {"0": 1},
    ],
    ids=lambda seeds: str(seeds)[:20],
)
def test_seeds_that_cannot_be(altered, seeds):
    said, made = altered({"seeds": seeds})
    assert "is damaged: its" in said
    assert not made


@pytest.mark.parametrize(
    "described",
    [
        {"backend": LONG},
        {"backend": ["host"]},
        {"backend": "auto"},
        {"env": 5},
        {"env": [LONG]},
        {"env_options": [["a", 1]]},
        {"task": {"shape": [2]}},
        {"task": {"shape": 2, "actions": 3, "is_image": False}},
        {"task": {"shape": [2.0], "actions": 3, "is_image": False}},
        {"task": {"shape": [2], "actions": -3, "is_image": False}},
        {"task": {"shape": [2], "actions": LONG, "is_image": False}},
        {"options": []},
    ],
    ids=lambda described: str(described)[:30],
)
def test_descriptions_that_are_none(altered, described):
    said, made = altered(described)
    assert "is damaged: its description is incomplete" in said
    assert not made


@pytest.mark.parametrize("shape", [[10**12], [], [1] * 2_000, [0], [10**3000]], ids=len)
@pytest.mark.parametrize("is_image", [False, True])
def test_tasks_of_other_shapes(altered, shape, is_image):
    altered({"task": {"shape": shape, "actions": 3, "is_image": is_image}})


@pytest.mark.parametrize(
    "described",
    [
        {"env": LONG},
        {"env": "no\nsuch-v0"},
        {"env": "CartPole-v1", "env_options": {"nothing": LONG}},
        {"env": "CartPole-v1", "env_options": {"render_mode": LONG}},
        {"env": "FrozenLake-v1", "env_options": {"map_name": "nowhere"}},
        {"env": "FrozenLake-v1", "env_options": {"desc": 5}},
    ],
    ids=lambda described: str(described)[:40],
)
@pytest.mark.filterwarnings("ignore")
def test_environments_that_cannot_be_made(contents, described, tmp_path):
    for arrays, description in contents.values():
        array_file.save(tmp_path / "m", arrays, {**description, **described})
        refused(tmp_path / "m")


def test_an_error_of_the_users_environment_is_theirs(contents, tmp_path):
    array_file.save(tmp_path / "m", *contents["host"])

    class Failing(Counter):
        def reset(self, **how):
            raise KeyError("my own mistake")

    for build in (Failing, {}.popitem):
        with pytest.raises(EnvironmentFailedError):
            load(tmp_path / "m", env=build)


# -- the arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clock",
    [
        {"cycles": np.array(10.0)},
        {"updates": np.array(6.0)},
        {"cycles": np.array([10, 6])},
        {"cycles": np.array([10])},
        {"cycles": np.array([[10, 6, 0]])},
        {"emptied": np.array(False)},
        {"cycles": np.array(-1)},
        {"updates": np.array(-6)},
        {"emptied": np.array(-1)},
        {"emptied": np.array(11)},
        {"cycles": np.array(2**31)},
        {"updates": np.array(2**31)},
        {"cycles": np.array(2**63, np.uint64)},
        {"cycles": np.array(np.nan)},
    ],
    ids=str,
)
def test_clocks_that_cannot_be(altered, clock):
    said, _ = altered(**{f"clock.{name}": count for name, count in clock.items()})
    assert "is damaged: its arrays do not fit" in said
    assert "the saved clock" in said


def test_a_clock_that_does_not_fit_the_memory(altered):
    for cycles, updates, emptied in ((5, 1, 0), (10, 6, 8)):
        counts = {"cycles": cycles, "updates": updates, "emptied": emptied}
        said, _ = altered(**{f"clock.{name}": np.array(n) for name, n in counts.items()})
        assert "is damaged: its arrays do not fit" in said


@pytest.mark.parametrize(
    "trace",
    [
        {"reward": np.zeros(3, np.float32)},
        {"reward": np.zeros(2, np.float64)},
        {"cycles": np.zeros((), np.int32)},
        {"episodes": np.zeros((2, 10**6), np.int32)},
    ],
    ids=lambda trace: f"{next(iter(trace))} {next(iter(trace.values())).shape}",
)
def test_sums_that_cannot_be(altered, trace):
    said, _ = altered(**{f"trace.{name}": array for name, array in trace.items()})
    assert "is damaged: its arrays do not fit" in said


def host_arrays(contents, name, value):
    """Return the host's arrays with another number at one place of one of them."""
    arrays, description = contents["host"]
    changed = arrays[name].copy()
    changed.flat[1] = value
    return {**arrays, name: changed}, description


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replay.written", -1),
        ("replay.written", 41),
        ("replay.written", 2**62),
        ("replay.written", 2**63 - 1),
        ("replay.action", 3),
        ("replay.action", -1),
        ("replay.next_action", 3),
        ("replay.next_action", -(2**31)),
    ],
)
def test_memories_that_cannot_be(contents, name, value, tmp_path):
    array_file.save(tmp_path / "m", *host_arrays(contents, name, value))
    assert "is damaged: its arrays do not fit" in refused(tmp_path / "m", env=Counter)


def test_a_memory_with_other_counts(contents, tmp_path):
    arrays, description = contents["host"]
    for changed in (
        {"replay.written": np.array([40.0, 40.0])},
        {"replay.written": np.array([40, 40], np.int32)},
        {"replay.written": np.array([30, 30])},
        {"replay.reward": arrays["replay.reward"][:, :30]},
        {"replay.action": arrays["replay.action"].astype(np.float32)},
    ):
        array_file.save(tmp_path / "m", {**arrays, **changed}, description)
        assert "is damaged: its arrays do not fit" in refused(tmp_path / "m", env=Counter)


@pytest.mark.parametrize("value", [2, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("name", ["action", "next_action"])
def test_actions_of_the_compiled_memory(contents, name, value, tmp_path):
    arrays, description = contents["compiled"]
    changed = arrays[f"replay.{name}"].copy()
    changed[1, 3] = value
    array_file.save(tmp_path / "m", {**arrays, f"replay.{name}": changed}, description)
    assert "is damaged: its arrays do not fit" in refused(tmp_path / "m")


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf])
def test_actions_that_are_no_whole_numbers(contents, value, tmp_path):
    for backend, given in (("host", {"env": Counter}), ("compiled", {})):
        arrays, description = contents[backend]
        changed = arrays["replay.action"].astype(np.float32)
        changed[1, 3] = value
        array_file.save(tmp_path / "m", {**arrays, "replay.action": changed}, description)
        assert "is damaged: its arrays do not fit" in refused(tmp_path / "m", **given)


@pytest.mark.parametrize("error", [OverflowError, MemoryError, RuntimeError("a\nb" * 999)])
@pytest.mark.parametrize("function", ["__init__", "restore"])
def test_errors_on_the_way(contents, error, function, monkeypatch, tmp_path):
    def fail(*_args, **_options):
        raise error

    array_file.save(tmp_path / "m", *contents["compiled"])
    monkeypatch.setattr(f"valuetrack.training.compiled_trainer.CompiledTrainer.{function}", fail)
    assert "cannot be used: " in refused(tmp_path / "m")


# -- what is saved of the memory ------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "env"), [("host", Counter), ("compiled", "CartPole-v1")])
def test_only_what_is_filled_is_saved_and_goes_on_past_the_end(contents, backend, env, tmp_path):
    arrays, _ = contents[backend]
    rings = {name: array for name, array in arrays.items() if name.startswith("replay.")}
    assert {array.shape[:2] for array in rings.values() if array.ndim > 1} == {(2, 40)}
    array_file.save(tmp_path / "m", *contents[backend])
    one, other = (load(tmp_path / "m", env=env) for _ in range(2))
    for agent in (one, other):
        agent.learn(200)  # past the end of the ring
    ours, theirs = one.trainer.arrays(), other.trainer.arrays()
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    assert {ours[name].shape[:2] for name in rings if ours[name].ndim > 1} == {(2, 200)}


# -- from one trainer to the other ----------------------------------------------------------------


@pytest.mark.parametrize("replay", [True, False])
def test_an_agent_of_a_jax_object_goes_on_in_gymnasium(replay, tmp_path):
    agent = LKTD(CartPole(), **SMALL).learn(40)
    agent.save(tmp_path / "j.vt", replay=replay)
    env = gymnasium.make("CartPole-v1")
    again = load(tmp_path / "j.vt", env=env)
    assert (again.backend, again.num_timesteps) == ("host", 40)
    assert again.trainer.clock.updates == agent.trainer.clock.updates > 0
    ours, theirs = (one.posterior(np.zeros((3, 4), np.float32)) for one in (again, agent))
    np.testing.assert_allclose(ours.samples, theirs.samples, rtol=1e-4, atol=1e-6)
    again.learn(40)
    assert again.trainer.clock.updates > agent.trainer.clock.updates


def test_a_file_without_an_id_says_what_is_so(contents, tmp_path):
    arrays, description = contents["host"]
    for spaces in (None, {}, {"observation": {"kind": "Box"}, "action": {"kind": "Text"}}, 3):
        array_file.save(tmp_path / "m", arrays, {**description, "spaces": spaces})
        said = refused(tmp_path / "m")
        assert said.endswith("without an id; pass it: valuetrack.load(path, env=...).")


# -- a posterior without a pool -------------------------------------------------------------------


def test_a_network_too_large_for_a_pool_still_has_its_current_sample(monkeypatch):
    monkeypatch.setattr(settings, "memory_of_machine", lambda: 1.0)
    with pytest.warns(UserWarning, match="Memory allows 0 parameter samples per seed rather than"):
        agent = LKTD("CartPole-v1", **{**SMALL, "samples": None})
    observation = np.zeros(4, np.float32)
    assert agent.posterior(observation).what == "the initial parameters, not a posterior"
    agent.learn(40)
    found = agent.posterior(observation)
    assert (found.what, found.is_posterior) == ("posterior samples of LKTD", True)
    np.testing.assert_array_equal(found.samples, [found.latest])
