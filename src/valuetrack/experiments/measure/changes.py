"""How fast an agent notices that its world has changed, and is right again: intervals and policy.

The world is an indoor escape that changes once. At every look, the 95 % intervals for the value are
compared with the exact values, in the world as it is at that moment, of the policy that the values
are of, and with those of the best policy; and the return of a greedy episode, which is exact too,
with the best one. The alarms are those of ``learn(alarm_every=...)``.

An agent has found what it had lost at the first look after the change from which it stays found:
in that look, and in the mean of those within the next ``stays`` steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from valuetrack.api.agent import AnyAgent
from valuetrack.api.alarms import Alarms
from valuetrack.api.options import Count, Positive
from valuetrack.envs.changing import ChangingWorld
from valuetrack.envs.indoor_escape import IndoorEscape, observations, optimal_q
from valuetrack.envs.policy_evaluation import action_values
from valuetrack.experiments.measure import truths
from valuetrack.experiments.measure.base import Measure, Records, cycles_of, steps_per_cycle
from valuetrack.experiments.spec import Row, Section
from valuetrack.io.arrays import Arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Bools, Floats, Json, NDArray

LEVEL = 0.95
RECORDS = "records"


class ChangesOptions(Section):
    """When an agent is looked at, and what counts as right.

    Attributes
    ----------
    every
        Environment steps between two looks.
    alarm_every, alarm_rate
        See :meth:`~valuetrack.api.learning.Student.learn`.
    cells
        The tracked cells, whose intervals are compared with the truth.
    transitions
        From how many transitions intervals are solved at most.
    covered
        The share of the intervals that must hold the truth.
    near, near_share
        How far a return may be from the best one, as a share of that, and in which share of the
        looks it must be so.
    stays
        Over how many steps these shares are taken.
    settled
        False alarms count from this step on, for before there is a lot to learn.
    """

    kind: Literal["changes"] = "changes"
    every: Count = 500
    alarm_every: Count = 100
    alarm_rate: Positive = 1e-5
    cells: tuple[tuple[int, int], ...] = ((0, 0), (2, 2), (5, 1), (1, 5), (5, 5))
    transitions: Count = 2_000
    covered: float = Field(0.8, gt=0, le=1)
    near: float = Field(0.1, ge=0, lt=1)
    near_share: float = Field(0.9, gt=0, le=1)
    stays: Count = 3_000
    settled: Count = 7_500


class _Plan(NamedTuple):
    """Cycles between two looks, and between two blocks that are judged."""

    look: int
    alarm: int


def _plan(options: ChangesOptions, row: Row) -> _Plan:
    per_cycle = steps_per_cycle(row)
    return _Plan(*(math.ceil(n / per_cycle) for n in (options.every, options.alarm_every)))


def plan_points(options: ChangesOptions, row: Row) -> list[int]:
    """Return after how many cycles something is due: a look, a block, or the end."""
    end, plan = cycles_of(row), _plan(options, row)
    due = {cycle for period in plan for cycle in range(period, end, period)}
    return sorted(due | {end})


class ChangesMeasure(Measure):
    """Looks at the intervals, the policy and the errors of all seeds."""

    def __init__(self, options: ChangesOptions, row: Row, agent: AnyAgent) -> None:
        self.options, self.agent = options, agent
        self.points, self._plan = plan_points(options, row), _plan(options, row)
        self.change = change_of(agent.env.in_jax)
        world = agent.env.in_jax.worlds[0]
        self.cells = np.array([world.index(cell) for cell in options.cells])
        self.seen, _ = agent.env.encode(observations(world)[self.cells])
        self.records, self.alarms = Records(), Alarms(len(agent.seeds))

    def look(self, index: int) -> Json:
        """Judge the newest errors, and compare with the truth, where they are due."""
        cycle, trainer, options = self.points[index], self.agent.trainer, self.options
        if cycle % self._plan.alarm == 0 and trainer.clock.updates:
            self.alarms.look(self.agent.actor, options.alarm_every, options.alarm_rate)
        is_end = index == len(self.points) - 1
        if not trainer.clock.updates or (cycle % self._plan.look and not is_end):
            return {}
        found = [self._compared(member) for member in range(len(self.agent.seeds))]
        columns = {name: np.array([one[name] for one in found]) for name in found[0]}
        step = np.full(len(found), trainer.steps)
        self.records.append({"seed": np.asarray(self.agent.seeds), "step": step, **columns})
        returns, loss = trainer.take_trace().means()
        return {"return": returns, "loss": loss, **columns}

    def _compared(self, member: int) -> dict[str, float]:
        """Compare one seed with the truth."""
        world = self.agent.trainer.present_env
        assert isinstance(world, IndoorEscape)
        best = optimal_q(world, epsilon=0.0, discount=self.agent.options.discount)
        cells = np.flatnonzero(best.legal.any(axis=1))
        policy = np.zeros(best.legal.shape)
        seen, _ = self.agent.env.encode(observations(world)[cells])
        policy[cells] = truths.own_policy(self.agent, member, seen, best.legal[cells])
        own = action_values(world, policy, self.agent.options.discount)[self.cells]
        values = self.agent.solve_values(self.seen, member, self.options.transitions)
        low, high = values.interval(LEVEL)
        legal = best.legal[self.cells]
        paid, most = greedy_return(world, policy), best_return(world)
        return {
            "own_covered": _share_inside(own, low, high, legal),
            "best_covered": _share_inside(best.values[self.cells], low, high, legal),
            "width": float((high - low)[legal].mean()),
            "error": float(np.abs(values.mean - own)[legal].mean()),
            "greedy_return": paid,
            "best_return": most,
            "near": float(paid >= most - self.options.near * abs(most)),
        }

    def tables(self) -> dict[str, Columns]:
        """Return the looks, and for each seed how long everything took, and its alarms."""
        delay, false = zip(*map(self._alarms_of, range(len(self.agent.seeds))), strict=True)
        judged = max(0, self.change - self.options.settled)
        seeds = {
            "seed": np.asarray(self.agent.seeds),
            "own_covered_after": self._found_after("own_covered", self.options.covered),
            "best_covered_after": self._found_after("best_covered", self.options.covered),
            "returned_after": self._found_after("near", self.options.near_share),
            "own_covered_before": self._before("own_covered"),
            "near_before": self._before("near"),
            "alarm_after": np.array(delay, float),
            "false_alarms": np.array(false, float),
            "judged_steps": np.full(len(delay), float(judged)),
        }
        return {"points": self.records.columns, "seeds": seeds}

    def _found_after(self, name: str, least: float) -> Floats:
        """Return the steps from the change until a share stays large enough; NaN for never."""
        steps, shares = self._by_seed(name)
        after = steps > self.change
        span = max(1, round(self.options.stays / self.options.every))
        found = np.full(len(shares), np.nan)
        for seed, row in enumerate(shares[:, after]):
            place = first_that_stays(row, span, least)
            if place is not None:
                found[seed] = steps[after][place] - self.change
        return found

    def _before(self, name: str) -> Floats:
        """Return the mean over the looks of the last ``stays`` steps before the change."""
        steps, shares = self._by_seed(name)
        late = (steps > self.change - self.options.stays) & (steps < self.change)
        return shares[:, late].mean(axis=1) if late.any() else np.full(len(shares), np.nan)

    def _by_seed(self, name: str) -> tuple[NDArray, Floats]:
        """Return the steps of the looks, and a column, (seeds, looks)."""
        count, columns = len(self.agent.seeds), self.records.columns
        return columns["step"][::count], columns[name].reshape(-1, count).T

    def _alarms_of(self, member: int) -> tuple[float, int]:
        """Return how long after the change a seed's first alarm comes, and its false ones."""
        raised = self.alarms.raised
        steps = raised.steps[raised.members == member]
        true = steps[steps > self.change]
        false = (steps > self.options.settled) & (steps <= self.change)
        return float(true[0] - self.change) if len(true) else np.nan, int(false.sum())

    def arrays(self) -> Columns:
        """Return the looks and the alarms so far."""
        return {**self.records.arrays(RECORDS), **self.alarms.arrays()}

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        self.records.restore(arrays, RECORDS)
        self.alarms.restore(arrays)


def change_of(env: object) -> int:
    """Return the step at which an indoor escape changes for the first time, or refuse."""
    if not isinstance(env, ChangingWorld) or not isinstance(env.worlds[0], IndoorEscape):
        raise ValueError("Changes are measured in valuetrack/Changing-v0 of the indoor escape.")
    if not env.changes:
        raise ValueError("This world never changes; give it `changes`.")
    return env.changes[0]


def first_that_stays(shares: Sequence[float] | Floats, span: int, least: float) -> int | None:
    """Return the first place that is at least so large, as is the mean of ``span`` from there.

    Examples
    --------
    >>> first_that_stays([1, 0, 0, 1, 1, 0, 1], 4, 0.75)
    3
    """
    numbers = np.asarray(shares, float) + 1e-9
    for place in range(len(numbers) - span + 1):
        if numbers[place] >= least and numbers[place : place + span].mean() >= least:
            return place
    return None


def greedy_return(world: IndoorEscape, policy: Floats) -> float:
    """Return what an episode pays in the mean, by a policy without chance, and without a discount.

    Examples
    --------
    >>> corridor = IndoorEscape(width=3, height=1, horizon=50)
    >>> greedy_return(corridor, np.eye(4)[[0, 0, 0]]), greedy_return(corridor, np.eye(4)[[2, 2, 2]])
    (-2.0, -50.0)
    """
    cell, goal = world.index(world.start), world.index(world.goal_position)
    actions = policy.argmax(axis=1)
    for step in range(world.horizon):
        if cell == goal:
            return world.reward_mean * step
        cell = int(world._tables.next_cell[cell, actions[cell]])
    return world.reward_mean * world.horizon


def best_return(world: IndoorEscape) -> float:
    """Return what an episode pays in the mean on a shortest path.

    Examples
    --------
    >>> best_return(IndoorEscape(reward_mean=-2.0))
    -36.0
    """
    return world.reward_mean * float(world._tables.distance[world.index(world.start)])


def _share_inside(truth: Floats, low: Floats, high: Floats, legal: Bools) -> float:
    return float(((low <= truth) & (truth <= high))[legal].mean())
