"""Exported policies do what the agent does, in other programs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import valuetrack as vt
from tests.small_envs import Counter

SMALL = {"hidden": (8,), "learning_starts": 100, "samples": 40, "thinning": 2, "seed": 0}
OBSERVATIONS = (np.random.default_rng(0).normal(size=(1000, 4)) * [1, 1, 0.1, 1]).astype(np.float32)


@pytest.fixture(scope="module")
def agent():
    return vt.LKTD("CartPole-v1", normalise_observations=True, seeds=2, **SMALL).learn(500)


def called(path, observations):
    """Return the values and actions of a file of jax.export."""
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    return [np.asarray(out) for out in exported.call(observations)]


@pytest.mark.parametrize("member", [0, 1])
def test_stablehlo_has_the_values_and_actions_of_predict(agent, member, tmp_path):
    path = tmp_path / "policy.stablehlo"
    agent.export(path, member=member)
    values, actions = called(path, OBSERVATIONS)
    np.testing.assert_allclose(values, agent.actor.values(member, OBSERVATIONS), atol=1e-5)
    np.testing.assert_array_equal(actions, agent.predict(OBSERVATIONS, member=member)[0])
    np.testing.assert_array_equal(called(path, OBSERVATIONS[:3])[1], actions[:3])


def test_onnx_has_the_values_and_actions_of_predict(agent, tmp_path):
    pytest.importorskip("jax2onnx", reason="the extra onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    path = tmp_path / "policy.onnx"
    agent.export(path)
    session = runtime.InferenceSession(path)
    values, actions = session.run(None, {"observations": OBSERVATIONS})
    np.testing.assert_allclose(values, agent.posterior(OBSERVATIONS).acted_on, atol=1e-5)
    np.testing.assert_array_equal(actions, agent.predict(OBSERVATIONS)[0])
    (few,) = session.run(["actions"], {"observations": OBSERVATIONS[:3]})
    np.testing.assert_array_equal(few, actions[:3])


def test_actions_are_those_of_the_environment(tmp_path):
    agent = vt.DQN(Counter, **SMALL)  # whose actions are 5, 6 and 7
    agent.export(tmp_path / "policy.bin")
    values, actions = called(tmp_path / "policy.bin", OBSERVATIONS[:, :2])
    np.testing.assert_array_equal(actions, values.argmax(axis=1) + 5)


def test_what_cannot_be_exported_is_said(agent, tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.onnx, \.stablehlo, \.bin, not in '\.pt'"):
        agent.export(tmp_path / "policy.pt")
    with pytest.raises(ValueError, match="no member 2"):
        agent.export(tmp_path / "policy.bin", member=2)
    tracker = vt.ValueTracker("CartPole-v1", lambda seen: 0, hidden=(8,))
    with pytest.raises(ValueError, match="only agents are exported"):
        tracker.export(tmp_path / "policy.bin")
    assert not list(tmp_path.iterdir())
