r"""How strongly LKTD's likelihood acts when xi is restarted: the numbers behind the docs.

The variance felt depends on the step only through :math:`s = \epsilon / (2(1-\alpha)\sigma^2)`,
besides :math:`\mathcal K`, :math:`\alpha` and :math:`n/\mathcal N`; see
:func:`~valuetrack.checks.linear_gaussian.lktd_effective_variance`.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from valuetrack.checks.linear_gaussian import lktd_effective_variance

ALPHAS = (0.5, 0.9)
RATIOS = (1.0, 0.1, 0.01)
SCALED_STEPS = (0.005, 0.05)
INNER_ITERATIONS = (1, 5, 20, 100, 1000)


class Bias(NamedTuple):
    """The variance felt, in units of sigma^2, by number of inner iterations and in the limit."""

    alpha: float
    ratio: float
    scaled_step: float
    by_inner_iterations: dict[str, float]
    many: float


class Setting(NamedTuple):
    """An experiment of the paper, as far as the bias depends on it."""

    name: str
    step_size: float
    observation_sd: float
    batch_size: int
    pseudo_population: int
    alpha: float = 0.9
    inner_iterations: int = 5

    @property
    def ratio(self) -> float:
        """The batch size over the pseudo-population, n / N."""
        return self.batch_size / self.pseudo_population

    @property
    def scaled_time(self) -> float:
        """How far xi gets in an update: K eps / (2 (1 - alpha) sigma^2)."""
        analysis_variance = 2 * (1 - self.alpha) * self.observation_sd**2
        return self.inner_iterations * self.step_size / analysis_variance

    @property
    def effective_variance(self) -> float:
        """The variance felt, in units of sigma^2."""
        return effective_variance(
            self.scaled_time / self.inner_iterations, self.inner_iterations, self.alpha, self.ratio
        )

    @property
    def many(self) -> float:
        """The same after ever more, ever smaller inner steps."""
        return many_iterations(self.alpha, self.ratio)


SETTINGS = (
    Setting("indoor escape", 1e-5, 0.1, 100, 10_000),
    Setting("CartPole", 2.5e-5, 1.0, 64, 20_000),
)


def effective_variance(scaled_step: float, count: int, alpha: float, ratio: float) -> float:
    """Return the variance felt over sigma^2, after ``count`` equal inner steps."""
    steps = [2 * (1 - alpha) * scaled_step] * count
    return lktd_effective_variance(step_sizes=steps, alpha=alpha, variance=1.0, ratio=ratio)


def many_iterations(alpha: float, ratio: float) -> float:
    """Return the variance felt over sigma^2 after ever more, ever smaller inner steps."""
    return alpha + ratio * (1 - alpha)


def table() -> list[Bias]:
    """Tabulate the variance felt against alpha, n/N, step and K."""
    return [
        Bias(
            alpha,
            ratio,
            step,
            {str(k): effective_variance(step, k, alpha, ratio) for k in INNER_ITERATIONS},
            many_iterations(alpha, ratio),
        )
        for alpha, ratio, step in product(ALPHAS, RATIOS, SCALED_STEPS)
    ]


def markdown() -> str:
    """Return :func:`table` for the docs."""
    heads = [f"K = {count}" for count in INNER_ITERATIONS]
    lines = [
        "| α | n/N | s | " + " | ".join(heads) + " | K → ∞, s → 0 |",
        "|" + "---:|" * (4 + len(heads)),
    ]
    for row in table():
        felt = " | ".join(f"{value:.3f}" for value in (*row.by_inner_iterations.values(), row.many))
        lines.append(f"| {row.alpha:g} | {row.ratio:g} | {row.scaled_step:g} | {felt} |")
    return "\n".join(lines)


def settings_markdown() -> str:
    """Return the variance felt at the paper's settings for the docs."""
    lines = [
        "| setting | ε | σ | n/N | α | K | K s | variance felt / σ² | K → ∞, s → 0 |",
        "|---|" + "---:|" * 8,
    ]
    lines += [
        f"| {s.name} | {s.step_size:g} | {s.observation_sd:g} | {s.ratio:g} | {s.alpha:g} "
        f"| {s.inner_iterations} | {s.scaled_time:.2g} | {s.effective_variance:.5f} "
        f"| {s.many:.5f} |"
        for s in SETTINGS
    ]
    return "\n".join(lines)
