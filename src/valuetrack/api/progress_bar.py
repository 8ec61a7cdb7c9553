"""Bars of progress: in a terminal by rich, in a notebook by the browser's own element.

In a notebook rich needs ipywidgets, and shows nothing without them.
"""

from __future__ import annotations

import contextlib
import html
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

REDRAW_SECONDS = 0.2
"""How often a bar in a notebook moves at most."""
Move = Callable[[float], None]
"""Moves a bar to what is completed."""


class Bar(NamedTuple):
    """What a bar shows: from ``begin`` to ``total``, at ``times`` the speed that it sees."""

    label: str
    total: int
    unit: str
    begin: int = 0
    times: int = 1


@contextlib.contextmanager
def show_bar(bar: Bar, console: Console | None = None) -> Iterator[Move]:
    """Show a bar with the speed and the time left; yield what moves it."""
    console = console or Console()
    with _in_notebook(bar) if console.is_jupyter else _in_terminal(bar, console) as move:
        yield move


@contextlib.contextmanager
def show_progress(
    agent: AnyAgent, left: int, *, from_start: bool = False, console: Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show a training's bar with the speed over all seeds and the time left; yield what moves it.

    ``from_start`` counts the steps before this training as well.
    """
    per_cycle = agent.trainer.settings.transitions_per_cycle
    begin = agent.trainer.steps
    end = begin + math.ceil(left / per_cycle) * per_cycle
    before = 0 if from_start else begin
    bar = Bar(type(agent).__name__, end - before, "steps", begin - before, len(agent.seeds))
    with show_bar(bar, console) as move:
        yield lambda: move(agent.trainer.steps - before)


@contextlib.contextmanager
def _in_terminal(bar: Bar, console: Console) -> Iterator[Move]:
    from rich.progress import (  # noqa: PLC0415 - only when it is shown
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(bar.label),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + bar.unit),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as shown:
        task = shown.add_task("", total=bar.total, completed=bar.begin, speed="")

        def move(completed: float) -> None:
            speed = (shown.tasks[task].speed or 0) * bar.times
            shown.update(task, completed=completed, speed=_speed(speed, bar.unit))

        yield move


@contextlib.contextmanager
def _in_notebook(bar: Bar) -> Iterator[Move]:
    from IPython import display  # noqa: PLC0415 - where a notebook is, it is too

    show: Any = display.display
    began, at = time.monotonic(), float(bar.begin)
    handle = show(_picture(bar, at, 0.0), raw=True, display_id=True)
    drawn = began

    def move(completed: float) -> None:
        nonlocal at, drawn
        at, now = completed, time.monotonic()
        if now - drawn >= REDRAW_SECONDS:
            drawn = now
            handle.update(_picture(bar, at, now - began), raw=True)

    try:
        yield move
    finally:
        handle.update(_picture(bar, at, time.monotonic() - began), raw=True)


def _picture(bar: Bar, completed: float, seconds: float) -> dict[str, str]:
    """Return a bar as a notebook shows it: as HTML, and as text where there is none."""
    speed = (completed - bar.begin) / seconds if seconds else 0.0
    words = [f"{bar.label}  {completed:,.0f}/{bar.total:,.0f} {bar.unit}"]
    if speed:
        left = (bar.total - completed) / speed
        words += [_speed(speed * bar.times, bar.unit), f"{_clock(seconds)} left {_clock(left)}"]
    text = "  ".join(words)
    drawn = f'<progress value="{completed:g}" max="{bar.total:g}"></progress>'
    return {"text/plain": text, "text/html": f"<div>{drawn} {html.escape(text)}</div>"}


def _speed(speed: float, unit: str) -> str:
    return f"{speed:,.0f} {unit}/s" if speed else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
