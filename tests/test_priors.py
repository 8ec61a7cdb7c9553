from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack import priors

WIDE, NARROW = 0.5, 0.05
WEIGHTS = [0.0, 0.3, 0.5, 1.0]
PHASE_IN = 100
COUNTS = [0, 50, 100, 250]
THETA = np.concatenate([np.linspace(-1.5, 1.5, 61), [1e-4, -0.08, 0.12]])
FAR = np.array([-1e3, -37.0, -1.0, 0.0, 1e-6, 1.0, 37.0, 1e3], np.float32)

EACH = {
    "gaussian": lambda: priors.gaussian(0.7),
    **{f"mixture {w}": lambda w=w: priors.gaussian_mixture(WIDE, NARROW, w) for w in WEIGHTS},
    "phased in": lambda: priors.gaussian_mixture(WIDE, NARROW, 0.3, PHASE_IN),
}


def weight_at(final: float, count: int) -> float:
    return 1 + (final - 1) * min((count + 1) / PHASE_IN, 1)


def mixture_density(theta, weight):
    with np.errstate(divide="ignore"):  # log 0, which is what a weight of zero means
        wide = np.log(weight) + stats.norm.logpdf(theta, scale=WIDE)
        narrow = np.log1p(-weight) + stats.norm.logpdf(theta, scale=NARROW)
    return np.logaddexp(wide, narrow)


def tree(values, dtype):
    values = jnp.asarray(values, dtype)
    return {"w": values[:60].reshape(12, 5), "b": [values[60:]]}


@pytest.mark.parametrize(
    ("name", "count"), [(name, 0) for name in EACH] + [("phased in", k) for k in COUNTS[1:]]
)
@pytest.mark.parametrize(("x64", "rtol"), [(True, 1e-10), (False, 2e-4)])
def test_gradient_is_that_of_the_log_density(name, count, x64, rtol):
    with jax.enable_x64(x64):
        prior, theta = EACH[name](), tree(THETA, jnp.float64 if x64 else jnp.float32)
        ours, theirs = jax.jit(
            lambda p: (prior.gradient(p, count), jax.grad(prior.log_density)(p, count))
        )(theta)
        assert jax.tree.structure(ours) == jax.tree.structure(theta)
        for a, b, p in zip(*map(jax.tree.leaves, (ours, theirs, theta)), strict=True):
            assert a.dtype == p.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("final", WEIGHTS)
@pytest.mark.parametrize(("x64", "rtol"), [(True, 1e-12), (False, 1e-4)])
def test_mixture_density_matches_scipy(final, count, x64, rtol):
    prior = priors.gaussian_mixture(WIDE, NARROW, final, PHASE_IN)
    expected = mixture_density(THETA, weight_at(final, count)).sum()
    with jax.enable_x64(x64):
        theta = tree(THETA, jnp.float64 if x64 else jnp.float32)
        assert float(prior.log_density(theta, count)) == pytest.approx(expected, rel=rtol)


def test_gaussian_density_and_gradient_match_scipy():
    prior, theta = priors.gaussian(0.7), tree(THETA, jnp.float32)
    expected = stats.norm.logpdf(THETA, scale=0.7).sum()
    assert float(prior.log_density(theta, 3)) == pytest.approx(expected, rel=1e-5)
    gradient = prior.gradient(theta, 3)
    jax.tree.map(lambda g, p: np.testing.assert_allclose(g, -p / 0.49, rtol=1e-5), gradient, theta)


@pytest.mark.parametrize("count", [0, PHASE_IN])
@pytest.mark.parametrize("final", WEIGHTS)
def test_mixture_is_finite_far_out(final, count):
    prior = priors.gaussian_mixture(WIDE, NARROW, final, PHASE_IN)
    gradient = np.asarray(prior.gradient(jnp.asarray(FAR), count))
    density = jax.vmap(lambda p: prior.log_density(p, count))(jnp.asarray(FAR))
    assert gradient.dtype == np.float32
    assert np.isfinite(gradient).all()
    assert np.isfinite(density).all()
    assert (np.sign(gradient) == -np.sign(FAR)).all(), "the gradient points to zero"


@pytest.mark.parametrize(("weight", "sd"), [(1.0, WIDE), (0.0, NARROW)])
def test_mixture_at_its_ends_is_one_gaussian(weight, sd):
    mixture, one = priors.gaussian_mixture(WIDE, NARROW, weight), priors.gaussian(sd)
    far = jnp.asarray(FAR)
    np.testing.assert_allclose(mixture.gradient(far, 0), one.gradient(far, 0), rtol=1e-5)
    np.testing.assert_allclose(mixture.log_density(far, 0), one.log_density(far, 0), rtol=1e-5)


def test_phase_in_starts_with_the_wide_part_alone():
    prior = priors.gaussian_mixture(WIDE, NARROW, 0.5, PHASE_IN)
    wide, final = priors.gaussian(WIDE), priors.gaussian_mixture(WIDE, NARROW, 0.5)
    theta = jnp.asarray(THETA, jnp.float32)
    np.testing.assert_allclose(prior.gradient(theta, -1), wide.gradient(theta, 0), rtol=1e-5)
    # Updates are counted from one: the first has a share of the narrow part.
    first = priors.gaussian_mixture(WIDE, NARROW, 1 - 0.5 / PHASE_IN)
    np.testing.assert_allclose(prior.gradient(theta, 0), first.gradient(theta, 0), rtol=1e-4)
    for count in (PHASE_IN - 1, 10 * PHASE_IN):
        np.testing.assert_array_equal(prior.gradient(theta, count), final.gradient(theta, 0))


def test_traced_counts_give_the_same_gradient():
    prior = priors.gaussian_mixture(WIDE, NARROW, 0.3, PHASE_IN)
    theta = jnp.asarray(THETA, jnp.float32)
    compiled = jax.jit(prior.gradient)
    for count in COUNTS:
        expected = prior.gradient(theta, count)
        np.testing.assert_allclose(compiled(theta, jnp.int32(count)), expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
@pytest.mark.parametrize("name", ["gaussian", "phased in"])
def test_sample_keeps_the_structure_and_differs_in_every_leaf(name, dtype):
    like = {"a": jnp.zeros((4, 3), dtype), "b": [jnp.zeros(4, dtype), jnp.zeros(4, dtype)]}
    sample = EACH[name]().sample
    first, again, other = (sample(jax.random.key(seed), like) for seed in (0, 0, 1))
    assert jax.tree.structure(first) == jax.tree.structure(like)
    for leaf, p in zip(jax.tree.leaves(first), jax.tree.leaves(like), strict=True):
        assert (leaf.shape, leaf.dtype) == (p.shape, p.dtype)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a != b).all(), first, other))
    assert (first["b"][0] != first["b"][1]).all()


def test_gaussian_sample_is_gaussian():
    draws = priors.gaussian(0.7).sample(jax.random.key(0), jnp.zeros(20_000))
    assert stats.kstest(draws, stats.norm(scale=0.7).cdf).pvalue > 1e-3


@pytest.mark.parametrize("weight", WEIGHTS)
def test_mixture_sample_has_its_law(weight):
    def cdf(x):
        wide, narrow = stats.norm.cdf(x, scale=WIDE), stats.norm.cdf(x, scale=NARROW)
        return weight * wide + (1 - weight) * narrow

    # The draws are of the final mixture, however long it is phased in.
    prior = priors.gaussian_mixture(WIDE, NARROW, weight, PHASE_IN)
    draws = np.asarray(prior.sample(jax.random.key(0), jnp.zeros(50_000)))
    variance = weight * WIDE**2 + (1 - weight) * NARROW**2
    assert draws.var() == pytest.approx(variance, rel=0.05)
    assert stats.kstest(draws, cdf).pvalue > 1e-3


@pytest.mark.parametrize("sd", [0.0, -1.0, float("nan")])
def test_standard_deviations_are_positive(sd):
    with pytest.raises(ValueError, match="sd must be positive"):
        priors.gaussian(sd)
    with pytest.raises(ValueError, match="wide_sd must be positive"):
        priors.gaussian_mixture(wide_sd=sd)
    with pytest.raises(ValueError, match="narrow_sd must be positive"):
        priors.gaussian_mixture(narrow_sd=sd)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_the_weight_is_a_probability(weight):
    with pytest.raises(ValueError, match="wide_weight is a probability"):
        priors.gaussian_mixture(wide_weight=weight)


def test_phase_in_is_not_negative():
    with pytest.raises(ValueError, match="steps >= 0"):
        priors.gaussian_mixture(phase_in=-1)
