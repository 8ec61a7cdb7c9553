import dataclasses
import json
import math
import re

import gymnasium
import numpy as np
import pytest
from scipy import stats

from tests.report import control_synthetic as synthetic
from tests.report.folders import (
    FILES,
    NASTY,
    check,
    check_escaped,
    console,
    without_matplotlib,
)
from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import StoreError
from valuetrack.report import NO_PLOT, make_report, write_report
from valuetrack.report.control import algorithm_claims, settings_claims
from valuetrack.report.control.data import TASKS, forward_filled, load, summarise
from valuetrack.report.control.figures import iqm_figure, task_figure
from valuetrack.report.control.tables import tables as control_tables
from valuetrack.report.control.tables import usual_steps
from valuetrack.report.page import command
from valuetrack.report.run_data import read_manifest
from valuetrack.report.statistics import seed_statistics as statistics
from valuetrack.report.statistics import welch

CARTPOLE = ("cartpole-lktd", "cartpole-dqn", "cartpole-qrdqn")


def numbers(folder):
    run = load(folder, read_manifest(folder))
    return run, summarise(run)


def line(table, name):
    return next(line for line in table.lines if line[0] == name)


def cells(table, name):
    titles = (f"{column.group} {column.title}".strip() for column in table.columns)
    return dict(zip(titles, line(table, name), strict=True))


def claim(run, start):
    found = [c for c in algorithm_claims(run) if c.statement.startswith(start)]
    assert len(found) == 1
    return found[0]


def by_hand(tables, seed):
    """Return a seed's numbers, straight from the table of points."""
    mine = tables["points"]["seed"] == seed
    points = {name: values[mine] for name, values in tables["points"].items()}
    totals = points["training_return"] * points["training_episodes"]
    late = points["point"] > 90
    return {
        "training_return": np.nansum(totals) / points["training_episodes"].sum(),
        "final_training_return": np.nansum(totals[late]) / points["training_episodes"][late].sum(),
        "final_evaluation_return": points["evaluation_return"][late].mean(),
        "best_return": points["evaluation_return"].max(),
        "final_start_value": points["start_value"][late].mean(),
        "final_discounted_return": points["discounted_return"][late].mean(),
        "final_value_error": (points["start_value"] - points["discounted_return"])[late].mean(),
    }


def test_the_summary_is_what_the_points_say(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:1], seeds=9)
    first = synthetic.fill(folder, "cartpole-lktd", [0, 1, 2, 3, 4])
    second = synthetic.fill(folder, "cartpole-lktd", [5, 6, 7, 8], diverged={6: 41})
    row = numbers(folder)[1]["cartpole-lktd"]
    assert (row["seeds_run"], row["seeds_diverged"]) == (9, [6])
    kept = [by_hand(first, s) for s in range(5)] + [by_hand(second, s) for s in (5, 7, 8)]
    for metric, figures in row["metrics"].items():
        values = np.array([numbers[metric] for numbers in kept])
        assert figures["mean"] == pytest.approx(values.mean())
        assert figures["sd"] == pytest.approx(values.std(ddof=1))
        assert figures["se"] == pytest.approx(values.std(ddof=1) / math.sqrt(8))
        assert figures["iqm"] == pytest.approx(np.sort(values)[2:6].mean())
        draws = np.random.default_rng(0).integers(8, size=(2000, 8))
        means = stats.trim_mean(values[draws], 0.25, axis=1)
        expected = np.quantile(means, [0.025, 0.975])
        assert figures["iqm_interval"] == pytest.approx(tuple(expected))
        assert (figures["seeds"], figures["missing"]) == (8, [])
    solved = [s for s, one in zip([0, 1, 2, 3, 4, 5, 7, 8], kept, strict=True)
              if one["best_return"] >= 475]  # fmt: skip
    assert row["seeds_solved"] == solved


def test_the_thresholds_are_gymnasiums():
    for env, task in TASKS.items():
        assert gymnasium.spec(env).reward_threshold == task.solved


def test_too_few_seeds_give_none():
    alone = statistics({4: 2.0})
    assert (alone["mean"], alone["iqm"]) == (2.0, 2.0)
    assert (alone["sd"], alone["se"], alone["iqm_interval"]) == (None, None, None)
    nothing = statistics({1: np.nan})
    assert (nothing["mean"], nothing["iqm"], nothing["missing"]) == (None, None, [1])


def test_the_table_has_a_line_an_algorithm(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:2], seeds=3)
    levels = {0: 470.0, 1: 480.0, 2: 490.0}
    synthetic.fill(folder, "cartpole-lktd", [0, 1, 2], level=levels)
    synthetic.fill(folder, "cartpole-dqn", [0, 1, 2], level=levels, diverged={2: 9})
    run, _ = numbers(folder)
    table, _ = control_tables(run)
    error = 10 / math.sqrt(3)
    assert cells(table, "LKTD") == {
        "algorithm": "LKTD",
        "seeds": "3",
        "diverged": "0",
        "min/seed": "2.0",
        "training return mean ± se": f"480.0 ± {error:.1f}",
        "training return IQM [95 %]": "480.0 [470.0, 490.0]",
        "evaluation final ± se": f"480.0 ± {error:.1f}",
        "evaluation best ± se": f"480.0 ± {error:.1f}",
        "evaluation reach 475": "67 %",
    }
    other = cells(table, "DQN")
    assert (other["seeds"], other["diverged"]) == ("3", "1")
    assert other["training return mean ± se"] == "475.0 ± 5.0"
    assert other["evaluation reach 475"] == "33 %"  # the diverged seed is one that does not
    assert "DQN: diverged and left out: seed 2 (update 9)." in table.notes
    claims = make_report(folder).claims
    assert "CartPole-v1, DQN: diverged and left out: seed 2 (update 9)." in claims.notes
    figure = task_figure(run.tasks[0])
    assert "DQN: diverged and left out: seed 2 (update 9)." in figure[1]
    assert "CartPole-v1, DQN: diverged and left out" in iqm_figure(run.tasks)[1]


def test_values_are_held_against_returns_where_they_were_kept(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE, seeds=4)
    kept = ("discounted_return", "start_value")
    points = {
        name: np.full(synthetic.POINTS, value)
        for name, value in zip(kept, (90.0, 95.0), strict=False)
    }
    others = points | {"start_value": points["start_value"] + 2}
    synthetic.fill(folder, "cartpole-lktd", [0, 1], without=kept)
    synthetic.fill(folder, "cartpole-lktd", [2, 3], changes={2: points, 3: others})
    synthetic.fill(folder, "cartpole-dqn", [0], without=kept)
    synthetic.fill(folder, "cartpole-qrdqn", [0], changes={0: points})
    run, summary = numbers(folder)
    *_, table = control_tables(run)
    assert table.lines == (
        ("CartPole-v1", "LKTD", "2", "96.0", "90.0", "6.0 ± 1.0"),
        ("CartPole-v1", "QR-DQN", "1", "95.0", "90.0", "5.0 ± –"),
    )
    assert summary["cartpole-lktd"]["metrics"]["final_value_error"]["missing"] == [0, 1]
    assert summary["cartpole-lktd"]["metrics"]["training_return"]["seeds"] == 4


def test_differences_are_welchs():
    ours, theirs = np.array([3.0, 5.0, 4.0, 8.0]), np.array([1.0, 2.0, 9.0])
    figures = [statistics(dict(enumerate(side))) for side in (ours, theirs)]
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    error, low, high = welch(*figures)
    assert error == pytest.approx((ours.mean() - theirs.mean()) / test.statistic)
    assert (low, high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert welch(figures[0], statistics({0: 1.0})) is None
    same = statistics({0: 2.0, 1: 2.0})
    assert welch(same, same) == (0.0, 0.0, 0.0)


def test_claims_hold_or_do_not(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE, seeds=5)
    bests = {"cartpole-lktd": [470, 476, 477, 478, 479], "cartpole-dqn": [10, 11, 12, 13, 14],
             "cartpole-qrdqn": [400, 470, 480, 500, 490]}  # fmt: skip
    for row, levels in bests.items():
        synthetic.fill(folder, row, range(5), level=dict(enumerate(map(float, levels))))
    run, summary = numbers(folder)
    clear = claim(run, "CartPole-v1: LKTD's mean training return above DQN's")
    assert clear.holds is True
    error = math.hypot(summary["cartpole-lktd"]["metrics"]["training_return"]["se"], math.sqrt(0.5))
    assert clear.measured == f"+464.0 ± {error:.1f} (476.0 against 12.0; 5 and 5 seeds)"
    noisy = claim(run, "CartPole-v1: LKTD's mean training return above QR-DQN's")
    assert noisy.holds is None
    assert noisy.measured.endswith("; within the noise")
    solved = claim(run, "CartPole-v1: at least 8 of 10")
    assert (solved.holds, solved.measured) == (True, "4 of 5 (80 %)")
    for env in ("MountainCar-v0", "LunarLander-v3", "Acrobot-v1"):
        absent = claim(run, f"{env}: LKTD's mean training return above DQN's")
        assert (absent.holds, absent.measured) == (None, "not measured in this run")


def test_a_lower_return_is_no_and_diverged_seeds_solve_nothing(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:2], seeds=4)
    synthetic.fill(folder, "cartpole-lktd", range(4), {3: 5}, level=dict.fromkeys(range(4), 480.0))
    synthetic.fill(folder, "cartpole-dqn", range(4), level=dict.fromkeys(range(4), 490.0))
    run, _ = numbers(folder)
    below = claim(run, "CartPole-v1: LKTD's mean training return above DQN's")
    assert below.holds is False
    assert below.measured == "-10.0 ± 0.0 (480.0 against 490.0; 3 and 4 seeds)"
    solved = claim(run, "CartPole-v1: at least 8 of 10")
    assert solved.holds is False
    assert solved.measured.startswith("3 of 4 (75 %), diverged seeds counted")


def test_seeds_in_which_no_episode_ended_are_named(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("acrobot-dqn",), seeds=3)
    never = {
        "training_return": np.full(synthetic.POINTS, np.nan),
        "training_episodes": np.zeros(synthetic.POINTS, int),
    }
    synthetic.fill(folder, "acrobot-dqn", [0, 1, 2], changes={1: never})
    run, summary = numbers(folder)
    figures = summary["acrobot-dqn"]["metrics"]["training_return"]
    assert (figures["seeds"], figures["missing"]) == (2, [1])
    table, _ = control_tables(run)
    assert "Without a value, and left out: DQN, training return: seed 1." in table.notes
    figure, caption = task_figure(run.tasks[0])
    assert len(figure.axes[0].lines[0].get_xdata()) > 90
    assert "seed 1." in caption


def test_returns_are_filled_forward():
    nan = np.nan
    values = np.array([[nan, 1.0, nan, nan, 2.0], [3.0, nan, 4.0, nan, nan]])
    expected = [[nan, 1.0, 1.0, 1.0, 2.0], [3.0, 3.0, 4.0, 4.0, 4.0]]
    np.testing.assert_array_equal(forward_filled(values), expected)


def test_curves_are_means_with_bands_over_seeds(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("mountaincar-lktd",), seeds=5)
    tables = synthetic.fill(folder, "mountaincar-lktd", range(5))
    run, _ = numbers(folder)
    figure, _ = task_figure(run.tasks[0])
    evaluation = tables["points"]["evaluation_return"].reshape(5, -1)
    drawn = figure.axes[1].lines[0]
    np.testing.assert_allclose(drawn.get_ydata(), evaluation.mean(axis=0))
    np.testing.assert_array_equal(drawn.get_xdata(), 2000 * np.arange(1, 101))
    corners = figure.axes[1].collections[0].get_paths()[0].vertices[:, 1]
    low, high = np.quantile(evaluation, [0.05, 0.95], axis=0)
    assert (corners.min(), corners.max()) == pytest.approx((low.min(), high.max()))


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A full run after a report, and what was printed."""
    folder = synthetic.create(tmp_path_factory.mktemp("control") / "run", seeds=3)
    for row in synthetic.ROWS:
        broken = {1: 9} if row == "lunarlander-lktd" else None
        synthetic.fill(folder, row, [0, 1, 2], diverged=broken)
    out = console(140)
    assert write_report(folder, out) == folder.path / "report.html"
    return folder, out.file.getvalue()


def test_a_full_run_is_reported_whole(reported):
    folder, printed = reported
    page = (folder.path / "report.html").read_text()
    checker = check(page)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in checker.links)
    assert not re.search(r"https?://|@import|url\(", page)
    assert {"script", "link", "iframe"}.isdisjoint(checker.tags)
    facts = ("classic-control", "cartpole-lktd: 3", "0123abcd", "f" * 40, "jax: 0.7.0", "a chip",
             "20 min 34 s", "reproduce classic-control --preset reference --seed 0 --seeds 3<",
             "12 of 12 rows", "LunarLander-v3 200,000")  # fmt: skip
    for fact in facts:
        assert fact in page
    for text in (printed, page, (folder.path / "tables.md").read_text()):
        words = re.sub(r"\s+", " ", text)
        assert "LKTD: diverged and left out: seed 1 (update 9)." in words
        assert "Gymnasium no longer has" in words
    summary = json.loads((folder.path / "summary.json").read_text())
    assert list(summary) == list(synthetic.ROWS)


def test_figures_have_their_panels(reported):
    folder, _ = reported
    for name in ("cartpole", "mountaincar", "lunarlander", "acrobot"):
        path = folder.path / "figures" / f"returns-{name}"
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert (folder.path / "figures" / "iqm.png").is_file()
    run, _ = numbers(folder)
    for task in run.tasks:
        figure, _ = task_figure(task)
        titles = [axes.get_title() for axes in figure.axes]
        assert titles == ["training return", "evaluation return", "best model so far"]
        assert all(len(axes.collections) == 3 for axes in figure.axes)
    figure, _ = iqm_figure(run.tasks)
    assert [axes.get_title() for axes in figure.axes] == list(TASKS)


def test_rows_of_one_algorithm_have_colours_of_their_own_and_are_held_against_the_first(tmp_path):
    labels = ("LKTD", "LKTD, inner_iterations = 2", "LKTD, inner_iterations = 5")
    entries = [
        synthetic.ROWS[row] | {"algorithm": "lktd", "label": label, "units": [[0, 3]]}
        for row, label in zip(CARTPOLE, labels, strict=True)
    ]
    changes = {"experiment": "lktd-settings", "rows": entries}
    folder = synthetic.create(tmp_path / "run", changes=changes)
    for height, row in enumerate(CARTPOLE):
        synthetic.fill(folder, row, [0, 1, 2], level={0: height, 1: height + 0.1, 2: height - 0.1})
    run, _ = numbers(folder)
    figure, _ = task_figure(run.tasks[0])
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 3
    found = settings_claims(run)
    assert [claim.statement for claim in found] == [
        f"CartPole-v1: {label} above LKTD" for label in labels[1:]
    ]
    assert all(claim.holds for claim in found)
    assert found[0].measured.startswith("+1.0 ± 0.1 (1.0 against 0.0; 3 and 3 seeds)")
    assert "above LKTD" in write_report(folder, console()).read_text(encoding="utf-8")


def test_more_rows_than_colours_are_told_apart(reported):
    folder, _ = reported
    run, _ = numbers(folder)
    row = run.tasks[0].rows[0]
    rows = tuple(
        dataclasses.replace(row, entry=row.entry.model_copy(update={"id": f"row-{i}"}))
        for i in range(13)
    )
    task = dataclasses.replace(run.tasks[0], rows=rows)
    figure, _ = task_figure(task)
    lines = figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 13


def test_a_second_report_is_the_same(reported):
    folder, _ = reported
    names = (*FILES, "figures/iqm.png", "figures/returns-cartpole.png")
    first = [(folder.path / name).read_bytes() for name in names]
    write_report(folder, console())
    assert [(folder.path / name).read_bytes() for name in names] == first


def test_missing_rows_and_one_seed_are_fine(tmp_path):
    folder = synthetic.create(tmp_path / "run", seeds=2)
    for row in ("cartpole-lktd", "cartpole-dqn", "acrobot-qrdqn"):
        synthetic.fill(folder, row, [0])
    out = console(80)
    write_report(folder, out)
    page = (folder.path / "report.html").read_text()
    check(page)
    assert "3 of 12 rows" in page
    assert "NaN" not in (folder.path / "summary.json").read_text()
    run, _ = numbers(folder)
    first, second, _ = control_tables(run)
    assert re.fullmatch(r"[\d.]+ ± –", cells(first, "LKTD")["training return mean ± se"])
    assert re.fullmatch(r"[\d.]+ \[–\]", cells(first, "LKTD")["training return IQM [95 %]"])
    assert "Fewer seeds than asked for: LKTD 1 of 2; DQN 1 of 2." in first.notes
    assert "Not finished: cartpole-qrdqn." in first.notes
    assert "Not finished: acrobot-lktd, acrobot-dqn." in second.notes
    alone = claim(run, "CartPole-v1: LKTD's mean training return above DQN's")
    assert "too few seeds" in alone.measured
    assert len(iqm_figure(run.tasks)[0].axes) == 2


def test_a_run_whose_seeds_all_diverged_is_reported(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:2], seeds=2)
    synthetic.fill(folder, "cartpole-lktd", [0, 1], diverged={0: 3, 1: 4})
    synthetic.fill(folder, "cartpole-dqn", [0, 1])
    write_report(folder, console())
    assert "seed 0 (update 3), seed 1 (update 4)" in (folder.path / "report.html").read_text()
    run, _ = numbers(folder)
    assert cells(control_tables(run)[0], "LKTD")["training return mean ± se"] == "–"
    none = claim(run, "CartPole-v1: LKTD's mean training return above DQN's")
    assert none.holds is None
    assert "no seed that counts" in none.measured
    assert claim(run, "CartPole-v1: at least 8").holds is False


def test_a_run_of_nothing_but_diverged_seeds_has_no_figures(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:1], seeds=1)
    synthetic.fill(folder, "cartpole-lktd", [0], diverged={0: 3})
    write_report(folder, console())
    check((folder.path / "report.html").read_text())
    assert not (folder.path / "figures").exists()


def test_labels_are_escaped_everywhere(tmp_path):
    rows = [
        synthetic.ROWS["cartpole-dqn"]
        | {"label": NASTY, "env": f"../{NASTY}-v1", "units": [[0, 2]]}
    ]
    changes = {"rows": rows, "machine": {"cpu": NASTY}, "commit": NASTY}
    folder = synthetic.create(tmp_path / "run", seeds=2, changes=changes)
    synthetic.fill(folder, "cartpole-dqn", [0, 1], diverged={1: 3})
    out = console(300)
    write_report(folder, out)
    check_escaped(folder, out.file.getvalue())
    names = {path.name for path in (folder.path / "figures").iterdir()}
    assert len(names) == 2
    assert all(re.fullmatch(r"[a-z0-9-]+\.png", name) for name in names)
    assert line(control_tables(numbers(folder)[0])[0], NASTY)[-1] == "–"  # no threshold is known


def test_without_matplotlib_tables_are_still_made(tmp_path, monkeypatch):
    folder = synthetic.create(tmp_path / "run", rows=CARTPOLE[:1], seeds=1)
    synthetic.fill(folder, "cartpole-lktd", [0])
    without_matplotlib(monkeypatch)
    out = console()
    write_report(folder, out)
    assert NO_PLOT in " ".join(out.file.getvalue().split())
    assert not (folder.path / "figures").exists()
    check((folder.path / "report.html").read_text())


def test_an_empty_run_and_an_unknown_experiment_are_errors(tmp_path):
    folder = synthetic.create(tmp_path / "run")
    with pytest.raises(StoreError, match="none of its units has finished"):
        write_report(folder, console())
    other = synthetic.create(tmp_path / "other", changes={"experiment": "atari"})
    with pytest.raises(StoreError, match="'atari'"):
        write_report(other, console())


def test_the_command_to_repeat_a_run(tmp_path):
    manifest = synthetic.create(tmp_path / "run", seeds=10).manifest()

    def repeated(**changes):
        return command(Manifest.model_validate(manifest | changes), usual_steps)

    common = "valuetrack reproduce classic-control --preset reference"
    assert repeated() == f"{common} --seed 0 --seeds 10"
    short = [row | {"steps": 26_000} for row in manifest["rows"][:2]]
    assert repeated(rows=short) == (
        f"{common} --steps 26000 --seed 0 --seeds 10 --rows cartpole-lktd,cartpole-dqn"
    )
