"""Chains, prior functions and behaviours: what is shared, what never changes, and who acts."""

from __future__ import annotations

from statistics import NormalDist

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import valuetrack as vt
from tests.samplers.zoo import posterior_sampler
from tests.small_envs import Counter
from valuetrack import behaviours, networks, samplers
from valuetrack.behaviours import SNAPSHOTS
from valuetrack.learner import LearnerState, Task, drawn_opinion
from valuetrack.measurement import TargetBatch, q_learning
from valuetrack.networks import PRIOR_FUNCTION
from valuetrack.types import Transition

CHAINS, ACTIONS, ROWS = 3, 2, 8
NETWORK = networks.mlp(2, ACTIONS, (4,))
SMALL = {
    "hidden": (8,),
    "learning_starts": 40,
    "batch_size": 8,
    "replay_capacity": 400,
    "exploration_initial": 0.0,
    "exploration_final": 0.0,
    "seed": 0,
}


class Alike(gymnasium.Env):
    """Six steps in which all looks alike and nothing is paid, so that an opinion never changes."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.5, -0.5], np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([0.5, -0.5], np.float32), 0.0, self.steps == 6, False, {}


def batch(target):
    generator = np.random.default_rng(0)
    seen = generator.standard_normal((2, ROWS, 2)).astype(np.float32)
    transitions = Transition(
        observation=jnp.asarray(seen[0]),
        action=jnp.asarray(generator.integers(ACTIONS, size=ROWS)),
        reward=jnp.asarray(generator.standard_normal(ROWS).astype(np.float32)),
        discount=jnp.full(ROWS, 0.9),
        next_observation=jnp.asarray(seen[1]),
        next_action=jnp.zeros(ROWS, jnp.int32),
        next_mask=jnp.ones((ROWS, ACTIONS), bool),
    )
    return TargetBatch(transitions, target)


def build(apply):
    return posterior_sampler("lktd")(q_learning(apply))


def test_parallel_chains_are_chains_alone():
    one, stacked = build(NETWORK.apply), networks.several(NETWORK, CHAINS)
    chains = samplers.parallel(one, CHAINS)
    params = stacked.init(jax.random.key(0))
    key, data = jax.random.key(1), batch(params)
    state, info = jax.jit(chains.step)(key, chains.init(params), data)
    state, info = jax.jit(chains.step)(key, state, data)
    assert int(state.updates) == 2
    residuals = []
    for chain, own_key in enumerate(jax.random.split(key, CHAINS)):
        mine = jax.tree.map(lambda leaf, chain=chain: leaf[chain], params)
        alone = one.init(mine)
        for _ in range(2):
            alone, told = jax.jit(one.step)(own_key, alone, batch(mine))
        residuals.append(float(told.mean_squared_residual))
        for leaf, own in zip(
            jax.tree.leaves(state.params), jax.tree.leaves(alone.params), strict=True
        ):
            np.testing.assert_allclose(leaf[chain], own, rtol=1e-5, atol=1e-6)
    assert float(info.mean_squared_residual) == pytest.approx(np.mean(residuals), rel=1e-4)


def test_one_chain_that_is_not_finite_is_told():
    chains = samplers.parallel(build(NETWORK.apply), CHAINS)
    params = networks.several(NETWORK, CHAINS).init(jax.random.key(0))
    spoilt = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), params)
    _, info = chains.step(jax.random.key(1), chains.init(spoilt), batch(params))
    assert not bool(info.finite)


def test_a_prior_function_is_added_and_never_sampled():
    network = networks.with_prior_function(NETWORK, NETWORK, 3.0)
    params, x = network.init(jax.random.key(0)), jnp.ones((5, 2))
    own = {name: part for name, part in params.items() if name != PRIOR_FUNCTION}
    expected = NETWORK.apply(own, x) + 3.0 * NETWORK.apply(params[PRIOR_FUNCTION], x)
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-6)
    sampler = samplers.around_prior_function(build, network.apply)
    state, _ = jax.jit(sampler.step)(jax.random.key(1), sampler.init(params), batch(params))
    for name, part in state.params.items():
        same = jax.tree.map(lambda a, b: bool((a == b).all()), part, params[name])
        assert all(jax.tree.leaves(same)) == (name == PRIOR_FUNCTION), name


def test_around_nothing_a_sampler_is_as_it_was():
    network = networks.with_prior_function(NETWORK, NETWORK, 0.0)
    params = network.init(jax.random.key(0))
    own = {name: part for name, part in params.items() if name != PRIOR_FUNCTION}
    around, plain = samplers.around_prior_function(build, network.apply), build(NETWORK.apply)
    key = jax.random.key(1)
    found, _ = around.step(key, around.init(params), batch(params))
    expected, _ = plain.step(key, plain.init(own), batch(own))
    del found.params[PRIOR_FUNCTION]
    for leaf, other in zip(
        jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_array_equal(leaf, other)


def learner_of(q):
    """Return a learner whose opinions are fixed values, (opinions, actions)."""
    built = vt.LKTD.build(Task((2,), False, ACTIONS), vt.LKTD.options_type(chains=len(q)))
    values = jnp.asarray(q, jnp.float32)
    return built._replace(
        values=lambda key, state, x: jnp.broadcast_to(
            values[:, None], (len(values), len(x), ACTIONS)
        ),
        opinions=0,
    )


def chosen_by(learner, head=0, count=1):
    state = LearnerState(sampler=(), target=(), head=jnp.asarray(head))
    uniforms = jnp.full((count, learner.acting_uniforms), 0.5)
    mask = jnp.ones((count, ACTIONS), bool)
    return learner.act(state, jnp.zeros((count, 2)), mask, uniforms, 0.0)


def test_the_mean_one_opinion_and_the_upper_end_choose_differently():
    q = [[1.0, 0.0], [1.0, 0.9], [1.0, 1.8]]  # means 1 and 0.9, sds 0 and 0.9
    learner = learner_of(q)
    mean = chosen_by(behaviours.by_mean(learner))
    assert (int(mean.action[0]), float(mean.value[0])) == (0, pytest.approx(1.0))
    upper = chosen_by(behaviours.optimistic(learner, 0.8))
    z = NormalDist().inv_cdf(0.9)
    assert (int(upper.action[0]), float(upper.value[0])) == (1, pytest.approx(0.9 + 0.9 * z))
    drawn = chosen_by(behaviours.thompson(learner), head=[0, 1, 2], count=3)
    assert drawn.action.tolist() == [0, 0, 1]
    np.testing.assert_allclose(drawn.value, [1.0, 1.0, 1.8])


def test_opinions_are_drawn_evenly():
    uniforms = np.linspace(0, 1, 1_000, endpoint=False, dtype=np.float32)
    counts = np.bincount(drawn_opinion(uniforms, 7), minlength=7)
    assert counts.min() >= 142
    assert counts.max() <= 143


def actions_by_episode(agent, member=0):
    memory = agent.trainer.memory(member)
    ends = np.flatnonzero(np.asarray(memory.discount) == 0) + 1
    return [part.tolist() for part in np.split(np.asarray(memory.action), ends) if len(part) == 6]


@pytest.mark.parametrize("kind", [vt.LKTD, vt.BootDQN])
def test_an_episode_is_played_by_one_opinion(kind):
    several = {"chains": 8} if kind is vt.LKTD else {"heads": 8}
    options = {**SMALL, **several, "prior_scale": 5.0, "learning_starts": 300}
    agent = kind(Alike, behaviour="thompson", environments=1, **options).learn(240)
    episodes = actions_by_episode(agent)
    assert len(episodes) >= 30
    assert all(len(set(actions)) == 1 for actions in episodes)
    assert {actions[0] for actions in episodes} == {0, 1}


def test_another_opinion_may_come_within_an_episode():
    options = {**SMALL, "chains": 8, "prior_scale": 5.0, "learning_starts": 300}
    agent = vt.LKTD(Alike, behaviour="thompson", behaviour_every=2, **options).learn(240)
    assert any(len(set(actions)) == 2 for actions in actions_by_episode(agent))


def test_episodes_in_jax_are_played_by_one_opinion_too():
    options = {**SMALL, "chains": 8, "prior_scale": 50.0, "learning_starts": 5_000}
    options["normalise_observations"] = False  # by running statistics, which change
    agent = vt.LKTD("CartPole-v1", behaviour="thompson", **options).learn(200)
    learner, memory = agent.learner, agent.trainer.memory(0)
    state = agent.trainer.member(0).learner
    q = np.asarray(learner.values(jax.random.key(0), state, jnp.asarray(memory.observation)))
    agrees = q.argmax(axis=-1) == np.asarray(memory.action)  # (chains, steps)
    ends = np.flatnonzero(np.asarray(memory.discount) == 0) + 1
    players = [set(np.flatnonzero(p.all(axis=1))) for p in np.split(agrees, ends, axis=1)]
    assert len(players) > 4
    assert all(players)
    assert not set.intersection(*players)


def test_snapshots_are_samples_of_the_chain():
    learner = vt.LKTD.build(
        Task((2,), False, ACTIONS), vt.LKTD.options_type(hidden=(4,), behaviour="thompson")
    )
    assert learner.opinions == SNAPSHOTS
    few = behaviours.with_snapshots(learner, 3, spacing=2)  # on top of its own
    state = few.init(jax.random.key(0))
    step, seen = jax.jit(few.update), []
    for n in range(8):
        transitions = batch(()).transitions
        state, _ = step(jax.random.key(n), state, transitions)
        seen.append(np.asarray(state.sampler.params["head"]["b"]))
    kept = np.asarray(state.snapshots["head"]["b"])
    # Two updates to a slot: updates 7 and 8 wrote the first again, 3 and 4 the second, ...
    np.testing.assert_array_equal(kept, [seen[7], seen[3], seen[5]])


def test_a_training_goes_on_with_the_same_bits(tmp_path):
    options = {**SMALL, "chains": 8, "prior_scale": 50.0, "behaviour": "thompson"}
    whole = vt.LKTD("CartPole-v1", **options).learn(120).learn(80)
    half = vt.LKTD("CartPole-v1", **options).learn(120)
    half.save(tmp_path / "half", replay=True)
    again = vt.load(tmp_path / "half").learn(80)
    assert whole.trainer._states[0].head.tolist() == again.trainer._states[0].head.tolist()
    one, other = (agent.trainer.member(0).learner.sampler for agent in (whole, again))
    for leaf, same in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, same)


@pytest.mark.parametrize("hidden", [(8,), (64, 64)])
def test_several_chains_have_intervals_for_the_value(hidden):
    agent = vt.LKTD(Counter, **{**SMALL, "hidden": hidden, "chains": 2}).learn(200)
    q = agent.posterior([3.0, 1.0])
    low, high = q.interval(0.95)
    assert q.mean.shape == low.shape == (3,)
    assert (low < high).all()
    assert len(q.samples) == 2 * int(agent.trainer.member(0).pool.filled)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="several opinions"):
        vt.LKTD("CartPole-v1", behaviour="optimism")
    with pytest.raises(ValueError, match="behaviour_every belongs to"):
        vt.LKTD("CartPole-v1", behaviour_every=3)
    with pytest.raises(ValueError, match="chains"):
        vt.LKTD("CartPole-v1", chains=0)
