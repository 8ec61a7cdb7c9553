"""Has the world changed? An agent's newest temporal-difference errors, and when they stand out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from valuetrack import alarms
from valuetrack.alarms import Evidence
from valuetrack.api.acting import Actor
from valuetrack.learner import Learner
from valuetrack.training.evaluation import values_key
from valuetrack.types import Arrays, Bools, Floats, NDArray
from valuetrack.values.errors import Errors, compiled_errors, errors_of

ALARMS, EVIDENCE = "alarms", "evidence"
"""What the names of saved arrays begin with."""
SCORES = 2
"""How many numbers sum up a block of errors."""


class Raised(NamedTuple):
    """The alarms of a training, in the order of time, each array (alarms,)."""

    steps: NDArray
    updates: NDArray
    """Environment steps of each seed, and updates, when it was raised."""
    members: NDArray
    """The position of the seed whose errors raised it."""


class Alarms:
    r"""Looks at the errors of every block of new transitions, for each seed on its own.

    Of the temporal-difference errors :math:`\delta` of a block, by the values that the agent acts
    on at its end (of LKTD, SGLD and SGHMC the mean over samples), two numbers are compared with
    those of the 100 blocks before: the root of the mean of :math:`\delta^2`, and the size of the
    mean of :math:`\delta`. The first tells of rare large errors, the second of small ones that all
    go one way. See :mod:`valuetrack.alarms` for the test.
    """

    def __init__(self, seeds: int) -> None:
        self._evidence = [alarms.begin(SCORES) for _ in range(seeds)]
        self._raised: list[tuple[int, int, int]] = []
        self._errors: tuple[Learner, Errors] | None = None

    @property
    def raised(self) -> Raised:
        """All alarms so far."""
        table = np.array(self._raised, int).reshape(-1, len(Raised._fields))
        return Raised(*table.T)

    def look(self, actor: Actor, block: int, rate: float) -> Bools:
        """Look at the last ``block`` transitions of every seed; return which raise an alarm.

        ``rate`` is that of false alarms, per environment step, while nothing changes.
        """
        trainer = actor.trainer
        if self._errors is None or self._errors[0] is not actor.learner:
            self._errors = actor.learner, compiled_errors(actor.learner, values_key())
        states = jax.tree.map(np.asarray, actor.states)
        epsilon = float(trainer.settings.exploration(trainer.steps))
        found = np.zeros(len(self._evidence), bool)
        for member, evidence in enumerate(self._evidence):
            state = jax.tree.map(lambda leaf, m=member: leaf[m], states)
            newest = trainer.memory(member, block)
            scores = scores_of(errors_of(self._errors[1], state, newest, epsilon))
            after, found[member] = alarms.add(evidence, scores, 1.0 / (rate * block))
            self._evidence[member] = after
            if found[member]:
                self._raised.append((trainer.steps, trainer.clock.updates, member))
        return found

    def copy(self) -> Alarms:
        """Return alarms that go on on their own."""
        twin = Alarms(0)
        twin._evidence, twin._raised = list(self._evidence), list(self._raised)
        return twin

    def arrays(self) -> dict[str, NDArray]:
        """Return what goes into a file: nothing, if nobody has looked yet."""
        if not self._raised and not any(evidence.seen for evidence in self._evidence):
            return {}
        evidence = Evidence(*map(np.stack, zip(*self._evidence, strict=True)))
        parts = {f"{EVIDENCE}.{name}": part for name, part in evidence._asdict().items()}
        return {f"{ALARMS}.{n}": part for n, part in {**parts, **self.raised._asdict()}.items()}

    def restore(self, arrays: Arrays) -> None:
        """Go on from :meth:`arrays`; a file without them knows of no alarms.

        Raises
        ------
        ValueError
            If they are not those of such an agent.
        """
        evidence, raised = (
            [arrays.get(f"{ALARMS}.{start}{name}") for name in kind._fields]
            for start, kind in ((f"{EVIDENCE}.", Evidence), ("", Raised))
        )
        found = [part for part in (*evidence, *raised) if part is not None]
        if not found:
            return
        if len(found) < len(evidence) + len(raised) or not self._fits(*found):
            raise ValueError("the saved alarms do not fit the agent")
        scores, seen, size, *table = found
        self._evidence = [Evidence(*each) for each in zip(scores, seen, size, strict=True)]
        self._raised = list(map(tuple, np.stack(table, axis=1).tolist()))

    def _fits(self, scores: NDArray, seen: NDArray, size: NDArray, *table: NDArray) -> bool:
        seeds = len(self._evidence)
        shapes = scores.shape == (seeds, alarms.WINDOW, SCORES) and size.shape == (seeds,)
        numbers = scores.dtype.kind == size.dtype.kind == "f" and seen.dtype.kind in "iu"
        whole = all(part.dtype.kind in "iu" and part.ndim == 1 for part in table)
        same = len({part.shape for part in table}) == 1 and seen.shape == (seeds,)
        return shapes and numbers and whole and same and bool((seen >= 0).all())


def scores_of(errors: Floats) -> Floats:
    """Return what sums up a block of errors; NaN if it is empty or something is not finite.

    Examples
    --------
    >>> scores_of(np.array([3.0, -4.0, 0.0, 5.0])).round(3).tolist()
    [3.536, 1.0]
    """
    if not len(errors) or not np.isfinite(errors).all():
        return np.full(SCORES, np.nan)
    return np.array([np.sqrt(np.mean(errors**2)), abs(errors.mean())])
