"""A search as data, and its run folder: ``tune.json`` and a row for each trial.

The manifest is that of any run, to which a row is added with each trial: ``valuetrack watch`` and
the report read it as they read others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError

from valuetrack.api.options import Count, CountOrZero, NotNegative
from valuetrack.experiments import provenance
from valuetrack.experiments import run as runs
from valuetrack.experiments.spec import Experiment, Row, Section, spec_error
from valuetrack.experiments.tuning.space import Parameter, Space, options_of
from valuetrack.io.errors import StoreError, StrPath
from valuetrack.io.run_folder import MANIFEST, RunFolder
from valuetrack.registry import agent_type
from valuetrack.types import Json

NAME = "tune"
FILE = "tune.json"


class Search(Section):
    """All that decides what a search does, but for the number of its trials.

    Attributes
    ----------
    algorithm, env, env_options, options, steps
        What is trained, with the options that are not varied.
    first_seed, seeds
        Of each trial, side by side.
    search_seed
        Of the search itself.
    objective, penalty
        ``"return"``: the mean greedy return at the end, over seeds and episodes; ``"honest"``
        subtracts, ``penalty`` times, the mean distance between the value at the start of greedy
        episodes and their discounted return.
    points, episodes, final_episodes
        At how many points a trial is evaluated, on how many greedy episodes, and at the end.
    pruner
        Which trials end early: see :func:`valuetrack.experiments.tuning.study.make_pruner`.
    space, start
        What is varied, and the settings of the first trial.
    """

    algorithm: str
    env: str
    env_options: Json = Field(default_factory=dict)
    options: Json = Field(default_factory=dict)
    steps: Count
    first_seed: CountOrZero = 0
    seeds: Count = 3
    search_seed: CountOrZero = 0
    objective: Literal["return", "honest"] = "return"
    penalty: NotNegative = 1.0
    points: Annotated[int, Field(ge=1)] = 10
    episodes: Count = 10
    final_episodes: Count = 50
    pruner: Literal["median", "hyperband", "none"] = "median"
    space: Space
    start: Json = Field(default_factory=dict)

    def score(self, returns: object, values: object, discounted: object) -> float:
        """Return the objective of one point, from a number per seed; NaN if one is missing."""
        numbers = (np.array(part, np.float64) for part in (returns, values, discounted))
        got, believed, came = numbers
        penalty = np.abs(believed - came).mean() if self.objective == "honest" else 0.0
        return float(got.mean() - self.penalty * penalty)

    def row(self, row_id: str, settings: Json, label: str) -> Row:
        """Return a row of the run with some settings."""
        return Row(
            id=row_id,
            label=label,
            algorithm=self.algorithm,
            env=self.env,
            env_options=self.env_options,
            steps=self.steps,
            options=options_of({**self.options, **settings}, self.algorithm),
        )

    def settings(self, params: Mapping[str, object]) -> Json:
        """Return the settings that a trial's parameters stand for."""
        return {name: self.space[name].read(value) for name, value in params.items()}

    def first(self) -> Json:
        """Return the parameters of the first trial: those given, else the algorithm's defaults."""
        defaults = agent_type(self.algorithm).options_type().model_dump(mode="json")
        wanted = {**{name: defaults.get(name) for name in self.space}, **self.start}
        return {
            name: self.space[name].written(value)
            for name, value in wanted.items()
            if self.space[name].holds(value)
        }


def open_search(path: StrPath, search: Search, *, resume: bool) -> RunFolder:
    """Return the folder of a search, new or to go on with.

    Raises
    ------
    StoreError
        If the folder holds another run, or one that is not to be resumed.
    """
    folder = RunFolder(path)
    if not (folder.path / MANIFEST).is_file():
        measure = {
            "kind": "outcome",
            "points": search.points,
            "episodes": search.episodes,
            "final_episodes": search.final_episodes,
        }
        spec = Experiment(name=NAME, measure=measure, seeds_per_unit=search.seeds, rows=())
        request = runs.Request(spec, search.objective, (), search.first_seed, search.seeds)
        folder = RunFolder.create(path, runs.new_manifest(request))
        folder.write_json(FILE, search.model_dump(mode="json"))
        return folder
    RunFolder.open(path)
    if folder.manifest()["experiment"] != NAME:
        raise StoreError(f"{path} holds another run; choose another folder with --out.")
    if not (folder.path / FILE).is_file():  # killed between the two
        folder.write_json(FILE, search.model_dump(mode="json"))
    if not resume:
        raise StoreError(f"{path} holds a search; go on with --resume.")
    before, now = (one.model_dump(mode="json") for one in (read_search(folder), search))
    if differs := [name for name in now if before[name] != now[name]]:
        raise StoreError(
            f"{path} holds another search ({_shown(differs[0], before, now)}); choose another "
            "folder with --out."
        )
    return folder


def read_search(folder: RunFolder) -> Search:
    """Read what a folder's search is."""
    try:
        return Search.model_validate(folder.read_json(FILE))
    except ValidationError as error:
        raise StoreError(str(spec_error(error, FILE))) from error


def add_rows(folder: RunFolder, rows: Sequence[Row], units: Sequence[Sequence[int]]) -> None:
    """Add rows with the same units to the manifest, unless it has them.

    The caller holds ``folder.changing()``.
    """
    manifest = folder.manifest()
    known = {row["id"] for row in manifest["rows"]}
    new = [row.model_dump(mode="json") for row in rows if row.id not in known]
    if not new:
        return
    source = provenance.commit()
    manifest["spec"]["rows"] += new
    plan = {"units": [list(unit) for unit in units], "commit": source}
    manifest["rows"] += [{**row, **plan} for row in new]
    manifest["spec_hash"] = Experiment.model_validate(manifest["spec"]).hash()
    folder.write_json(MANIFEST, manifest)


def check_start(start: Json, space: Mapping[str, Parameter]) -> None:
    """Refuse settings of the first trial that the search could not try itself.

    Raises
    ------
    ValueError
        With the first of them.
    """
    for name, value in start.items():
        if name not in space:
            raise ValueError(f"--start {name}: it is not varied; there are {', '.join(space)}.")
        if not space[name].holds(value):
            told = space[name].model_dump(exclude_defaults=True)
            raise ValueError(f"--start {name}={json.dumps(value)} is not in its space, {told}.")


def _shown(name: str, before: Json, now: Json) -> str:
    there, here = before[name], now[name]
    if isinstance(there, dict):
        return f"with another {name}"
    return f"{name} is {there} there, {here} here"
