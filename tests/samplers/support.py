"""What the tests of the samplers share: double precision, and samplers with their exact laws."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from valuetrack import priors, samplers
from valuetrack.checks import linear_gaussian as lg
from valuetrack.samplers import Sampler


def x64() -> AbstractContextManager[Any]:
    """Compute in double precision inside the block."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


def build(
    algorithm: str,
    model: lg.LinearGaussian,
    step_size: float,
    module: Any = samplers,
    **options: Any,
) -> Sampler:
    """Build a sampler of the model's posterior, from ``module`` if it is not the real one."""
    return getattr(module, algorithm)(
        lg.measurement(),
        priors.gaussian(model.prior_sd),
        step_size=step_size,
        pseudo_population=model.pseudo_population,
        observation_sd=model.observation_sd,
        **options,
    )


def exact_update(
    algorithm: str, model: lg.LinearGaussian, step_size: float, **options: Any
) -> lg.AffineMap:
    """Return the exact law of one update of the sampler that :func:`build` builds."""
    if algorithm == "lktd_prototype":
        return lg.prototype_update(model, step_size=step_size)
    options = {"latent": "restart", **options} if algorithm == "lktd" else dict(options)
    defaults = inspect.signature(getattr(samplers, algorithm)).parameters
    count, power = (
        options.pop(name, defaults[name].default) for name in ("inner_iterations", "inner_power")
    )
    iterations = range(1, count + 1)
    steps = [step_size / k**power for k in iterations]
    weight = options.pop("likelihood_weight", 1.0)
    update = getattr(lg, f"{algorithm}_update")
    return update(model, step_sizes=steps, weight=weight, **options)


def law_of_theta(update: lg.AffineMap, p: int) -> lg.Gaussian:
    """Return the stationary law, without the velocity if there is one."""
    law = lg.stationary(update)
    return lg.Gaussian(law.mean[:p], law.covariance[:p, :p])


def exact_law(
    algorithm: str, model: lg.LinearGaussian, step_size: float, **options: Any
) -> lg.Gaussian:
    """Return the law that a sampler leaves unchanged at this step size."""
    return law_of_theta(exact_update(algorithm, model, step_size, **options), model.H.shape[1])


def longest_step(model: lg.LinearGaussian, fraction: float = 1.0) -> float:
    """Return a share of the step 2 / L, at which SGLD's fastest direction forgets at once."""
    gradient = model.H.T @ model.H / model.observation_sd**2
    return float(
        fraction * 2 / (np.linalg.eigvalsh(gradient)[-1] + model.ratio / model.prior_sd**2)
    )


def exact_filter(
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
    mean: np.ndarray,
    covariance: np.ndarray,
    *,
    observation_variance: float,
    process_variance: float = 0.0,
    forgetting: float = 0.0,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    r"""Yield the exact Kalman filter's mean and covariance after each batch (H, r).

    In information form: precisions add up, :math:`\Lambda + H^\top H / \sigma^2`, and so do they
    times their means. The filters of the library have no line in common with it.
    """
    for H, r in batches:
        covariance = covariance / (1 - forgetting) + process_variance * np.eye(len(mean))
        before = np.linalg.inv(covariance)
        precision = before + H.T @ H / observation_variance
        mean = np.linalg.solve(precision, before @ mean + H.T @ r / observation_variance)
        covariance = np.linalg.inv(precision)
        yield mean, covariance


def linear_batches(
    updates: int, n: int, p: int, seed: int = 4
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of a linear model with correlated inputs, in double precision."""
    rng = np.random.default_rng(seed)
    truth, mixing = rng.normal(size=p), np.eye(p) + 0.5 * rng.normal(size=(p, p))
    inputs = [rng.normal(size=(n, p)) @ mixing for _ in range(updates)]
    return [(H, H @ truth + 0.3 * rng.normal(size=n)) for H in inputs]


def mutant(function: Any, old: str, new: str) -> Any:
    """Return the function from a copy of its module in which ``old``, found once, is ``new``."""
    source = inspect.getsource(inspect.getmodule(function))
    assert source.count(old) == 1, f"{old!r} is not once in {function.__module__}"
    clone = types.ModuleType(f"mutated_{function.__name__}")
    exec(compile(source.replace(old, new), f"<mutated {function.__name__}>", "exec"), vars(clone))
    return getattr(clone, function.__name__)
