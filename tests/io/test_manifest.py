"""The manifest: what readers rely on is there, and nothing else reaches a terminal."""

from __future__ import annotations

import json

import pytest

from tests.io.samples import MANIFEST, manifest
from valuetrack.io.run_folder import RunFolder, StoreError


def refused(folder, content) -> str:
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(StoreError) as error:
        RunFolder.open(folder)
    text = str(error.value)
    assert text.startswith(str(folder / "manifest.json"))
    assert text.isprintable()
    assert text.endswith(".")
    assert len(text) < len(str(folder)) + 300
    return text


def test_a_good_manifest_is_good(tmp_path):
    content = manifest() | {"wall_seconds": 1.5}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    assert RunFolder.open(tmp_path).manifest() == content


PLACES = [
    *(key for key in MANIFEST if key != "format"),
    *("spec.name", "spec.measure", "spec.measure.kind", "spec.rows", "seeds.first", "seeds.count"),
    *(f"spec.rows.0.{key}" for key in MANIFEST["spec"]["rows"][0]),
    *(f"rows.0.{key}" for key in MANIFEST["rows"][0] if key != "commit"),  # which may be left out
]


@pytest.mark.parametrize("place", PLACES)
def test_a_key_that_is_missing_or_of_another_type(tmp_path, place):
    assert f"{place} is missing;" in refused(tmp_path, manifest(place))
    for value in (1.5, ["x"], {"x": 1}, True, [[0, 1, 2]], -1):
        if place.endswith(("options", "machine")) and isinstance(value, dict):
            continue
        assert "is damaged: " in refused(tmp_path, manifest(place, value))


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("rows.0.units", [[0, 0]], "a unit has no seeds"),
        ("rows.0.units", [[-1, 2]], "rows.0.units.0.0: "),
        ("rows.0.units", [["0", 2]], "rows.0.units.0.0: "),
        ("rows.0.id", "another", "the row 'another' is not in its spec"),
        ("rows.0.id", "../../up", "cannot be the name of a folder"),
        ("rows", MANIFEST["rows"] * 2, "two rows have the same id"),
        ("seeds.count", 0, "seeds.count: "),
        ("rows.0.steps", "1000", "rows.0.steps: "),
    ],
)
def test_values_that_cannot_be(tmp_path, place, value, said):
    assert said in refused(tmp_path, manifest(place, value))


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x07b", "\x9b31m", "a\rb", "\x00"])
@pytest.mark.parametrize(
    "place", ["rows.0.label", "rows.0.id", "machine.cpu", "spec.rows.0.options", "created"]
)
def test_control_characters_do_not_reach_a_terminal(tmp_path, place, text):
    value = {"a": [text]} if place.endswith("options") else text
    assert "holds control characters" in refused(tmp_path, manifest(place, value))
    assert "control characters" in refused(tmp_path, manifest("machine", {text: 1}))


def test_labels_are_one_line_and_other_texts_may_be_more(tmp_path):
    assert "rows.0.label" in refused(tmp_path, manifest("rows.0.label", "two\nlines"))
    assert "rows.0.label" in refused(tmp_path, manifest("rows.0.label", "turned \u202e round"))
    content = manifest("spec.description", "two\nlines")
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    assert RunFolder.open(tmp_path).manifest() == content


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (1, "was written by an earlier development version of valuetrack (format 1); run the"),
        (3, "was written by a newer valuetrack in format 3; update valuetrack"),
        (10**1000, "was written by a newer valuetrack"),
        (0, "it has no format number"),
        ("2", "it has no format number"),
        (True, "it has no format number"),
        (None, "it has no format number"),
    ],
)
def test_other_formats(tmp_path, version, said):
    assert said in refused(tmp_path, manifest("format", version))
    assert said in refused(tmp_path, {"format": version})
