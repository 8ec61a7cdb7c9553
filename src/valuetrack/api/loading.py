"""An agent from the content of a model file, which may be damaged or made to do harm.

Nothing is built before the description has been checked against the arrays: a file cannot make
us allocate, or build environments, far beyond what it holds itself.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import numpy as np
from gymnasium.vector import VectorEnv

from valuetrack.api import calibration
from valuetrack.api.environment import Backend
from valuetrack.api.options import Options, parse, tuples
from valuetrack.api.policy import PolicyError
from valuetrack.api.settings import memory_of_machine, pool_of, settings_of
from valuetrack.envs.gym.absent import stand_in
from valuetrack.envs.gym.guards import EnvironmentFailedError
from valuetrack.io.arrays import Arrays, from_arrays
from valuetrack.io.errors import ModelFileError, file_error, shortened
from valuetrack.learner import Task
from valuetrack.normalisation import Scaling, normalised
from valuetrack.training import update
from valuetrack.training.trainer import LEARNED, Settings, read_clock
from valuetrack.types import Keywords, NDArray

if TYPE_CHECKING:
    from valuetrack.api.agent import AnyAgent

MOST_ENVIRONMENTS = 4_096
"""How many environments a file may have us build that does not hold as many transitions."""
TOLD = 180
"""How many characters of another error are repeated."""

UNFITTING = "its arrays do not fit its options"
INCOMPLETE = (KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError)
UNFIT = (LookupError, TypeError, ValueError)
UNUSABLE = (ValueError, ArithmeticError, MemoryError, RuntimeError)

Path = str | os.PathLike[str]
AgentType = TypeVar("AgentType", bound="AnyAgent")


class Saved(NamedTuple):
    """What a file's description says."""

    env: str | None
    env_options: Keywords
    backend: Backend
    seeds: list[int]
    replay: bool
    task: Task
    options: Keywords


def load_agent(
    kind: type[AgentType],
    path: Path,
    arrays: Arrays,
    description: Keywords,
    env: object,
    given: tuple[object, ...] = (),
) -> AgentType:
    """Make an agent of a class from the content of a model file.

    ``env`` replaces the saved environment, unless it is ``None``; ``given`` is what else the class
    takes besides options: the policy of a tracker.

    Raises
    ------
    ModelFileError
        If the file is not whole, or cannot be used here.
    """
    saved = _described(path, description)
    if env is None and saved.env is None:
        env = stand_in(description.get("spaces"))
    if env is None and saved.env is None:  # a file from before they were written, or a damaged one
        raise file_error(
            path,
            "cannot make its environment, which was saved without an id; pass it: "
            "valuetrack.load(path, env=...)",
        )
    _check_seeds(path, arrays, saved.seeds)
    try:
        options = parse(kind.options_type, saved.options, kind.__name__)
        saved, options = _with_pool_of_file(path, arrays, saved, options, kind)
        _check_sizes(path, arrays, saved, options, kind)
        _check_environments(path, arrays, saved, options, env)
    except ModelFileError:
        raise
    except (*UNFIT, *UNUSABLE) as error:
        raise file_error(path, f"cannot be used: {_told(error)}") from error
    agent = _make(kind, path, saved, env, given)
    try:
        _check_task(path, saved.task, agent.task)
        _restore(path, agent, arrays, saved, env)
    except BaseException:
        agent.close()
        raise
    return agent


def _described(path: Path, description: Keywords) -> Saved:
    try:
        task, env, seeds = description["task"], description["env"], description["seeds"]
        numbers = [*task["shape"], task["actions"]]
        options, env_options = description["options"], description["env_options"]
        backend, replay = description["backend"], bool(description["replay"])
        shape = Task(tuple(task["shape"]), bool(task["is_image"]), task["actions"])
        # A file from before the option was there has learned from observations as they came.
        converted = {"normalise_observations": False, **tuples(options)}
        lists, dicts = (seeds, task["shape"]), (options, env_options)
        fitting = (
            all(isinstance(value, list) for value in lists)
            and all(isinstance(value, dict) for value in dicts)
            and all(type(number) is int and number >= 0 for number in numbers)
            and backend in ("compiled", "host")
            and (env is None or isinstance(env, str))
        )
    except INCOMPLETE as error:
        raise _damaged(path, "its description is incomplete") from error
    if not fitting:
        raise _damaged(path, "its description is incomplete")
    return Saved(env, env_options, backend, seeds, replay, shape, converted)


def _check_seeds(path: Path, arrays: Arrays, seeds: list[int]) -> None:
    """Refuse seeds that cannot be, and others than those whose states were saved."""
    whole = bool(seeds) and all(type(seed) is int for seed in seeds)
    if not whole or not 0 <= seeds[0] < 2**32 or seeds[-1] >= 2**32:
        raise _damaged(path, "its seeds are not whole numbers from 0 to below 2^32")
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise _damaged(path, "its seeds do not follow one another")
    learned = _learned(arrays)
    if not learned or any(array.shape[:1] != (len(seeds),) for array in learned):
        raise _damaged(path, "its arrays do not fit its seeds")


def _with_pool_of_file(
    path: Path, arrays: Arrays, saved: Saved, options: Options, kind: type[AnyAgent]
) -> tuple[Saved, Options]:
    """Return the options with the size of the saved pool, if by default it has another one here.

    The default depends on the machine's memory.
    """
    _check_depth(path, arrays, options)
    weights = arrays.get(f"{LEARNED}.pool.weights")
    if options.samples is not None or weights is None or weights.ndim != 2 or not weights.size:
        return saved, options
    here, _ = pool_of(options, kind.build(saved.task, options), len(saved.seeds))
    if here == weights.shape[1]:
        return saved, options
    given = {**saved.options, "samples": int(weights.shape[1])}
    return saved._replace(options=given), parse(kind.options_type, given, kind.__name__)


def _check_depth(path: Path, arrays: Arrays, options: Options) -> None:
    """Refuse more layers than arrays, before a network is built, which takes time for each."""
    if len(options.hidden) + len(options.convolutions or ()) > len(_learned(arrays)):
        raise _damaged(path, UNFITTING)


def _check_sizes(
    path: Path, arrays: Arrays, saved: Saved, options: Options, kind: type[AnyAgent]
) -> None:
    """Refuse a network, a pool or a ring that is larger than what the file holds."""
    learned, seeds = _learned(arrays), len(saved.seeds)
    learner = kind.build(saved.task, options)
    if options.normalise_observations is True:
        learner = normalised(learner, Scaling(np.ones(saved.task.shape, bool)))
    settings = settings_of(options, learner, seeds)
    start = jax.eval_shape(
        lambda key: update.start(learner, key, settings.pool_size), jax.random.key(0)
    )
    needed = seeds * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(start))
    if needed > sum(array.size for array in learned):
        raise _damaged(path, UNFITTING)
    if saved.backend == "compiled":
        _check_ring(path, saved, settings)


def _check_ring(path: Path, saved: Saved, settings: Settings) -> None:
    """Refuse rings larger than this machine's memory, all of which the compiled trainer takes."""
    number = 1 if saved.task.is_image else 4  # bytes, at the least
    row = number * 2 * math.prod(saved.task.shape) + 4 * (4 + saved.task.actions)
    needed = len(saved.seeds) * (settings.replay_capacity or 0) * row
    available = memory_of_machine()
    if needed > available:
        size = shortened(f"{needed // 10**9:,}")
        raise file_error(
            path,
            f"cannot be used: its replay memory takes {size} GB, and this machine has "
            f"{available / 1e9:,.0f} GB; load it on a larger one",
        )


def _check_environments(
    path: Path, arrays: Arrays, saved: Saved, options: Options, env: object
) -> None:
    """Refuse more environments than the file shows that there were."""
    count = len(saved.seeds) * options.environments
    if saved.backend == "compiled":
        returns = arrays.get("loop.episode_return")
        if returns is None or returns.shape != (len(saved.seeds), options.environments):
            raise _damaged(path, "its arrays do not fit its environments")
        return
    actions = arrays.get("replay.action")
    most = MOST_ENVIRONMENTS if actions is None else max(MOST_ENVIRONMENTS, actions.size)
    if count > most and not isinstance(env, VectorEnv):  # those exist already
        raise file_error(
            path,
            f"asks for {shortened(f'{count:,}')} environments, which are more than it holds "
            "transitions; pass them as one vector environment: valuetrack.load(path, env=...)",
        )


def _make(
    kind: type[AgentType], path: Path, saved: Saved, env: object, given: tuple[object, ...]
) -> AgentType:
    """Make the agent in the saved environment, or in the given one."""
    as_saved = _as_saved(saved, env)
    place = saved.env if as_saved else env
    backend: Backend = saved.backend if as_saved else "auto"
    # What the file says may be wrong in any way; an error in the user's own environment is theirs.
    caught = (Exception,) if as_saved else UNUSABLE
    try:
        return kind(
            place,
            *given,
            seed=saved.seeds[0],
            seeds=len(saved.seeds),
            backend=backend,
            env_options=saved.env_options if as_saved else None,
            **saved.options,
        )
    except PolicyError:  # in the policy that the user gives
        raise
    except caught as error:
        if isinstance(error, EnvironmentFailedError) and not as_saved:
            raise
        raise file_error(path, f"cannot be used: {_told(error)}") from error


def _as_saved(saved: Saved, env: object) -> bool:
    """Return whether the agent goes on in the environment that the file names."""
    return env is None or (isinstance(env, str) and env == saved.env)


def _check_task(path: Path, saved: Task, here: Task) -> None:
    if (here.shape, here.actions) == (saved.shape, saved.actions):
        return
    shape, actions = shortened(str(saved.shape)), shortened(str(saved.actions))
    raise file_error(
        path,
        f"was trained with observations of shape {shape} and {actions} actions; "
        f"this environment has {here.shape} and {here.actions}",
    )


def _restore(path: Path, agent: AnyAgent, arrays: Arrays, saved: Saved, env: object) -> None:
    try:
        if agent.backend == saved.backend:
            agent.restore(arrays, replay=saved.replay)
        else:  # what another kind of trainer has learned; its environment is not needed
            learned = from_arrays(arrays, agent.trainer.learned, LEARNED)
            agent.trainer.adopt(learned, read_clock(arrays))
        if saved.env is None or _as_saved(saved, env):  # else it is of another environment
            agent.calibration = calibration.read_arrays(arrays, len(saved.seeds))
    except PolicyError:
        raise
    except UNFIT as error:
        raise _damaged(path, f"its arrays do not fit ({_told(error)})") from error
    except UNUSABLE as error:
        if isinstance(error, EnvironmentFailedError) and not _as_saved(saved, env):
            raise
        raise file_error(path, f"cannot be used: {_told(error)}") from error


def _learned(arrays: Arrays) -> list[NDArray]:
    """Return the arrays of what was learned."""
    return [array for name, array in arrays.items() if name.startswith(f"{LEARNED}.")]


def _told(error: BaseException) -> str:
    """Return an error's message in one line without a full stop."""
    return shortened(str(error) or type(error).__name__, TOLD).rstrip(".")


def _damaged(path: Path, problem: str) -> ModelFileError:
    return file_error(path, f"is damaged: {problem}")
