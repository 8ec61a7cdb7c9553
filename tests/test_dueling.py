"""Dueling heads: their formula, their values on probes, and values solved from their features."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.probes import Probes
from tests.test_n_step import GAMMA, KINDS, PROBE
from tests.values.test_features import ACTIONS, KEY, make_learner, solved, transitions
from valuetrack import networks
from valuetrack.values import features
from valuetrack.values.features import linearised


@pytest.mark.parametrize(("outputs", "axis"), [(3, -1), ((5, 3), -1), ((3, 5), 0)], ids=str)
def test_values_are_v_plus_advantages_without_their_mean(outputs, axis):
    network = networks.mlp(2, outputs, (8, 6), init="pytorch", dueling=axis)
    params = network.init(KEY)
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    first, last = params["body"]
    assert last["w"].shape == (8, 12)
    hidden = np.maximum(np.maximum(x @ first["w"] + first["b"], 0) @ last["w"] + last["b"], 0)
    value, advantage = params["head"]["value"], params["head"]["advantage"]
    shape = (outputs,) if isinstance(outputs, int) else outputs
    v = (hidden[:, :6] @ value["w"] + value["b"]).reshape(4, *(np.delete(shape, axis)))
    a = (hidden[:, 6:] @ advantage["w"] + advantage["b"]).reshape(4, *shape)
    where = axis % len(shape) + 1
    expected = np.expand_dims(v, where) + a - a.mean(axis=where, keepdims=True)
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-5, atol=1e-6)


def test_without_a_hidden_layer_it_is_refused():
    with pytest.raises(ValueError, match="dueling splits the last hidden layer"):
        networks.mlp(2, 3, (), dueling=-1)


@pytest.mark.parametrize("name", ["bootdqn", "qrdqn", "lktd"])
def test_known_values_are_found(name):
    kind, own = KINDS[name]
    own = {**own, "n_step": 1, "dueling": True, "hidden": (16, 16), "init": "he"}
    agent = kind(Probes(), **{**PROBE, **own}).learn(8_000)
    q = np.asarray(agent.posterior(np.eye(4, dtype=np.float32)).mean)
    np.testing.assert_allclose(q[0], [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(q[1:3, 0], [GAMMA, 1.0], atol=0.15)
    np.testing.assert_allclose(q[3], 1 / (1 - GAMMA), atol=0.3)


def test_features_are_those_of_both_streams_and_one_constant(monkeypatch):
    monkeypatch.setattr(features, "MOST_PARAMETERS", 0)
    network = networks.mlp(3, ACTIONS, (7, 5), init="pytorch", dueling=-1)
    learner, state = make_learner(network=network)
    memory = transitions(40)
    of = linearised(learner, state, KEY, memory.observation[0])
    assert (of.blocks, of.k) == (ACTIONS, 5 + 5 + 1)
    params = state.sampler.params
    hidden = memory.observation
    for layer in params["body"]:
        hidden = np.maximum(hidden @ layer["w"] + layer["b"], 0)
    found = np.asarray(of.query(state, memory.observation)[1])
    expected = np.concatenate([hidden[:, 5:], hidden[:, :5], np.ones((40, 1))], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_solved_values_are_those_of_a_plain_head_on_the_same_features(monkeypatch):
    """With any value for each action, V + A - mean A is any linear function of the features."""
    monkeypatch.setattr(features, "MOST_PARAMETERS", 0)
    network = networks.mlp(3, ACTIONS, (6,), init="pytorch", dueling=-1)
    plain = networks.mlp(3, ACTIONS, (12,), init="pytorch")
    learner, state = make_learner(network=network)
    other, start = make_learner(network=plain)
    own = state.sampler.params
    value, advantage = own["head"]["value"], own["head"]["advantage"]
    centred = jax.tree.map(lambda x: x - x.mean(axis=-1, keepdims=True), advantage)
    head = {
        "w": jnp.concatenate([jnp.tile(value["w"], (1, ACTIONS)), centred["w"]]),
        "b": value["b"] + centred["b"],
    }
    same = {"body": own["body"], "head": head}
    start = start._replace(sampler=start.sampler._replace(params=same), target=same)
    memory, asked = transitions(), transitions(5, seed=1).observation
    mean, sd = solved(learner, state, memory, asked, 2.0)
    expected = solved(other, start, memory, asked, 2.0)
    np.testing.assert_allclose(mean, expected[0], rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(sd, expected[1], rtol=2e-3)
