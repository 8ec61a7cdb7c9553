import json
import math

import numpy as np
import pytest

from tests.report import synthetic
from tests.report.folders import console
from valuetrack.io.run_folder import StoreError
from valuetrack.report import make_report, write_report
from valuetrack.report.indoor_escape import paper
from valuetrack.report.indoor_escape.claims import claims
from valuetrack.report.indoor_escape.data import load, summarise
from valuetrack.report.indoor_escape.tables import standard_errors_apart, tables
from valuetrack.report.run_data import read_manifest
from valuetrack.report.statistics import pooled_statistics as statistics


def same(values):
    """Give every action the same final values: seed -> five of them."""
    return {(seed, action): v for seed, v in values.items() for action in synthetic.ACTIONS}


def numbers(folder):
    run = load(folder, read_manifest(folder))
    return run, summarise(run)


def table(run, key):
    return next(table for table in tables(run) if table.key == key)


def line(table, name):
    return next(line for line in table.lines if line[0] == name)


def verdicts(run):
    return {claim.statement: claim.holds for claim in claims(run)}


def test_statistics_know_their_answers():
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 100.0])
    seeds = np.array([0, 0, 0, 1, 1, 1])
    trimmed = statistics(values, seeds, judged=values)
    # Quartiles 2.25 and 4.75, so everything above 8.5 goes; seed means 2 and 4.5.
    assert trimmed["mean"] == pytest.approx(3.0)
    assert trimmed["sd"] == pytest.approx(math.sqrt(2.5))
    assert trimmed["se"] == pytest.approx(1.25)
    assert (trimmed["kept"], trimmed["dropped"]) == (5, 1)
    whole = statistics(values, seeds)
    assert whole["mean"] == pytest.approx(115 / 6)
    assert whole["se"] == pytest.approx((109 / 3 - 2) / 2)
    assert (whole["kept"], whole["dropped"]) == (6, 0)


def test_both_tails_are_trimmed_and_equal_values_are_kept():
    values = np.array([-50.0, 1, 1, 2, 2, 3, 3, 50])
    tails = statistics(values, np.arange(8), judged=values)
    assert (tails["mean"], tails["dropped"]) == (pytest.approx(2.0), 2)
    assert statistics(np.ones(5), np.arange(5), judged=np.ones(5))["dropped"] == 0


def test_a_window_is_cut_by_its_mean_over_the_actions(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",))
    # Action E stands out in seed 0, but only seed 1's windows stand out in the mean.
    values = {(seed, action): [1.0 + seed / 100] * 5 for seed in range(8) for action in "ENWS"}
    values[0, "E"], values[0, "N"] = [9.0] * 5, [-7.0] * 5
    values[1, "W"] = [30.0] * 5
    synthetic.fill(folder, "dqn", list(range(8)), values)
    figures = numbers(folder)[1]["dqn"]["metrics"]
    for action in "ENWS":
        cut = figures[action]["mse"]["trimmed"]
        assert (cut["kept"], cut["dropped"]) == (35, 5)
        assert figures[action]["mse"]["untrimmed"]["dropped"] == 0
    others = [1.0 + seed / 100 for seed in range(2, 8)]
    assert figures["E"]["mse"]["trimmed"]["mean"] == pytest.approx((9 + sum(others)) / 7)
    assert figures["W"]["mse"]["trimmed"]["mean"] == pytest.approx((1 + sum(others)) / 7)


def test_statistics_of_too_little_are_none():
    alone = statistics(np.array([1.0, 3.0]), np.array([4, 4]), judged=np.array([1.0, 3.0]))
    assert (alone["mean"], alone["se"]) == (2.0, None)
    nothing = statistics(np.array([np.nan]), np.array([0]), judged=np.array([np.nan]))
    assert nothing == {"mean": None, "sd": None, "se": None, "kept": 0, "dropped": 1}


def test_summary_pools_final_windows_and_leaves_diverged_seeds_out(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",))
    values = {0: [1.0] * 5, 1: [2.0] * 5, 2: [9.0] * 5, 3: [3.0] * 5}
    synthetic.fill(folder, "dqn", [0, 1], same(values))
    synthetic.fill(folder, "dqn", [2, 3], same(values), diverged={2: 77})
    write_report(folder, console())
    summary = make_report(folder).summary
    assert json.loads((folder.path / "summary.json").read_text()) == summary
    row = summary["dqn"]
    assert (row["seeds_run"], row["seeds_diverged"]) == (4, [2])
    assert set(row["metrics"]) == {"E", "N", "W", "S"}
    names = {"mse", "coverage", "credible_coverage", "width", "legal_width"}
    assert set(row["metrics"]["W"]) == names
    figures = row["metrics"]["E"]["mse"]["trimmed"]
    assert figures["mean"] == pytest.approx(2.0)
    assert figures["se"] == pytest.approx(1 / math.sqrt(3))
    assert figures["kept"] == 15


def test_one_seed_gives_null_and_valid_json(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",), seeds=1)
    synthetic.fill(folder, "dqn", [0])
    write_report(folder, console())
    text = (folder.path / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["dqn"]["metrics"]["E"]["mse"]["trimmed"]["se"] is None


def test_a_row_whose_seeds_all_diverged_is_shown_as_such(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("lktd-2500", "dqn"), seeds=1)
    synthetic.fill(folder, "lktd-2500", [0], diverged={0: 5})
    synthetic.fill(folder, "dqn", [0])
    run, summary = numbers(folder)
    assert summary["lktd-2500"]["metrics"]["E"]["mse"]["trimmed"]["mean"] is None
    shown = table(run, "mse-EN")
    assert line(shown, "LKTD N=2500")[1:3] == ("0", "–")
    near = "LKTD, SGLD, SGHMC: coverage within 0.015 of the paper's"
    assert verdicts(run)[near] is False


def test_nothing_finished_is_an_error(tmp_path):
    folder = synthetic.create(tmp_path / "run")
    with pytest.raises(StoreError, match="none of its units has finished"):
        make_report(folder)


def test_rows_unknown_to_the_manifest_are_an_error(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",))
    synthetic.fill(folder, "kova", [0])
    with pytest.raises(StoreError, match="kova"):
        make_report(folder)


def test_the_paper_has_every_row():
    assert set(paper.indoor_escape()) == set(synthetic.ROWS) == set(paper.all_actions())
    assert paper.indoor_escape()["lktd-10000"]["E"]["mse"] == (0.00020, 0.00012)
    assert paper.indoor_escape()["sghmc-2500"]["N"]["coverage"] == (0.94578, 0.00931)
    assert paper.indoor_escape()["kova"]["E"]["width"] == (0.04756, 0.02534)
    assert paper.all_actions()["bootdqn"]["S"]["width"] == (0.35767, None)
    assert paper.all_actions()["qrdqn"]["W"]["coverage"] == (0.88767, None)
    assert paper.compute_time()["qrdqn", (32, 32), 200] == (2.95, 2.95)
    assert paper.compute_time()["lktd", (64, 64), 100] == (7.43, 1.486)


def test_differences_are_in_joint_standard_errors():
    ours = statistics(np.array([1.0, 1.0, 7.0, 7.0]), np.array([0, 0, 1, 1]))
    assert ours["se"] == pytest.approx(3.0)
    assert standard_errors_apart(ours, paper.Figure(14.0, 40.0)) == pytest.approx(-2.0)
    assert standard_errors_apart(ours, paper.Figure(1.0)) == pytest.approx(1.0)
    alone = statistics(np.array([1.0, 2.0]), np.array([0, 0]))
    assert standard_errors_apart(alone, paper.Figure(1.0, 1.0)) is None


def test_tables_put_the_paper_beside_the_right_row(tmp_path):
    rows = ("sghmc-5000", "qrdqn", "kova")
    folder = synthetic.create(tmp_path / "run", rows=rows, seeds=3)
    values = {0: [0.1] * 5, 1: [0.2] * 5, 2: [0.3] * 5}
    synthetic.fill(folder, "sghmc-5000", [0, 1, 2], same(values), diverged={1: 42})
    synthetic.fill(folder, "qrdqn", [0, 1, 2])
    synthetic.fill(folder, "kova", [0, 1])
    run, _ = numbers(folder)
    first = table(run, "mse-EN")
    apart = (0.2 - 0.00016) / math.hypot(0.1, 0.00009 / 10)
    assert line(first, "SGHMC N=5000")[:6] == (
        "SGHMC N=5000", "2", "0.20000 (0.10541)", "0.00016 (0.00009)", f"{apart:+.1f}", "0/10",
    )  # fmt: skip
    assert line(first, "QR-DQN")[7] == "0.00583 (0.00342)"
    notes = " ".join(first.notes)
    left_out = "SGHMC N=5000: diverged and left out: seed 1 (update 42)."
    shown = [*tables(run), make_report(folder).claims]
    assert all(left_out in made.notes for made in shown)
    assert "Fewer than 3 seeds: KOVA 2." in notes
    assert "0.00445 and 0.00473" in notes
    assert line(table(run, "mse-WS"), "KOVA")[3] == "0.00827"
    second = table(run, "intervals-EN")
    assert [part[2] for part in second.lines if part[0] == "KOVA"] == ["E", "N"]
    assert line(second, "KOVA")[4] == "0.241 (0.152)"
    assert line(second, "KOVA")[9] == "0.048 (0.025)"


def test_short_and_unfinished_runs_say_so(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("lktd-2500", "dqn"), steps=20_000)
    synthetic.fill(folder, "dqn", [0, 1, 2, 3], steps=20_000)
    notes = " ".join(table(numbers(folder)[0], "mse-EN").notes)
    assert "20,000 environment steps" in notes
    assert "Not finished: lktd-2500." in notes


def test_values_that_are_not_finite_are_counted(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",))
    values = {0: [0.1, 0.1, 0.1, 0.1, np.nan], 1: [0.2] * 5}
    synthetic.fill(folder, "dqn", [0, 1], same(values))
    notes = " ".join(table(numbers(folder)[0], "mse-EN").notes)
    assert "not finite, left out: DQN 2." in notes


def test_times_stand_beside_the_papers(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("qrdqn",))
    synthetic.fill(folder, "qrdqn", [0])
    assert not any(made.key == "time" for made in tables(numbers(folder)[0]))
    folder.write_json("timing.json", synthetic.timing())
    run, _ = numbers(folder)
    shown = table(run, "time")
    assert line(shown, "QR-DQN")[1:7] == (
        "32-32", "100", "1", "0.241", "0.219 to 0.268", "2.41",
    )  # fmt: skip
    assert verdicts(run)["KOVA: time per inner iteration at least 20 times that of LKTD"]


def level(folder, row, value):
    """Give a row two seeds around a mean squared error."""
    synthetic.fill(folder, row, [0, 1], same({0: [0.99 * value] * 5, 1: [1.01 * value] * 5}))


def test_claims_hold_or_do_not(tmp_path):
    folder = synthetic.create(tmp_path / "run", seeds=2)
    levels = {
        "lktd-2500": 3e-4, "lktd-5000": 2e-4, "lktd-10000": 1e-4, "sgld-2500": 2e-4,
        "sgld-5000": 3e-4, "dqn": 51e-4, "bootdqn": 49e-4, "qrdqn": 99e-4, "kova": 101e-4,
    }  # fmt: skip
    for row, value in levels.items():
        level(folder, row, value)
    run, _ = numbers(folder)
    found = verdicts(run)
    assert found["LKTD: MSE falls as N rises"] is True
    assert found["SGLD: MSE falls as N rises"] is False
    assert found["SGHMC: MSE falls as N rises"] is None
    assert found["DQN: MSE at least 50 times that of LKTD"] is True
    assert found["BootDQN: MSE at least 50 times that of LKTD"] is False
    assert found["DQN: coverage below 0.6"] is True
    assert found["QR-DQN: MSE 5 to 100 times that of LKTD"] is True
    assert found["KOVA: MSE 5 to 100 times that of LKTD"] is False
    near = next(claim for claim in claims(run) if "within 40 %" in claim.statement)
    assert near.holds is False
    assert "LKTD N=10000 E (0.00010, 0.00020)" in near.measured


def test_the_share_of_states_with_both_ways_open_is_counted_over_inner_states(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("lktd-10000", "dqn"), seeds=2)
    for row, north in (("lktd-10000", [0.25, 0.3]), ("dqn", [0.19, 0.25])):
        synthetic.fill(folder, row, [0, 1], policy={seed: north[seed] for seed in (0, 1)})
    claim = next(c for c in claims(numbers(folder)[0]) if "inner states" in c.statement)
    assert claim.measured == "1.000 against 0.500, means over 2 and 2 seeds"
    assert claim.holds is False


def test_what_was_run_is_told(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("lktd-2500",), seeds=3)
    synthetic.fill(folder, "lktd-2500", [0, 1, 2], diverged={2: 1})
    shown = table(numbers(folder)[0], "seeds")
    assert line(shown, "LKTD N=2500") == ("LKTD N=2500", "1e-05", "3", "1", "-18.50", "30")


def test_a_run_too_short_to_be_measured_has_no_figures(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("dqn",))
    seeds = {"row": np.array(["dqn"]), "seed": np.array([0]), "diverged_at": np.array([-1])}
    tables = {"seeds": seeds | {"wall_seconds": np.array([1.0])}, "metrics": {}}
    folder.finish_unit("dqn", "seeds-0", tables, {})
    run, summary = numbers(folder)
    assert summary["dqn"]["metrics"]["E"]["mse"]["trimmed"]["mean"] is None
    assert line(table(run, "mse-EN"), "DQN")[2] == "–"
