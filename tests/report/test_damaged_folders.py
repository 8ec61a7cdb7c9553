"""Folders that someone else has made: links, escape sequences, missing and renamed parts."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.report import control_synthetic, synthetic
from tests.report.folders import ESCAPES, console
from valuetrack.cli import app
from valuetrack.io.checksums import DIGEST, seal
from valuetrack.io.run_folder import TABLES, UNIT, RunFolder, StoreError
from valuetrack.io.tables import read_table, write_table
from valuetrack.report import write_report

RUNS = [(synthetic, "dqn"), (control_synthetic, "cartpole-dqn")]
BOTH = pytest.mark.parametrize(("made", "row"), RUNS, ids=["grid", "control"])


def make(path, made, row, **options):
    folder = made.create(path, rows=(row,), seeds=1, **options)
    made.fill(folder, row, [0])
    return folder


def change_manifest(folder, change):
    manifest = folder.manifest()
    change(manifest)
    folder.write_json("manifest.json", manifest)


def replace_table(path, columns):
    """Write another table into a finished unit, with its checksum as its writer would."""
    digest = write_table(path, columns)
    info = json.loads((path.parent / UNIT).read_text())
    info.pop(DIGEST)
    info[TABLES][path.stem] = digest
    (path.parent / UNIT).write_text(seal(info))


def refused(folder):
    """Return the sentence with which a report is refused; nothing has been written."""
    with pytest.raises(StoreError) as caught:
        write_report(folder, console())
    assert not (folder.path / "tables.md").exists()
    text = str(caught.value)
    assert text.count("\n") == 0
    return text


@pytest.mark.parametrize(
    ("made", "row", "name"),
    [
        (*RUNS[0], "report.html"),
        *((*RUNS[1], name) for name in ("report.html", "tables.md", "summary.json")),
    ],
)
def test_a_report_does_not_write_through_a_link_to_a_file(made, row, name, tmp_path):
    folder = make(tmp_path / "run", made, row)
    outside = tmp_path / "precious.txt"
    outside.write_text("precious")
    (folder.path / name).symlink_to(outside)
    with pytest.raises(StoreError, match=f"{name} is a link"):
        write_report(folder, console())
    assert outside.read_text() == "precious"
    assert not (folder.path / "figures").exists()


def test_a_report_does_not_write_through_a_link_to_a_folder(tmp_path):
    folder = make(tmp_path / "run", *RUNS[1])
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (folder.path / "figures").symlink_to(outside)
    assert "figures is a link" in refused(folder)
    assert list(outside.iterdir()) == []


def test_a_dangling_link_and_a_link_to_a_figure_are_refused_too(tmp_path):
    folder = make(tmp_path / "run", synthetic, "dqn")
    (folder.path / "figures").mkdir()
    (folder.path / "figures" / "mse.png").symlink_to(tmp_path / "new.png")
    assert "mse.png is a link" in refused(folder)
    assert not (tmp_path / "new.png").exists()


def test_a_run_whose_own_folder_is_a_link_is_reported(tmp_path):
    make(tmp_path / "run", *RUNS[1])
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    write_report(RunFolder.open(tmp_path / "latest"), console())
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_file_in_place_of_the_figures_is_named(tmp_path):
    folder = make(tmp_path / "run", *RUNS[1])
    (folder.path / "figures").write_text("mine")
    assert "figures is a file" in refused(folder)


@BOTH
@pytest.mark.parametrize("where", ["label", "id", "commit", "env"])
def test_escape_sequences_are_refused_and_not_repeated(made, row, where, tmp_path):
    folder = make(tmp_path / "run", made, row)
    change_manifest(folder, lambda manifest: manifest["rows"][0].update({where: ESCAPES}))
    sentence = refused(folder)
    assert f"rows.0.{where}" in sentence
    assert "\x1b" not in sentence


@BOTH
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("rows is missing", lambda manifest: manifest.pop("rows")),
        ("rows.0.units is missing", lambda manifest: manifest["rows"][0].pop("units")),
        ("rows.0.label", lambda manifest: manifest["rows"][0].update(label=3)),
        ("spec is missing", lambda manifest: manifest.pop("spec")),
        ("rows", lambda manifest: manifest.update(rows={"id": "dqn"})),
        ("format", lambda manifest: manifest.update(format=1)),
        ("no format number", lambda manifest: manifest.pop("format")),
    ],
)
def test_a_damaged_manifest_is_one_sentence(made, row, part, change, tmp_path):
    folder = make(tmp_path / "run", made, row)
    change_manifest(folder, change)
    assert part in refused(folder)


@BOTH
@pytest.mark.parametrize("name", ["diverged_at", "seed", "row", "wall_seconds"])
def test_a_renamed_column_is_named(made, row, name, tmp_path):
    folder = make(tmp_path / "run", made, row)
    (path,) = folder.path.glob("units/*/*/seeds.parquet")
    columns = read_table(path)
    columns["other"] = columns.pop(name)
    replace_table(path, columns)
    assert f"the tables of seeds have no column '{name}'" in refused(folder)


@pytest.mark.parametrize(
    ("made", "row", "table", "name"),
    [
        (synthetic, "dqn", "metrics", "coverage"),
        (synthetic, "dqn", "calibration", "level"),
        (synthetic, "dqn", "policy", "probability"),
        (control_synthetic, "cartpole-dqn", "points", "evaluation_return"),
    ],
)
def test_a_renamed_column_of_any_table_is_named(made, row, table, name, tmp_path):
    folder = make(tmp_path / "run", made, row)
    (path,) = folder.path.glob(f"units/*/*/{table}.parquet")
    columns = read_table(path)
    columns["other"] = columns.pop(name)
    replace_table(path, columns)
    assert f"the tables of {table} have no column '{name}'" in refused(folder)
    columns[name] = np.array(["text"] * len(columns["other"]))
    replace_table(path, columns)
    assert f"'{name}' in the tables of {table} is not a number" in refused(folder)


def test_a_column_that_only_one_unit_lacks_is_named(tmp_path):
    folder = make(tmp_path / "run", synthetic, "dqn")
    synthetic.fill(folder, "dqn", [1])
    path = min(folder.path.glob("units/*/*/seeds.parquet"))
    columns = read_table(path)
    del columns["diverged_at"]
    replace_table(path, columns)
    assert "some tables of seeds have no 'diverged_at'" in refused(folder)


def test_a_policy_that_leaves_the_grid_and_damaged_times_are_refused(tmp_path):
    folder = make(tmp_path / "run", synthetic, "dqn")
    folder.write_json("timing.json", {"rows": [{"algorithm": "dqn"}]})
    assert "timing.json is damaged at rows.0.hidden" in refused(folder)
    (folder.path / "timing.json").unlink()
    (path,) = folder.path.glob("units/*/*/policy.parquet")
    columns = read_table(path)
    replace_table(path, columns | {"cell": columns["cell"] + 10_000})
    assert "leave the grid" in refused(folder)


def test_square_brackets_in_a_path_are_printed(tmp_path):
    folder = make(tmp_path / "runs[red]" / "[bold]1", control_synthetic, "cartpole-dqn")
    result = CliRunner().invoke(app, ["report", str(folder.path)])
    assert result.exit_code == 0, result.output
    assert "runs[red]/[bold]1/report.html" in result.output.replace("\n", "")


def test_the_command_line_refuses_in_one_sentence(tmp_path):
    folder = make(tmp_path / "run", synthetic, "dqn")
    manifest = folder.manifest() | {"rows": [{"id": "\x1b[31m"}]}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    result = CliRunner().invoke(app, ["report", str(folder.path)])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
