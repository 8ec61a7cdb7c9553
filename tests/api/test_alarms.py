"""Alarms of agents: a real change, in trackings, figures, files and callbacks; the errors."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import valuetrack as vt
from valuetrack.api.alarms import Alarms, Raised
from valuetrack.api.tracking import Tracking
from valuetrack.envs import CHANGING_ID, IndoorEscape
from valuetrack.io import array_file
from valuetrack.io.errors import ModelFileError
from valuetrack.training.evaluation import values_key
from valuetrack.values.errors import compiled_errors, errors_of

CHANGE = 1_500
OPTIONS = {
    "width": 3,
    "height": 3,
    "horizon": 20,
    "changes": [{"at": CHANGE, "reward_mean": -3.0}],
}
SMALL = {
    "hidden": (16,),
    "discount": 0.5,
    "batch_size": 16,
    "learning_starts": 100,
    "replay_capacity": 1_000,
    "steps_per_update": 2,
    "exploration_steps": 500,
    "exploration_final": 0.2,
    "learning_rate": 3e-3,
    "seed": 0,
}
EVERY, RATE = 26, 1e-3


def learned(kind=vt.DQN, steps=1_900, told=None, **options):
    agent = kind(CHANGING_ID, env_options=OPTIONS, **{**SMALL, **options})
    return agent.learn(steps, alarm_every=EVERY, alarm_rate=RATE, callback=told)


@pytest.fixture(scope="module")
def alarmed():
    told = []

    def keep(progress):
        told.append((progress.steps, progress.alarms.tolist()))

    return learned(seeds=2, told=keep), told


def test_a_real_change_is_noticed(alarmed):
    agent, told = alarmed
    raised = agent.tracking().alarms
    for member in range(2):
        steps = raised.steps[raised.members == member]
        first = steps[steps > CHANGE][0]
        assert first - CHANGE <= 8 * EVERY
    # An alarm makes a report of its own, wherever it comes.
    heard = [(steps, m) for steps, flags in told for m, flag in enumerate(flags) if flag]
    assert heard == list(zip(raised.steps.tolist(), raised.members.tolist(), strict=True))
    assert any(steps % 19 for steps, _ in heard)
    assert (raised.updates == (raised.steps - 98) // 2).all()


@pytest.mark.parametrize("kind", [vt.LKTD, vt.QRDQN])
def test_other_algorithms_notice(kind):
    steps = learned(kind).tracking().alarms.steps
    assert ((steps > CHANGE) & (steps <= CHANGE + 12 * EVERY)).any()


def test_on_the_host_as_well():
    steps = learned(backend="host").tracking().alarms.steps
    assert ((steps > CHANGE) & (steps <= CHANGE + 12 * EVERY)).any()


def test_saved_alarms_go_on(alarmed, tmp_path):
    agent, _ = alarmed
    agent.save(tmp_path / "agent.vt")
    twins = [copy.deepcopy(agent), vt.load(tmp_path / "agent.vt")]
    for twin in twins:
        before = agent.tracking().alarms
        np.testing.assert_array_equal(twin.tracking().alarms, before)
        for ours, theirs in zip(agent._alarms._evidence, twin._alarms._evidence, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(one, other)
    for twin in twins[:1]:
        seen = twin._alarms._evidence[0].seen
        twin.learn(4 * EVERY, alarm_every=EVERY, alarm_rate=RATE)
        assert twin._alarms._evidence[0].seen == seen + 4
        assert agent._alarms._evidence[0].seen == seen  # a life of its own


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("alarms.steps", np.zeros(1)),
        ("alarms.members", np.zeros((1, 1), int)),
        ("alarms.evidence.seen", np.array([-1, 3])),
        ("alarms.evidence.scores", np.zeros((2, 3, 2))),
        ("alarms.evidence.size", None),
    ],
)
def test_alarms_that_do_not_fit_are_refused(alarmed, tmp_path, name, wrong):
    agent, path = alarmed[0], tmp_path / "agent.vt"
    agent.save(path)
    arrays, about = array_file.load(path)
    changed = {key: array for key, array in arrays.items() if key != name}
    array_file.save(path, changed if wrong is None else {**changed, name: wrong}, about)
    with pytest.raises(ModelFileError, match="alarms do not fit"):
        vt.load(path)


def test_trackings_and_figures_have_them(alarmed, tmp_path):
    pytest.importorskip("matplotlib")
    agent = copy.deepcopy(alarmed[0])
    agent.learn(100, track=np.full((1, 2), 0.5, np.float32))
    record = agent.tracking()
    record.save(tmp_path / "tracking.npz")
    with np.load(tmp_path / "tracking.npz") as saved:
        again = Tracking.from_arrays(dict(saved))
    np.testing.assert_array_equal(again.alarms, record.alarms)
    early = record.until(int(record.alarms.updates[0]))
    assert len(early.alarms.steps) == (record.alarms.updates == record.alarms.updates[0]).sum()
    np.testing.assert_array_equal(early.then(record).alarms, record.alarms)
    for seed in range(2):
        axes = record.plot(seed=seed).axes[0]
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        assert len(dotted) == (record.alarms.members == seed).sum() > 0


def test_errors_are_those_of_the_values():
    agent = vt.DQN(IndoorEscape(width=3, height=3), **SMALL).learn(300)
    memory = agent.trainer.memory(0, 70)
    errors = errors_of(
        compiled_errors(agent.learner, values_key()), agent.trainer.member(0).learner, memory
    )
    q, q_next = (
        agent.posterior(seen).latest for seen in (memory.observation, memory.next_observation)
    )
    ahead = np.where(memory.next_mask, q_next, -np.inf).max(axis=1)
    ahead = np.where(memory.discount > 0, ahead, 0.0)
    expected = memory.reward + memory.discount * ahead - q[np.arange(70), memory.action]
    np.testing.assert_allclose(errors, expected, rtol=1e-4, atol=1e-5)
    taken = compiled_errors(agent.learner._replace(following="taken"), values_key())
    sarsa = errors_of(taken, agent.trainer.member(0).learner, memory)
    expected = memory.reward - q[np.arange(70), memory.action]
    expected += memory.discount * q_next[np.arange(70), memory.next_action]
    np.testing.assert_allclose(sarsa, expected, rtol=1e-4, atol=1e-5)


def test_a_given_policy_has_errors_too():
    options = {"hidden": (8,), "learning_starts": 50, "probabilities": True, "seed": 0}
    policy, env_options = lambda seen: np.full(4, 0.25), {**OPTIONS, "masked": False}
    agent = vt.ValueTracker(CHANGING_ID, policy, env_options=env_options, of="v", **options)
    agent.learn(200, alarm_every=EVERY)
    assert agent._alarms._evidence[0].seen > 0


def test_forgetting_empties_the_memory_and_keeps_what_was_learned(alarmed):
    agent = copy.deepcopy(alarmed[0])
    assert (agent.trainer.memory(0).reward > -2.0).any()
    before = agent.posterior([0.5, 0.5]).latest
    agent.forget()
    np.testing.assert_array_equal(agent.posterior([0.5, 0.5]).latest, before)
    assert agent.trainer.present_env.reward_mean == -3.0  # time does not turn back
    agent.learn(150)
    assert (agent.trainer.memory(0).reward < -2.0).all()


def test_a_rate_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="alarm_rate is the number of false alarms"):
        vt.DQN("CartPole-v1", **SMALL).learn(100, alarm_every=100, alarm_rate=0.1)
    with pytest.raises(ValueError, match="alarm_every"):
        vt.DQN("CartPole-v1", **SMALL).learn(100, alarm_every=0)


def test_nobody_has_looked_yet():
    assert Alarms(3).arrays() == {}
    assert [len(part) for part in Alarms(3).raised] == [0] * len(Raised._fields)
