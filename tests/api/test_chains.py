"""All seeds in one estimate; quantiles of the return."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from tests.probes import Probes
from valuetrack import diagnostics
from valuetrack.agents.value_tracker import ValueTracker
from valuetrack.api.estimate import Estimate
from valuetrack.registry import AGENTS

PLACES = np.eye(4, dtype=np.float32)
SMALL = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 40,
    "replay_capacity": 200,
    "discount": 0.5,
    "samples": 20,
    "thinning": 2,
}


@functools.cache
def trained(name="lktd", **options):
    return AGENTS[name](Probes(), **{**SMALL, "seeds": 3, **options}).learn(300)


def together(agent, observation=PLACES):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return agent.posterior(observation, member="all")


def test_the_samples_of_all_seeds_are_one_chain_each():
    agent = trained()
    each = [agent.posterior(PLACES, member=member) for member in range(3)]
    whole = together(agent)
    np.testing.assert_array_equal(whole.samples, np.concatenate([q.samples for q in each]))
    np.testing.assert_allclose(whole.mean, np.mean([q.mean for q in each], axis=0), rtol=1e-5)
    np.testing.assert_allclose(whole.latest, np.mean([q.latest for q in each], axis=0), rtol=1e-6)
    chains = np.stack([q.samples for q in each])
    np.testing.assert_array_equal(whole.rhat, diagnostics.split_r_hat(chains))
    np.testing.assert_array_equal(whole.ess, diagnostics.effective_sample_size(chains))
    assert whole.rhat.shape == whole.ess.shape == (4, 2)
    assert whole.is_posterior
    assert "60 samples in 3 chains" in repr(whole)
    one = together(agent, PLACES[3])
    assert one.samples.shape == (60, 2)
    np.testing.assert_allclose(one.rhat, whole.rhat[3], rtol=1e-3)
    np.testing.assert_allclose(one.solved.sd, whole.solved.sd[3], rtol=3e-3)


def test_heads_are_chains_of_their_own():
    agent = trained("bootdqn", heads=2, seeds=2)
    whole = together(agent)
    assert whole.chains == 4
    second = agent.posterior(PLACES, member=1).samples.reshape(20, 2, 4, 2)[:, 0]
    np.testing.assert_array_equal(whole.samples[40:60], second)


def test_seeds_that_disagree_are_said_to():
    agent = trained()
    found = together(agent)
    above = int((found.rhat > 1.1).sum())
    assert above  # after 65 updates
    told = rf"R-hat is above 1.1 for {above} of 8 values and reaches {found.rhat.max():.2f};"
    with pytest.warns(RuntimeWarning, match=told) as caught:
        agent.posterior(PLACES, member="all")
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_seeds_that_agree_are_not_warned_of(monkeypatch):
    monkeypatch.setattr("valuetrack.api.estimation.LARGEST_R_HAT", 1e9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained().posterior(PLACES, member="all")


def test_the_value_of_all_seeds_is_that_of_their_means():
    agent = trained(hidden=(), replay_capacity=2_000)
    each = [agent.posterior(PLACES, member=member).solved for member in range(3)]
    found = together(agent).solved
    means = np.stack([values.mean for values in each])
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=1e-4, atol=1e-6)
    within = np.mean([values.sd**2 for values in each], axis=0)
    expected = np.sqrt(np.maximum(within, means.var(axis=0, ddof=1)) / 3)
    np.testing.assert_allclose(found.sd, expected, rtol=1e-3)
    assert found.df == 2
    np.testing.assert_allclose(found.mean[3], 2.0, atol=0.05)  # the treadmill, after 65 updates


def test_v_values_of_all_seeds():
    policy = lambda observation, mask: mask / mask.sum()  # noqa: E731
    options = {**SMALL, "probabilities": True, "seeds": 2, "hidden": ()}
    tracker = ValueTracker(Probes(), policy, **options).learn(300)
    v = together(tracker)
    assert v.samples.shape == (40, 4)
    assert v.rhat.shape == v.interval().low.shape == (4,)
    assert v.solved.df == 1


def test_what_one_seed_cannot_say_is_refused():
    agent = trained()
    with pytest.raises(ValueError, match=r'train several seeds, and ask posterior.*member="all"'):
        agent.posterior(PLACES).rhat  # noqa: B018
    few = Estimate(np.zeros((6, 2)), np.zeros(2), "samples", is_posterior=True, chains=3)
    with pytest.raises(ValueError, match="at least 4 draws"):
        few.ess  # noqa: B018
    with pytest.raises(ValueError, match="for the next sample of one chain; ask one seed"):
        together(agent).interval(0.5, kind="prediction")
    with pytest.raises(ValueError, match="There are 3 seeds, so no member 'both'"):
        agent.posterior(PLACES, member="both")


# -- quantiles of the return ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [("qrdqn", {"quantiles": 5}, 5), ("iqn", {"cosines": 4, "acting_levels": 6}, 6)],
)
def test_quantiles_are_those_of_the_return(name, options, count):
    agent = trained(name, seeds=1, **options)
    q = agent.posterior(PLACES)
    levels, values = q.quantiles
    np.testing.assert_allclose(levels, (np.arange(count) + 0.5) / count)
    assert values.shape == (4, 2, count)
    one = agent.posterior(PLACES[2]).quantiles.values
    np.testing.assert_allclose(one, values[2], rtol=1e-4, atol=1e-6)
    if name == "qrdqn":  # its value is their mean; IQN's is one over drawn levels
        np.testing.assert_allclose(values.mean(axis=-1), q.latest, rtol=1e-4, atol=1e-6)


def test_quantiles_that_nobody_learns_are_refused():
    with pytest.raises(ValueError, match="learned by QRDQN and IQN alone"):
        trained().posterior(PLACES).quantiles  # noqa: B018
    with pytest.raises(ValueError, match="of one seed, which member=0 asks"):
        together(trained()).quantiles  # noqa: B018
    by_hand = Estimate(np.zeros((3, 2)), np.zeros(2), "samples", is_posterior=True)
    with pytest.raises(ValueError, match="QRDQN and IQN"):
        by_hand.quantiles  # noqa: B018
