"""How much data an average over a training has seen, beside what the replay memory holds."""

from __future__ import annotations


def seen(window: float, memory: float, total: float) -> float:
    r"""Return from how many times the memory's transitions an average over updates was learned.

    While ``window`` transitions were collected, updates drew evenly from the last ``memory`` ones.
    How often a transition was drawn rises, stays and falls with its age like a trapezoid, which
    counts as much as

    .. math:: n = \frac{(\sum_i c_i)^2}{\sum_i c_i^2} = \frac{L^2}{L - S / 3}

    transitions that were drawn equally often, with L the larger and S the smaller of the two. It
    is never more than ``total``, all that were collected.

    Examples
    --------
    An average over three times the memory, and one over a tenth of it:

    >>> round(seen(30_000, 10_000, 1_000_000), 3)
    3.375
    >>> round(seen(1_000, 10_000, 1_000_000), 3)
    1.034

    A memory that has forgotten nothing:

    >>> seen(30_000, 50_000, 50_000)
    1.0
    """
    longer, shorter = max(window, memory), min(window, memory)
    drawn = longer**2 / (longer - shorter / 3)
    return max(1.0, min(drawn, total) / memory)
