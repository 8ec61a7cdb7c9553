from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from valuetrack import measurement
from valuetrack.measurement import TargetBatch
from valuetrack.types import Transition

GAMMA = 0.9
FEATURES, ACTIONS = 3, 4
MASK = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], bool)
TERMINATED = np.array([False, False, False, False, True])
"""The last transition is terminal, and leaves no legal action."""


def linear_q(params, x):
    """Q(s, a) = x w_a + b_a, whose gradient is known without differentiation."""
    return x @ params["w"] + params["b"]


def draw_params(seed: int):
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(FEATURES, ACTIONS)), rng.normal(size=ACTIONS)
    return {"w": w.astype(np.float32), "b": b.astype(np.float32)}


PARAMS, TARGET = draw_params(0), draw_params(1)


@pytest.fixture
def batch() -> Transition:
    rng = np.random.default_rng(2)
    n = len(MASK)
    return Transition(
        observation=rng.normal(size=(n, FEATURES)).astype(np.float32),
        action=np.array([0, 3, 1, 2, 2]),
        reward=rng.normal(size=n).astype(np.float32),
        discount=np.asarray(measurement.discount_of(GAMMA, TERMINATED)),
        next_observation=rng.normal(size=(n, FEATURES)).astype(np.float32),
        next_action=np.array([1, 3, 0, 2, 0]),
        next_mask=MASK,
    )


def rows(batch: Transition):
    return range(len(batch.reward))


def value_gradient(observation, action):
    """The gradient of a linear Q(s, a) in its parameters, by hand."""
    chosen = np.eye(ACTIONS)[action]
    return {"w": np.outer(observation, chosen), "b": chosen}


def assert_trees_close(ours, expected):
    for name in ("w", "b"):
        np.testing.assert_allclose(ours[name], expected[name], rtol=1e-5, atol=1e-6)


def test_sarsa_by_hand(batch):
    model = measurement.sarsa(linear_q)
    q, next_q = linear_q(PARAMS, batch.observation), linear_q(PARAMS, batch.next_observation)
    expected = [
        q[i, batch.action[i]] - (0 if TERMINATED[i] else GAMMA) * next_q[i, batch.next_action[i]]
        for i in rows(batch)
    ]
    np.testing.assert_allclose(model.predict(PARAMS, batch), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.observe(PARAMS, batch), batch.reward)


@pytest.mark.parametrize("gradient", ["semi", "full"])
def test_sarsa_gradient_by_hand(batch, gradient):
    model = measurement.sarsa(linear_q, gradient)
    jacobian = jax.jacobian(model.predict)(PARAMS, batch)
    for i in rows(batch):
        expected = value_gradient(batch.observation[i], batch.action[i])
        if gradient == "full":
            later = value_gradient(batch.next_observation[i], batch.next_action[i])
            expected = jax.tree.map(
                lambda now, then, d=batch.discount[i]: now - d * then, expected, later
            )
        assert_trees_close(jax.tree.map(lambda leaf, i=i: leaf[i], jacobian), expected)


def best_legal(q, i):
    legal = np.flatnonzero(MASK[i])
    return legal[np.argmax(q[i, legal])] if len(legal) else 0


@pytest.mark.parametrize("gradient", ["semi", "full"])
def test_the_best_legal_action_without_a_target_by_hand(batch, gradient):
    model = measurement.max_sarsa(linear_q, gradient)
    q, next_q = linear_q(PARAMS, batch.observation), linear_q(PARAMS, batch.next_observation)
    best = [best_legal(next_q, i) for i in rows(batch)]
    expected = [
        q[i, batch.action[i]] - (0 if TERMINATED[i] else GAMMA) * next_q[i, best[i]]
        for i in rows(batch)
    ]
    np.testing.assert_allclose(model.predict(PARAMS, batch), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.observe(PARAMS, batch), batch.reward)
    jacobian = jax.jacobian(model.predict)(PARAMS, batch)
    for i in rows(batch):
        slope = value_gradient(batch.observation[i], batch.action[i])
        if gradient == "full":
            later = value_gradient(batch.next_observation[i], best[i])
            slope = jax.tree.map(
                lambda now, then, d=batch.discount[i]: now - d * then, slope, later
            )
        assert_trees_close(jax.tree.map(lambda leaf, i=i: leaf[i], jacobian), slope)


def test_semi_and_full_predict_the_same(batch):
    semi, full = (measurement.sarsa(linear_q, g).predict(PARAMS, batch) for g in ("semi", "full"))
    np.testing.assert_array_equal(semi, full)


@pytest.mark.parametrize("last_axis", [True, False])
@pytest.mark.parametrize("gradient", ["semi", "full"])
def test_state_value_by_hand(batch, gradient, last_axis):
    def apply(params, x):
        v = x @ params["w"]
        return v[..., None] if last_axis else v

    params = {"w": PARAMS["w"][:, 0]}
    model = measurement.state_value(apply, gradient)
    x, later = batch.observation, batch.next_observation
    discount = np.where(TERMINATED, 0, GAMMA)
    expected = x @ params["w"] - discount * (later @ params["w"])
    np.testing.assert_allclose(model.predict(params, batch), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.observe(params, batch), batch.reward)
    jacobian = jax.jacobian(model.predict)(params, batch)["w"]
    slope = x if gradient == "semi" else x - discount[:, None] * later
    np.testing.assert_allclose(jacobian, slope, rtol=1e-5, atol=1e-6)


def test_sarsa_with_a_target_by_hand(batch):
    model = measurement.sarsa_target(linear_q)
    data = TargetBatch(batch, TARGET)
    later = linear_q(TARGET, batch.next_observation)
    expected = [
        batch.reward[i] + (0 if TERMINATED[i] else GAMMA) * later[i, batch.next_action[i]]
        for i in rows(batch)
    ]
    np.testing.assert_allclose(model.observe(PARAMS, data), expected, rtol=1e-5, atol=1e-6)
    q = linear_q(PARAMS, batch.observation)[np.arange(len(MASK)), batch.action]
    np.testing.assert_allclose(model.predict(PARAMS, data), q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_expected_sarsa_by_hand(batch, epsilon):
    """The policy is the current network's, its worth the target network's."""
    observed = measurement.expected_sarsa(linear_q).observe(
        PARAMS, TargetBatch(batch, TARGET, epsilon)
    )
    chooser = linear_q(PARAMS, batch.next_observation)
    worth = linear_q(TARGET, batch.next_observation)
    for i in rows(batch):
        legal = np.flatnonzero(MASK[i])
        value = 0.0
        if len(legal):
            best = legal[np.argmax(chooser[i, legal])]
            value = epsilon * worth[i, legal].mean() + (1 - epsilon) * worth[i, best]
        expected = batch.reward[i] + (0 if TERMINATED[i] else GAMMA) * value
        assert float(observed[i]) == pytest.approx(expected, rel=1e-5)


def test_expected_sarsa_without_exploration_is_double_q_learning(batch):
    data = TargetBatch(batch, TARGET)
    expected = measurement.expected_sarsa(linear_q).observe(PARAMS, data)
    double = measurement.q_learning(linear_q, double=True).observe(PARAMS, data)
    np.testing.assert_allclose(expected, double, rtol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_q_learning_by_hand(batch, double):
    model = measurement.q_learning(linear_q, double=double)
    data = TargetBatch(batch, TARGET)
    q = linear_q(PARAMS, batch.observation)
    online = linear_q(PARAMS, batch.next_observation)
    target = linear_q(TARGET, batch.next_observation)
    expected = []
    for i in rows(batch):
        legal = np.flatnonzero(MASK[i])
        if len(legal) == 0:
            expected.append(batch.reward[i])
            continue
        best = max(legal, key=lambda a, i=i: (online if double else target)[i, a])
        expected.append(batch.reward[i] + GAMMA * target[i, best])
    np.testing.assert_allclose(model.observe(PARAMS, data), expected, rtol=1e-5)
    np.testing.assert_allclose(
        model.predict(PARAMS, data), [q[i, batch.action[i]] for i in rows(batch)], rtol=1e-5
    )
    jacobian = jax.jacobian(model.predict)(PARAMS, data)
    for i in rows(batch):
        expected_gradient = value_gradient(batch.observation[i], batch.action[i])
        assert_trees_close(jax.tree.map(lambda leaf, i=i: leaf[i], jacobian), expected_gradient)


def test_double_q_chooses_online_and_values_by_the_target(batch):
    one = jax.tree.map(lambda x: x[:1], batch)
    constant = {"w": np.zeros((FEATURES, ACTIONS), np.float32)}
    online = {**constant, "b": np.array([9.0, 1.0, 2.0, 3.0], np.float32)}
    target = {**constant, "b": np.array([10.0, 20.0, 30.0, 40.0], np.float32)}
    data = TargetBatch(one._replace(next_mask=np.array([[False, True, True, True]])), target)
    double = measurement.q_learning(linear_q, double=True).observe(online, data)
    swapped = measurement.q_learning(linear_q, double=True).observe(
        online, data._replace(transitions=one._replace(next_mask=np.ones((1, 4), bool)))
    )
    np.testing.assert_allclose(double, one.reward + GAMMA * 40)  # action 0 would be best, if legal
    np.testing.assert_allclose(swapped, one.reward + GAMMA * 10)


@pytest.mark.parametrize(
    ("terminated", "truncated", "discount"),
    [(False, False, GAMMA), (False, True, GAMMA), (True, False, 0.0), (True, True, 0.0)],
)
def test_only_termination_stops_the_bootstrap(batch, terminated, truncated, discount):
    assert measurement.discount_of(GAMMA, jnp.array(terminated)) == pytest.approx(discount)
    now = batch._replace(
        discount=measurement.discount_of(GAMMA, jnp.full(5, terminated)),
        next_mask=np.ones_like(MASK),
    )
    moved = now._replace(next_observation=now.next_observation + 1)
    bootstraps = not terminated
    for model, data, other in [
        (measurement.sarsa(linear_q), now, moved),
        (measurement.q_learning(linear_q), TargetBatch(now, TARGET), TargetBatch(moved, TARGET)),
    ]:
        residuals = [model.observe(PARAMS, d) - model.predict(PARAMS, d) for d in (data, other)]
        assert (not np.allclose(*residuals)) == bootstraps, (model, truncated)


@pytest.mark.parametrize("double", [False, True])
def test_a_state_without_legal_actions_poisons_nothing(batch, double):
    model = measurement.q_learning(linear_q, double=double)
    data = TargetBatch(batch, TARGET)
    loss = measurement.mean_squared_error(model)
    value, gradient = jax.value_and_grad(loss)(PARAMS, data)
    observed, through_target = jax.value_and_grad(
        lambda t: jnp.sum(model.observe(PARAMS, TargetBatch(batch, t)))
    )(TARGET)
    assert model.observe(PARAMS, data)[-1] == batch.reward[-1]
    for leaf in jax.tree.leaves((value, gradient, observed, through_target)):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("double", [False, True])
def test_a_mask_of_all_actions_changes_nothing(batch, double):
    everything = TargetBatch(batch._replace(next_mask=np.ones_like(MASK)), TARGET)
    online = linear_q(PARAMS, batch.next_observation)
    target = linear_q(TARGET, batch.next_observation)
    best = np.argmax(online if double else target, axis=1)
    expected = batch.reward + batch.discount * target[np.arange(5), best]
    observed = measurement.q_learning(linear_q, double=double).observe(PARAMS, everything)
    np.testing.assert_allclose(observed, expected, rtol=1e-5)


@pytest.mark.parametrize("form", ["sarsa", "state_value", "q_learning", "double"])
def test_observations_carry_no_gradient(batch, form):
    first = lambda params, x: linear_q(params, x)[..., 0]  # noqa: E731
    model, data = {
        "sarsa": (measurement.sarsa(linear_q, "full"), batch),
        "state_value": (measurement.state_value(first, "full"), batch),
        "q_learning": (measurement.q_learning(linear_q), TargetBatch(batch, PARAMS)),
        "double": (measurement.q_learning(linear_q, double=True), TargetBatch(batch, PARAMS)),
    }[form]

    def total(params):
        mine = data if form in ("sarsa", "state_value") else data._replace(target_params=params)
        return jnp.sum(model.observe(params, mine))

    for leaf in jax.tree.leaves(jax.grad(total)(PARAMS)):
        np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("gradient", ["semi", "full"])
def test_mean_squared_error_and_its_gradient(batch, gradient):
    model = measurement.sarsa(linear_q, gradient)
    loss, slope = jax.value_and_grad(measurement.mean_squared_error(model))(PARAMS, batch)
    residual = np.asarray(batch.reward - model.predict(PARAMS, batch))
    assert loss == pytest.approx(np.mean(residual**2), rel=1e-5)
    jacobian = jax.jacobian(model.predict)(PARAMS, batch)
    expected = jax.tree.map(lambda j: -2 / 5 * np.tensordot(residual, j, axes=1), jacobian)
    assert_trees_close(slope, expected)


def test_target_parameters_get_no_gradient_from_the_loss(batch):
    loss = measurement.mean_squared_error(measurement.q_learning(linear_q))
    slope = jax.grad(lambda target: loss(PARAMS, TargetBatch(batch, target)))(TARGET)
    for leaf in jax.tree.leaves(slope):
        np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("form", [measurement.sarsa, measurement.state_value])
def test_unknown_gradient(form):
    with pytest.raises(ValueError, match="'semi' or 'full', not 'half'"):
        form(linear_q, "half")
