"""Options that change how an agent behaves or learns, each seen in what it does."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import valuetrack as vt
from tests.agents.test_sampling import TASK, transitions
from valuetrack import samplers
from valuetrack.agents.lktd import LKTDOptions
from valuetrack.agents.sampling import exploration_by_update
from valuetrack.api.options import Options


def test_a_random_warmup_explores_until_learning_starts():
    given = {"exploration_initial": 0.5, "exploration_final": 0.1, "exploration_steps": 100}
    plain = Options(learning_starts=50, **given).exploration()
    warm = Options(learning_starts=50, random_warmup=True, **given).exploration()
    for step, before in [(0, 0.5), (49, 0.5 - 0.4 * 0.49), (50, 0.3), (100, 0.1), (1000, 0.1)]:
        assert float(plain(step)) == pytest.approx(before)
        assert float(warm(step)) == pytest.approx(1.0 if step < 50 else before)


@pytest.mark.parametrize("backend", ["compiled", "host"])
def test_a_random_warmup_reaches_the_trainer(backend):
    """Greedy from the start, an agent repeats one action; with random actions it does not."""
    taken = {}
    for random_warmup in (False, True):
        agent = vt.DQN(
            "CartPole-v1",
            hidden=(4,),
            backend=backend,
            exploration_initial=0.0,
            exploration_final=0.0,
            learning_starts=400,
            random_warmup=random_warmup,
            normalise_observations=False,
            seed=1,
        )
        agent.learn(200)
        actions = agent.trainer.arrays()["replay.action"][0]
        greedy = agent.predict(agent.trainer.arrays()["replay.observation"][0])[0]
        taken[random_warmup] = np.mean(actions == greedy)
    assert taken[False] == 1.0
    assert taken[True] < 0.8


def test_epsilon_by_update_is_epsilon_at_that_step():
    options = LKTDOptions(
        learning_starts=10, steps_per_update=4, updates_per_cycle=2, exploration_steps=100
    )
    by_update, by_step = exploration_by_update(options), options.exploration()
    # Two cycles of four steps pass in silence; the third ends with the first two updates.
    for update, step in [(0, 12), (1, 12), (2, 16), (7, 24), (100, 212)]:
        assert float(by_update(update)) == pytest.approx(float(by_step(step)))


def test_adams_epsilon_bounds_small_steps():
    """For a gradient far below it, Adam's first step is rate * gradient / epsilon."""
    sampler = samplers.adam(lambda p, data: 1e-6 * p, learning_rate=0.1, epsilon=1e-2)
    state, _ = sampler.step(jax.random.key(0), sampler.init(1.0), None)
    assert 1.0 - float(state.params) == pytest.approx(0.1 * 1e-6 / (1e-6 + 1e-2), rel=0.05)
    default = samplers.adam(lambda p, data: 1e-6 * p, learning_rate=0.1)
    state, _ = default.step(jax.random.key(0), default.init(1.0), None)
    assert 1.0 - float(state.params) == pytest.approx(0.1, rel=0.05)
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        samplers.adam(lambda p, data: p, learning_rate=0.1, epsilon=0.0)


@pytest.mark.parametrize("kind", [vt.DQN, vt.BootDQN, vt.QRDQN, vt.IQN])
def test_adams_epsilon_reaches_the_optimiser(kind):
    moved = {}
    for epsilon in (1e-8, 1e8):
        learner = kind.build(TASK, kind.options_type(hidden=(4,), adam_epsilon=epsilon))
        before = jax.jit(learner.init)(jax.random.key(0))
        after, _ = jax.jit(learner.update)(jax.random.key(1), before, transitions())
        heads = (state.sampler.params["head"] for state in (before, after))
        was, now = (np.asarray(jax.tree.leaves(head)[0]) for head in heads)
        moved[epsilon] = np.abs(now - was).max()
    assert moved[1e-8] > 1e-4
    assert moved[1e8] < 1e-6
