"""Rows and gradients of transitions, on networks whose gradients are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import networks, samplers
from valuetrack.learner import build_learner
from valuetrack.measurement import mean_squared_error, q_learning
from valuetrack.types import Transition
from valuetrack.values import features, sandwich
from valuetrack.values.features import last_layer, linearised

KEY = jax.random.key(0)
INPUTS, ACTIONS, GAMMA = 3, 2, 0.9
EVERYTHING, LAST_LAYER = 10**9, 0
WHICH = pytest.mark.parametrize("most", [EVERYTHING, LAST_LAYER], ids=["all", "last layer"])


def make_learner(outputs=ACTIONS, hidden=(), network=None, **options):
    """Return a learner, and its state with parameters that are not zero."""
    network = network or networks.mlp(INPUTS, outputs, hidden, init="normal", init_sd=0.5)
    optimiser = samplers.adam(mean_squared_error(q_learning(network.apply)), learning_rate=1e-3)
    learner = build_learner(network, optimiser, **options)
    return learner, learner.init(KEY)


def transitions(count=700, seed=0):
    generator = np.random.default_rng(seed)
    mask = generator.random((count, ACTIONS)) < 0.7
    mask[:, 0] |= ~mask.any(axis=1)
    seen, after = generator.standard_normal((2, count, INPUTS)).astype(np.float32)
    return Transition(
        observation=seen,
        action=generator.integers(0, ACTIONS, count).astype(np.int32),
        reward=(seen[:, 0] + generator.standard_normal(count)).astype(np.float32),
        discount=np.where(generator.random(count) < 0.2, 0.0, GAMMA).astype(np.float32),
        next_observation=(0.5 * after).astype(np.float32),
        next_action=generator.integers(0, ACTIONS, count).astype(np.int32),
        next_mask=mask,
    )


def linear_q(state, observations):
    layer = {name: np.asarray(part, float) for name, part in state.sampler.params["head"].items()}
    return observations @ layer["w"] + layer["b"]


def next_probabilities(learner, state, memory, epsilon):
    """Write out who acts next, one transition after the other."""
    chances = np.zeros((len(memory.reward), ACTIONS))
    q = linear_q(state, memory.next_observation)
    for i, mask in enumerate(memory.next_mask):
        if learner.following == "taken":
            chances[i, memory.next_action[i]] = 1.0
            continue
        best = max(np.flatnonzero(mask), key=lambda a, i=i: q[i, a])
        share = epsilon if learner.following == "expected" else 0.0
        chances[i, best] = 1 - share
        chances[i, mask] += share / mask.sum()
    return chances


def textbook(learner, state, memory, ridge_of, epsilon=0.0):
    """Return theta* of LSTD on the features (s, 1) of each action, and its covariance."""

    def phi(observations, weights):
        with_one = np.concatenate([observations, np.ones((len(observations), 1))], axis=1)
        return np.einsum("na,nk->nak", weights, with_one).reshape(len(observations), -1)

    now = phi(memory.observation, np.eye(ACTIONS)[memory.action])
    chances = next_probabilities(learner, state, memory, epsilon)
    ahead = memory.discount[:, None] * phi(memory.next_observation, chances)
    layer = state.sampler.params["head"]
    own = np.concatenate([layer["w"].T, layer["b"][:, None]], axis=1).astype(float).ravel()
    delta = memory.reward - (now - ahead) @ own
    sigma2 = np.mean(delta**2)
    ridge = sigma2 / ridge_of
    a = now.T @ (now - ahead) + ridge * np.eye(now.shape[1])
    theta = own + np.linalg.solve(a, now.T @ delta)
    residual = memory.reward - (now - ahead) @ theta
    leverage = np.einsum("ni,ij,nj->n", now - ahead, np.linalg.inv(a), now)
    alone = residual / (1 - leverage)
    b = (now * alone[:, None] ** 2).T @ now + sigma2 * ridge * np.eye(now.shape[1])
    covariance = np.linalg.inv(a) @ b @ np.linalg.inv(a).T
    asked = np.random.default_rng(9).standard_normal((5, INPUTS)).astype(np.float32)
    every = np.stack([phi(asked, np.eye(ACTIONS)[[c] * 5]) for c in range(ACTIONS)], axis=1)
    sd = np.sqrt(np.einsum("nai,ij,naj->na", every, covariance, every))
    return asked, every @ theta, sd


def solved(learner, state, memory, asked, prior_variance, epsilon=0.0):
    of = linearised(learner, state, KEY, asked[0])

    def batches():
        return features.batches_of_rows(of, state, state, memory, epsilon)

    solution = sandwich.solve(batches, of.blocks, of.k, prior_variance)
    q, found = of.query(state, asked)
    gradients = of.gradients(np.asarray(found)).reshape(-1, of.blocks * of.k)
    mean = np.asarray(q) + solution.change(gradients).reshape(q.shape)
    return mean, solution.sd(gradients).reshape(q.shape)


@WHICH
@pytest.mark.parametrize("following", ["greedy", "taken", "expected"])
def test_a_linear_model_has_the_textbooks_values_and_errors(monkeypatch, most, following):
    monkeypatch.setattr(features, "MOST_PARAMETERS", most)
    learner, state = make_learner(following=following)
    memory = transitions()
    asked, mean, sd = textbook(learner, state, memory, 2.0, epsilon=0.3)
    found = solved(learner, state, memory, asked, 2.0, epsilon=0.3)
    np.testing.assert_allclose(found[0], mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], sd, rtol=1e-3)


@pytest.mark.parametrize("kind", ["heads", "quantiles"])
def test_heads_and_quantiles_count_by_their_mean(monkeypatch, kind):
    monkeypatch.setattr(features, "MOST_PARAMETERS", LAST_LAYER)
    shape, to_values = {
        "heads": ((3, ACTIONS), lambda y: jnp.moveaxis(y, -2, 0)),
        "quantiles": ((ACTIONS, 3), lambda y: jnp.mean(y, axis=-1)[None]),
    }[kind]
    learner, state = make_learner(shape, to_values=to_values, heads=3 if kind == "heads" else 1)
    layer = state.sampler.params["head"]
    mean_axis = 0 if kind == "heads" else 1
    averaged = {
        name: part.reshape(*part.shape[:-1], *shape).mean(axis=part.ndim - 1 + mean_axis)
        for name, part in layer.items()
    }
    plain, of_plain = make_learner()
    of_plain = of_plain._replace(
        sampler=of_plain.sampler._replace(params={"body": [], "head": averaged})
    )
    memory = transitions()
    asked, mean, sd = textbook(plain, of_plain, memory, 2.0)
    found = solved(learner, state, memory, asked, 2.0)
    np.testing.assert_allclose(found[0], mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], sd, rtol=1e-3)


def test_rows_of_terminal_and_truncated_steps():
    learner, state = make_learner()
    memory = transitions(40)
    of = linearised(learner, state, KEY, memory.observation[0])
    (rows,) = features.batches_of_rows(of, state, state, memory)
    now = linear_q(state, memory.observation)[np.arange(40), memory.action]
    legal = np.where(memory.next_mask, linear_q(state, memory.next_observation), -np.inf)
    ends = memory.discount == 0
    assert 0 < ends.sum() < 40
    np.testing.assert_allclose(rows.value, now, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.delta[ends], (memory.reward - now)[ends], rtol=1e-3, atol=1e-5)
    bootstrapped = memory.reward + GAMMA * legal.max(axis=1) - now
    np.testing.assert_allclose(rows.delta[~ends], bootstrapped[~ends], rtol=1e-3, atol=1e-5)
    assert (rows.weights[ends] == 0).all()
    assert (rows.weights[~ends] == np.float32(GAMMA)).all()


def test_terminal_states_without_a_legal_action_give_no_nan():
    learner, state = make_learner()
    memory = transitions(20)
    memory = memory._replace(discount=0 * memory.discount, next_mask=np.zeros((20, 2), bool))
    of = linearised(learner, state, KEY, memory.observation[0])
    (rows,) = features.batches_of_rows(of, state, state, memory)
    assert all(np.isfinite(part).all() for part in rows)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_values_that_a_learner_rescales_keep_their_intervals(monkeypatch, scale):
    """The values go through a map that depends on the state; so must their gradients."""
    monkeypatch.setattr(features, "MOST_PARAMETERS", LAST_LAYER)
    learner, state = make_learner(hidden=(8,))

    def stretched(key, state, observations):
        by = jnp.exp(0.3 * observations[..., :1])
        return scale * by * learner.values(key, state, observations) + observations[..., 1:2]

    other = learner._replace(values=stretched)
    of = linearised(other, state, KEY, np.zeros(INPUTS, np.float32))
    asked = np.random.default_rng(1).standard_normal((6, INPUTS)).astype(np.float32)
    q, f = (np.asarray(part) for part in of.query(state, asked))
    # A step of the last layer that f predicts is the step that the values make.
    layer = state.sampler.params["head"]
    shift = np.random.default_rng(2).standard_normal(of.k).astype(np.float32)
    column = np.array([1.0, 0.0], np.float32) / scale
    moved = {
        "w": layer["w"] + shift[:-1, None] * column,
        "b": layer["b"] + shift[-1] * column,
    }
    params = {**state.sampler.params, "head": moved}
    after = stretched(KEY, state._replace(sampler=state.sampler._replace(params=params)), asked)[0]
    np.testing.assert_allclose(q[:, 0] + f @ shift, after[:, 0], rtol=1e-4, atol=1e-4)


def test_the_last_layer_of_every_network():
    shape = (6, 6, 1)
    picture = networks.cnn(shape, 3, convolutions=((4, 3, 1),), hidden=(5,))
    path, layer = last_layer(picture.init(KEY))
    assert (path, layer["w"].shape) == (("head",), (5, 3))
    nested = {"head": {"body": [], "head": layer}, "embedding": {}}
    assert last_layer(nested)[0] == ("head", "head")


@pytest.mark.parametrize("params", [{"dense": jnp.ones(3)}, [jnp.ones(2)], {"head": jnp.ones(2)}])
def test_large_networks_of_others_are_refused_in_a_sentence(params):
    with pytest.raises(ValueError, match="needs a last layer called 'head'"):
        last_layer(params)


def test_a_last_layer_that_is_too_large_is_refused_in_a_sentence():
    learner, state = make_learner(hidden=(3_000,))
    with pytest.raises(ValueError, match=r"3,001 parameters per action, and 2 times"):
        linearised(learner, state, KEY, np.zeros(INPUTS, np.float32))
