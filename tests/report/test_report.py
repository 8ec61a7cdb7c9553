import re

import pytest

from tests.report import synthetic
from tests.report.folders import (
    NASTY,
    check,
    check_escaped,
    console,
    without_matplotlib,
)
from valuetrack.io.manifest import Manifest
from valuetrack.io.run_folder import StoreError
from valuetrack.report import NO_PLOT, Column, Table, to_html, to_markdown, to_rich, write_report
from valuetrack.report.indoor_escape import NO_TIMES, paper
from valuetrack.report.page import command

FIGURES = ("mse", "coverage", "width", "policy", "reliability", "learning")


def make_small(path):
    """Make two rows of a planned thirteen, one seed each."""
    folder = synthetic.create(path, seeds=1)
    for row in ("lktd-10000", "dqn"):
        synthetic.fill(folder, row, [0])
    return folder


@pytest.fixture
def small(tmp_path):
    return make_small(tmp_path / "run")


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The small run after a report, and what was printed."""
    folder = make_small(tmp_path_factory.mktemp("reported") / "run")
    out = console(80)
    write_report(folder, out)
    return folder, out.file.getvalue()


def test_a_full_run_is_reported_whole(tmp_path):
    folder = synthetic.create(tmp_path / "run", seeds=3)
    for row in synthetic.ROWS:
        synthetic.fill(folder, row, [0, 1, 2], diverged={1: 9} if row == "kova" else None)
    folder.write_json("timing.json", synthetic.timing())
    out = console(140)
    assert write_report(folder, out) == folder.path / "report.html"
    for name in FIGURES:
        assert (folder.path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (folder.path / "report.html").read_text()
    checker = check(page)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in checker.links)
    assert not re.search(r"https?://|@import|url\(", page)
    assert {"script", "link", "iframe"}.isdisjoint(checker.tags)
    assert {f"#{id}" for id in checker.ids} >= {x for x in checker.links if x[0] == "#"}
    for fact in ("0123abcd", "f" * 40, "jax: 0.7.0", "a chip", "20 min 34 s", "--seeds 3"):
        assert fact in page
    for text in (out.file.getvalue(), page, (folder.path / "tables.md").read_text()):
        assert "KOVA: diverged and left out: seed 1 (update 9)." in re.sub(r"\s+", " ", text)


def test_missing_rows_and_one_seed_are_fine(reported):
    folder, printed = reported
    page = (folder.path / "report.html").read_text()
    check(page)
    assert "2 of 13 rows" in page
    for name in FIGURES:
        assert (folder.path / "figures" / f"{name}.png").is_file()
    assert NO_TIMES in " ".join(printed.split())
    assert NO_TIMES in page


def test_a_second_report_is_the_same(reported):
    folder, _ = reported
    names = ("summary.json", "tables.md", "report.html", "figures/mse.png")
    first = [(folder.path / name).read_bytes() for name in names]
    write_report(folder, console())
    assert [(folder.path / name).read_bytes() for name in names] == first


def test_a_run_whose_seeds_all_diverged_is_reported(tmp_path):
    folder = synthetic.create(tmp_path / "run", rows=("lktd-2500",), seeds=1)
    synthetic.fill(folder, "lktd-2500", [0], diverged={0: 3})
    write_report(folder, console())
    assert "seed 0 (update 3)" in (folder.path / "report.html").read_text()


def test_without_matplotlib_tables_are_still_made(small, monkeypatch):
    without_matplotlib(monkeypatch)
    out = console()
    write_report(small, out)
    assert NO_PLOT in " ".join(out.file.getvalue().split())
    assert (small.path / "summary.json").is_file()
    assert not (small.path / "figures").exists()
    check((small.path / "report.html").read_text())


def test_an_empty_run_is_an_error(tmp_path):
    folder = synthetic.create(tmp_path / "run")
    with pytest.raises(StoreError):
        write_report(folder, console())
    assert not (folder.path / "report.html").exists()


def test_labels_are_escaped_everywhere(tmp_path):
    rows = [synthetic.ROWS["dqn"] | {"label": NASTY, "units": [[0, 1]]}]
    changes = {"rows": rows, "machine": {"cpu": NASTY}, "commit": NASTY}
    folder = synthetic.create(tmp_path / "run", seeds=1, changes=changes)
    synthetic.fill(folder, "dqn", [0])
    out = console(300)
    write_report(folder, out)
    check_escaped(folder, out.file.getvalue())


def test_a_wide_table_is_split_in_a_narrow_terminal():
    columns = (Column("name", words=True), Column("x", "first"), Column("x", "second"))
    table = Table("t", "Title", columns, (("row", "1" * 30, "2" * 30),))
    out = console(50)
    out.print(to_rich(table, 50))
    text = out.file.getvalue()
    assert "Title: first" in text
    assert "1" * 30 in text
    assert "2" * 30 in text
    assert all(len(line.split("2" * 30)) == 1 for line in text.splitlines() if "1" * 30 in line)


def test_one_structure_has_three_faces():
    columns = (Column("who", words=True), Column("a", "G"), Column("b", "G"))
    table = Table("key", "T", columns, (("x|y", "1", "✓"),), ("a < b",))
    assert to_markdown(table) == (
        "### T\n\n| who | G a | G b |\n| :-- | --: | --: |\n| x\\|y | 1 | ✓ |\n\n- a &lt; b\n"
    )
    page = to_html(table)
    check(page)
    assert 'colspan="2">G</th>' in page
    assert '<td class="yes">✓</td>' in page


def test_the_command_to_repeat_a_run(small):
    manifest = small.manifest()

    def repeated(**changes):
        return command(Manifest.model_validate(manifest | changes), lambda row: paper.STEPS)

    common = "valuetrack reproduce indoor-escape --preset reference"
    assert repeated() == f"{common} --seed 0 --seeds 1"
    assert repeated(rows=manifest["rows"][:2]).endswith("--rows lktd-2500,lktd-5000")
    shorter = [row | {"steps": 20_000} for row in manifest["rows"]]
    assert repeated(rows=shorter) == f"{common} --steps 20000 --seed 0 --seeds 1"
    units = [[[0, 10], [10, 10]], [[0, 5]]]
    rows = [row | {"units": u} for row, u in zip(manifest["rows"], units, strict=False)]
    assert repeated(rows=rows) == (
        f"{common} --seed 0 --seeds 20 --rows lktd-2500 --out RUN && "
        f"{common} --seed 0 --seeds 5 --rows lktd-5000 --out RUN"
    )
    assert repeated(command=["valuetrack", "a b"]) == "valuetrack 'a b'"
