"""Agents that learn from their own episodes how good their values are."""

from __future__ import annotations

import copy
import functools
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from scipy import stats

import valuetrack as vt
from tests import probes, small_envs
from valuetrack.api.calibration import check
from valuetrack.api.estimate import Estimate
from valuetrack.io import array_file
from valuetrack.io.errors import ModelFileError
from valuetrack.values.conformal import NO_BIAS, rank

SMALL = {
    "hidden": (),
    "batch_size": 32,
    "learning_starts": 40,
    "replay_capacity": 2_000,
    "learning_rate": 0.02,
    "discount": 0.5,
}
PLACES = np.eye(3, dtype=np.float32)
TRUE = np.arange(3) / (1 - 0.75 * 0.5)
ENVS = {"compiled": probes.Coins(), "host": small_envs.Coins}


@functools.cache
def trained(backend="compiled", seeds=2):
    return vt.DQN(ENVS[backend], seeds=seeds, **SMALL).learn(2_000)


@functools.cache
def calibrated(backend="compiled"):
    return copy.deepcopy(trained(backend)).calibrate(60, seed=3)


def shifted(agent, by):
    """Return an agent with the same policy whose values are all larger."""
    twin = copy.deepcopy(agent)
    learned = twin.trainer.learned
    sampler = learned.learner.sampler
    head = {**sampler.params["head"], "b": sampler.params["head"]["b"] + by}
    sampler = sampler._replace(params={**sampler.params, "head": head})
    learned = learned._replace(learner=learned.learner._replace(sampler=sampler))
    twin.trainer.adopt(jax.tree.map(np.asarray, learned), twin.trainer.clock)
    return twin


@pytest.mark.parametrize("backend", ENVS)
def test_values_that_were_shifted_are_shifted_back(backend):
    agent = shifted(trained(backend), 5.0).calibrate(60)
    for member, one in enumerate(agent.calibration.members):
        q = agent.posterior(PLACES, member=member)
        assert np.abs(q.latest.max(axis=1) - TRUE - 5.0).max() < 1.0
        assert one.bias(q.latest) == pytest.approx(np.full((3, 2), -5.0), abs=0.6)
        centre = np.mean(q.interval(0.5, kind="return"), axis=0)
        np.testing.assert_allclose(centre, q.latest + one.bias(q.latest), rtol=1e-5)
        assert one.agreement.factor(0.95) == 1.0  # its memory is empty, so nothing was compared


def test_right_values_are_left_alone():
    solved = [one.solved_bias for one in calibrated().calibration.members]
    assert solved == [NO_BIAS, NO_BIAS]


@pytest.mark.parametrize("backend", ENVS)
def test_fresh_returns_are_covered_as_the_guarantee_says(backend):
    """Given the calibration, coverage has a beta distribution, whatever the agent has learned."""
    levels = (0.5, 0.8, 0.9, 0.95)
    agent = calibrated(backend)
    for one, fresh in zip(
        agent.calibration.members, check(agent, levels, 200, seed=0), strict=True
    ):
        count = len(one.scores)
        assert count == 30
        for level, covered in zip(levels, fresh.covered, strict=True):
            k = rank(count, level)
            low, high = stats.betabinom(200, k, count + 1 - k).ppf([5e-6, 1 - 5e-6])
            assert low <= covered.sum() <= high
        assert fresh.covered[0].mean() < 0.85


def test_intervals_for_the_value_are_far_narrower_than_for_the_return():
    q = calibrated().posterior(PLACES)
    low, high = q.interval(0.95, kind="value")
    below, above = q.interval(0.95, kind="return")
    assert low.shape == below.shape == (3, 2)
    assert ((above - below) > 3 * (high - low)).all()
    assert (below <= TRUE[:, None]).all()
    assert (above >= TRUE[:, None]).all()


def test_the_factor_scales_intervals_around_the_corrected_value():
    agent = calibrated()
    for member, one in enumerate(agent.calibration.members):
        q = agent.posterior(PLACES, member=member)
        for level in (0.5, 0.95):
            raw, now = q.solved.interval(level), q.interval(level, kind="value")
            factor = one.agreement.factor(level)
            np.testing.assert_allclose(now.high - now.low, factor * (raw.high - raw.low), rtol=1e-3)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_noise_of_returns_is_seen(noise):
    """On the host; without noise and coins, all continuations of a state are the same."""
    env = functools.partial(small_envs.Coins, noise=noise, ends=noise / 4, horizon=12)
    agent = vt.DQN(env, **SMALL).learn(400).calibrate(20)
    (one,) = agent.calibration.members
    assert len(one.agreement.noise) == 10
    assert (one.agreement.noise > 0).all() == bool(noise)


def test_what_a_cut_off_return_hides_is_left_to_the_interval():
    # Nothing is random and values are solved exactly; but returns are cut off after ten steps, and
    # only to 2^-7 of their size do they show the value.
    env = probes.Coins(noise=0.0, ends=0.0, horizon=10)
    agent = vt.DQN(env, **SMALL).learn(2_000)
    low, high = agent.posterior(PLACES).interval(0.99)
    assert np.all(high - low < 1e-3)
    low, high = agent.calibrate(40).posterior(PLACES).interval(0.95)
    assert (high - low)[1:].max() > 2**-8
    assert np.all((low <= 2.0 * np.arange(3)[:, None]) & (high >= 2.0 * np.arange(3)[:, None]))


def test_levels_that_take_more_episodes_say_how_many():
    q = calibrated().posterior(PLACES[0])
    q.interval(30 / 31, kind="return")
    with pytest.raises(
        ValueError, match=r"^30 episodes are too few .* agent\.calibrate\(episodes=198\)\.$"
    ):
        q.interval(0.99, kind="return")
    with pytest.raises(ValueError, match="between 0 and 1"):
        q.interval(95, kind="return")
    assert np.isfinite(q.interval(0.99, kind="value")).all()


def test_what_cannot_be_known_is_refused_in_a_sentence():
    agent = trained()
    with pytest.raises(ValueError, match=r"^19 episodes are too few.* at least 20"):
        agent.calibrate(19)
    with pytest.raises(ValueError, match="seed must be an integer"):
        agent.calibrate(20, seed=-1)
    with pytest.raises(ValueError, match=r"^An interval for the return .* agent\.calibrate\(\)"):
        agent.posterior(PLACES).interval(kind="return")
    alone = Estimate(np.zeros((3, 2)), np.zeros(2), "samples", is_posterior=True)
    with pytest.raises(ValueError, match=r"agent\.calibrate\(\)"):
        alone.interval(kind="return")
    cut = vt.DQN(small_envs.Counter, discount=0.9, hidden=())
    with pytest.raises(
        ValueError, match=r"of 20 episodes were cut off, the first after 4 steps.* 66%"
    ):
        cut.calibrate(20)
    with pytest.raises(ValueError, match="an environment of its own"):
        vt.DQN(small_envs.Coins(), hidden=()).calibrate()


def test_a_seed_that_cannot_be_calibrated_does_not_keep_the_others_from_it(tmp_path):
    agent = copy.deepcopy(trained())
    learned = agent.trainer.learned
    params = jax.tree.map(lambda leaf: leaf.at[0].set(np.nan), learned.learner.sampler.params)
    sampler = learned.learner.sampler._replace(params=params)
    learned = learned._replace(learner=learned.learner._replace(sampler=sampler))
    agent.trainer.adopt(learned, agent.trainer.clock)
    with pytest.warns(RuntimeWarning, match=r"^Not all seeds are calibrated\. Seed 0: .*finite"):
        agent.calibrate(20)
    agent.save(tmp_path / "agent.vt")
    for one in (agent, vt.load(tmp_path / "agent.vt", env=probes.Coins())):
        assert np.isfinite(one.posterior(PLACES, member=1).interval(0.9, kind="return")).all()
        with pytest.raises(ValueError, match="This seed could not be calibrated"):
            one.posterior(PLACES).interval(0.9, kind="return")


@pytest.mark.parametrize("backend", ENVS)
def test_the_same_seed_gives_the_same_calibration(backend):
    again = copy.deepcopy(trained(backend)).calibrate(60, seed=3)
    assert intervals(again) == intervals(calibrated(backend))
    assert intervals(copy.deepcopy(trained(backend)).calibrate(60)) != intervals(again)


def intervals(agent):
    found = [agent.posterior(PLACES, member=member) for member in range(2)]
    return [
        np.stack(q.interval(0.9, kind=kind)).tolist() for q in found for kind in ("return", "value")
    ]


def test_a_file_and_a_copy_keep_the_calibration(tmp_path):
    agent = calibrated()
    agent.save(tmp_path / "agent.vt")
    again = vt.load(tmp_path / "agent.vt", env=probes.Coins())
    assert intervals(again) == intervals(agent)
    assert intervals(copy.deepcopy(agent)) == intervals(agent)
    assert not trained().calibration.members  # which the calibrated agent is a copy of
    trained().save(tmp_path / "without.vt")
    assert not vt.load(tmp_path / "without.vt", env=probes.Coins()).calibration.members
    agent.save(tmp_path / "small.vt", replay=False)
    small = vt.load(tmp_path / "small.vt", env=probes.Coins())
    assert np.isfinite(small.posterior(PLACES).interval(0.9, kind="return")).all()


def test_a_calibration_does_not_go_into_another_environment(tmp_path):
    agent = vt.DQN("CartPole-v1", hidden=(8,), learning_starts=20, backend="host")
    agent.learn(30).calibrate(20).save(tmp_path / "agent.vt", replay=False)
    assert vt.load(tmp_path / "agent.vt", env="CartPole-v1").calibration.members
    other = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)
    assert not vt.load(tmp_path / "agent.vt", env=other).calibration.members


def test_an_agent_that_learns_on_outgrows_its_calibration(tmp_path):
    agent = copy.deepcopy(calibrated())
    before = agent.posterior(PLACES)
    expected = before.interval(0.9, kind="return")
    agent.learn(100)
    np.testing.assert_array_equal(before.interval(0.9, kind="return"), expected)
    agent.save(tmp_path / "agent.vt")
    for one in (agent, vt.load(tmp_path / "agent.vt", env=probes.Coins())):
        q = one.posterior(PLACES)
        with pytest.raises(ValueError, match=r"learned on since it was calibrated; call agent\."):
            q.interval(0.9, kind="return")
        with pytest.warns(RuntimeWarning, match=r"learned on since it was calibrated") as caught:
            uncalibrated = q.interval(0.9, kind="value")
        assert len(caught) == 1
        np.testing.assert_array_equal(uncalibrated, q.solved.interval(0.9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.calibrate(20).posterior(PLACES).interval(0.9, kind="value")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("scores", lambda a: a[:1]),
        ("scores", lambda a: -a),
        ("scores", lambda a: a * np.nan),
        ("numbers", lambda a: a[:, 1:]),
        ("numbers", lambda a: a + np.inf),
        ("numbers", lambda a: a * np.nan),
        ("noise", lambda a: a[:, 1:]),
        ("distances", lambda a: a.astype(np.float32)),
        ("clock", lambda a: a[:1]),
        ("clock", None),
    ],
)
def test_a_file_with_a_calibration_that_cannot_be_is_refused(tmp_path, name, change):
    calibrated().save(tmp_path / "agent.vt")
    arrays, description = array_file.load(tmp_path / "agent.vt")
    changed = arrays.pop(f"calibration.{name}")
    if change is not None:
        arrays[f"calibration.{name}"] = change(changed)
    array_file.save(tmp_path / "bad.vt", arrays, description)
    with pytest.raises(ModelFileError, match=r"is damaged: .*the calibration"):
        vt.load(tmp_path / "bad.vt", env=probes.Coins())


@pytest.mark.parametrize("name", ["LKTD", "BootDQN", "QRDQN", "KOVA"])
def test_other_algorithms(name):
    options = {key: value for key, value in SMALL.items() if key != "learning_rate"}
    agent = getattr(vt, name)(small_envs.Coins, **options).learn(200).calibrate(20)
    q = agent.posterior(PLACES)
    for kind in ("return", "value"):
        low, high = q.interval(0.9, kind=kind)
        assert (low < high).all()


@pytest.mark.parametrize("backend", ENVS)
def test_the_values_of_a_given_policy(backend):
    options = {key: value for key, value in SMALL.items() if key != "learning_rate"}
    policy = {"compiled": lambda seen, mask: mask / mask.sum(), "host": lambda seen: 1}[backend]
    how = {"probabilities": backend == "compiled"}
    tracker = vt.ValueTracker(ENVS[backend], policy, **options, **how).learn(400).calibrate(40)
    v = tracker.posterior(PLACES)
    low, high = v.interval(0.95, kind="return")
    assert low.shape == (3,)
    assert (low <= TRUE).all()
    assert (high >= TRUE).all()
    with pytest.raises(ValueError, match="This tracker has no policy"):
        vt.ValueTracker(ENVS[backend], None, **options).calibrate()
