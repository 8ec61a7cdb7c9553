r"""Theorems 1 and 2 as a table: how fast the weighted average's errors fall, and where they stop.

With :math:`\epsilon_k = \epsilon_0 k^{-\varpi}`, :math:`S_T = \sum_k \epsilon_k` grows as
:math:`T^{1-\varpi}` and :math:`\sum_k \epsilon_k^2` as :math:`T^{1-2\varpi}`, as :math:`\log T` at
:math:`\varpi = 1/2`, and not at all above it. Theorem 2's orders become the powers of T that
:func:`predicted` returns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from valuetrack import __version__
from valuetrack.checks import decreasing_steps as exact
from valuetrack.checks.decreasing_steps import Counts, Errors, Setting
from valuetrack.checks.linear_gaussian import LinearGaussian, Matrix
from valuetrack.checks.simulated_averages import Simulated

POWERS = (1 / 3, 1 / 2, 2 / 3)
POWER_NAMES = {1 / 3: "1/3", 1 / 2: "1/2", 2 / 3: "2/3"}
CAPACITIES = (100, 1000)


class Curve(NamedTuple):
    """Exact errors of a setting, and those of chains beside them."""

    setting: Setting
    errors: Errors
    chains: Simulated


class Slopes(NamedTuple):
    """Powers of T: of the average's bias, its mean square error, and the last sample's W2."""

    bias: float
    mse: float
    w2: float


def settings(powers: Sequence[float] = POWERS) -> list[Setting]:
    """List what is compared, power by power."""
    rows = []
    for power in powers:
        rows += [Setting(power), Setting(power, sampler="lktd")]
        rows += [Setting(power, "ring", capacity) for capacity in CAPACITIES]
        rows += [Setting(power, "fixed", capacity) for capacity in CAPACITIES]
    return rows


def label(setting: Setting) -> str:
    """Name a setting, its power left out."""
    if setting.sampler == "lktd":
        return "LKTD, K = 5, fresh data"
    if setting.memory == "fresh":
        return "SGLD, fresh data"
    kind = "ring of the last" if setting.memory == "ring" else "fixed memory of"
    return f"SGLD, {kind} {setting.capacity:,}"


def predicted(power: float) -> Slopes:
    r"""Return the powers of T in Theorem 2's bounds; logarithms are left out.

    .. math:: \frac{1}{S_T} + \frac{\sum \epsilon^2}{S_T}
              \sim T^{-\min(1-\varpi, \varpi)}, \qquad
              \frac{1}{S_T} + \frac{\sum\epsilon^2}{S_T^2} + \frac{(\sum \epsilon^2)^2}{S_T^2}
              \sim T^{-\min(1-\varpi, 2\varpi)}

    The last is that of the step itself, with which the law of the latest sample leaves the
    posterior; Theorem 1's bound predicts none.
    """
    return Slopes(bias=-min(1 - power, power), mse=-min(1 - power, 2 * power), w2=-power)


def slope(checkpoints: Counts, values: Matrix) -> float:
    """Fit a power of T to the last decade of absolute values."""
    late = checkpoints >= checkpoints[-1] / 10
    return float(np.polyfit(np.log(checkpoints[late]), np.log(np.abs(values[late])), 1)[0])


def printed_bound(power: float, updates: Counts, model: LinearGaussian | None = None) -> Matrix:
    r"""Return Theorem 1's bound on W2 for the corridor, without its last term, which vanishes.

    .. math:: \sqrt{12 + C_2 S_K}\,(D^{1/2} + D^{1/4}), \qquad
              D = C_1 \sum\epsilon^2 + \delta C_0 S_K

    Both sums are taken as they are, not by the closed forms printed for them, one of which,
    :math:`2\varpi/(2\varpi-1)`, is infinite or negative for :math:`\varpi \le 1/2`. The origin is
    put at the posterior mean, and the free constant B is chosen for every K such that the bound is
    least.
    """
    model = exact.corridor() if model is None else model
    system = exact.directions(model)
    # The theorem's step is eps n / (2 N), its gradient that of the log-posterior; beta is 1.
    steps = model.ratio / 2 * exact.INITIAL_STEP * np.arange(1, updates[-1] + 1.0) ** -power
    S, squares = np.cumsum(steps)[updates - 1], np.cumsum(steps**2)[updates - 1]
    precision, d = 1 / system.variance, len(system.variance)
    lipschitz, dissipation = precision.max(), precision.min()
    kappa = exact.START**2 * system.variance.sum()
    scale = exact.BATCH / (model.ratio * model.observation_sd**2)
    noise = scale**2 * system.noise.sum() / exact.BATCH
    bounds = []
    for B in np.geomspace(1e-3, 1e6, 200):
        spread = kappa + 2 * max(1.0, np.e / dissipation) * (2 * B**2 + d)
        C0 = lipschitz**2 * spread + B**2
        C1 = 6 * lipschitz**2 * (C0 + d)
        D = C1 * squares + noise / (2 * B**2) * C0 * S
        bounds.append(np.sqrt(12 + (kappa + 2 * d) * S) * (np.sqrt(D) + D**0.25))
    return np.asarray(np.min(bounds, axis=0))


def measured(curve: Curve) -> Slopes:
    """Return the powers of T of the exact errors over the last decade."""
    T, errors = curve.errors.checkpoints, curve.errors
    return Slopes(slope(T, errors.square_bias), slope(T, errors.value_mse), slope(T, errors.w2))


def markdown(curves: list[Curve]) -> str:
    """Return the table of powers of T, predicted and measured, and of what is left at the end."""
    last = curves[0].errors.checkpoints[-1]
    scale = float(exact.directions(exact.corridor()).variance.mean())
    lines = [
        "| ϖ | what | bias: predicted | measured | MSE: predicted | measured | W2: predicted "
        f"| measured | bias at T = {last:,}, relative | largest z |",
        "|---|---|" + "---:|" * 8,
    ]
    for curve in curves:
        wanted, found = predicted(curve.setting.power), measured(curve)
        worst = max(map(abs, curve.chains.z.values()))
        w2 = f"{wanted.w2:.2f} | {found.w2:.2f}" if np.isfinite(found.w2) else "– | –"
        # LKTD's bias passes through zero on its way to its own limit: no power of T.
        bias = "–" if curve.setting.sampler == "lktd" else f"{found.bias:.2f}"
        lines.append(
            f"| {POWER_NAMES[curve.setting.power]} | {label(curve.setting)} "
            f"| {wanted.bias:.2f} | {bias} | {wanted.mse:.2f} | {found.mse:.2f} "
            f"| {w2} | {curve.errors.square_bias[-1] / scale:+.3f} | {worst:.1f} |"
        )
    return "\n".join(lines)


def own_markdown(curves: list[Curve]) -> str:
    """Return the table of fixed memories, each against the posterior of its own data."""
    lines = [
        "| ϖ | R | bias: predicted | measured | MSE: predicted | measured |",
        "|---|---:|" + "---:|" * 4,
    ]
    for curve in curves:
        if curve.setting.memory != "fixed":
            continue
        wanted, errors = predicted(curve.setting.power), curve.errors
        bias = slope(errors.checkpoints, errors.own_square_bias)
        mse = slope(errors.checkpoints, errors.own_value_mse)
        lines.append(
            f"| {POWER_NAMES[curve.setting.power]} | {curve.setting.capacity:,} "
            f"| {wanted.bias:.2f} | {bias:.2f} | {wanted.mse:.2f} | {mse:.2f} |"
        )
    return "\n".join(lines)


def proof_markdown(curves: list[Curve]) -> str:
    """Return the table of what the proofs bound: the step's length, and W2 beside its bound."""
    lines = [
        "| ϖ | power of E‖θ_T − θ_{T−1}‖²: in the proof | measured | T | W2 | its bound |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for curve in curves:
        if curve.setting != Setting(curve.setting.power):
            continue
        power, errors = curve.setting.power, curve.errors
        T = errors.checkpoints
        bound = printed_bound(power, T)
        for at in (np.searchsorted(T, T[-1] // 100), len(T) - 1):
            cells = f"{-2 * power:.2f} | {slope(T, errors.move):.2f} | {T[at]:,}"
            lines += [
                f"| {POWER_NAMES[power]} | {cells} | {errors.w2[at]:.5f} | {bound[at]:,.0f} |"
            ]
    return "\n".join(lines)


def as_json(curves: list[Curve], *, chains: int, seed: int) -> dict[str, Any]:
    """Return everything but the chains themselves."""
    return {
        "valuetrack": __version__,
        "check": "rates",
        "chains": chains,
        "seed": seed,
        "curves": [_curve_as_json(curve) for curve in curves],
    }


def load(folder: Path) -> list[Curve]:
    """Read back what a run wrote."""
    document = json.loads((folder / "rates.json").read_text(encoding="utf-8"))
    return [_curve(curve) for curve in document["curves"]]


def _curve(saved: dict[str, Any]) -> Curve:
    exact_ones: dict[str, Any] = {k: np.array(x, float) for k, x in saved["exact"].items()}
    chains: dict[str, Any] = {k: x if k == "z" else np.array(x) for k, x in saved["chains"].items()}
    exact_ones["checkpoints"] = np.array(saved["exact"]["checkpoints"])
    return Curve(Setting(**saved["setting"]), Errors(**exact_ones), Simulated(**chains))


def _curve_as_json(curve: Curve) -> dict[str, Any]:
    return {
        "setting": curve.setting._asdict(),
        "predicted": predicted(curve.setting.power)._asdict(),
        "measured": _plain(measured(curve)._asdict()),
        "exact": _plain(curve.errors._asdict()),
        "chains": _plain(curve.chains._asdict()),
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return arrays as lists of seven digits, and NaN, which JSON does not know, as null."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return None if np.isnan(value) else float(f"{value:.7g}")
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, list) else value

    return {k: plain(v.tolist() if isinstance(v, np.ndarray) else v) for k, v in fields.items()}
