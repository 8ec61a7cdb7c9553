from __future__ import annotations

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import as_users_compile
from valuetrack import posterior

SIZE = 8
ADDED = [2, 5, 8, 9, 21]
"""How many samples are put into a pool of eight: part of it, all of it, more than fit."""

SAMPLES = {
    "w": np.random.default_rng(0).normal(size=(21, 3, 2)).astype(np.float32),
    "b": [np.random.default_rng(1).normal(size=21).astype(np.float32)],
}
WEIGHTS = np.random.default_rng(2).uniform(0.1, 1.0, 21).astype(np.float32)
LEVELS = (0.5, 0.9, 0.95)


KINDS = ("credible", "prediction")
QUANTILES = np.array([0.0, 0.025, 0.1, 0.5, 0.77, 1.0])

add = jax.jit(posterior.add)


@jax.jit
def summaries(pool):
    return {
        "mean": posterior.mean(pool),
        "weighted_mean": posterior.weighted_mean(pool),
        "variance": posterior.variance(pool),
        "latest": posterior.latest(pool),
        "quantiles": posterior.quantile(pool, QUANTILES),
        "quantile": posterior.quantile(pool, 0.3),
    }


@jax.jit
def intervals(pool):
    return {kind: [posterior.interval(pool, level, kind) for level in LEVELS] for kind in KINDS}


def example(samples=SAMPLES):
    return jax.tree.map(lambda x: x[0], samples)


def fill(samples, weights=None) -> posterior.Pool:
    """Put the samples in one by one."""
    pool = posterior.init(example(samples), SIZE)
    for i in range(len(jax.tree.leaves(samples)[0])):
        sample = jax.tree.map(lambda x, i=i: x[i], samples)
        pool = add(pool, sample, 1.0 if weights is None else weights[i])
    return pool


def first(count: int) -> tuple[posterior.Pool, dict, np.ndarray]:
    """A pool that has been given so many samples, and the last ones, with their weights."""
    given = jax.tree.map(lambda x: x[:count], SAMPLES)
    kept = jax.tree.map(lambda x: x[-SIZE:], given)
    return fill(given, WEIGHTS[:count]), kept, WEIGHTS[:count][-SIZE:]


def assert_close(ours, expected, rtol=1e-5):
    def check(a, b):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)

    jax.tree.map(check, ours, expected)


@pytest.mark.parametrize("count", ADDED)
def test_summaries_are_those_of_the_last_samples(count):
    pool, kept, weights = first(count)
    expected = {
        "mean": lambda x: x.mean(axis=0),
        "weighted_mean": lambda x: np.average(x, axis=0, weights=weights),
        "variance": lambda x: x.var(axis=0, ddof=1),
        "latest": lambda x: x[-1],
        "quantiles": lambda x: np.quantile(x, QUANTILES, axis=0),
        "quantile": lambda x: np.quantile(x, 0.3, axis=0),
    }
    ours = summaries(pool)
    assert set(ours) == set(expected)
    for name, of_leaf in expected.items():
        assert_close(ours[name], jax.tree.map(of_leaf, kept))


@pytest.mark.parametrize("count", ADDED)
def test_both_intervals(count):
    pool, kept, _ = first(count)
    ours = intervals(pool)
    for i, level in enumerate(LEVELS):
        low, high = (
            jax.tree.map(lambda x, q=q: np.quantile(x, q, axis=0), kept)
            for q in ((1 - level) / 2, (1 + level) / 2)
        )
        half = jax.tree.map(lambda a, b: (b - a) / 2, low, high)
        assert_close(ours["credible"][i], posterior.Interval(low, high))
        around_latest = posterior.Interval(
            jax.tree.map(lambda x, h: x[-1] - h, kept, half),
            jax.tree.map(lambda x, h: x[-1] + h, kept, half),
        )
        assert_close(ours["prediction"][i], around_latest)


@pytest.mark.parametrize("count", [5, 21])
def test_pools_may_be_mapped_over(count):
    chains = np.random.default_rng(3).normal(size=(3, count, 2)).astype(np.float32)

    def summarise(samples):
        pool = posterior.init(samples[0], SIZE)
        pool, _ = jax.lax.scan(lambda p, x: (posterior.add(p, x), None), pool, samples)
        return posterior.mean(pool), posterior.quantile(pool, 0.2), posterior.latest(pool)

    kept = chains[:, -SIZE:]
    expected = kept.mean(axis=1), np.quantile(kept, 0.2, axis=1), kept[:, -1]
    assert_close(jax.jit(jax.vmap(summarise))(chains), expected)


@pytest.mark.parametrize("count", [3, 8, 13])
@pytest.mark.parametrize("masked", [False, True])
def test_policy_probabilities_by_a_loop(count, masked):
    q = np.random.default_rng(4).normal(size=(count, 5, 4)).astype(np.float32)
    mask = np.random.default_rng(5).random((5, 4)) < 0.6 if masked else np.ones((5, 4), bool)
    if masked:
        mask[-1] = False
    expected = np.zeros((5, 4))
    kept = q[-SIZE:]
    for sample in kept:
        for state in range(5):
            legal = np.flatnonzero(mask[state])
            if len(legal):
                best = max(legal, key=lambda a, s=state, values=sample: values[s, a])
                expected[state, best] += 1 / len(kept)
    ours = posterior.policy_probabilities(fill(q), jnp.array(mask) if masked else None)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    np.testing.assert_allclose(ours.sum(axis=1), mask.any(axis=1), rtol=1e-6)


@pytest.mark.parametrize("count", [0, *ADDED])
def test_in_order(count):
    pool, kept, _ = first(count) if count else (posterior.init(example(), SIZE), None, None)
    ours = posterior.in_order(pool)
    if count == 0:
        assert [len(leaf) for leaf in jax.tree.leaves(ours)] == [0, 0]
    else:
        jax.tree.map(np.testing.assert_array_equal, ours, kept)


NAN_TELLING = ("mean", "weighted_mean", "variance", "quantile", "quantiles")


def test_a_nan_is_not_hidden_until_it_is_gone():
    samples = np.arange(10, dtype=np.float32)[:, None] + np.zeros(2, np.float32)
    samples[1, 0] = np.nan
    for count, gone in [(3, False), (8, False), (9, False), (10, True)]:
        pool = fill(samples[:count])
        told = [summaries(pool)[name] for name in NAN_TELLING]
        for summary in told + jax.tree.leaves(intervals(pool)):
            assert np.isnan(summary[..., 0]).all() == (not gone)
            assert not np.isnan(summary[..., 1]).any()


@pytest.mark.parametrize("legal", [False, True])
def test_a_nan_value_has_no_greedy_action_unless_illegal(legal):
    q = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan]], np.float32)
    mask = jnp.array([True, True, legal])
    expected = [np.nan] * 3 if legal else [0, 1, 0]
    np.testing.assert_array_equal(posterior.policy_probabilities(fill(q), mask), expected)


def test_an_empty_pool_knows_nothing():
    pool = posterior.init(np.zeros(2, np.float32), SIZE)
    for summary in (posterior.mean, posterior.weighted_mean, posterior.variance):
        assert np.isnan(summary(pool)).all()
    assert np.isnan(posterior.credible_interval(pool)).all()


def test_one_sample_has_no_variance_but_quantiles():
    pool = fill(np.array([[3.0, -1.0]], np.float32))
    assert np.isnan(posterior.variance(pool)).all()
    np.testing.assert_array_equal(posterior.quantile(pool, 0.9), [3, -1])


def test_dtypes_are_kept():
    pool = posterior.init({"a": np.float16(0), "b": np.int32(0)}, 3)
    pool = posterior.add(pool, {"a": 1.5, "b": 7})
    assert posterior.latest(pool) == {"a": 1.5, "b": 7}
    assert [x.dtype for x in jax.tree.leaves(pool.samples)] == [jnp.float16, jnp.int32]


# -- ArviZ ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 13])
def test_arviz_gets_every_draw_of_every_chain(count):
    chains = np.random.default_rng(6).normal(size=(3, count, 2)).astype(np.float32)
    data = posterior.to_arviz([fill(chain) for chain in chains], name="q")
    assert list(data.posterior.data_vars) == ["q"]
    assert data.posterior["q"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(data.posterior["q"], chains[:, -SIZE:])


def test_arviz_names_the_leaves_of_a_tree():
    pool, kept, _ = first(13)
    data = posterior.to_arviz(pool)
    assert set(data.posterior.data_vars) == {"theta.w", "theta.b.0"}
    assert data.posterior.sizes["chain"] == 1
    np.testing.assert_array_equal(data.posterior["theta.w"][0], kept["w"])
    np.testing.assert_array_equal(data.posterior["theta.b.0"][0], kept["b"][0])
    assert arviz.summary(data, kind="stats")["mean"]["theta.b.0"] == pytest.approx(
        kept["b"][0].mean(), abs=1e-3
    )


@pytest.mark.parametrize("lengths", [(3, 4), (0,), (0, 0), ()])
def test_arviz_needs_chains_of_one_length(lengths):
    pools = [
        fill(np.ones((n, 2), np.float32)) if n else posterior.init(jnp.zeros(2), SIZE)
        for n in lengths
    ]
    with pytest.raises(ValueError, match="equally many samples"):
        posterior.to_arviz(pools)


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_room(size):
    with pytest.raises(ValueError, match="at least one sample"):
        posterior.init(0.0, size)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5])
@pytest.mark.parametrize("kind", ["credible", "prediction"])
def test_the_level_is_a_probability(level, kind):
    with pytest.raises(ValueError, match="between 0 and 1"):
        posterior.interval(posterior.init(0.0, 2), level, kind)


def test_unknown_interval():
    with pytest.raises(ValueError, match="'credible' or 'prediction', not 'confidence'"):
        posterior.interval(posterior.init(0.0, 2), 0.9, "confidence")


# -- slots, and pools of plain arrays ---------------------------------------------------------


@pytest.mark.parametrize("thinning", [1, 3])
@pytest.mark.parametrize("updates", [1, 2, 7, 24, 31])
def test_a_thinned_weighted_pool_by_brute_force(thinning, updates):
    size = 5
    rng = np.random.default_rng(7)
    samples = rng.normal(size=(2, updates, 3)).astype(np.float32)
    weights = rng.uniform(0.1, 1, size=(2, updates)).astype(np.float32)

    def run(samples, weights):
        def step(carry, inputs):
            pool, done = carry
            slot = (done // thinning) % size
            return (posterior.add(pool, *inputs, slot=slot), done + 1), None

        empty = posterior.init(samples[0], size)
        return jax.lax.scan(step, (empty, jnp.int32(0)), (samples, weights))[0][0]

    pools = jax.jit(jax.vmap(run))(samples, weights)
    # The last update of each block of `thinning`, and the newest of the block under way.
    kept = sorted({min(updates, end) - 1 for end in range(thinning, updates + thinning, thinning)})
    kept = kept[-size:]
    for chain in range(2):
        pool = jax.tree.map(lambda leaf, chain=chain: leaf[chain], pools)
        assert int(pool.filled) == len(kept)
        np.testing.assert_array_equal(posterior.in_order(pool), samples[chain, kept])
        np.testing.assert_array_equal(posterior.latest(pool), samples[chain, -1])
        expected = np.average(samples[chain, kept], axis=0, weights=weights[chain, kept])
        np.testing.assert_allclose(posterior.weighted_mean(pool), expected, rtol=1e-5, atol=1e-6)


def test_one_slot_for_all_pools_is_one_slice():
    def program(slot):
        pools = jax.vmap(lambda x: posterior.init(x, SIZE))(np.zeros((3, 2), np.float32))
        add_all = jax.vmap(lambda pool, x, at: posterior.add(pool, x, slot=at), (0, 0, None))
        lowered = jax.jit(add_all).lower(pools, np.ones((3, 2), np.float32), slot)
        return lowered.compile(as_users_compile()).as_text()

    # Positions of their own need a scatter; one slot for all does not.
    assert " scatter(" in program(None)
    assert " scatter(" not in program(jnp.int32(3))


def on_host(pool):
    return jax.tree.map(np.asarray, pool)


@pytest.mark.parametrize("count", ADDED)
def test_numpy_and_jax_agree(count):
    pool, _, _ = first(count)
    host = on_host(pool)
    plain = {name: getattr(posterior, name)(host) for name in ("mean", "weighted_mean", "latest")}
    plain["variance"] = posterior.variance(host)
    plain["quantiles"] = posterior.quantile(host, QUANTILES)
    plain["quantile"] = posterior.quantile(host, 0.3)
    assert_close(plain, summaries(pool))
    assert_close(posterior.std(host), jax.tree.map(np.sqrt, plain["variance"]))
    assert_close(posterior.std(pool), posterior.std(host))
    assert all(isinstance(leaf, np.ndarray | np.floating) for leaf in jax.tree.leaves(plain))
    in_one = {kind: posterior.interval(host, LEVELS, kind) for kind in KINDS}
    for kind, one_by_one in intervals(pool).items():
        for i, expected in enumerate(one_by_one):
            assert_close(jax.tree.map(lambda x, i=i: x[i], in_one[kind]), expected)


@pytest.mark.parametrize("masked", [False, True])
def test_numpy_and_jax_agree_on_the_policy(masked):
    q = np.random.default_rng(8).normal(size=(11, 5, 4)).astype(np.float32)
    q[6, 2, 1] = np.nan
    mask = np.random.default_rng(9).random((5, 4)) < 0.6 if masked else None
    pool = fill(q)
    ours = posterior.policy_probabilities(on_host(pool), mask)
    np.testing.assert_allclose(ours, posterior.policy_probabilities(pool, mask), rtol=1e-6)
    assert isinstance(ours, np.ndarray)
    assert np.isnan(ours).any() == (mask is None or bool(mask[2, 1]))


def test_a_nan_is_not_hidden_on_the_host():
    samples = np.arange(16, dtype=np.float32).reshape(8, 2)
    samples[3, 0] = np.nan
    pool = posterior.from_samples(samples)
    for summary in (
        posterior.mean(pool),
        posterior.weighted_mean(pool),
        posterior.std(pool),
        posterior.quantile(pool, [0.1, 0.2]),
    ):
        assert np.isnan(summary[..., 0]).all()
        assert not np.isnan(summary[..., 1]).any()


@pytest.mark.filterwarnings("error")
def test_an_empty_pool_on_the_host_knows_nothing():
    pool = on_host(posterior.init(np.zeros((2, 3), np.float32), SIZE))
    for summary in (posterior.mean, posterior.weighted_mean, posterior.variance):
        assert np.isnan(summary(pool)).all()
    assert np.isnan(posterior.credible_interval(pool)).all()
    assert np.isnan(posterior.policy_probabilities(pool)).all()


@pytest.mark.parametrize("xp", [np, jnp])
def test_plain_arrays_are_a_full_pool(xp):
    samples = xp.asarray(SAMPLES["w"])
    pool = posterior.from_samples(samples, WEIGHTS)
    assert (pool.size, int(pool.filled)) == (21, 21)
    np.testing.assert_array_equal(posterior.in_order(pool), SAMPLES["w"])
    np.testing.assert_array_equal(posterior.latest(pool), SAMPLES["w"][-1])
    expected = np.average(SAMPLES["w"], axis=0, weights=WEIGHTS)
    assert_close(posterior.weighted_mean(pool), expected)
    assert_close(
        posterior.weighted_mean(posterior.from_samples(samples)), SAMPLES["w"].mean(axis=0)
    )


def test_samples_that_are_no_pool():
    with pytest.raises(ValueError, match="equally many samples"):
        posterior.from_samples({"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(ValueError, match="at least one"):
        posterior.from_samples(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="3 samples have 3 weights"):
        posterior.from_samples(np.zeros(3), np.ones(2))


def test_every_head_of_an_update_is_a_sample():
    values = np.arange(7 * 3 * 2.0).reshape(7, 3, 2)
    pool = posterior.from_updates(values, 6)
    np.testing.assert_array_equal(posterior.in_order(pool), values[-2:].reshape(6, 2))
    assert posterior.from_updates(values).size == 21
    with pytest.raises(ValueError, match=r"A pool of 10 samples .* 3 heads; choose a multiple"):
        posterior.from_updates(values, 10)


def test_a_prediction_interval_around_another_centre():
    pool = posterior.from_samples(SAMPLES["w"])
    low, high = posterior.prediction_interval(pool, 0.9, centre=np.full((3, 2), 5.0))
    np.testing.assert_allclose((low + high) / 2, 5.0)
    width = np.subtract(*posterior.credible_interval(pool, 0.9)[::-1])
    np.testing.assert_allclose(high - low, width, rtol=1e-6)
