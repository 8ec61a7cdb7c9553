"""``valuetrack train`` and ``valuetrack evaluate``: an agent for any environment."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console

from valuetrack.api.agent import AnyAgent
from valuetrack.api.loggers import Logger
from valuetrack.api.options import parse
from valuetrack.api.progress_bar import show_progress
from valuetrack.api.training import REPORTS
from valuetrack.commands import FAILED
from valuetrack.commands.arguments import assignments, import_modules, read_observations
from valuetrack.commands.loggers import chosen_loggers, opened
from valuetrack.commands.options import Evaluate, Train
from valuetrack.commands.session import AGENT, Recorder, Tracked, engine_choice, say, stoppable
from valuetrack.commands.tables import show_episodes
from valuetrack.commands.watch import watched
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.envs.indoor_escape import IndoorEscape
from valuetrack.experiments.maps import TrainingMaps
from valuetrack.experiments.run import Request, new_manifest
from valuetrack.experiments.spec import Experiment, Row
from valuetrack.io.run_folder import MANIFEST, RunFolder, StoreError
from valuetrack.registry import agent_type, load
from valuetrack.training.evaluation import Episodes
from valuetrack.types import Json

BEST = "best.vt"
"""Where a run folder has the agent of the best evaluation."""


def train(given: Train, console: Console) -> int:
    """Train, save, and say how good the agent is; the exit code says whether a seed diverged."""
    with contextlib.ExitStack() as shown:
        return _train(given, console, shown)


def _train(given: Train, console: Console, shown: contextlib.ExitStack) -> int:
    """Train; the live page, if one is wanted, is open until ``shown`` is left."""
    import_modules(given.import_)
    kind = agent_type(given.algo)
    observations = None if given.track is None else read_observations(given.track)
    path = given.out or Path("runs") / f"{kind.name}-{given.env.replace('/', '-')}"
    if given.keep_best and given.evaluate_every is None:
        raise ValueError(
            "--keep-best saves the agent of the best evaluation: add --evaluate-every."
        )
    choice = engine_choice(given)
    if given.keep_best and choice.engine != "local":
        raise ValueError("--keep-best is for --engine local.")
    if choice.engine != "local":
        from valuetrack.commands.train_units import train_units  # noqa: PLC0415 - and its reports

        example = _begin(kind, dataclasses.replace(given, seeds=1))
        return train_units(example, given, path, choice, console)
    if choice.num_cpus > 1:
        raise ValueError("--num-cpus is for --engine ray or slurm; here all cores train together.")
    with contextlib.ExitStack() as held:
        # Before an agent is read that another process may replace.
        folder = lock_existing(path, held)
        agent, resumes = _make_agent(path, kind, given, is_begun=folder is not None)
        steps, tracked = agent.num_timesteps, None
        if steps >= given.steps:
            say(console, f"The training in {path} is finished: the agent has {steps:,} steps.")
            return _say_if_diverged(agent)
        if given.track is not None and observations is not None:
            tracked = Tracked(agent, path, observations, given.track, resumes)
        maps = _make_maps(agent, given)
        if given.track_intervals_every is not None and tracked is None and maps is None:
            raise ValueError("--track-intervals-every needs observations to solve for: --track.")
        names = chosen_loggers(given, path)
        manifest = _manifest(agent, given.steps)
        if folder is None:
            folder = RunFolder.create(path, manifest)
            held.enter_context(folder.lock([agent.name]))
        else:
            _replace_manifest(folder, manifest)
        loggers = held.enter_context(opened(names, path, agent))
        page = shown.enter_context(watched(path, given.port, console, wanted=given.watch))
        _learn(Recorder(agent, folder, tracked, maps, console), given, loggers)
    if tracked is not None:
        tracked.show(console)
    _show(agent, agent.play(given.episodes), console)
    say(console, f"Agent: {path / AGENT}")
    code = _say_if_diverged(agent)
    page.stay()
    return code


def evaluate(given: Evaluate, console: Console) -> None:
    """Play episodes with a saved agent."""
    import_modules(given.import_)
    agent = load(given.model / AGENT if given.model.is_dir() else given.model, given.env)
    with contextlib.closing(agent):
        if given.env_set:
            options = agent.env.options | assignments(given.env_set, "--env-set")
            agent.set_env(agent.env.env, env_options=options)
        limit = given.max_episode_steps
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            played = agent.play(given.episodes, seed=given.seed, max_episode_steps=limit)
        _show(agent, played, console)
        for warning in caught:
            say(console, str(warning.message))
        if given.video is not None:
            agent.record_video(given.video, seed=given.seed, max_episode_steps=limit)
            say(console, f"Video: {given.video}")


def lock_existing(path: Path, held: contextlib.ExitStack) -> RunFolder | None:
    """Return a folder that exists, and keep other processes from training in it."""
    if not (path / MANIFEST).exists():
        return None
    folder = RunFolder.open(path)
    manifest = folder.manifest()
    if manifest["experiment"] != "train":
        raise StoreError(f"{path} holds an experiment; choose another folder with --out.")
    held.enter_context(folder.lock(row["id"] for row in manifest["rows"]))
    return folder


def _make_agent(
    path: Path, kind: type[AnyAgent], given: Train, *, is_begun: bool
) -> tuple[AnyAgent, bool]:
    """Return a new agent or the saved one, and whether it is the saved one."""
    is_saved = (path / AGENT).exists()
    if is_saved and not given.resume:
        raise ValueError(
            f"{path} is there already; choose another folder with --out, or go on in it with "
            "--resume."
        )
    resumes = given.resume and (is_saved or not is_begun)  # what was begun may never be saved
    with stoppable() as stop:  # while JAX compiles, an interrupt would end in a crash
        agent = _go_on(path / AGENT, kind, given) if resumes else _begin(kind, given)
    if stop.asked:
        raise KeyboardInterrupt("Interrupted before the first step; nothing is saved.")
    return agent, resumes


def _begin(kind: type[AnyAgent], given: Train) -> AnyAgent:
    options = assignments(given.set_, "--set")
    # The class has arguments beside its options, which --set does not reach.
    parse(kind.options_type, options, kind.__name__)
    try:
        return kind(
            given.env,
            seed=given.seed or 0,
            seeds=given.seeds or 1,
            backend="auto" if given.backend is None else given.backend.value,
            env_options=assignments(given.env_set, "--env-set"),
            **options,
        )
    except ValueError as error:  # whose sentence is written for Python
        raise ValueError(str(error).replace('backend="host"', "--backend host")) from error


def _go_on(path: Path, kind: type[AnyAgent], given: Train) -> AnyAgent:
    agent = load(path)
    if not isinstance(agent, kind) or agent.env.label != given.env:
        raise ValueError(
            f"{path} holds {type(agent).__name__} in {agent.env.label}, "
            f"not {kind.__name__} in {given.env}."
        )
    for option, saved, wanted in _saved_and_wanted(agent, given):
        if saved != wanted:
            raise ValueError(
                f"{option} is {_text(wanted)}, but the agent in {path.parent} was made with "
                f"{_text(saved)}; leave it out to go on, or begin anew with another --out."
            )
    return agent


def _saved_and_wanted(agent: AnyAgent, given: Train) -> Iterator[tuple[str, object, object]]:
    """Yield what was said about the agent: the option, the saved value, the given one."""
    if given.seed is not None:
        yield "--seed", agent.seeds[0], given.seed
    if given.seeds is not None:
        yield "--seeds", len(agent.seeds), given.seeds
    if given.backend is not None and given.backend.value != "auto":
        yield "--backend", agent.backend, given.backend.value
    options = assignments(given.set_, "--set")
    wanted = parse(type(agent).options_type, options, type(agent).__name__)
    for name in options:
        yield f"--set {name}", getattr(agent.options, name), getattr(wanted, name)
    for name, value in assignments(given.env_set, "--env-set").items():
        yield f"--env-set {name}", agent.env.options.get(name, "its default"), value


def _text(value: object) -> str:
    """Write a value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _manifest(agent: AnyAgent, steps: int) -> Json:
    """Return what the run's folder says is trained: an experiment of one row and one unit."""
    # The agent exists, so there is nothing to validate.
    row = Row.model_construct(
        id=agent.name,
        label=agent.label,
        algorithm=agent.name,
        env=agent.env.label,
        env_options=agent.env.saved[1],
        steps=steps,
        options=agent.options.model_dump(mode="json"),
    )
    seeds = len(agent.seeds)
    spec = Experiment.model_construct(
        name="train", measure={"kind": "training"}, seeds_per_unit=seeds, rows=(row,)
    )
    return new_manifest(Request(spec, "none", (row.id,), agent.seeds[0], seeds))


def _make_maps(agent: AnyAgent, given: Train) -> TrainingMaps | None:
    """Return what draws the values of a grid's cells, which are tracked if nothing else is."""
    if not isinstance(agent.env.in_jax, IndoorEscape):
        return None
    every = given.track_intervals_every if given.track is None else None
    return TrainingMaps(agent, given.steps, every)


def _replace_manifest(folder: RunFolder, manifest: Json) -> None:
    """Say in a folder that its training goes on, unless that is of another algorithm."""
    before, row = folder.manifest()["rows"], manifest["rows"][0]
    if [entry["id"] for entry in before] != [row["id"]]:
        raise StoreError(
            f"{folder.path} holds a training of {before[0]['label']}; choose another folder with "
            "--out."
        )
    with folder.changing():
        folder.write_json(MANIFEST, manifest)


def _learn(recorder: Recorder, given: Train, loggers: list[Logger]) -> None:
    """Train to the end or until a stop, and save."""
    agent, tracked = recorder.agent, recorder.tracked
    left = given.steps - agent.num_timesteps
    with stoppable() as stop:
        bar = show_progress(agent, left, from_start=True, console=recorder.console)
        with bar as advance, warnings.catch_warnings():
            # The command says so at its end, without a line of this program.
            warnings.filterwarnings("ignore", r"\w+ diverged: ", RuntimeWarning)

            def heartbeat() -> bool:
                advance()
                recorder.save_in_time()
                return not stop.asked

            try:
                agent.learn(
                    left,
                    callback=recorder,
                    heartbeat=heartbeat,
                    report_every=-(-given.steps // REPORTS),
                    evaluate_every=given.evaluate_every,
                    evaluation_episodes=given.episodes,
                    keep_best=recorder.path.with_name(BEST) if given.keep_best else None,
                    logger=loggers,
                    track=None if tracked is None else tracked.observations,
                    track_every=given.track_every,
                    track_intervals_every=None if tracked is None else given.track_intervals_every,
                )
            except KeyboardInterrupt:
                stop.asked = True
            except EnvironmentFailedError:
                recorder.save()  # what was learned until then
                raise
            stop.is_deaf = True  # from here on all is saved, which must not be cut off
        recorder.finish(stop)


def _say_if_diverged(agent: AnyAgent) -> int:
    """Name the seeds that diverged; return the exit code."""
    if not agent.diverged:
        return 0
    told = ", ".join(f"seed {seed} at update {at:,}" for seed, at in agent.diverged.items())
    name = "step_size" if hasattr(agent.options, "step_size") else "learning_rate"
    rate = getattr(agent.options, name)
    used = f"{rate:g}" if isinstance(rate, int | float) else "that of this schedule"
    typer.echo(
        f"{type(agent).__name__} diverged: {told}; its values are NaN from there on, so use a "
        f"smaller {name} than {used}.",
        err=True,
    )
    return FAILED


def _show(agent: AnyAgent, played: Episodes, console: Console) -> None:
    """Print what every seed expected and what it got, and over seeds the spread."""
    diverged = {seed: agent.diverged.get(seed, -1) for seed in agent.seeds}
    title = f"{type(agent).__name__} in {agent.env.label}, {agent.num_timesteps:,} steps"
    show_episodes(title, played, diverged, console)
