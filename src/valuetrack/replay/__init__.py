"""Replay memory: a ring of transitions, on the device or on the host.

Both rings offer the same: ``write`` transitions over the oldest ones, ``draw`` a batch with
uniform numbers, take the ``newest``, count what is ``filled``, and turn into named ``arrays`` and
back with ``restore``. What one ring has saved the other can read.

* :class:`DeviceRing` is a set of pure functions of one seed's rows, which live inside ``jit`` and
  are mapped over seeds. Carried through a loop, or donated to a compiled function, the rows are
  updated in place and never copied.
* :class:`HostRing` holds NumPy arrays for all seeds, for environments that run in Python.

Observations keep their dtype in both, so that a pixel of an image takes one byte. Both keep single
steps; with ``n_step`` they put n-step transitions together as they are drawn
(:mod:`~valuetrack.replay.n_step`), and with ``alpha`` they draw by priority
(:mod:`~valuetrack.replay.prioritised`), and with ``half_life`` by age
(:mod:`~valuetrack.replay.forgetting`).
"""

from __future__ import annotations

from valuetrack.replay.device import DeviceRing, Rows
from valuetrack.replay.forgetting import remembered
from valuetrack.replay.host import HostRing
from valuetrack.replay.layout import Layout, host_transitions, newest_rows

__all__ = [
    "DeviceRing", "HostRing", "Layout", "Rows", "host_transitions", "newest_rows", "remembered",
]  # fmt: skip
