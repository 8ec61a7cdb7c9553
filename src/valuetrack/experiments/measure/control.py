"""How good a policy is while it learns, and the parameters of the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack import posterior
from valuetrack.api.agent import AnyAgent
from valuetrack.experiments.measure.curves import CurvesMeasure, CurvesOptions, plan_points
from valuetrack.experiments.spec import Row
from valuetrack.io.arrays import Arrays, from_arrays, to_arrays
from valuetrack.io.run_folder import Columns
from valuetrack.types import Array, Bools, NDArray, Params, Tree

__all__ = ["BEST", "ControlMeasure", "ControlOptions", "plan_points"]

BEST = "best.vt"


class ControlOptions(CurvesOptions):
    """How often a policy is tried out, and on how many episodes."""

    kind: Literal["control"] = "control"


class ControlMeasure(CurvesMeasure):
    """Plays greedy episodes at every point, and keeps the parameters of the best mean so far."""

    def __init__(self, options: ControlOptions, row: Row, agent: AnyAgent) -> None:
        super().__init__(options, row, agent)
        self.best = np.full(len(agent.seeds), -np.inf)
        # The parameters belong to the scale in which observations were seen.
        self.best_params, self.best_scale = jax.tree.map(np.array, self._present())

    def noted(self, returns: NDArray, diverged: Bools) -> Columns:
        """Keep the best parameters, and write down what they came to."""
        self._keep_best(np.where(diverged, -np.inf, returns))
        return {"best_return": self._best_returns()}

    def _keep_best(self, mean: NDArray) -> None:
        """Keep the parameters of those who are better than ever; diverged seeds never are."""
        better = mean > self.best
        self.best = np.where(better, mean, self.best)

        def choose(old: NDArray, new: Array) -> NDArray:
            return np.where(better.reshape(-1, *(1,) * (old.ndim - 1)), np.asarray(new), old)

        kept = (self.best_params, self.best_scale)
        self.best_params, self.best_scale = jax.tree.map(choose, kept, self._present())

    def _present(self) -> tuple[Params, Tree]:
        """Return the present parameters of all seeds, and the moments of their observations."""
        learner = self.agent.trainer.learned.learner
        return learner.sampler.params, learner.scale

    def _best_returns(self) -> NDArray:
        return np.where(np.isfinite(self.best), self.best, np.nan)

    def tables(self) -> dict[str, Columns]:
        """Return the points, and the best return of each seed."""
        seeds = {"seed": np.asarray(self.agent.seeds), "best_return": self._best_returns()}
        return {**super().tables(), "seeds": seeds}

    def write_files(self, folder: Path) -> None:
        """Write the best parameters as an agent; the rest of it is as the training ended."""
        trainer = self.agent.trainer
        learned = trainer.learned
        params, scale = jax.tree.map(jnp.asarray, (self.best_params, self.best_scale))
        example = jax.tree.map(lambda leaf: leaf[0], params)
        pool = jax.vmap(lambda p: posterior.add(posterior.init(example, 1), p))(params)
        sampler = learned.learner.sampler._replace(params=params)
        learner = learned.learner._replace(sampler=sampler, scale=scale)
        trainer.adopt(learned._replace(learner=learner, pool=pool), trainer.clock)
        self.agent.save(folder / BEST, replay=False)

    def arrays(self) -> Columns:
        """Return the points so far, and the best parameters."""
        params, scale = (self.best_params, "best_params"), (self.best_scale, "best_scale")
        best = {"best": self.best, **to_arrays(*params), **to_arrays(*scale)}
        return {**best, **super().arrays()}

    def restore(self, arrays: Arrays) -> None:
        """Go on with what was saved."""
        self.best = arrays["best"]
        saved = from_arrays(arrays, self.best_params, "best_params")
        scale = from_arrays(arrays, self.best_scale, "best_scale")
        self.best_params, self.best_scale = jax.tree.map(np.asarray, (saved, scale))
        super().restore(arrays)
