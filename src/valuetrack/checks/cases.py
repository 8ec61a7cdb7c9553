r"""The rows of the linear-Gaussian check: a sampler, its exact law, and the law of small steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import wishart

from valuetrack import priors, samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.linear_gaussian import AffineMap, Gaussian, LinearGaussian, Matrix
from valuetrack.checks.moments import MomentTest, moment_test, run_chains
from valuetrack.samplers.base import Sampler
from valuetrack.samplers.sghmc import restart_temperature

FRICTION = 0.1
"""SGHMC's a in all rows."""


class Case(NamedTuple):
    """A sampler with its options, on :func:`~valuetrack.checks.linear_gaussian.example`."""

    sampler: str
    form: str
    inner_iterations: int
    step_size: float
    pseudo_population: float = 48.0
    alpha: float = 0.5


class Limit(NamedTuple):
    """The law to which a sampler's tends as its step falls, and how it departs from the posterior.

    ``variance`` is the factor on the observation variance, ``temperature`` that on the covariance.
    """

    variance: float = 1.0
    temperature: float = 1.0

    @property
    def label(self) -> str:
        """Return a name short enough for a table."""
        if self.variance != 1:
            return f"{self.variance:.2g} σ²"
        return "posterior" if self.temperature == 1 else f"τ = {self.temperature:.2g}"

    def law(self, model: LinearGaussian) -> Gaussian:
        """Return the law itself."""
        variance = self.variance * model.observation_sd**2
        return lg.posterior(model, variance=variance, temperature=self.temperature)


class Row(NamedTuple):
    """What came out of a case.

    Attributes
    ----------
    exact, sampled
        The stationary law of the parameters, and the moments of the chains' last states.
    w2_exact, w2_sampled, w2_limit
        2-Wasserstein distance to the posterior: of the exact law, of the normal law with the
        chains' moments, and of the limit of small steps.
    w2_range
        Where ``w2_sampled`` falls 95 times in 100 if the exact law is right.
    """

    case: Case
    limit: Limit
    updates: int
    samples: Matrix
    exact: Gaussian
    sampled: Gaussian
    posterior: Gaussian
    test: MomentTest
    w2_exact: float
    w2_sampled: float
    w2_range: tuple[float, float]
    w2_limit: float


def _forms(inner: tuple[int, ...], step: float, prototype_step: float) -> list[Case]:
    """List every sampler and form; LKTD once for each number of inner iterations."""
    cases = [Case("sgld", "", 5, step)]
    cases += [Case("sghmc", form, 5, step) for form in ("carried", "restarted", "none")]
    for form in ("restart", "conditional", "conditional_tempered"):
        cases += [Case("lktd", form, k, step) for k in inner]
    return [*cases, Case("prototype", "", 1, prototype_step)]


CASES = (
    *_forms((1, 5), 0.01, 0.2),
    *(case._replace(pseudo_population=480.0, alpha=0.9) for case in _forms((5,), 0.01, 0.2)),
    Case("sgld", "", 5, 0.02),
    Case("sghmc", "carried", 5, 0.02),
    Case("sghmc", "restarted", 5, 0.02),
    Case("lktd", "conditional", 5, 0.02),
    Case("lktd", "conditional_tempered", 5, 0.02),
    Case("prototype", "", 1, 0.4),
)
"""The full check: all forms, then another N and alpha, then a larger step."""

QUICK_CASES = tuple(_forms((5,), 0.012, 0.4))
"""One row for each form."""


def model_of(case: Case) -> LinearGaussian:
    """Return the regression that a case is about."""
    return lg.example(pseudo_population=case.pseudo_population)


def _own_options(case: Case) -> dict[str, Any]:
    """Return the options that both the sampler of a case and its exact law take."""
    if case.sampler == "sghmc":
        return {"friction": FRICTION, "momentum": case.form}
    return {"alpha": case.alpha, "latent": case.form} if case.sampler == "lktd" else {}


def build(case: Case, model: LinearGaussian) -> Sampler:
    """Return the sampler of a case."""
    options = _own_options(case) | {
        "step_size": case.step_size,
        "pseudo_population": model.pseudo_population,
        "observation_sd": model.observation_sd,
    }
    if case.sampler == "prototype":
        make = samplers.lktd_prototype
    else:
        make = {"sgld": samplers.sgld, "sghmc": samplers.sghmc, "lktd": samplers.lktd}[case.sampler]
        options |= {"inner_iterations": case.inner_iterations, "inner_power": 0.0}
    return make(lg.measurement(), priors.gaussian(model.prior_sd), **options)


def exact_update(case: Case, model: LinearGaussian) -> AffineMap:
    """Return one update of a case as an affine map, from the paper's equations."""
    if case.sampler == "prototype":
        return lg.prototype_update(model, step_size=case.step_size)
    laws: dict[str, Callable[..., AffineMap]]
    laws = {"sgld": lg.sgld_update, "sghmc": lg.sghmc_update, "lktd": lg.lktd_update}
    steps = [case.step_size] * case.inner_iterations
    return laws[case.sampler](model, step_sizes=steps, **_own_options(case))


def exact_law(case: Case, model: LinearGaussian) -> Gaussian:
    """Return the stationary law of the parameters; SGHMC's velocity is left out."""
    law = lg.stationary(exact_update(case, model))
    p = model.H.shape[1]
    return Gaussian(law.mean[:p], law.covariance[:p, :p])


def small_step_limit(case: Case) -> Limit:
    """Return the law to which the stationary law tends; derived in ``docs/posterior.md``."""
    if case.form == "restart":
        return Limit(variance=case.alpha)
    if case.form == "restarted":
        return Limit(temperature=restart_temperature(FRICTION, case.inner_iterations))
    return Limit(temperature=FRICTION) if case.form == "none" else Limit()


def run_cases(
    cases: Sequence[Case],
    *,
    chains: int,
    seed: int,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Run all cases in double precision, as many at a time as there are cores.

    ``on_row`` is told of each row as it comes; the list has the order of the cases. What comes out
    of a case depends on ``seed`` and its place in the list only.
    """
    if chains < 100:
        raise ValueError(f"The check needs at least 100 chains to say anything, not {chains}.")
    if seed < 0:
        raise ValueError(f"The seed cannot be negative, but is {seed}.")
    seeds = np.random.SeedSequence(seed).generate_state(len(cases))
    # Most of a row's time is compilation, which keeps one core busy and lets go of Python's lock.
    with double_precision(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = [
            pool.submit(run_case, case, chains=chains, seed=int(s))
            for case, s in zip(cases, seeds, strict=True)
        ]
        try:
            for done in as_completed(futures):
                on_row(done.result())
        except BaseException:  # Ctrl-C too: begin no further row
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def run_case(case: Case, *, chains: int, seed: int) -> Row:
    """Run the chains of a case and compare them with its exact law.

    Meant for :func:`double_precision`: rounding to single precision biases long chains.
    """
    model = model_of(case)
    exact, posterior, limit = exact_law(case, model), lg.posterior(model), small_step_limit(case)
    updates = _updates_to_forget(exact_update(case, model), exact, chains)
    samples = run_chains(build(case, model), model, chains=chains, updates=updates, seed=seed)
    sampled = Gaussian(samples.mean(axis=0), np.cov(samples, rowvar=False))
    return Row(
        case=case,
        limit=limit,
        updates=updates,
        samples=samples,
        exact=exact,
        sampled=sampled,
        posterior=posterior,
        test=moment_test(samples, exact),
        w2_exact=lg.wasserstein2(exact, posterior),
        w2_sampled=lg.wasserstein2(sampled, posterior),
        w2_range=_sampling_range(exact, posterior, chains, seed),
        w2_limit=0.0 if limit == Limit() else lg.wasserstein2(limit.law(model), posterior),
    )


@contextmanager
def double_precision() -> Iterator[None]:
    """Let JAX compute with 64 bits inside the block, and put back what was before."""
    before = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]


def _updates_to_forget(update: AffineMap, law: Gaussian, chains: int) -> int:
    """Return how many updates leave of the start a hundredth of the mean's standard error."""
    start = np.linalg.solve(np.linalg.cholesky(law.covariance), law.mean)
    tolerance = 0.01 / (np.sqrt(chains) * max(1.0, float(np.linalg.norm(start))))
    return lg.mixing_updates(update, tolerance)


def _sampling_range(
    law: Gaussian, target: Gaussian, chains: int, seed: int, draws: int = 200
) -> tuple[float, float]:
    """Return the central 95 % of the distance to ``target`` of sample moments drawn from a law."""
    rng = np.random.default_rng(seed)
    means = rng.multivariate_normal(law.mean, law.covariance / chains, size=draws)
    spread = wishart(df=chains - 1, scale=law.covariance / (chains - 1))
    covariances = spread.rvs(size=draws, random_state=rng)
    # The trace of (A^1/2 B A^1/2)^1/2 is the sum of the roots of the eigenvalues of A B.
    roots = np.sqrt(np.linalg.eigvals(covariances @ target.covariance).real.clip(0)).sum(axis=1)
    traces = np.trace(covariances, axis1=1, axis2=2) + np.trace(target.covariance)
    squared = np.sum((means - target.mean) ** 2, axis=1) + traces - 2 * roots
    distances = np.sqrt(squared.clip(0))
    low, high = np.quantile(distances, [0.025, 0.975])
    return float(low), float(high)
