"""The moments of long chains are those that the discrete Lyapunov equation predicts.

And they are not if any factor of two is wrong: the second half of this file puts such factors
into the source of the samplers, one at a time, and shows that the same test notices each.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.samplers.support import build, exact_update, law_of_theta, longest_step, x64
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.moments import MomentTest, moment_test, run_chains
from valuetrack.samplers import base, lktd, sghmc, sgld  # functions shadow the modules' names
from valuetrack.samplers.base import Sampler

CHAINS = 4096
"""Half of them notice a wrong factor nearly everywhere, as the mutants below show."""
ACCEPT, REJECT = 1e-4, 1e-6

# The prior weighs as much as the data in the first, little in the last.
MODELS = {
    "N=n": lg.example(6, 3, correlation=0.5, prior_sd=0.5, pseudo_population=6, seed=138),
    "N=4n": lg.example(8, 3, correlation=0.5, prior_sd=0.4, pseudo_population=32, seed=16),
    "N>>n": lg.example(6, 4, correlation=0.5, prior_sd=1.0, pseudo_population=1000, seed=134),
}


def chains_against_law(
    sampler: Sampler, model: lg.LinearGaussian, update: lg.AffineMap, seed: int, chains: int
) -> MomentTest:
    law = law_of_theta(update, model.H.shape[1])
    updates = lg.mixing_updates(update, tolerance=1e-5) + 5
    assert updates < 200, "choose a step that mixes faster"
    samples = run_chains(sampler, model, chains=chains, updates=updates, seed=seed)
    return moment_test(samples, law)


CONSTANT = {"inner_power": 0.0}
"""The paper's constant step within an update; the samplers' default shrinks it."""


class Case(NamedTuple):
    algorithm: str
    model: str
    fraction: float  # of the longest step
    options: dict[str, Any]

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.algorithm}-{self.model}-{self.fraction}-{options}"


def lktd_case(model: str, fraction: float, latent: str, K: int, alpha: float, **more: Any) -> Case:
    options = {"latent": latent, "inner_iterations": K, "alpha": alpha, **CONSTANT, **more}
    return Case("lktd", model, fraction, options)


def sghmc_case(model: str, fraction: float, momentum: str, K: int, a: float, **more: Any) -> Case:
    options = {"momentum": momentum, "inner_iterations": K, "friction": a, **CONSTANT, **more}
    return Case("sghmc", model, fraction, options)


CASES = [
    lktd_case("N=n", 0.6, "restart", 1, 0.9),
    lktd_case("N=n", 0.4, "restart", 5, 0.5),
    lktd_case("N=4n", 0.5, "restart", 5, 0.9),
    lktd_case("N>>n", 0.5, "restart", 1, 0.5),
    lktd_case("N>>n", 0.8, "restart", 5, 0.9),
    lktd_case("N=4n", 0.6, "restart", 5, 0.9, inner_power=0.9),
    lktd_case("N=4n", 0.3, "restart", 5, 0.5, likelihood_weight=2.0),
    lktd_case("N=n", 0.4, "restart", 5, 0.9, inner_power=0.9, likelihood_weight=2.0),
    lktd_case("N=n", 0.7, "conditional", 1, 0.5),
    lktd_case("N>>n", 0.5, "conditional", 5, 0.9),
    lktd_case("N=4n", 0.3, "conditional", 5, 0.5, inner_power=0.9, likelihood_weight=2.0),
    lktd_case("N>>n", 0.7, "conditional_tempered", 1, 0.5),
    lktd_case("N=4n", 0.4, "conditional_tempered", 5, 0.9),
    Case("lktd_prototype", "N=n", 2.0, {}),
    Case("lktd_prototype", "N=4n", 4.0, {}),
    Case("lktd_prototype", "N>>n", 10.0, {}),
    Case("sgld", "N=n", 0.7, {"inner_iterations": 1}),
    Case("sgld", "N=4n", 0.4, {"inner_iterations": 5, **CONSTANT}),
    Case("sgld", "N>>n", 0.9, {"inner_iterations": 5, "inner_power": 0.9}),
    Case("sgld", "N=n", 0.3, {"inner_iterations": 5, "likelihood_weight": 2.0, **CONSTANT}),
    sghmc_case("N=n", 0.3, "carried", 1, 0.3),
    sghmc_case("N>>n", 0.5, "carried", 5, 0.3),
    sghmc_case("N=4n", 0.2, "carried", 5, 0.5, inner_power=0.9, likelihood_weight=2.0),
    sghmc_case("N=n", 0.3, "restarted", 5, 0.1),
    sghmc_case("N=4n", 0.5, "restarted", 5, 0.3),
    sghmc_case("N=n", 0.3, "none", 5, 0.1),
    sghmc_case("N>>n", 0.4, "none", 1, 0.3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_moments_of_chains_solve_the_lyapunov_equation(case: Case) -> None:
    model = MODELS[case.model]
    step_size = longest_step(model, case.fraction)
    update = exact_update(case.algorithm, model, step_size, **case.options)
    with x64():
        sampler = build(case.algorithm, model, step_size, **case.options)
        result = chains_against_law(sampler, model, update, seed=11, chains=CHAINS // 2)
    assert result.p_value > ACCEPT, result


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("lktd", {"latent": "restart", "alpha": 0.9}),
        ("lktd", {"latent": "conditional", "alpha": 0.9}),
        ("lktd_prototype", {}),
        ("sgld", {}),
        ("sghmc", {"momentum": "carried", "friction": 0.3}),
    ],
)
def test_single_precision_is_enough(algorithm: str, options: dict[str, Any]) -> None:
    model = MODELS["N=4n"]
    step_size = longest_step(model, 0.4)
    update = exact_update(algorithm, model, step_size, **options)
    sampler = build(algorithm, model, step_size, **options)
    result = chains_against_law(sampler, model, update, seed=12, chains=CHAINS // 2)
    assert result.p_value > ACCEPT, result


def test_the_inputs_are_correlated() -> None:
    for model in MODELS.values():
        off_diagonal = np.corrcoef(model.H.T)[np.triu_indices(model.H.shape[1], 1)]
        assert len(off_diagonal) >= 3
        assert np.abs(off_diagonal).max() > 0.5


# The mutants. Weak inputs make xi as quick as theta, so that what happens to it alone shows; the
# prior is as strong as the data.
WEAK = lg.LinearGaussian(
    H=0.35 * lg.example(5, 3, correlation=0.5, seed=41).H,
    r=np.array([1.0, -0.6, 0.8, 0.3, -0.5]),
    observation_sd=0.5,
    prior_sd=1.0,
    pseudo_population=5.0,
)
MODULES = {
    name: inspect.getmodule(f) for name, f in [("lktd", lktd), ("sghmc", sghmc), ("sgld", sgld)]
}
MODULES["base"] = base


class Mutation(NamedTuple):
    module: str
    old: str
    new: str


THETA_NOISE = Mutation("lktd", "jnp.sqrt(eps * ratio) * w\n", "jnp.sqrt(2 * eps * ratio) * w\n")
FORECAST_PRIOR = Mutation(
    "lktd", "(ratio * prior + likelihood)", "(2 * ratio * prior + likelihood)"
)
FORECAST_LIKELIHOOD = Mutation(
    "lktd", "(ratio * prior + likelihood)", "(ratio * prior + 2 * likelihood)"
)
FORECAST_DRIFT = Mutation("lktd", "p + eps / 2 * (", "p + eps * (")
RATIO = Mutation(
    "lktd",
    "ratio = batch.ratio  # n / N",
    "ratio = 2 * batch.ratio",
)
PRECISION = Mutation(
    "lktd", "precision = likelihood_weight /", "precision = 2 * likelihood_weight /"
)
NORMAL = Mutation("base", "noise.append(piece", "noise.append(2**0.5 * piece")
SHARED_PRIOR = Mutation("base", "ratio * a + b", "2 * ratio * a + b")
SHARED_LIKELIHOOD = Mutation("base", "ratio * a + b", "ratio * a + 2 * b")

LKTD_THETA = [THETA_NOISE, FORECAST_PRIOR, FORECAST_LIKELIHOOD, FORECAST_DRIFT, RATIO]
LKTD_XI = [
    Mutation("lktd", "jnp.sqrt(eps * ratio) * w_xi", "jnp.sqrt(2 * eps * ratio) * w_xi"),
    Mutation("lktd", "xi - eps / 2 * ratio * precision", "xi - eps * ratio * precision"),
    Mutation("lktd", "sqrt(ratio * analysis_variance)", "sqrt(2 * ratio * analysis_variance)"),
    Mutation("lktd", "gain = eps / (eps + variance)", "gain = eps / (eps + 2 * variance)"),
    Mutation("lktd", "gain = eps / (eps + variance)", "gain = 2 * eps / (eps + variance)"),
    Mutation("lktd", "analysis_variance = 2 * (1 - alpha)", "analysis_variance = (1 - alpha)"),
]  # fmt: skip
LKTD_CONDITIONAL = [
    Mutation("lktd", "jnp.sqrt(temperature *", "jnp.sqrt(2 * temperature *"),
    Mutation("lktd", "return alpha * observed + (1 - alpha) * h +", "return observed +"),
    Mutation("lktd", "return alpha * observed +", "return 2 * alpha * observed +"),
]
PROTOTYPE = [
    THETA_NOISE,
    FORECAST_PRIOR,
    Mutation("lktd", "variance = 2 * observation_sd**2 /", "variance = observation_sd**2 /"),
    Mutation("lktd", "variance = 2 * observation_sd**2 /", "variance = 4 * observation_sd**2 /"),
    Mutation("lktd", "jnp.sqrt(ratio * variance) * v", "jnp.sqrt(2 * ratio * variance) * v"),
    Mutation("lktd", "gained = eps * H.T", "gained = 2 * eps * H.T"),
    Mutation("lktd", "gained = eps * H.T", "gained = eps / 2 * H.T"),
    Mutation("lktd", "innovation_covariance = eps * H", "innovation_covariance = 2 * eps * H"),
]
SGLD = [
    Mutation("sgld", "p + eps / 2 * g", "p + eps * g"),
    Mutation("sgld", "jnp.sqrt(eps * ratio)", "jnp.sqrt(2 * eps * ratio)"),
    Mutation("sgld", "precision = likelihood_weight /", "precision = 2 * likelihood_weight /"),
    SHARED_PRIOR,
    SHARED_LIKELIHOOD,
    NORMAL,
]
SGHMC = [
    Mutation("sghmc", "drift * eps * g", "2 * drift * eps * g"),
    Mutation("sghmc", "jnp.sqrt(2 * drift *", "jnp.sqrt(4 * drift *"),
    SHARED_PRIOR,
    SHARED_LIKELIHOOD,
]
SGHMC_PRECISION = Mutation("sghmc", "precision = likelihood", "precision = 2 * likelihood")
SGHMC_FRICTION = Mutation("sghmc", "else 1.0 - friction", "else 1.0 - 2 * friction")


class Setting(NamedTuple):
    """One sampler on one model, where every one of its factors shows."""

    algorithm: str
    fraction: float
    options: dict[str, Any]
    mutations: list[Mutation]
    model: lg.LinearGaussian = WEAK
    chains: int = CHAINS // 2

    @property
    def module(self) -> str:
        return self.algorithm.removesuffix("_prototype")

    @property
    def all_options(self) -> dict[str, Any]:
        return self.options if self.module != self.algorithm else {**CONSTANT, **self.options}


SETTINGS = {
    "lktd restart": Setting("lktd", 0.3, {"alpha": 0.5}, LKTD_THETA),
    "lktd restart, xi": Setting("lktd", 0.6, {"alpha": 0.5}, LKTD_XI, chains=2 * CHAINS),
    "lktd restart K=1": Setting(
        "lktd", 0.4, {"alpha": 0.5, "inner_iterations": 1}, [FORECAST_PRIOR, PRECISION, NORMAL]
    ),
    "lktd conditional": Setting(
        "lktd", 0.5, {"alpha": 0.5, "latent": "conditional"},
        [THETA_NOISE, FORECAST_PRIOR, *LKTD_CONDITIONAL], chains=2 * CHAINS,
    ),
    "lktd conditional_tempered": Setting(
        "lktd", 0.5, {"alpha": 0.5, "latent": "conditional_tempered"}, LKTD_CONDITIONAL,
        WEAK._replace(pseudo_population=7.0), chains=CHAINS,
    ),
    "lktd_prototype": Setting("lktd_prototype", 1.0, {}, PROTOTYPE),
    "sgld": Setting("sgld", 0.4, {}, SGLD),
    "sghmc carried": Setting(
        "sghmc", 0.3, {"momentum": "carried", "friction": 0.3},
        [*SGHMC, SGHMC_FRICTION, SGHMC_PRECISION],
    ),
    "sghmc restarted": Setting(
        "sghmc", 0.3, {"momentum": "restarted", "friction": 0.3}, [*SGHMC[:2], SGHMC_FRICTION]
    ),
    "sghmc none": Setting("sghmc", 0.3, {"momentum": "none", "friction": 0.3}, SGHMC[:2]),
}  # fmt: skip


def copy_of_module(name: str, mutation: Mutation | None = None) -> types.ModuleType:
    """Run a module's source text, with one factor changed, as a module of its own."""
    source = inspect.getsource(MODULES[name])
    if mutation is not None and mutation.module == name:
        assert source.count(mutation.old) == 1, f"{mutation.old!r} is not once in {name}.py"
        source = source.replace(mutation.old, mutation.new)
    clone = types.ModuleType(f"mutated_{name}")
    exec(compile(source, f"<mutated {name}.py>", "exec"), clone.__dict__)
    return clone


def try_mutant(setting: Setting, mutation: Mutation | None) -> MomentTest:
    module = copy_of_module(setting.module, mutation)
    if mutation is not None and mutation.module == "base":
        helpers = copy_of_module("base", mutation)
        used = {"gaussian_like", "scaled_posterior_gradient"} & set(vars(module))
        vars(module).update({name: getattr(helpers, name) for name in used})
    step_size = longest_step(setting.model, setting.fraction)
    update = exact_update(setting.algorithm, setting.model, step_size, **setting.all_options)
    with x64():
        sampler = build(setting.algorithm, setting.model, step_size, module, **setting.all_options)
        return chains_against_law(sampler, setting.model, update, 13, setting.chains)


@pytest.mark.parametrize("name", SETTINGS)
def test_an_unchanged_copy_is_accepted(name: str) -> None:
    result = try_mutant(SETTINGS[name], None)
    assert result.p_value > ACCEPT, result


@pytest.mark.parametrize(
    ("name", "mutation"),
    [(name, mutation) for name, setting in SETTINGS.items() for mutation in setting.mutations],
    ids=lambda value: value if isinstance(value, str) else value.new.strip(),
)
def test_a_wrong_factor_is_rejected(name: str, mutation: Mutation) -> None:
    result = try_mutant(SETTINGS[name], mutation)
    assert result.covariance_z < 1e4, "the mutant diverged, which anyone would notice"
    assert result.p_value < REJECT, result
