"""Where units run: the protocol of engines, and the processes of this machine as the first."""

from __future__ import annotations

from valuetrack.experiments.engines.base import Engine, Event, WorkerError
from valuetrack.experiments.engines.local import InlineEngine, LocalEngine

__all__ = ["Engine", "Event", "InlineEngine", "LocalEngine", "WorkerError"]
