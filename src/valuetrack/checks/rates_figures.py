"""The figures of the rates of weighted averages; needs the extra ``plot``."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuetrack.checks import decreasing_steps as exact
from valuetrack.checks import rates
from valuetrack.checks.figures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, STYLE
from valuetrack.checks.rates import Curve

LOOKS: dict[tuple[str, str, int], dict[str, Any]] = {
    ("sgld", "fresh", 0): {"color": BLUE, "marker": "o"},
    ("sgld", "ring", 100): {"color": ORANGE, "marker": "s"},
    ("sgld", "ring", 1000): {"color": ORANGE, "marker": "D", "ls": "--"},
    ("sgld", "fixed", 100): {"color": PURPLE, "marker": "^"},
    ("sgld", "fixed", 1000): {"color": PURPLE, "marker": "v", "ls": "--"},
    ("lktd", "fresh", 0): {"color": GREEN, "marker": "P"},
}
POWER_COLOURS = dict(zip(rates.POWERS, (BLUE, ORANGE, GREEN), strict=True))


def render(curves: list[Curve]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of both figures, as PNG."""
    drawings: dict[str, Callable[[list[Curve]], Figure]] = {
        "rates.png": rates_figure, "w2.png": w2_figure,
    }  # fmt: skip
    for name, draw in drawings.items():
        with mpl.rc_context(STYLE):
            buffer = io.BytesIO()
            draw(curves).savefig(buffer, format="png", dpi=150)
            yield name, buffer.getvalue()


def rates_figure(curves: list[Curve]) -> Figure:
    """Draw bias and mean square error against T, a column for each power."""
    powers = sorted({curve.setting.power for curve in curves})
    figure = Figure(figsize=(2 + 3 * len(powers), 7.6), layout="constrained")
    axes = figure.subplots(2, len(powers), sharex=True, sharey="row", squeeze=False)
    system = exact.directions(exact.corridor())
    scale = float(system.variance.mean())
    first = float(system.basis[0] ** 2 @ system.variance)
    for column, power in enumerate(powers):
        here = [curve for curve in curves if curve.setting.power == power]
        for curve in here:
            _line(axes[0, column], curve, "square_bias", scale)
            _line(axes[1, column], curve, "value_mse", first)
        wanted, fresh = rates.predicted(power), here[0].errors
        _guide(axes[0, column], fresh.checkpoints, fresh.square_bias / scale, wanted.bias)
        lowest = here[1].errors.value_mse / first
        _guide(axes[1, column], fresh.checkpoints, lowest, wanted.mse)
        floor = abs(exact.limit_of_lktd(exact.corridor())) / scale
        axes[0, column].axhline(
            floor, color=GREEN, lw=1, ls=(0, (1, 1.5)), zorder=1, label="where LKTD's bias ends"
        )
        axes[0, column].set_title(f"ε = ε₀ / k^{rates.POWER_NAMES[power]}")
        axes[1, column].set_xlabel("updates T")
    axes[0, 0].set_ylabel("|bias| of the average of (V − m)²,\nover its expectation")
    axes[1, 0].set_ylabel("MSE of the average of V,\nover the posterior variance")
    for ax in axes.flat:
        ax.set(xscale="log", yscale="log")
        ax.grid(which="major", color="#ebebeb", lw=0.7)
    axes[0, 0].set_ylim(8e-3, 20)
    axes[1, 0].set_ylim(bottom=4e-5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _line(ax: Axes, curve: Curve, name: str, scale: float) -> None:
    setting = curve.setting
    look = LOOKS[setting.sampler, setting.memory, setting.capacity]
    values = np.abs(getattr(curve.errors, name)) / scale
    ax.plot(curve.errors.checkpoints, values, lw=1.8, color=look["color"], ls=look.get("ls", "-"))
    seen = np.abs(getattr(curve.chains, name)) / scale
    ax.plot(
        curve.chains.checkpoints[::2], seen[::2], ls="none", ms=4.5,
        color=look["color"], marker=look["marker"], mec="white", mew=0.5, zorder=3,
    )  # fmt: skip
    ax.plot(  # an entry of the legend with line and dot in one
        [], [], color=look["color"], ls=look.get("ls", "-"), marker=look["marker"], ms=5,
        label=rates.label(setting),
    )  # fmt: skip


def _guide(ax: Axes, T: Any, values: Any, power: float) -> None:
    """Draw the predicted power of T below the end of a curve."""
    last = T[-1]
    late = last / 30 <= T
    line = np.abs(values[-1]) * (T[late] / T[-1]) ** power / 2.2
    ax.plot(T[late], line, color=INK, lw=1.3, ls=":", label="predicted power of T")
    middle = len(line) // 2
    ax.annotate(
        f"T^{power:.2f}", (T[late][middle], line[middle]), (-4, -4), textcoords="offset points",
        ha="right", va="top", color=INK, fontsize=9.5,
        bbox={"fc": "white", "ec": "none", "pad": 0.8}, zorder=2.5,
    )  # fmt: skip


def w2_figure(curves: list[Curve]) -> Figure:
    """Draw the distance of the last sample's law to the posterior, and Theorem 1's bound on it."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = figure.add_subplot()
    for curve in curves:
        setting, errors = curve.setting, curve.errors
        if setting.memory != "fresh":
            continue
        colour, name = POWER_COLOURS[setting.power], rates.POWER_NAMES[setting.power]
        lktd = setting.sampler == "lktd"
        T, distance = errors.checkpoints, errors.w2
        ax.plot(
            T, distance, color=colour, lw=2, ls=":" if lktd else "-",
            label=f"{'LKTD, ξ restarted' if lktd else 'SGLD'}, ϖ = {name}",
        )  # fmt: skip
        if not lktd:
            bound = rates.printed_bound(setting.power, T)
            ax.plot(T, bound, color=colour, lw=1.6, ls="--", label=f"Theorem 1's bound, ϖ = {name}")
    ax.set(xscale="log", yscale="log", xlabel="updates K")
    ax.set_ylabel("W₂(law of θ_K, posterior)")
    ax.set_title("The distance falls as K^−ϖ; the bound that is to show it grows")
    ax.grid(which="major", color="#ebebeb", lw=0.7)
    ax.text(
        0.985, 0.55, "every law here is exact", transform=ax.transAxes, ha="right", color=GREY,
        fontsize=9.5,
    )  # fmt: skip
    figure.legend(loc="outside right center", frameon=False, fontsize=9.5)
    return figure
