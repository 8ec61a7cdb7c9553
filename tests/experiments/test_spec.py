from __future__ import annotations

import pytest
from valuetrack.experiments.build import build_loop, build_problem
from valuetrack.experiments.unit import plan_segments

from valuetrack.experiments.spec import SpecError, load, load_file, parse
from valuetrack.networks import parameter_count

SPEC = load("indoor_escape")


def test_the_thirteen_rows_of_the_paper_are_there():
    ids = [row.id for row in SPEC.rows]
    sampling = [f"{name}-{n}" for name in ("lktd", "sgld", "sghmc") for n in (2500, 5000, 10000)]
    assert ids == [*sampling, "dqn", "bootdqn", "qrdqn", "kova"]


@pytest.mark.parametrize("preset", ["reference", "paper"])
@pytest.mark.parametrize("row", SPEC.rows, ids=lambda row: row.id)
def test_every_row_can_be_built(row, preset):
    import jax

    loop = build_loop(SPEC, row, preset, build_problem(SPEC))
    state = jax.eval_shape(loop.init, jax.random.key(0))
    outputs = {"bootdqn": 40, "qrdqn": 40}.get(row.algorithm, 4)
    expected = 2 * 32 + 32 + 32 * 32 + 32 + 32 * outputs + outputs
    assert parameter_count(state.agent.sampler.params) == expected


def test_the_presets_differ_where_code_and_paper_do():
    reference, paper = SPEC.presets["reference"], SPEC.presets["paper"]
    assert (reference.gradient, paper.gradient) == ("semi", "full")
    assert (reference.likelihood_weight, paper.likelihood_weight) == (2.0, 1.0)
    assert (reference.inner_power, paper.inner_power) == (0.9, 0.0)
    assert (reference.prior_phase_in, paper.prior_phase_in) == (10_000, 0)
    assert (reference.sghmc_momentum, paper.sghmc_momentum) == ("none", "restarted")
    assert (reference.kova_jacobian, paper.kova_jacobian) == ("differenced", "plain")


def test_segments_add_up_to_the_run():
    segments = plan_segments(SPEC)
    cycles = sum(s.collect + s.train for s in segments)
    assert cycles == SPEC.training.steps // SPEC.training.steps_per_update
    assert sum(s.collect for s in segments) == 99  # the first update is at step 1000
    final = [s for s in segments if s.final]
    assert len(final) == 50
    assert sum(s.train for s in final) == 5_000
    assert all(s.evaluate for s in final)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["training"].update(stpes=1), "training.stpes: unknown key"),
        (lambda d: d.update(colour="red"), "colour: unknown key"),
        (lambda d: d["training"].update(steps=-5), "training.steps"),
        (lambda d: d["training"].update(steps="many"), "training.steps"),
        (lambda d: d["presets"]["paper"].update(gradient="half"), "gradient"),
        (lambda d: d["rows"][0].pop("pseudo_population"), "pseudo_population belongs"),
        (lambda d: d["rows"][9].update(pseudo_population=5), "pseudo_population belongs"),
        (lambda d: d["rows"][0].update(id="../up"), "rows.0.id"),
        (lambda d: d["presets"].update(mine={}), "presets"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(change, sentence):
    data = SPEC.model_dump()
    data["rows"] = [dict(row) for row in data["rows"]]
    change(data)
    with pytest.raises(SpecError, match=sentence) as caught:
        parse(data, "spec.toml")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_not_toml(tmp_path):
    with pytest.raises(SpecError, match="no file"):
        load_file(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("name = [")
    with pytest.raises(SpecError, match="not valid TOML"):
        load_file(tmp_path / "broken.toml")


def test_unknown_rows_and_uneven_steps_are_refused():
    with pytest.raises(SpecError, match=r"no row 'dqn2'.*lktd-2500"):
        SPEC.row("dqn2")
    with pytest.raises(ValueError, match="multiple of 10,000"):
        plan_segments(SPEC.with_steps(15_000))


def test_the_hash_sees_every_number_but_not_the_quick_run():
    assert SPEC.hash("reference") != SPEC.hash("paper")
    assert SPEC.hash("reference") != SPEC.with_steps(500_000).hash("reference")
    data = SPEC.model_dump()
    data["quick"]["seeds"] = 77
    assert parse(data, "x").hash("reference") == SPEC.hash("reference")
