"""Names, colours and the look of every figure; nothing here needs Matplotlib to be imported.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from valuetrack.registry import AGENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn: TypeAlias = "tuple[Figure, str]"
"""A figure and its caption."""

DPI = 150
INK = "#222222"
OTHER = "#56B4E9"
PALETTE_SIZE = 256

Figures: TypeAlias = "Iterator[tuple[str, str, Drawn | None]]"
"""The name, the title and the figure of each; drawn when asked for, ``None`` if it cannot be."""

LINE: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": "--", "zorder": 1}
"""A reference line, such as a nominal level or a threshold."""


def label_of(algorithm: str) -> str:
    """Return an algorithm's name for readers."""
    return AGENTS[algorithm].label if algorithm in AGENTS else algorithm


def colour_of(algorithm: str) -> str:
    """Return an algorithm's colour in every figure."""
    return AGENTS[algorithm].colour if algorithm in AGENTS else OTHER


def marker_of(algorithm: str) -> str:
    """Return an algorithm's marker in every figure."""
    return AGENTS[algorithm].marker if algorithm in AGENTS else "."


@dataclass(frozen=True)
class Drawing:
    """A finished figure.

    Attributes
    ----------
    name
        The file's name, without its ending.
    title, caption
        What the report prints above and below the figure; the caption also describes it in words.
    png
        The file's content.
    """

    name: str
    title: str
    caption: str
    png: bytes


def drawings(figures: Figures) -> list[Drawing]:
    """Finish figures in the style of the reports."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    with mpl.rc_context({
        "font.size": 10, "axes.titlesize": 11, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "grid.color": "#E3E3E3", "figure.constrained_layout.use": True,
    }):  # fmt: skip
        return [
            Drawing(name, title, drawn[1], to_png(drawn[0]))
            for name, title, drawn in figures
            if drawn
        ]


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG; the same figure gives the same bytes.

    A palette of 256 colours shows no difference and more than halves the file.
    """
    from PIL import Image  # noqa: PLC0415 - comes with Matplotlib

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=DPI)
    with Image.open(raw) as image:
        # The method that keeps thin lines of similar colours apart; the median cut merges them.
        method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
        reduced = image.convert("RGB").quantize(PALETTE_SIZE, method, kmeans=3, dither=dither)
    reduced.save(small, "PNG", optimize=True, dpi=(DPI, DPI))
    return small.getvalue()


def plain(text: str) -> str:
    """Return a text that Matplotlib shows as it is, dollar signs included."""
    return text.replace("$", r"\$")


def name_rows(axes: Axes, names: Sequence[str], top: float, bottom: float) -> None:
    """Put one name per row on the vertical axis, the first on top, without lines between them."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - bottom, -top)
    axes.grid(axis="y", visible=False)
