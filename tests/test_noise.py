"""Noisy layers: their formula, who uses them, their values on probes, and what is solved."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import valuetrack as vt
from tests.probes import Bandit, Probes
from tests.small_envs import Counter
from tests.test_n_step import GAMMA, KINDS, PROBE
from tests.values.test_features import ACTIONS, KEY, WHICH, make_learner, solved, transitions
from valuetrack import networks
from valuetrack.agents.noisy import acting_by_noise, noisy_batch
from valuetrack.measurement import TargetBatch
from valuetrack.noise import NOISE, perturbed, with_noise, without_noise
from valuetrack.values import features
from valuetrack.values.features import linearised

NOISY = ("dqn", "qrdqn", "iqn")


def off_the_means(count=4_000):
    """Return draws of w and b around their means, in sds, of a layer of 3 inputs, 2 outputs."""
    params = with_noise(networks.mlp(3, 2, (), init="pytorch")).init(KEY)
    draw = jax.jit(jax.vmap(functools.partial(perturbed, params=params)))
    drawn = draw(jax.random.split(KEY, count))["head"]
    sds = params[NOISE]["head"]
    np.testing.assert_allclose(sds["w"], 0.5 / math.sqrt(3), rtol=1e-6)
    off = {name: (drawn[name] - params["head"][name]) / sds[name] for name in ("w", "b")}
    return np.asarray(off["w"], float), np.asarray(off["b"], float)


def test_noise_is_factorised_and_has_the_moments_of_the_paper():
    w, b = off_the_means()
    # f(x)^2 = |x|, whose mean is sqrt(2 / pi) for a normal x.
    size = math.sqrt(2 / math.pi)
    assert np.abs(w.mean(axis=0)).max() < 0.05
    np.testing.assert_allclose((w**2).mean(axis=0), size**2, rtol=0.1)
    np.testing.assert_allclose((b**2).mean(axis=0), size, rtol=0.1)
    rows = w / b[:, None, :]  # the inputs' part, the same for every output
    np.testing.assert_allclose(rows[..., 0], rows[..., 1], rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose((np.abs(rows[..., 0]) ** 4).mean(), 1.0, rtol=0.1)  # x^2


@pytest.mark.parametrize("dueling", [None, -1])
def test_convolutions_have_none_and_every_other_layer_has(dueling):
    network = networks.cnn((6, 6, 1), 3, convolutions=[(2, 3, 1)], hidden=(8,), dueling=dueling)
    params = with_noise(network).init(KEY)
    first, second = perturbed(KEY, params), perturbed(jax.random.key(1), params)
    assert params[NOISE]["body"][0] == ()
    equal = jax.tree.map(lambda a, b: bool(jnp.any(a == b)), first, second)
    assert all(jax.tree.leaves(equal["body"][0]))
    assert not any(jax.tree.leaves([equal["body"][1:], equal["head"]]))
    seen = jnp.ones((2, 6, 6, 1))
    assert not np.allclose(network.apply(first, seen), network.apply(params, seen))
    np.testing.assert_array_equal(
        network.apply(params, seen), network.apply(without_noise(params), seen)
    )


def test_acting_is_by_a_draw_that_changes_with_updates_and_values_by_the_means():
    network = with_noise(networks.mlp(3, ACTIONS, (16,), init="pytorch"), first_sd=3.0)
    plain, _ = make_learner(network=network, target_every=1)
    learner = acting_by_noise(plain)
    state = learner.init(KEY)
    memory = transitions(200)
    seen, legal = memory.observation, np.ones((200, ACTIONS), bool)
    uniforms = jnp.ones((200, 2))  # never below an epsilon

    def actions(state):
        return np.asarray(learner.act(state, seen, legal, uniforms, 0.0).action)

    greedy = np.asarray(network.apply(state.sampler.params, seen)).argmax(axis=1)
    drawn = np.asarray(network.apply(state.snapshots, seen)).argmax(axis=1)
    assert (drawn != greedy).any()
    np.testing.assert_array_equal(actions(state), drawn)
    np.testing.assert_array_equal(
        learner.values(KEY, state, seen)[0], network.apply(state.sampler.params, seen)
    )
    after, _ = learner.update(jax.random.key(4), state, memory)
    assert (actions(after) != drawn).mean() > 0.05
    again, _ = learner.update(jax.random.key(5), state, memory)
    assert (actions(again) != actions(after)).any()


@pytest.mark.parametrize("name", ["dqn", "qrdqn"])
def test_acting_in_numpy_is_by_the_same_draw(name):
    kind, own = KINDS[name]
    agent = kind(Bandit(), noisy=True, hidden=(8,), dueling=True, **own)
    learner = agent.learner
    states = jax.vmap(learner.init)(jax.random.split(KEY, 2))
    seen = np.random.default_rng(0).normal(size=(2, 5, 1)).astype(np.float32)
    found = learner.on_host(jax.tree.map(np.asarray, states))(seen)

    def of_draw(state, seen):
        drawn = state._replace(sampler=state.sampler._replace(params=state.snapshots))
        return learner.values(KEY, drawn, seen)[0]

    np.testing.assert_allclose(found, jax.vmap(of_draw)(states, seen), rtol=2e-5, atol=2e-5)
    assert not np.allclose(found, jax.vmap(lambda s, x: learner.values(KEY, s, x)[0])(states, seen))


@pytest.mark.parametrize("name", NOISY)
def test_known_values_are_found(name):
    kind, own = KINDS[name]
    options = {**PROBE, **own, "n_step": 1, "noisy": True, "init": "he"}
    agent = kind(Probes(), **options).learn(8_000)
    q = np.asarray(agent.posterior(np.eye(4, dtype=np.float32)).mean)
    np.testing.assert_allclose(q[0], [-1.0, 1.0], atol=0.2)
    np.testing.assert_allclose(q[1:3, 0], [GAMMA, 1.0], atol=0.2)
    np.testing.assert_allclose(q[3], 1 / (1 - GAMMA), atol=0.4)
    sds = agent.trainer.learned.learner.sampler.params[NOISE]
    values = np.unique(np.concatenate([np.ravel(sd) for sd in jax.tree.leaves(sds)]))
    assert len(values) > 50  # they began with one number per layer


def test_the_host_learns_with_noise():
    agent = vt.DQN(
        lambda: Counter(last=3, horizon=20), noisy=True, hidden=(16,), learning_starts=20,
        discount=0.5, target_every=20, learning_rate=3e-3, exploration_initial=0.3, seed=0,
        exploration_final=0.3, prioritised=0.5, normalise_observations=False,
    ).learn(1_500)  # fmt: skip
    assert np.isfinite(agent.posterior([1, 0]).mean).all()


@pytest.mark.parametrize("name", NOISY)
def test_epsilon_is_zero_unless_it_is_given(name):
    parse = KINDS[name][0].options_type
    given = (
        {"noisy": True},
        {"noisy": True, "exploration_final": 0.1, "random_warmup": False},
        {},
    )
    chosen = [parse(**options) for options in given]
    assert [(o.exploration_initial, o.exploration_final, o.random_warmup) for o in chosen] == [
        (0, 0, True), (0, 0.1, False), (1, 0.05, False),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [vt.LKTD, vt.SGHMC, vt.BootDQN, vt.KOVA])
def test_others_refuse_it_in_a_sentence(kind):
    with pytest.raises(ValueError, match="'noisy': samples, heads and filters have opinions"):
        kind(Bandit(), noisy=True)


def test_a_resumed_training_has_the_same_bits(tmp_path):
    options = {**PROBE, **KINDS["dqn"][1], "noisy": True, "seed": 3}
    whole, part = (vt.DQN(Probes(), **options) for _ in range(2))
    whole.learn(600)
    part.learn(300).save(tmp_path / "agent.vt")
    resumed = vt.load(tmp_path / "agent.vt", Probes()).learn(300)
    one, other = (jax.tree.leaves(agent.trainer.learned) for agent in (whole, resumed))
    assert all(map(np.array_equal, one, other))


@WHICH
def test_solved_values_are_those_of_the_means(most, monkeypatch):
    monkeypatch.setattr(features, "MOST_PARAMETERS", most)
    network = networks.mlp(3, ACTIONS, (6,), init="pytorch")
    plain, start = make_learner(network=network)
    noisy, state = make_learner(network=with_noise(network))
    np.testing.assert_array_equal(*(s.sampler.params["head"]["w"] for s in (start, state)))
    memory, asked = transitions(), transitions(5, seed=1).observation
    of = [
        linearised(*pair, KEY, memory.observation[0]) for pair in ((plain, start), (noisy, state))
    ]
    assert (of[0].blocks, of[0].k) == (of[1].blocks, of[1].k)
    found, expected = (
        solved(*pair, memory, asked, 2.0) for pair in ((noisy, state), (plain, start))
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_target_network_is_drawn_by_a_noise_of_its_own():
    params = with_noise(networks.mlp(3, ACTIONS, (4,))).init(KEY)
    noisy = noisy_batch(None)(KEY, TargetBatch(transitions(5), params, 0.0))
    drawn, own = noisy.data.target_params, perturbed(noisy.key, params)
    assert NOISE not in drawn
    for draw in (params, own):
        assert not np.allclose(drawn["head"]["w"], draw["head"]["w"])
