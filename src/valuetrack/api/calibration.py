"""What an agent's own episodes teach about its values; see ``Agent.calibrate``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from valuetrack.api.arguments import check_count
from valuetrack.api.witnesses import CutOff, Witnesses, witnesses
from valuetrack.posterior import Interval
from valuetrack.training.rollouts import Rollout
from valuetrack.training.trainer import Clock
from valuetrack.types import Arrays, Floats, NDArray
from valuetrack.values import conformal
from valuetrack.values.conformal import NOT_COMPARED, Agreement, Line, Spread
from valuetrack.values.sandwich import Values

if TYPE_CHECKING:
    from valuetrack.api.playing import Player

LEAST_EPISODES = 20
"""The fewest episodes: half of them are enough for intervals of 90 %."""
CALIBRATION, CHECK = 0, 1
"""The streams of random numbers of episodes that calibrate, and of those that check it."""
NAME = "calibration"
"""What the names of saved arrays begin with."""
NEVER = (
    "An interval for the return takes episodes to learn from: call agent.calibrate(), then "
    "posterior again."
)
OUTDATED = "The agent has learned on since it was calibrated"
OUTDATED_RETURN = f"{OUTDATED}; call agent.calibrate() again, then posterior."
OUTDATED_VALUE = (
    f"{OUTDATED}: the interval for the value is uncalibrated until agent.calibrate() is called "
    "again."
)


class Calibration(NamedTuple):
    """What the episodes of one seed taught.

    Attributes
    ----------
    bias
        What to add to the values that ``predict`` acts on, as a function of them.
    spread
        How far returns lie from the corrected values, by the value.
    scores
        Of one random state of each episode that neither was fitted to: the distance of the return
        from the corrected value, over the spread; sorted.
    solved_bias
        What to add to the values solved from the replay memory.
    agreement
        How their errors compare with their standard errors.
    """

    bias: Line
    spread: Spread
    scores: Floats
    solved_bias: Line = conformal.NO_BIAS
    agreement: Agreement = NOT_COMPARED

    def value_interval(self, solved: Values, level: float) -> Interval:
        """Return the interval for the value, corrected and scaled."""
        factor = self.agreement.factor(level)
        mean = solved.mean + self.solved_bias(solved.mean)
        return solved._replace(mean=mean, sd=factor * solved.sd).interval(level)

    def return_interval(self, values: Floats, level: float) -> Interval:
        """Return the interval for the return from states with these values.

        Raises
        ------
        ValueError
            If there were too few episodes for the level.
        """
        conformal.check_level(level)
        count = len(self.scores)
        if conformal.rank(count, level) > count:
            raise ValueError(
                f"{count} episodes are too few for an interval of {level:.4g} for the return, "
                f"which takes {conformal.scores_needed(level)}; half of the episodes count, so "
                f"call agent.calibrate(episodes={2 * conformal.scores_needed(level)})."
            )
        centre = values + self.bias(values)
        half = conformal.conformal_quantile(self.scores, level) * self.spread(values)
        return Interval(centre - half, centre + half)


class Lookup(NamedTuple):
    """The calibration for an estimate, if there is one."""

    found: Calibration | None = None
    problem: str = NEVER
    """Why there is none."""
    is_outdated: bool = False

    def value_interval(self, solved: Values, level: float) -> Interval:
        """Return the interval for the value, calibrated if it can be."""
        if self.is_outdated:
            warnings.warn(OUTDATED_VALUE, RuntimeWarning, stacklevel=3)
        if self.found is None:
            return solved.interval(level)
        return self.found.value_interval(solved, level)

    def return_interval(self, values: Floats, level: float) -> Interval:
        """Return the interval for the return, or refuse."""
        if self.found is None:
            raise ValueError(self.problem)
        return self.found.return_interval(values, level)


START = Clock()


@dataclass(frozen=True)
class Calibrations:
    """The calibrations of an agent's seeds.

    Attributes
    ----------
    members
        One per seed; ``None`` of a seed that could not be calibrated. Nothing if none was.
    clock
        When it was.
    """

    members: tuple[Calibration | None, ...] = ()
    clock: Clock = START

    def of(self, member: int, now: Clock) -> Lookup:
        """Return what an estimate of a seed is told."""
        if not self.members:
            return Lookup()
        if now[:2] != self.clock[:2]:
            return Lookup(None, OUTDATED_RETURN, is_outdated=True)
        found = self.members[member]
        problem = "This seed could not be calibrated; agent.calibrate() says why in a warning."
        return Lookup(found, "" if found else problem)

    def arrays(self) -> dict[str, NDArray]:
        """Return what a model file holds; NaN of a seed that could not be calibrated."""
        if not self.members:
            return {}
        known = next(one for one in self.members if one is not None)
        compared = max(len(one.agreement.distances) for one in self.members if one is not None)
        rows = [_row(one, len(known.scores), compared) for one in self.members]
        parts = (np.stack(part) for part in zip(*rows, strict=True))
        named = dict(zip(FLOATS, parts, strict=True))
        named["clock"] = np.array(self.clock[:2])
        return {f"{NAME}.{name}": array for name, array in named.items()}


FLOATS = ("numbers", "scores", "distances", "noise")
WIDTH = 4 + 5 + 4 + 1
"""How many numbers a file holds of a seed besides the scores: the lines, and the limit."""


def _row(one: Calibration | None, count: int, compared: int) -> tuple[Floats, ...]:
    """Return what a file holds of a seed; NaN where nothing is known."""
    unknown = np.full(compared, np.nan)
    if one is None:
        return np.full(WIDTH, np.nan), np.full(count, np.nan), unknown, unknown
    distances, noise, limit = one.agreement
    spread = (*one.spread.line, one.spread.least)
    numbers = np.array([*one.bias, *spread, *one.solved_bias, limit])
    known = (distances, noise) if len(distances) else (unknown, unknown)
    return numbers, one.scores, *known


def read_arrays(arrays: Arrays, seeds: int) -> Calibrations:
    """Return the calibrations in a model file; none if it holds none.

    Raises
    ------
    ValueError
        If they are not what :meth:`Calibrations.arrays` returns.
    """
    if not any(name.startswith(f"{NAME}.") for name in arrays):
        return Calibrations()
    missing = [name for name in (*FLOATS, "clock") if f"{NAME}.{name}" not in arrays]
    if missing:
        raise ValueError(f"the calibration lacks its {missing[0]}")
    floats, clock = [arrays[f"{NAME}.{name}"] for name in FLOATS], arrays[f"{NAME}.clock"]
    fits = (
        all(part.dtype == np.float64 and part.ndim == 2 for part in floats)
        and all(len(part) == seeds for part in floats)
        and floats[0].shape[1] == WIDTH
        and floats[1].shape[1] > 0
        and floats[2].shape == floats[3].shape
        and (clock.shape == (2,) and clock.dtype.kind in "iu")
    )
    if not fits:
        raise ValueError("the calibration has other shapes")
    members = tuple(_read_row(*row) for row in zip(*floats, strict=True))
    if not any(members):
        raise ValueError("the calibration holds no numbers")
    return Calibrations(members, Clock(int(clock[0]), int(clock[1])))


def _read_row(
    numbers: Floats, scores: Floats, distances: Floats, noise: Floats
) -> Calibration | None:
    if np.isnan(numbers).all():
        return None
    *lines, limit = (float(number) for number in numbers)
    known = np.concatenate([scores, *(() if np.isnan(distances).all() else (distances, noise))])
    sane = np.isfinite(lines).all() and (known >= 0).all() and np.isfinite(known).all()
    if not sane or lines[8] < 0 or limit < 0:
        raise ValueError("the calibration holds numbers that cannot be")
    compared = len(known) > len(scores)
    agreement = Agreement(distances, noise, limit) if compared else NOT_COMPARED
    spread = Spread(Line(*lines[4:8]), lines[8])
    return Calibration(Line(*lines[:4]), spread, scores, Line(*lines[9:]), agreement)


def calibrate(player: Player, episodes: int, seed: int) -> Calibrations:
    """Calibrate every seed; see :meth:`~valuetrack.api.playing.Player.calibrate`."""
    check_count("episodes", episodes)
    check_count("seed", seed, least=0)
    if episodes < LEAST_EPISODES:
        raise ValueError(
            f"{episodes} episodes are too few to calibrate with; take at least {LEAST_EPISODES}, "
            "or 38 for intervals of 95 %."
        )
    player._check_playing()
    played = witnesses(player, episodes, seed, CALIBRATION)
    problems = [_problem(player, seen, episodes) for seen in played]
    if all(problems):
        raise ValueError(problems[0])
    if any(problems):
        each = zip(player.seeds, problems, strict=True)
        told = " ".join(f"Seed {seed}: {problem}" for seed, problem in each if problem)
        warnings.warn(f"Not all seeds are calibrated. {told}", RuntimeWarning, stacklevel=3)
    members = [
        None if isinstance(seen, CutOff) or problem else _learn(player, member, seen)
        for member, (seen, problem) in enumerate(zip(played, problems, strict=True))
    ]
    return Calibrations(tuple(members), player.trainer.clock)


class Checked(NamedTuple):
    """Fresh episodes of a calibrated seed, seen from one random state each."""

    values: Floats
    """What ``predict`` expected there."""
    returns: Floats
    covered: Floats
    """Whether the return was in its interval, (levels, episodes)."""
    width: Floats
    """The mean width of these intervals, (levels,)."""


def check(
    player: Player, levels: Sequence[float], episodes: int, seed: int
) -> list[Checked | None]:
    """Play episodes that no calibration has seen, and look whether intervals cover the returns.

    Levels that the calibration is too small for are NaN.
    """
    found: list[Checked | None] = []
    for member, seen in enumerate(witnesses(player, episodes, seed, CHECK, once=True)):
        calibration = player.calibration.of(member, player.trainer.clock).found
        problem = _problem(player, seen, episodes)
        if calibration is None or isinstance(seen, CutOff) or problem:
            found.append(None)
            continue
        both = seen.first.value, seen.first.returns
        values, returns = (np.asarray(part[:, 0], np.float64) for part in both)
        covered, width = np.full((len(levels), episodes), np.nan), np.full(len(levels), np.nan)
        for i, level in enumerate(levels):
            if conformal.scores_needed(level) <= len(calibration.scores):
                low, high = calibration.return_interval(values, level)
                covered[i] = (low <= returns) & (returns <= high)
                width[i] = float(np.mean(high - low))
        found.append(Checked(values, returns, covered, width))
    return found


def _problem(player: Player, seen: Witnesses | CutOff, episodes: int) -> str:
    """Return why these episodes teach nothing, in a sentence, if so."""
    if isinstance(seen, CutOff):
        rest = player._discount**seen.shortest
        return (
            f"{seen.episodes} of {episodes} episodes were cut off, the first after "
            f"{seen.shortest:,} steps, and what would have come then still counts {rest:.0%}, so "
            "that the returns are not known: allow longer episodes, or train with a smaller "
            "discount."
        )
    if not (np.isfinite(seen.first.value).all() and np.isfinite(seen.first.returns).all()):
        return "The values or the returns are not finite, so that there is nothing to compare."
    return ""


def _learn(player: Player, member: int, seen: Witnesses) -> Calibration:
    """Fit with the first half of the episodes, calibrate with the other."""
    first, again, same = seen
    discount, half = player._discount, len(first.value) // 2
    values, returns = (np.asarray(part, np.float64) for part in (first.value, first.returns))
    bias = conformal.fit_bias(values[:half], _nearest(values, first, discount)[:half])
    residuals = returns - values - bias(values)
    spread = conformal.fit_spread(values[:half], residuals[:half])
    scores = np.sort(np.abs(residuals[half:, 0]) / spread(values[half:, 0]))
    solved = _solved(player, member, first)
    if solved is None:
        return Calibration(bias, spread, scores)
    truth = _nearest(solved.mean, first, discount)
    solved_bias = conformal.fit_bias(solved.mean[:half], truth[:half])
    if not same[half:].all():
        return Calibration(bias, spread, scores, solved_bias)
    mean = (solved.mean + solved_bias(solved.mean))[:, 0]
    ways = Rollout(*(np.concatenate([a[:, :1], b], 1) for a, b in zip(first, again, strict=True)))
    errors = _farthest(mean[:, None], ways, discount) - mean[:, None]
    agreement = conformal.agreement(errors[half:], solved.sd[half:, 0])
    return Calibration(bias, spread, scores, solved_bias, agreement)


def _nearest(values: Floats, seen: Rollout, discount: float) -> Floats:
    """Return the possible return nearest to the value: a bias is to be proven."""
    return np.clip(values, *_possible(seen, discount))


def _farthest(values: Floats, seen: Rollout, discount: float) -> Floats:
    """Return the possible return farthest from the value: an interval must reach there."""
    low, high = _possible(seen, discount)
    return np.where(values - low > high - values, low, high)


def _possible(seen: Rollout, discount: float) -> tuple[Floats, Floats]:
    """Return between what the return lies.

    What was cut off may be as large as what was seen, discounted, and of either sign.
    """
    returns = np.asarray(seen.returns, np.float64)
    missing = seen.unseen(discount) * np.abs(returns)
    return returns - missing, returns + missing


def _solved(player: Player, member: int, seen: Rollout) -> Values | None:
    """Return the values solved from the replay memory where the policy acted, if they can be."""
    flat = seen.observation.reshape(-1, *seen.observation.shape[2:])
    try:
        found = player._solver.values(member, player.trainer.clock, flat)
    except ValueError:  # there is no replay memory, and no such interval either
        return None
    column = seen.action.reshape(-1, 1) if found.mean.shape[1] > 1 else np.zeros((flat.shape[0], 1))
    taken = (np.take_along_axis(part, column.astype(int), axis=1) for part in found[:2])
    mean, sd = (np.asarray(part, np.float64).reshape(seen.action.shape) for part in taken)
    return Values(mean, sd) if np.isfinite(mean).all() and np.isfinite(sd).all() else None
