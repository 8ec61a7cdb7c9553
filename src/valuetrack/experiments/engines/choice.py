"""The engine that users get for what they choose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import jax

from valuetrack.api.options import parse
from valuetrack.experiments.engines.base import Engine
from valuetrack.experiments.engines.local import InlineEngine, LocalEngine
from valuetrack.experiments.engines.options import NodeOptions, SlurmOptions
from valuetrack.experiments.engines.ray import RayEngine, import_ray
from valuetrack.experiments.engines.slurm import SlurmEngine, import_submitit
from valuetrack.io.run_folder import RunFolder
from valuetrack.training.seed_groups import available_cores
from valuetrack.types import Json

ADDRESS = re.compile(r"auto|[^/]+:\d{1,5}")


@dataclass(frozen=True)
class EngineChoice:
    """Where units run.

    Raises what is wrong with the choice when it is made, before anything is written.

    Attributes
    ----------
    engine
        ``local`` for this machine's processes, ``ray`` or ``slurm``.
    address, shared_folder
        For Ray: the cluster, and whether its nodes see the run's folder.
    num_cpus
        How many cores are reserved for each unit.
    slurm
        For SLURM: see :class:`~valuetrack.experiments.engines.options.SlurmOptions`.
    imports
        Modules that nodes import first, as they register environments.

    Examples
    --------
    ::

        runs.run(folder, engine=EngineChoice("ray", address="auto").make(folder))
    """

    engine: str = "local"
    address: str | None = None
    num_cpus: int = 1
    shared_folder: bool = False
    slurm: Json = field(default_factory=dict)
    imports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what does not fit together, or is not installed."""
        for given, option, engine in (
            (self.address, "--address", "ray"),
            (self.shared_folder, "--shared-folder", "ray"),
            (self.slurm, "--slurm", "slurm"),
        ):
            if given and self.engine != engine:
                raise ValueError(f"{option} is for --engine {engine}, not for {self.engine}.")
        if self.address is not None and not ADDRESS.fullmatch(self.address):
            raise ValueError(
                f"--address takes auto or HOST:PORT, not {self.address}: start the command on a "
                "machine of the cluster."
            )
        if self.engine == "ray":
            import_ray()
        elif self.engine == "slurm":
            import_submitit()
            self._slurm_options()

    def _slurm_options(self) -> SlurmOptions:
        return parse(SlurmOptions, self.slurm, "--slurm")

    def make(self, folder: RunFolder) -> Engine:
        """Return the engine for a run."""
        options = NodeOptions(self.num_cpus, self.shared_folder, self.imports)
        if self.engine == "ray":
            return RayEngine(folder, options, self.address)
        if self.engine == "slurm":
            return SlurmEngine(folder, options, self._slurm_options())
        if jax.default_backend() != "cpu":
            return InlineEngine(folder)
        cores = max(1, available_cores() // self.num_cpus)
        return LocalEngine(folder, cores, self.imports)
