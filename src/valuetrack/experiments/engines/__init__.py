"""Where units run: the protocol of engines, this machine's processes, Ray and SLURM."""

from __future__ import annotations

from valuetrack.experiments.engines.base import Engine, Event, WorkerError
from valuetrack.experiments.engines.choice import EngineChoice
from valuetrack.experiments.engines.local import InlineEngine, LocalEngine

__all__ = ["Engine", "EngineChoice", "Event", "InlineEngine", "LocalEngine", "WorkerError"]
