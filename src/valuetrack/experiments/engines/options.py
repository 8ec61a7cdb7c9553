"""What users choose about engines for several machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from valuetrack.experiments import runner
from valuetrack.experiments.nodes.orders import Order, versions
from valuetrack.experiments.nodes.surroundings import carried_variables
from valuetrack.experiments.runner import Unit
from valuetrack.experiments.spec import Section
from valuetrack.io.run_folder import MANIFEST, RunFolder


@dataclass(frozen=True)
class NodeOptions:
    """What the engines for several machines share.

    Attributes
    ----------
    num_cpus
        How many cores are reserved for a unit. It computes with one thread whatever this is, so
        that it rounds the same everywhere; more make fewer units share a node's memory.
    shared_folder
        Whether every node sees the run's folder under the same path.
    imports
        Modules that a node imports first, as they register environments.
    """

    num_cpus: int = 1
    shared_folder: bool = False
    imports: tuple[str, ...] = ()

    def order(self, folder: RunFolder, unit: Unit, *, shares: bool) -> Order:
        """Return what a node is told about a unit."""
        return Order(
            folder=str(folder.path.resolve()) if shares else None,
            manifest="" if shares else (folder.path / MANIFEST).read_text(),
            unit=unit,
            cpus=self.num_cpus,
            imports=list(self.imports),
            checkpoint_seconds=runner.CHECKPOINT_SECONDS,
            versions=versions(),
            variables=carried_variables(),
        )


class SlurmOptions(Section):
    """What SLURM is told about the jobs, each of which runs one unit."""

    cluster: Literal["slurm", "local"] = "slurm"
    """``local`` runs the jobs as processes of this machine, to try it out."""
    partition: str | None = None
    time: int = Field(240, ge=5)
    """Minutes; a unit that needs longer saves its state, is queued again and goes on."""
    memory: float = Field(4.0, gt=0)
    """Gigabytes."""
    parallel: int | None = Field(None, ge=1)
    """How many jobs run at a time, at most."""
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
