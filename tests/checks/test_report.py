"""The linear-Gaussian check as a report: files, repeatability, and that it can fail."""

import importlib
import io
import json
import sys
from pathlib import Path

import jax
import pytest
from rich.console import Console

from valuetrack.checks import cases, latent_bias, report
from valuetrack.checks.cases import Case, Limit

FIGURES = {f"{name}.png" for name in ("limit", "latent-bias", "ellipses")}
SHORT = (Case("sgld", "", 1, 0.02), Case("lktd", "restart", 1, 0.012))
ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "valuetrack.checks.figures", raising=False)
    monkeypatch.delattr("valuetrack.checks.figures", raising=False)


def check(out, *, seed=0, chains=500, width=120):
    console = Console(file=io.StringIO(), width=width)
    passed = report.run_check(out, chains=chains, seed=seed, quick=True, console=console)
    return passed, console.file.getvalue()


def test_quick_check_passes_and_writes_everything(tmp_path):
    before = jax.config.jax_enable_x64
    passed, text = check(tmp_path / "new" / "out")
    assert passed
    assert jax.config.jax_enable_x64 == before
    files = {path.name for path in (tmp_path / "new" / "out").iterdir()}
    assert files == {"check.json", "check.md"} | FIGURES
    result = json.loads((tmp_path / "new" / "out" / "check.json").read_text())
    assert result["passed"]
    assert {(r["sampler"], r["form"]) for r in result["rows"]} == {
        (c.sampler, c.form) for c in cases.CASES
    }
    assert text.count("✓") == len(result["rows"])
    assert "✗" not in text
    for name in FIGURES:
        content = (tmp_path / "new" / "out" / name).read_bytes()
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


def test_same_seed_same_files(tmp_path, no_matplotlib, monkeypatch):
    monkeypatch.setattr(cases, "QUICK_CASES", SHORT[:1])
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        check(tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name / "check.json").read_bytes() for name in "abc")
    assert a == b
    assert json.loads(a)["rows"][0]["sampled"] != json.loads(c)["rows"][0]["sampled"]


def test_without_matplotlib_the_rest_is_there(tmp_path, no_matplotlib, monkeypatch):
    monkeypatch.setattr(cases, "QUICK_CASES", SHORT[:1])
    passed, text = check(tmp_path)
    assert passed
    assert report.PLOT_HINT in text
    assert {path.name for path in tmp_path.iterdir()} == {"check.json", "check.md"}


def test_doubled_noise_fails(tmp_path, no_matplotlib, monkeypatch):
    monkeypatch.setattr(cases, "QUICK_CASES", SHORT)
    module = importlib.import_module("valuetrack.samplers.sgld")
    right = module.gaussian_like
    monkeypatch.setattr(
        module, "gaussian_like", lambda key, tree: jax.tree.map(lambda x: 2 * x, right(key, tree))
    )
    passed, text = check(tmp_path)
    assert not passed
    assert text.count("✗") == 1
    rows = json.loads((tmp_path / "check.json").read_text())["rows"]
    assert [row["passed"] for row in rows] == [False, True]


@pytest.mark.parametrize("options", [{"chains": 5, "seed": 0}, {"chains": 100, "seed": -1}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ValueError, match=r"chains|seed"):
        cases.run_cases(SHORT, **options)


@pytest.mark.parametrize("case", cases.CASES[:11], ids=lambda c: f"{c.sampler}-{c.form}")
def test_limit_law_is_where_small_steps_lead(case):
    model = cases.model_of(case)
    target = cases.small_step_limit(case).law(model)
    far, near = (
        cases.lg.wasserstein2(cases.exact_law(case._replace(step_size=step), model), target)
        for step in (1e-4, 1e-5)
    )
    assert near < 2e-4
    assert near == pytest.approx(far / 10, rel=0.05)  # first order in the step


def test_limit_labels():
    assert Limit().label == "posterior"
    assert Limit(variance=0.9).label == "0.9 σ²"
    assert Limit(temperature=0.3085).label == "τ = 0.31"


@pytest.mark.parametrize("setting", latent_bias.SETTINGS, ids=lambda s: s.name)
def test_bias_at_the_papers_settings(setting):
    expected = cases.lg.lktd_effective_variance(
        step_sizes=[setting.step_size] * setting.inner_iterations,
        alpha=setting.alpha,
        variance=setting.observation_sd**2,
        ratio=setting.ratio,
    )
    assert setting.effective_variance * setting.observation_sd**2 == pytest.approx(expected)
    assert 0.9 <= setting.effective_variance < 0.9001


def test_the_docs_show_the_committed_run():
    tables = (ROOT / "results" / "check" / "check.md").read_text().strip().split("\n\n")
    docs = (ROOT / "docs" / "posterior.md").read_text()
    assert len(tables) == 3
    for table in tables:
        assert table in docs
