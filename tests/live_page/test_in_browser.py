"""The live page in a real browser: it loads offline, follows a run, and takes choices."""

from __future__ import annotations

import time

import pytest

from tests.live_page.browser import CHROMIUM, browsing
from tests.live_page.folders import (
    GRID,
    ROW,
    UNIT,
    frame,
    make_grown,
    make_run,
    record,
    served,
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
SCRIPT = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>'
PIXELS = "document.querySelector('#map-plots canvas').toDataURL()"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as running:
        running.resize(1280, 900)
        yield running


@pytest.fixture
def opened(browser, tmp_path):
    """Return a run, and the browser that shows it."""
    browser.errors.clear()
    folder = make_grown(tmp_path / "run")
    with served(folder.path) as server:
        browser.open(server.address)
        browser.wait_for("document.querySelectorAll('#curves figure').length == 2")
        browser.wait_for("!document.getElementById('maps').hidden")
        yield folder, browser
        assert browser.errors == []
        browser.open("about:blank")


def text(browser, name):
    return browser.evaluate(f"document.getElementById('{name}').textContent")


def choose(browser, name, value):
    browser.evaluate(
        f"{{const e = document.getElementById('{name}'); e.value = '{value}';"
        "e.dispatchEvent(new Event('change'))}"
    )


def test_the_page_shows_how_far_the_run_is(opened):
    _, browser = opened
    assert text(browser, "name") == "run"
    assert text(browser, "state") == "Running"
    assert text(browser, "steps") == "600 of 4,000"
    assert text(browser, "rate") == "50"
    assert text(browser, "left") == "1 min"
    titles = browser.evaluate(
        "[...document.querySelectorAll('figure h3')].filter(e => e.offsetParent)"
        ".map(e => e.textContent)"
    )
    assert titles == [
        "Values and policy", "Exact values", "Interval widths", "Q-values of cell (0, 0), seed 0",
        "Training return", "Loss",
    ]  # fmt: skip


def test_maps_and_curves_change_while_the_run_goes_on(opened):
    folder, browser = opened
    assert text(browser, "moment") == "Seed 0, step 300"
    before = browser.evaluate(PIXELS)
    folder.append_map(ROW, UNIT, GRID, frame(400, mean=frame(3)["mean"]))
    folder.append_progress(ROW, UNIT, record(400))
    browser.wait_for("document.getElementById('moment').textContent == 'Seed 0, step 400'")
    assert browser.evaluate(PIXELS) != before
    assert text(browser, "steps") == "800 of 4,000"
    caption = "document.querySelector('#curves figcaption').textContent"
    assert browser.evaluate(caption).startswith("Step 400: median of seeds 400.5 (400 to 401)")


def test_the_slider_moves_with_the_keys(opened):
    folder, browser = opened
    browser.evaluate("document.getElementById('slider').focus()")
    browser.press("ArrowLeft")
    browser.wait_for("document.getElementById('moment').textContent == 'Seed 0, step 200'")
    folder.append_map(ROW, UNIT, GRID, frame(400))
    folder.append_progress(ROW, UNIT, record(400))
    browser.wait_for("document.getElementById('slider').max == '3'")
    assert text(browser, "moment") == "Seed 0, step 200"  # who looks back is left alone
    browser.evaluate("document.querySelector('#map-plots canvas').focus()")
    browser.press("ArrowUp")
    browser.wait_for("document.querySelector('.wide h3').textContent.includes('cell (0, 1)')")


def test_seeds_can_be_chosen(opened):
    _, browser = opened
    choose(browser, "seed", 1)
    browser.wait_for("document.getElementById('moment').textContent.startsWith('Seed 1,')")
    caption = "document.querySelector('#curves figcaption').textContent"
    browser.wait_for(f"{caption}.includes('seed 1 301')")
    choose(browser, "seed", "")
    browser.wait_for(f"!{caption}.includes('seed 1')")


def test_every_plot_becomes_a_picture(opened, tmp_path):
    _, browser = opened
    out = tmp_path / "pictures"
    out.mkdir()
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(out))
    browser.evaluate(
        "for (const e of document.querySelectorAll('figure .head button'))"
        " if (e.offsetParent !== null) e.click()"
    )
    end = time.monotonic() + 30
    while len(list(out.glob("*.png"))) < 6:
        assert time.monotonic() < end, list(out.iterdir())
        browser.evaluate("1")
        time.sleep(0.1)
    names = {path.name for path in out.iterdir()}
    assert "training-return-run-lktd-lktd-4-seeds.png" in names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.iterdir())


def test_light_dark_and_a_telephone(opened):
    _, browser = opened
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    browser.prefer("dark")
    dark = browser.evaluate(colour)
    browser.prefer("light")
    light = browser.evaluate(colour)
    assert dark != light
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(colour) == dark
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(colour) == light
    browser.resize(390, 844, 2, mobile=True)
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
    finally:
        browser.resize(1280, 900)


def test_controls_have_names(opened):
    _, browser = opened
    nameless = browser.evaluate(
        "[...document.querySelectorAll('button, select, input, canvas, progress')].filter(e =>"
        "e.offsetParent && !e.getAttribute('aria-label') && !e.closest('label')"
        " && !e.textContent.trim())"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []


def test_script_in_a_run_is_shown_and_not_run(browser, tmp_path):
    browser.errors.clear()
    folder = make_run(tmp_path / "run", label=SCRIPT)
    name = "<b onclick='x'>bold</b>"
    folder.append_progress(ROW, UNIT, record(100, **{name: [1.0, 2.0]}))
    with open(folder.unit_path(ROW, UNIT) / "progress.jsonl", "ab") as file:
        file.write(b"damage\n")
    with served(folder.path) as server:
        browser.open(server.address)
        browser.wait_for("document.querySelectorAll('#curves figure').length == 3")
        assert text(browser, "row") == f"{SCRIPT} ({ROW})"
        assert browser.evaluate("window.hacked === undefined")
        assert browser.evaluate("document.querySelector('main b, main script, main img') === null")
        assert "line 2 is not a record" in text(browser, "problems")
        assert browser.errors == []
        browser.open("about:blank")


def test_a_server_that_has_gone_is_said(browser, tmp_path):
    folder = make_grown(tmp_path / "run")
    with served(folder.path) as server:
        browser.open(server.address)
        browser.wait_for("document.querySelectorAll('#curves figure').length == 2")
    browser.wait_for("document.getElementById('state').textContent == 'Not connected'")
    assert browser.evaluate("document.querySelectorAll('#curves figure').length") == 2
    browser.open("about:blank")
