"""Whether the mixture prior makes the network sparse, and the policy robust.

The paper puts (1 - lambda) N(0, 0.05^2) + lambda N(0, 0.5^2) on every parameter of the indoor
escape's network, to make it sparse, and says that sparsity makes the learned policy robust. This
study trains LKTD with that prior and with N(0, 0.5^2) alone (rows `reference` and
`gaussian-prior` of experiments/indoor_escape_forms.toml) and asks, for both: how many parameters
belong to the narrow part, how large the error of Q and the credible interval are, what is left of
values and policy after pruning, and what the policy earns if one action in five is random.

A parameter's responsibility is the probability of the narrow part given its value. It is a
decreasing function of the absolute value, so at one point of the parameter space it prunes in the
very order of magnitude. The two criteria here can differ because one is the mean of the
responsibility over the pool's samples, the other the magnitude of the pool's mean. Pruning at
random is the control. A pruned parameter is zero in every sample.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jax.flatten_util import ravel_pytree
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common import options, read, trained, write
from valuetrack import posterior
from valuetrack.checks.figures import BLUE, GREY, INK, ORANGE, STYLE
from valuetrack.envs.indoor_escape import (
    EscapeState,
    IndoorEscape,
    observations,
    optimal_q,
)
from valuetrack.metrics import value_metrics

WIDE, NARROW, WEIGHT = 0.5, 0.05, 0.5
"""The mixture: sigma_1, sigma_0 and lambda."""
ROWS = {"reference": "mixture prior", "gaussian-prior": "Gaussian prior"}
CRITERIA = {
    "responsibility": "by responsibility",
    "magnitude": "by magnitude",
    "random": "at random",
}
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
RANDOM = 0.2
"""The share of random actions in the test of robustness."""
POOL_UPDATES = 3_000
"""How far the pool reaches back, as in the paper."""


def narrow_responsibility(theta: Any) -> Any:
    """Return the probability that a parameter of this value comes from the narrow part."""
    odds = np.log(WEIGHT / (1 - WEIGHT)) + np.log(NARROW / WIDE)
    return 1 / (1 + np.exp(np.minimum(odds + theta**2 / 2 * (NARROW**-2 - WIDE**-2), 700)))


def moves(env: IndoorEscape) -> tuple[Any, Any]:
    """Return where every action leads from every cell, and which are legal."""
    cells = jnp.arange(env.width * env.height)

    def one(cell: Any) -> Any:
        state = EscapeState(cell, jnp.int32(0))
        step = jax.vmap(lambda a: env.step(state, a, jnp.full(1, 0.5)).state.cell)
        return step(jnp.arange(env.num_actions)), env.action_mask(state)

    there, legal = jax.vmap(one)(cells)
    return np.asarray(there), np.asarray(legal)


def expected_return(env: IndoorEscape, q: Any, random: float) -> float:
    """Return the exact expected return of the greedy policy with some random legal actions.

    Nothing is simulated: the probability of every cell is carried through the horizon.
    """
    there, legal = moves(env)
    greedy = np.argmax(np.where(legal, q, -np.inf), axis=1)
    acts = legal.any(axis=1)
    policy = random * legal / np.maximum(legal.sum(axis=1, keepdims=True), 1)
    policy[np.flatnonzero(acts), greedy[acts]] += 1 - random
    where = np.zeros(len(q))
    where[env.index(env.start)] = 1.0
    earned = 0.0
    for _ in range(env.horizon):
        earned += env.reward_mean * where[acts].sum()
        after = np.zeros(len(q))
        np.add.at(after, there[acts].ravel(), (where[:, None] * policy)[acts].ravel())
        where = after
    return earned


def evaluate(env: IndoorEscape, q: Any, truth: Any, legal: Any) -> dict[str, float]:
    """Compare samples of Q, (samples, cells, actions), with the truth, and act on their mean."""
    found = value_metrics(posterior.from_samples(q), truth, legal)
    mean = q.mean(axis=0)
    return {
        "rmse_en": float(np.sqrt(found.mse[:2].mean())),
        "rmse_ws": float(np.sqrt(found.mse[2:].mean())),
        "coverage": float(found.credible_coverage.mean()),
        "width": float(found.legal_width.mean()),
        "return": expected_return(env, mean, 0.0),
        "random_return": expected_return(env, mean, RANDOM),
    }


def study_seed(agent: Any, member: int, env: IndoorEscape) -> dict[str, Any]:
    """Prune one seed's pool by every criterion."""
    pool = agent.trainer.member(member).pool
    drawn = posterior.in_order(pool)
    samples = np.asarray(jax.vmap(lambda p: ravel_pytree(p)[0])(drawn))
    unravel = ravel_pytree(jax.tree.map(lambda x: jnp.asarray(x[0]), drawn))[1]
    apply = agent.options.network(agent.task, agent.task.actions).apply
    grid = jnp.asarray(observations(env))
    values = jax.jit(lambda flat: jax.lax.map(lambda one: apply(unravel(one), grid), flat))
    truth = optimal_q(env, agent.options.exploration_final, agent.options.discount, "reference")
    mean = samples.mean(axis=0)
    order = {
        "responsibility": np.argsort(-narrow_responsibility(samples).mean(axis=0), kind="stable"),
        "magnitude": np.argsort(np.abs(mean), kind="stable"),
        "random": np.random.default_rng(member).permutation(len(mean)),
    }
    pruned = {}
    for criterion, first in order.items():
        pruned[criterion] = []
        for share in SHARES:
            keep = np.ones(len(mean), samples.dtype)
            keep[first[: round(share * len(mean))]] = 0
            q = np.asarray(values(jnp.asarray(samples * keep)))
            pruned[criterion].append(evaluate(env, q, truth.values, truth.legal))
    return {
        "narrow_share": float(np.mean(narrow_responsibility(mean) > 0.5)),
        "narrow_share_samples": float(np.mean(narrow_responsibility(samples) > 0.5)),
        "within_pool_sd": float(np.median(samples.std(axis=0))),
        "order_overlap": float(
            np.mean(np.isin(order["responsibility"][: len(mean) // 2],
                            order["magnitude"][: len(mean) // 2]))
        ),
        "histogram": np.histogram(mean, bins=EDGES)[0].tolist(),
        "pruned": pruned,
    }  # fmt: skip


EDGES = np.linspace(-1.5, 1.5, 121)
"""Of the histogram of pool means."""


def summary(seeds: list[dict[str, Any]], *path: Any) -> str:
    """Return the mean and the sd over seeds of a number found at the end of a path."""
    values = []
    for seed in seeds:
        value: Any = seed
        for part in path:
            value = value[part]
        values.append(value)
    digits = 1 if abs(np.mean(values)) >= 10 else 3
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def tables(document: dict[str, Any]) -> str:
    """Return both tables as Markdown."""
    names = ("rmse_en", "rmse_ws", "coverage", "width", "return", "random_return")
    lines = [
        "| prior | in the narrow part | … of the samples | RMSE of Q: E, N | W, S "
        "| credible coverage | width | return | with 20 % random actions |",
        "|---|" + "---:|" * 8,
    ]
    for row, name in ROWS.items():
        seeds = document["rows"][row]
        whole = [summary(seeds, "pruned", "magnitude", 0, key) for key in names]
        shares = [summary(seeds, key) for key in ("narrow_share", "narrow_share_samples")]
        lines.append(f"| {name} | " + " | ".join([*shares, *whole]) + " |")
    heads = " | ".join(f"{share:.0%}" for share in SHARES)
    for key, title in (
        ("rmse_en", "RMSE of Q (E, N) after pruning"),
        ("width", "width of the credible interval after pruning"),
        ("return", "greedy return after pruning"),
        ("random_return", "return with 20 % random actions after pruning"),
    ):
        lines += ["", f"| {title} | pruned | {heads} |", "|---|---|" + "---:|" * len(SHARES)]
        for row, name in ROWS.items():
            for criterion, how in CRITERIA.items():
                cells = [
                    summary(document["rows"][row], "pruned", criterion, at, key)
                    for at in range(len(SHARES))
                ]
                lines.append(f"| {name} | {how} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(document: dict[str, Any]) -> Figure:
    """Draw the pool means, and error and return against the pruned share."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    axes = figure.subplots(1, 3)
    colours = {"reference": BLUE, "gaussian-prior": ORANGE}
    for row, name in ROWS.items():
        counts = np.sum([seed["histogram"] for seed in document["rows"][row]], axis=0)
        density = counts / counts.sum() / np.diff(EDGES)
        axes[0].stairs(density, EDGES, color=colours[row], lw=1.8, label=name)
    edge = np.sqrt(2 * np.log(WIDE / NARROW) / (NARROW**-2 - WIDE**-2))
    axes[0].axvspan(-edge, edge, color="#eeeeee", lw=0, zorder=0)
    axes[0].text(
        0, 1.02, "narrow part", transform=axes[0].get_xaxis_transform(), ha="center", color=GREY,
        fontsize=9.5,
    )  # fmt: skip
    axes[0].set(yscale="log", xlabel="mean of a parameter over the pool", ylabel="density")
    axes[0].legend(frameon=False, loc="upper right", fontsize=9.5)
    for ax, key in ((axes[1], "rmse_en"), (axes[2], "return")):
        _pruning(ax, document, key, colours)
    axes[1].set(yscale="log", ylabel="RMSE of Q, actions E and N (median of seeds)")
    axes[2].set(ylabel="greedy return (mean of seeds)", ylim=(-208, 0))
    axes[2].axhline(-18, color=INK, lw=0.9)
    axes[2].text(0, -14, "optimal: −18", color=INK, va="bottom", fontsize=9.5)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _pruning(ax: Axes, document: dict[str, Any], key: str, colours: dict[str, str]) -> None:
    """Draw the middle of the seeds as a line, and every seed as a dot beside it.

    Returns are optimal or hopeless, so their mean says how many are which; an error's median does
    not follow the one seed that has not yet learned.
    """
    middle = np.mean if key == "return" else np.median
    styles = {"responsibility": ("-", "o"), "magnitude": ("--", "s"), "random": (":", "x")}
    shares = 100 * np.array(SHARES)
    for aside, (row, name) in zip((-1.2, 1.2), ROWS.items(), strict=True):
        for criterion, (line, marker) in styles.items():
            found = np.array(
                [[at[key] for at in seed["pruned"][criterion]] for seed in document["rows"][row]]
            )
            ax.plot(
                shares, middle(found, axis=0), color=colours[row], ls=line, lw=1.8,
                marker=marker, ms=5, mfc="white" if criterion == "magnitude" else None,
                label=f"{name}, {CRITERIA[criterion]}",
            )  # fmt: skip
            if criterion != "magnitude":  # whose dots would lie on those of the responsibility
                ax.plot(
                    np.tile(shares + aside, len(found)), found.ravel(), ls="none", marker=marker,
                    ms=3, alpha=0.45, color=colours[row], mew=0.6,
                )  # fmt: skip
    ax.set_xlabel("pruned parameters, %")
    ax.grid(axis="y", color="#ebebeb", lw=0.7)


def main() -> None:
    """Run the study."""
    arguments = options(__doc__, "results/studies/sparsity")
    if arguments.redraw:
        document = read(arguments.out, "sparsity")
    else:
        seeds, steps = (2, 2_500) if arguments.quick else (5, arguments.steps)
        thinning = POOL_UPDATES // 300
        document = {"seeds": seeds, "steps": steps, "shares": list(SHARES), "rows": {}}
        for row in ROWS:
            agent = trained(row, seeds=seeds, steps=steps, samples=300, thinning=thinning)
            if agent.diverged:
                raise RuntimeError(f"{row} diverged: {agent.diverged}; its values mean nothing.")
            env = agent.env.in_jax
            document["rows"][row] = [study_seed(agent, m, env) for m in range(seeds)]
    with mpl.rc_context(STYLE):
        write(arguments.out, "sparsity", document, tables(document), draw(document))


if __name__ == "__main__":
    main()
