"""The benchmarks' arithmetic; their times are measured elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the scripts import each other, as they do when one of them is run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]


def test_spread_and_ratio():
    from common import ratio, spread, with_spread

    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0}
    # Repetition by repetition: a slow moment that meets both does not count.
    assert ratio([2.0, 20.0, 6.0], [1.0, 10.0, 2.0]) == {"median": 2.0, "low": 2.0, "high": 3.0}
    assert with_spread(spread([1000.0, 2000.0, 1500.0])) == "1,500 (1,000 to 2,000)"


def test_exponent_of_the_upper_half():
    from common import exponent

    sizes = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert exponent(sizes, [size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [100.0, 2.0, 4.0, 8.0, 16.0]) == pytest.approx(1.0)
    assert exponent(sizes[:2], [1.0, 4.0]) == pytest.approx(2.0)


def test_the_machine_is_described_without_its_name():
    from common import machine

    described = machine("matplotlib", "no-such-package")
    assert described["cores"] >= 1
    assert {"python", "jax", "matplotlib"} <= set(described["versions"])
    assert "no-such-package" not in described["versions"]


def test_peers_get_the_same_options():
    from worker import peer_options

    options = {
        "hidden": [256, 256], "learning_rate": 1e-3, "replay_capacity": 5_000, "batch_size": 64,
        "learning_starts": 100, "discount": 0.98, "steps_per_update": 8, "updates_per_cycle": 2,
        "target_every": 50, "quantiles": 200, "exploration_initial": 0.1, "exploration_final": 0.1,
    }  # fmt: skip
    translated = peer_options("DQN", options)
    assert translated["train_freq"] == 8
    assert translated["gradient_steps"] == 2
    assert translated["target_update_interval"] == 200  # 50 updates, 4 steps for each
    assert translated["policy_kwargs"] == {"net_arch": [256, 256]}
    assert peer_options("QRDQN", options)["policy_kwargs"]["n_quantiles"] == 200
    # The first layer after their convolutions is part of what makes the features.
    with_images = peer_options("DQN", {**options, "hidden": [512, 64]}, images=True)
    assert with_images["policy_kwargs"] == {
        "net_arch": [64],
        "features_extractor_kwargs": {"features_dim": 512},
    }


def test_every_competitor_of_ours_can_be_built_and_has_its_rivals():
    from competitors import job_of, settings
    from images import SETTINGS
    from valuetrack.api.options import parse
    from valuetrack.registry import AGENTS

    kinds = {kind.__name__: kind.options_type for kind in AGENTS.values()}
    for setting in (*settings().values(), *SETTINGS.values()):
        labels = [competitor.label for competitor in setting.competitors]
        assert len(set(labels)) == len(labels)
        for competitor in setting.competitors:
            assert set(competitor.rivals) <= set(labels)
            job = job_of(setting, competitor)
            json.dumps(job)
            if competitor.library == "valuetrack":
                parse(kinds[job["algorithm"]], job["options"], competitor.label)


@pytest.mark.parametrize("seeds", [1, 2, 8, 32, 100])
def test_all_seeds_are_trained_in_units_spread_over_the_cores(seeds: int):
    from seeds import units_of_cores

    shares = units_of_cores(seeds, 2)
    assert sum(map(sum, shares)) == seeds
    assert max(map(max, filter(None, shares))) <= 10
    # Units are data, whatever the machine: one core may have a unit more than another.
    assert abs(len(shares[0]) - len(shares[1])) <= 1
    sizes = [size for share in shares for size in share]
    assert max(sizes) - min(sizes) <= 1


def test_growth_knows_its_sizes():
    from growth import RATIO_WIDTH, WIDTHS, algorithms, parameters_of
    from valuetrack import networks

    network = networks.mlp(16, 1, hidden=(24, 24))
    import jax

    assert networks.parameter_count(network.init(jax.random.key(0))) == parameters_of(24)
    assert [round(parameters_of(w), -3) for w in (WIDTHS[0], WIDTHS[-1])] == [1_000, 10_001_000]
    assert parameters_of(RATIO_WIDTH) == pytest.approx(1e6, rel=1e-2)
    assert "KOVA" in algorithms(91, 32)
    assert "KOVA" not in algorithms(307, 32)


def test_products_are_counted_through_loops():
    import jax
    import jax.numpy as jnp

    from throughput import count_products

    def chain(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c @ b, None), a, None, length=3)[0]

    traced = jax.make_jaxpr(jax.jit(chain))(jnp.ones((5, 4)), jnp.ones((4, 4)))
    assert count_products(traced.jaxpr) == 3 * 2 * 5 * 4 * 4


def test_the_papers_times_stand_beside_ours():
    from updates import beside_paper

    rows = [
        {"algorithm": "lktd", "hidden": [32, 32], "batch_size": 100, "ms_per_update": 0.5},
        {"algorithm": "lktd", "hidden": [7], "batch_size": 100, "ms_per_update": 0.5},
    ]
    known, unknown = beside_paper(rows)
    assert known["times_faster"] == known["paper_ms_per_update"] / 0.5
    assert unknown["times_faster"] is None
