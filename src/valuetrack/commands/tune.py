"""``valuetrack tune``: search for hyperparameters, and try the best of them on fresh seeds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from valuetrack.api.environment import AgentEnvironment
from valuetrack.api.options import parse, written_setting
from valuetrack.commands import INTERRUPTED
from valuetrack.commands.arguments import assignments, import_modules
from valuetrack.commands.reproduce import run_and_time
from valuetrack.commands.search_options import Tune
from valuetrack.commands.session import Stop, say, stoppable
from valuetrack.commands.watch import watched
from valuetrack.experiments.engines import EngineChoice
from valuetrack.experiments.tuning.best import BEST, plan_fresh, write_best
from valuetrack.experiments.tuning.search import Search, check_start, open_search
from valuetrack.experiments.tuning.space import check_space, load_space, options_of
from valuetrack.experiments.tuning.spaces import default_space
from valuetrack.experiments.tuning.study import TuneStudy, import_optuna
from valuetrack.experiments.tuning.worker import News, Workers
from valuetrack.io.run_folder import RunFolder
from valuetrack.registry import agent_type
from valuetrack.report import write_report

FINISHED = ("COMPLETE", "PRUNED")


def tune(given: Tune, console: Console) -> int:
    """Search, or go on with a search, try the best settings on fresh seeds, and report."""
    import_modules(given.import_)
    import_optuna()
    search = _search(given)
    path = given.out or Path("runs") / f"tune-{search.algorithm}-{search.env.replace('/', '-')}"
    folder = open_search(path, search, resume=given.resume)
    with watched(path, given.port, console, wanted=given.watch) as page:
        code = _search_and_report(folder, given, console)
        if code == 0:
            page.stay()
    return code


def _search_and_report(folder: RunFolder, given: Tune, console: Console) -> int:
    imports = tuple(given.import_ or ())
    study = TuneStudy(folder)
    finished = study.count(*FINISHED)
    left = max(0, given.trials - finished)
    total = left * study.search.seeds * study.search.steps
    begun = f"{finished} finished before, " if finished else ""
    say(
        console,
        f"{given.trials} trials x {study.search.seeds} seeds: {begun}{left} to go, at most "
        f"{total:,} environment steps.",
    )
    with stoppable() as stop:
        if left:
            workers = Workers(folder, given.trials, min(given.workers, left), imports)
            _follow(workers, _Bar(console, study, given.trials), stop)
    if stop.is_set():
        say(
            console, f"Stopped. The same command goes on from here; the search is in {folder.path}."
        )
        return INTERRUPTED
    study.write_trials()
    if running := study.count("RUNNING"):
        say(console, f"Another command still runs {running} of the trials, and will report them.")
        return 0
    settings = write_best(study)
    if given.fresh_seeds:
        rows = plan_fresh(study, settings, given.fresh_seeds)
        say(console, f"The best settings on {given.fresh_seeds} fresh seeds:")
        if not run_and_time(folder, rows, EngineChoice(imports=imports), console):
            return INTERRUPTED
    say(console, f"Report: {write_report(folder, console)}")
    say(console, f"Best settings: {folder.path / BEST}")
    return 0


def _search(given: Tune) -> Search:
    """Turn the options into a search; refuse what cannot run."""
    kind = agent_type(given.algo)
    fixed = options_of(assignments(given.set_, "--set"), kind.name)
    parse(kind.options_type, fixed, kind.label)
    env_options = assignments(given.env_set, "--env-set")
    AgentEnvironment(given.env, env_options, "auto", 1)  # which refuses an unknown one
    if given.space is None:
        usual = default_space(kind.name, given.steps)
        space = {name: part for name, part in usual.items() if name not in fixed}
    else:
        space = load_space(given.space)
    check_space(
        space, kind.name, fixed, "the default space" if given.space is None else str(given.space)
    )
    start = assignments(given.start, "--start")
    check_start(start, space)
    return Search(
        algorithm=kind.name,
        env=given.env,
        env_options=env_options,
        options=fixed,
        steps=given.steps,
        first_seed=given.seed,
        seeds=given.seeds,
        search_seed=given.search_seed,
        objective=given.objective.value,
        penalty=given.penalty,
        points=given.points,
        episodes=given.episodes,
        final_episodes=given.final_episodes,
        pruner=given.pruner.value,
        space=space,
        start=start,
    )


class _Bar:
    """Shows how many trials are finished, how far the others are, and the best so far."""

    def __init__(self, console: Console, study: TuneStudy, trials: int) -> None:
        self._console, self._study = console, study
        self._finished, self._running = study.count(*FINISHED), dict[int, float]()
        self._length = study.search.steps * study.search.seeds
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[done]}/{task.total:.0f} trials"),
            BarColumn(),
            TextColumn("{task.fields[best]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=console,
            refresh_per_second=2,
            speed_estimate_period=3600.0,
        )
        best = study.best
        self._best = None if best is None else best.value
        self._task = self.progress.add_task(
            "", total=trials, completed=self._finished, done=self._finished, best=self._shown()
        )

    def __call__(self, news: News) -> None:
        """Take what a worker says."""
        if news.state is None:
            share = self._running.get(news.number, 0.0) + news.steps / self._length
            self._running[news.number] = min(share, 1.0)
        else:
            self._running.pop(news.number, None)
            self._say_ended(news)
        self.progress.update(
            self._task,
            completed=self._finished + sum(self._running.values()),
            done=self._finished,
            best=self._shown(),
        )

    def _say_ended(self, news: News) -> None:
        if news.state in FINISHED:
            self._finished += 1
        if news.value is not None and (self._best is None or news.value > self._best):
            self._best = news.value
        settings = ", ".join(written_setting(*pair) for pair in (news.settings or {}).items())
        ended = {"PRUNED": "stopped early", "FAIL": "failed", "STOPPED": "to be resumed"}
        told = f"{news.value:.1f}" if news.value is not None else ended.get(str(news.state), "")
        say(self._console, f"trial {news.number}: {told} ({settings})")

    def _shown(self) -> str:
        return "" if self._best is None else f"best {self._best:.1f}"


def _follow(workers: Workers, bar: _Bar, stop: Stop) -> None:
    with workers, bar.progress:
        while workers.is_busy():
            for news in workers.follow():
                bar(news)
            if stop.is_set():
                workers.stop()
