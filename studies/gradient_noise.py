"""Whether LKTD's stochastic gradient is less noisy than SGLD's for alpha > 1/2.

The paper says so of the filter that LKTD is built on, and recommends an alpha close to 1 for it.
This study measures the trace of the covariance of an update's drift at fixed parameters, over
minibatches and latent noise, for the three treatments of the latent observation, beside the
closed form of `valuetrack.checks.gradient_noise`. It does so on a linear regression, and at a
network trained on the indoor escape with the transitions in its replay memory.

The drift is taken from the library's own samplers. The measurement is frozen: predictions and
gradients stay those of the fixed parameters while the inner iterations run. A twin update with the
same key and a likelihood that weighs nothing makes the same Langevin step, which is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jax.flatten_util import ravel_pytree
from matplotlib.figure import Figure

from common import options, read, trained, write
from valuetrack import priors, samplers
from valuetrack.checks import gradient_noise as exact
from valuetrack.checks import linear_gaussian as lg
from valuetrack.checks.figures import BLUE, GREEN, GREY, INK, ORANGE, STYLE
from valuetrack.measurement import Measurement, sarsa
from valuetrack.schedules import inner_decay
from valuetrack.types import Transition

LATENTS = ("restart", "conditional", "conditional_tempered")
NAMES = {
    "restart": "ξ restarted (Algorithm 1)",
    "conditional": "conditional",
    "conditional_tempered": "conditional, tempered",
}
COLOURS = {"restart": GREEN, "conditional": ORANGE, "conditional_tempered": BLUE}
MARKERS = {"restart": "o", "conditional": "s", "conditional_tempered": "^"}
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
CURVE = np.round(np.linspace(0.1, 0.99, 90), 4)
NO_WEIGHT = 1e-20
"""A likelihood that does not move anything, in single precision."""


class Problem(NamedTuple):
    """Parameters, data from which minibatches are drawn, and the options of both samplers."""

    params: Any
    data: Any
    measurement: Measurement
    batch: int
    sampler: dict[str, Any]

    @property
    def steps(self) -> list[float]:
        """The steps of an update."""
        shrink = inner_decay(self.sampler["inner_iterations"], self.sampler["inner_power"])
        return [float(x) for x in self.sampler["step_size"] * np.asarray(shrink, float)]


def regression() -> Problem:
    """Return a linear regression at its posterior mean."""
    model = lg.example(400, 3, pseudo_population=480.0)
    return Problem(
        params=jnp.asarray(lg.posterior(model).mean, jnp.float32),
        data=(jnp.asarray(model.H, jnp.float32), jnp.asarray(model.r, jnp.float32)),
        measurement=lg.measurement(),
        batch=12,
        sampler={
            "step_size": 0.01, "pseudo_population": 480.0, "observation_sd": 0.5,
            "inner_iterations": 5, "inner_power": 0.0, "likelihood_weight": 1.0,
        },
    )  # fmt: skip


def grid(steps: int) -> Problem:
    """Return a network trained with the reference settings, and its replay memory."""
    agent = trained("reference", seeds=1, steps=steps, samples=1)
    saved, how = agent.trainer.arrays(), agent.options
    fields = {name: jnp.asarray(saved[f"replay.{name}"][0]) for name in Transition._fields}
    network = how.network(agent.task, agent.task.actions)
    names = (
        "step_size", "pseudo_population", "observation_sd", "inner_iterations", "inner_power",
        "likelihood_weight",
    )  # fmt: skip
    return Problem(
        params=agent.trainer.member(0).learner.sampler.params,
        data=Transition(**fields),
        measurement=sarsa(network.apply, how.gradient),
        batch=how.batch_size,
        sampler={name: getattr(how, name) for name in names},
    )


def frozen(problem: Problem) -> Measurement:
    """Return the measurement with its values and gradients held at the problem's parameters."""

    def predict(params: Any, data: Any) -> Any:
        value, pull_back = jax.vjp(lambda p: problem.measurement.predict(p, data), problem.params)

        @jax.custom_vjp
        def held(params: Any) -> Any:
            return value

        held.defvjp(lambda params: (value, None), lambda _, cotangent: pull_back(cotangent))
        return held(params)

    def observe(params: Any, data: Any) -> Any:
        return problem.measurement.observe(problem.params, data)

    return Measurement(predict, observe)


def measured_noise(problem: Problem, build: Callable[..., Any], draws: int) -> float:
    """Return the trace of the covariance of the drift, over minibatches and latent noise.

    All samplers get the same minibatches, so that ratios are far more precise than traces.
    """
    flat_prior = priors.gaussian(1e9)
    steps = [
        build(frozen(problem), flat_prior, **{**problem.sampler, "likelihood_weight": weight}).step
        for weight in (problem.sampler["likelihood_weight"], NO_WEIGHT)
    ]
    start = samplers.base.init_chain(problem.params)
    count = len(jax.tree.leaves(problem.data)[0])

    def drift(key: Any) -> Any:
        batch_key, step_key = jax.random.split(key)
        rows = jax.random.randint(batch_key, (problem.batch,), 0, count)
        batch = jax.tree.map(lambda x: x[rows], problem.data)
        # The twin must make the same Langevin step, so it gets the same key: the one exception.
        ends = [ravel_pytree(step(step_key, start, batch)[0].params)[0] for step in steps]
        return (ends[0] - ends[1]) * 2 / sum(problem.steps)

    drifts = np.asarray(jax.jit(jax.vmap(drift))(jax.random.split(jax.random.key(0), draws)))
    return float(drifts.astype(np.float64).var(axis=0, ddof=1).sum())


def exact_batches(problem: Problem) -> exact.Batches:
    """Return what the closed form needs of the data."""
    predict = problem.measurement.predict

    def one(row: Any) -> Any:
        single = jax.tree.map(lambda x: x[None], row)
        gradient = jax.grad(lambda p: predict(p, single)[0])(problem.params)
        residual = problem.measurement.observe(problem.params, single) - predict(
            problem.params, single
        )
        return ravel_pytree(gradient)[0], residual[0]

    gradients, residuals = jax.jit(jax.vmap(one))(problem.data)
    return exact.batches(np.asarray(gradients, np.float64), np.asarray(residuals, np.float64))


def pull_of(problem: Problem, alpha: float, latent: Any) -> exact.LatentPull:
    """Return f and the variance of u for the problem's steps."""
    how = problem.sampler
    return exact.latent_pull(
        problem.steps, alpha=alpha, variance=how["observation_sd"] ** 2, latent=latent,
        ratio=problem.batch / how["pseudo_population"], weight=how["likelihood_weight"],
    )  # fmt: skip


def study(problem: Problem, draws: int, alphas: tuple[float, ...]) -> dict[str, Any]:
    """Measure SGLD once and LKTD in every form at every alpha; tabulate the closed form."""
    data = exact_batches(problem)
    how = problem.sampler
    sgld = measured_noise(problem, samplers.sgld, draws)
    closed = (how["likelihood_weight"] / how["observation_sd"] ** 2) ** 2
    rows, curves = [], []
    for latent in LATENTS:
        for alpha in CURVE.tolist():
            noise = exact.noise_ratio(data, pull_of(problem, alpha, latent), alpha)
            curves.append({"latent": latent, "alpha": alpha, **noise._asdict()})
        for alpha in alphas:

            def build(*args: Any, a: float = alpha, form: Any = latent, **kw: Any) -> Any:
                return samplers.lktd(*args, alpha=a, latent=form, **kw)

            noise = exact.noise_ratio(data, pull_of(problem, alpha, latent), alpha)
            found = measured_noise(problem, build, draws) / sgld
            scaled = found / noise.drift**2
            rows.append(
                {
                    "latent": latent, "alpha": alpha, **noise._asdict(),
                    "measured_same_step": found, "measured_same_drift": scaled,
                }
            )  # fmt: skip
    return {
        "batch": problem.batch,
        "sampler": {k: float(v) for k, v in how.items()},
        "draws": draws,
        "sgld_trace": {"measured": sgld, "exact": closed * problem.batch * data.scatter},
        "rows": rows,
        "curves": curves,
    }


def table(document: dict[str, Any]) -> str:
    """Return the noise over SGLD's, exact and measured, as Markdown."""
    heads = "drift | same step: exact | measured | same drift: exact | measured"
    lines = [
        f"| where | form | α | {heads} |",
        "|---|---|---:|" + "---:|" * 5,
    ]
    for where, found in document["problems"].items():
        for row in found["rows"]:
            numbers = [
                row[name]
                for name in (
                    "drift", "same_step", "measured_same_step", "same_drift", "measured_same_drift",
                )
            ]  # fmt: skip
            cells = " | ".join(f"{number:.4g}" for number in numbers)
            lines.append(f"| {where} | {NAMES[row['latent']]} | {row['alpha']:g} | {cells} |")
    return "\n".join(lines)


def draw(document: dict[str, Any]) -> Figure:
    """Draw the ratio of gradient noise at equal expected step against alpha."""
    figure = Figure(figsize=(10, 4.9), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (where, found) in zip(axes, document["problems"].items(), strict=True):
        ax.fill_between([0.5, 1.0], 0.1, 1.0, color="#eeeeee", lw=0, zorder=0)
        ax.axhline(1, color=INK, lw=1.2)
        for latent in LATENTS:
            curve = [row for row in found["curves"] if row["latent"] == latent]
            dots = [row for row in found["rows"] if row["latent"] == latent]
            colour, name = COLOURS[latent], f"LKTD, {NAMES[latent]}"
            alphas = [row["alpha"] for row in curve]
            ax.plot(alphas, [row["same_drift"] for row in curve], color=colour, lw=2, label=name)
            ax.plot(
                [row["alpha"] for row in dots], [row["measured_same_drift"] for row in dots],
                marker=MARKERS[latent], ls="none", color=colour, mec="white", mew=0.7,
                ms=10 if latent == "restart" else 6, zorder=3,
            )  # fmt: skip
        raw = [row for row in found["curves"] if row["latent"] == "restart"]
        ax.plot(
            [row["alpha"] for row in raw], [row["same_step"] for row in raw], color=GREEN, lw=1.4,
            ls=":", label="LKTD, ξ restarted, at the same ε",
        )  # fmt: skip
        ax.set(yscale="log", ylim=(0.75, 5), xlim=(0.07, 1.02), xlabel="α", title=where)
        ax.grid(which="major", axis="y", color="#ebebeb", lw=0.7)
        ax.set_yticks([1, 1.5, 2, 3, 4, 5], labels=["1", "1.5", "2", "3", "4", "5"])
        ax.minorticks_off()
        ax.text(0.75, 0.84, "claimed: here", color=GREY, ha="center", fontsize=9.5)
        ax.text(0.3, 0.96, "SGLD", color=INK, ha="center", va="top", fontsize=9.5)
        steep = raw[0]
        ax.annotate(
            f"{steep['same_step']:.0f} at α = {steep['alpha']:g}", (0.45, 4.95), (0.28, 4.4),
            color=GREEN, fontsize=9.5, ha="center",
        )  # fmt: skip
    axes[0].set_ylabel("gradient noise of LKTD over SGLD's\n(trace of the covariance)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def main() -> None:
    """Run the study."""
    arguments = options(__doc__, "results/studies/gradient-noise")
    if arguments.redraw:
        document = read(arguments.out, "gradient-noise")
    else:
        draws, steps = (64, 3_000) if arguments.quick else (2_000, arguments.steps)
        alphas = (0.9,) if arguments.quick else ALPHAS
        document = {
            "problems": {
                "linear regression": study(regression(), 2 * draws, alphas),
                "network on the indoor escape": study(grid(steps), draws // 2, alphas),
            }
        }
    with mpl.rc_context(STYLE):
        write(arguments.out, "gradient-noise", document, table(document), draw(document))


if __name__ == "__main__":
    main()
