"""The figures of the linear-Gaussian check; needs the extra ``plot``."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuetrack.checks import latent_bias
from valuetrack.checks.cases import CASES, Case, Row, exact_law, model_of, small_step_limit
from valuetrack.checks.linear_gaussian import Gaussian, Matrix, posterior, wasserstein2

# Okabe and Ito's palette, told apart by readers of any colour vision.
BLUE, ORANGE, GREEN, PURPLE, SKY, INK, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#AA4499", "#56B4E9", "#222222", "#767676",
)  # fmt: skip
COLOURS = {"sgld": BLUE, "sghmc": ORANGE, "lktd": GREEN, "prototype": PURPLE}
NAMES = {
    ("sgld", ""): "SGLD",
    ("sghmc", "carried"): "SGHMC, momentum carried",
    ("sghmc", "restarted"): "SGHMC, momentum restarted",
    ("sghmc", "none"): "SGHMC, no momentum",
    ("lktd", "restart"): "LKTD, ξ restarted",
    ("lktd", "conditional"): "LKTD, conditional",
    ("lktd", "conditional_tempered"): "LKTD, conditional tempered",
    ("prototype", ""): "LKTD prototype",
}


STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10.5, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": GREY, "axes.labelcolor": INK,
    "xtick.color": GREY, "ytick.color": GREY, "axes.titlesize": 11,
    "axes.titlelocation": "left", "figure.facecolor": "white",
}  # fmt: skip


def render_all(rows: Sequence[Row]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of every figure, as PNG."""
    drawings: dict[str, Callable[[], Figure]] = {
        "limit": partial(limit_figure, rows),
        "latent-bias": latent_bias_figure,
        "ellipses": partial(ellipse_figure, rows),
    }
    with mpl.rc_context(STYLE):
        for name, draw in drawings.items():
            buffer = io.BytesIO()
            draw().savefig(buffer, format="png", dpi=160)
            yield f"{name}.png", buffer.getvalue()


def limit_figure(rows: Sequence[Row]) -> Figure:
    """Draw the distance of the exact stationary law to the posterior against the step."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    ax = figure.add_subplot()
    ends = []
    for key, name in NAMES.items():
        base = next(case for case in reversed(CASES[:11]) if (case.sampler, case.form) == key)
        steps, distances = _distance_curve(base)
        plateau = small_step_limit(base).label != "posterior"
        colour = COLOURS[base.sampler]
        ax.plot(steps, distances, color=colour, lw=2, ls="--" if plateau else "-")
        ends.append((distances[0], name, colour))
    for row in rows:
        if _first_model(row.case) and (row.case.sampler, row.case.inner_iterations) != ("lktd", 1):
            _point(ax, row)
    ax.set(xscale="log", yscale="log", xlim=(1e-5, 0.7), ylim=(3e-6, 0.7))
    _label_ends(ax, ends)
    ax.set_xlabel("step size ε")
    ax.set_ylabel("W₂ distance to the posterior")
    ax.yaxis.tick_right()  # the left side belongs to the curves' names
    ax.yaxis.set_label_position("right")
    ax.spines["left"].set_visible(False)
    ax.spines["right"].set_visible(True)
    ax.set_title("As the step falls, solid curves tend to the posterior; dashed ones stay away")
    ax.grid(which="major", color="#e6e6e6", lw=0.7)
    ax.text(
        0.985, 0.02, "lines: exact laws    points: chains, with the range\n"
        "of 95 % of samples if the exact law is right",
        transform=ax.transAxes, ha="right", va="bottom", color=GREY, fontsize=9.5,
    )  # fmt: skip
    return figure


def _first_model(case: Case) -> bool:
    first = CASES[0]
    return (case.pseudo_population, case.alpha) == (first.pseudo_population, first.alpha)


def _distance_curve(base: Case) -> tuple[list[float], list[float]]:
    """Return the steps at which the chain is stable, and its law's distances there."""
    model = model_of(base)
    target = posterior(model)
    steps: list[float] = []
    distances: list[float] = []
    for step in np.geomspace(1e-5, 0.5, 240):
        try:
            law = exact_law(base._replace(step_size=float(step)), model)
        except ValueError:  # it diverges, and so it does at any larger step
            break
        steps.append(float(step))
        distances.append(wasserstein2(law, target))
    return steps, distances


def _point(ax: Axes, row: Row) -> None:
    low, high = row.w2_range
    bars = [[max(row.w2_sampled - low, 0)], [max(high - row.w2_sampled, 0)]]
    ax.errorbar(
        row.case.step_size, row.w2_sampled, yerr=bars, fmt="o", ms=5, mec="white", mew=0.8,
        color=COLOURS[row.case.sampler], capsize=2.5, elinewidth=1.3, zorder=3,
    )  # fmt: skip


def _label_ends(ax: Axes, ends: list[tuple[float, str, str]], gap: float = 1.42) -> None:
    """Name the curves at their left ends, pushed apart where they would overlap."""
    place = 0.0
    for value, name, colour in sorted(ends):
        place = max(value, place * gap)
        ax.annotate(
            name, (1e-5, value), (0.85e-5, place), color=colour, ha="right", va="center",
            fontsize=9.5, annotation_clip=False,
        )  # fmt: skip


def latent_bias_figure() -> Figure:
    """Draw the observation variance that LKTD's likelihood feels when xi is restarted."""
    figure = Figure(figsize=(9, 4.3), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, alpha in zip(axes, latent_bias.ALPHAS, strict=True):
        _bias_panel(ax, alpha)
    axes[0].set_ylabel("variance felt by the likelihood / σ²")
    axes[0].text(
        1.2e-4, 0.93, "solid: many small inner iterations\ndotted: K = 5", color=GREY, fontsize=9.5,
        va="top",
    )  # fmt: skip
    for setting in latent_bias.SETTINGS:
        _mark_setting(axes[1], setting)
    return figure


def _bias_panel(ax: Axes, alpha: float) -> None:
    times, span = np.geomspace(1e-4, 100, 90), 1 - alpha
    for ratio, colour in zip(latent_bias.RATIOS, (BLUE, ORANGE, GREEN), strict=True):
        many = [latent_bias.effective_variance(t / 400, 400, alpha, ratio) for t in times]
        five = [latent_bias.effective_variance(t / 5, 5, alpha, ratio) for t in times]
        ax.plot(times, many, color=colour, lw=2)
        ax.plot(times, five, color=colour, lw=1.2, ls=":")
        ax.text(125, many[-1], f"n/N = {ratio:g}", color=colour, va="center", fontsize=9.5)
    for bound, name in ((1.0, "σ²"), (alpha, "α σ²")):
        ax.axhline(bound, color=GREY, lw=0.9, zorder=0)
        ax.text(1.2e-4, bound + 0.01 * span, name, color=GREY, va="bottom", fontsize=9.5)
    ylim = (alpha - 0.08 * span, 1 + 0.08 * span)
    ax.set(xscale="log", xlim=(1e-4, 100), ylim=ylim, title=f"α = {alpha:g}")
    ax.set_xlabel("K ε / (2 (1 − α) σ²)")


def _mark_setting(ax: Axes, setting: latent_bias.Setting) -> None:
    x, y = setting.scaled_time, setting.effective_variance
    ax.plot(x, y, "o", color=INK, ms=6, mec="white", zorder=4)
    ax.annotate(
        f"{setting.name}\n{y:.5f} σ²", (x, y), (x, 0.925), ha="center", color=INK, fontsize=9.5,
        arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.8},
    )  # fmt: skip


ELLIPSE_FORMS = (
    ("sgld", ""), ("sghmc", "carried"), ("lktd", "conditional_tempered"),
    ("sghmc", "restarted"), ("sghmc", "none"), ("lktd", "restart"),
)  # fmt: skip


def ellipse_figure(rows: Sequence[Row]) -> Figure:
    """Draw chains, their exact law and the posterior in the plane of the first two parameters."""
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for ax, form in zip(axes.flat, ELLIPSE_FORMS, strict=True):
        found = [r for r in rows if (r.case.sampler, r.case.form) == form and _first_model(r.case)]
        if found:
            _cloud(ax, max(found, key=lambda r: (r.case.inner_iterations, -r.case.step_size)))
        ax.set_title(NAMES[form], color=COLOURS[form[0]])
    for ax in axes[1]:
        ax.set_xlabel("θ₁")
    for ax in axes[:, 0]:
        ax.set_ylabel("θ₂")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _cloud(ax: Axes, row: Row) -> None:
    colour = COLOURS[row.case.sampler]
    x = row.samples[:500]
    ax.plot(x[:, 0], x[:, 1], ".", ms=3.5, color=colour, alpha=0.4, mew=0, label="chains")
    ax.plot(*_ellipse(row.exact), color=colour, lw=2, label="exact stationary law (95 %)")
    ax.plot(*_ellipse(row.posterior), color=INK, lw=1.4, ls="--", label="posterior (95 %)")
    ax.grid(color="#eeeeee", lw=0.7)


def _ellipse(law: Gaussian, mass: float = 0.95) -> Matrix:
    """Return the curve that holds this mass of the first two coordinates."""
    turn = np.linspace(0, 2 * np.pi, 200)
    radius = np.sqrt(-2 * np.log(1 - mass))
    root = np.linalg.cholesky(law.covariance[:2, :2])
    circle = radius * np.stack([np.cos(turn), np.sin(turn)])
    return np.asarray(law.mean[:2, None] + root @ circle)
