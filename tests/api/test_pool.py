"""How many samples the pool of a seed holds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from valuetrack import posterior
from valuetrack.agents.bootdqn import BootDQN
from valuetrack.agents.lktd import LKTD
from valuetrack.api import settings
from valuetrack.learner import Task
from valuetrack.registry import load

TAXI = Task((500,), False, 6)
CARTPOLE = Task((4,), False, 2)
SMALL = {"hidden": (8,), "learning_starts": 20, "batch_size": 8}


def pool(task, seeds, kind=LKTD, **options):
    given = kind.options_type(**options)
    return settings.pool_of(given, kind.build(task, given), seeds)


@pytest.fixture
def memory(monkeypatch):
    def set_to(size):
        monkeypatch.setattr(settings, "memory_of_machine", lambda: float(size))

    set_to(64e9)
    return set_to


@pytest.mark.parametrize("seeds", [1, 16])
def test_the_pool_of_a_seed_does_not_depend_on_the_others(memory, seeds):
    assert pool(TAXI, seeds) == (100, 30)  # 81 would fit into 64 MB
    assert pool(CARTPOLE, seeds) == (236, 13)
    assert pool(CARTPOLE, seeds, hidden=(8,)) == (1_000, 3)
    assert pool(CARTPOLE, seeds, samples=5) == (5, 600)
    assert pool(TAXI, seeds, BootDQN, heads=10, hidden=(1_024, 1_024))[0] == 10  # heads count


def test_memory_is_the_limit(memory):
    size = 4 * (500 * 256 + 256 + 256 * 256 + 256 + 256 * 6 + 6)
    memory(4 * 16 * size * 60)
    assert pool(TAXI, 16)[0] == 60
    assert pool(TAXI, 1)[0] == 100


def test_too_little_memory_is_said_at_once(memory):
    memory(100_000)
    with pytest.warns(UserWarning, match=r"allows \d+ parameter samples per seed rather than 100"):
        agent = LKTD("CartPole-v1", seeds=3, **SMALL)
    assert 0 < agent.trainer.settings.pool_size < 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LKTD("CartPole-v1", seeds=3, samples=7, **SMALL)  # asked for


def test_a_file_keeps_its_pool_on_a_machine_with_less_memory(memory, tmp_path):
    agent = LKTD("CartPole-v1", seeds=2, **SMALL).learn(60)
    agent.save(tmp_path / "agent.vt")
    assert load(tmp_path / "agent.vt").options == agent.options
    memory(100_000)
    again = load(tmp_path / "agent.vt")
    how, before = again.trainer.settings, agent.trainer.settings
    assert (how.pool_size, how.thinning) == (before.pool_size, before.thinning) == (1_000, 3)
    np.testing.assert_array_equal(
        again.posterior(np.zeros(4)).samples, agent.posterior(np.zeros(4)).samples
    )


@pytest.mark.parametrize(("level", "needed"), [(0.5, 4), (0.9, 20), (0.95, 40), (0.99, 200)])
def test_an_interval_needs_a_sample_beyond_each_end(level, needed):
    assert posterior.samples_needed(level) == needed
    samples = np.arange(needed, dtype=float)
    low, high = posterior.credible_interval(posterior.from_samples(samples), level)
    assert samples[0] < low < high < samples[-1]
    for wrong in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="between 0 and 1"):
            posterior.samples_needed(wrong)
