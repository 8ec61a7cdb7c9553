"""A sampling agent between two calls of Stable-Baselines3: its state, its updates, its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import torch

from valuetrack import posterior, rng
from valuetrack.algorithms.views import Views
from valuetrack.interrupts import Uninterrupted
from valuetrack.learner import Learner, LearnerState
from valuetrack.posterior import Pool
from valuetrack.training.update import Learned, start, update
from valuetrack.types import Array, Transition

NDArray = npt.NDArray[Any]

THINNING = "thinning"
"""The name under which a file says how the slots of its pool were filled."""


class ModelState(NamedTuple):
    """All that goes into a file.

    Attributes
    ----------
    learned
        The current sample, the target network, the pool of parameter samples.
    key
        The random key from which every update derives its own.
    """

    learned: Learned
    key: Array


class Programs:
    """The functions of an agent, each compiled when it is first asked for.

    Parameters
    ----------
    agent
        What learns.
    pool_size, thinning
        How many parameter samples are kept, one of every ``thinning`` updates.
    """

    def __init__(self, agent: Learner, pool_size: int, thinning: int) -> None:
        self.agent, self.pool_size, self.thinning = agent, pool_size, thinning
        self.views = Views(agent, None)
        self.start = jax.jit(self._start)
        self.update = jax.jit(self._update, donate_argnums=0)
        # A copy, as an update may not be given the same memory twice.
        self.copy = jax.jit(lambda params: jax.tree.map(jnp.copy, params))

    def _start(self, key: Array) -> ModelState:
        # Split as by valuetrack's own trainers, so that a seed begins with the same parameters.
        learned = start(self.agent, jax.random.split(key, 3)[1], self.pool_size)
        return ModelState(learned, noise_key(key))

    def _update(self, state: ModelState, batches: Transition) -> tuple[ModelState, Array]:
        """Make one update on each batch; return the mean squared residuals."""

        def update_once(state: ModelState, batch: Transition) -> tuple[ModelState, Array]:
            done = state.learned.learner.sampler.updates
            key = jax.random.fold_in(state.key, done)
            # SB3 counts environment steps between two copies; `copy_target` makes them.
            learned, residual = update(
                self.agent, key, state.learned, batch, done, thinning=self.thinning, refresh=False
            )
            return ModelState(learned, state.key), residual

        return jax.lax.scan(update_once, state, batches)


class ModelLearner:
    """An agent's state, and what is asked of it.

    It has the ``state_dict`` and ``load_state_dict`` of a PyTorch module, so that SB3 saves, loads
    and exchanges it like one of its networks.

    Parameters
    ----------
    programs
        What learns.
    seed
        Of the initial parameters and of all noise.
    """

    def __init__(self, programs: Programs, seed: int) -> None:
        self.programs = programs
        self.state: ModelState = programs.start(rng.key(seed))

    @property
    def updates(self) -> int:
        """How many updates there have been."""
        return int(self._learner.sampler.updates)

    @property
    def diverged(self) -> int:
        """The first update after which something was not finite, or -1."""
        return int(self.state.learned.diverged)

    def update(self, batches: Transition) -> NDArray:
        """Make one update on each batch, all in one call; return the mean squared residuals.

        Every field has the leading axes (updates, batch).
        """
        with Uninterrupted():
            self.state, residuals = self.programs.update(self.state, batches)
        return np.asarray(residuals)

    def reseed(self, seed: int) -> None:
        """Draw all noise from now on as the seed says."""
        self.state = self.state._replace(key=noise_key(rng.key(seed)))

    def copy_target(self) -> None:
        """Give the target network the current parameters."""
        learner = self._learner
        target = self.programs.copy(learner.sampler.params)
        learned = self.state.learned._replace(learner=learner._replace(target=target))
        self.state = self.state._replace(learned=learned)

    def greedy(self, observations: NDArray, actions: int) -> NDArray:
        """Return the best action of the current sample for each observation."""
        every = np.ones((len(observations), actions), bool)
        action, _ = self.programs.views.choose(self._learner, observations, every)
        return np.asarray(action)

    def values(self, observations: NDArray) -> NDArray:
        """Return the Q-values of the current sample, (n, actions)."""
        (values,) = np.asarray(self.programs.views.values(self._learner, observations))
        return np.asarray(values)

    def values_of_pool(self, observations: NDArray) -> NDArray:
        """Return the Q-values of all kept samples, from the oldest on: (samples, n, actions)."""
        pool = self.state.learned.pool
        if not isinstance(pool, Pool) or not self.updates:
            return self.values(observations)[None]
        views = self.programs.views
        drawn = views.values_of_pool(self._learner, pool.samples, observations)
        ordered: NDArray = np.asarray(drawn)[posterior.order(pool), 0]
        return ordered

    @property
    def _learner(self) -> LearnerState:
        return self.state.learned.learner

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the whole state as named tensors, and how the pool is to be read."""
        tensors = {name: _to_tensor(leaf) for name, leaf in _named_leaves(self.state).items()}
        return {**tensors, THINNING: torch.tensor(self.programs.thinning)}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take up a state; with ``strict=False`` what is not given stays as it is.

        Raises
        ------
        RuntimeError
            If a tensor is missing, unknown, or of another shape or dtype, or if the pool was
            filled with another thinning. (PyTorch's modules raise the same, and SB3 takes a
            ValueError here for an old file of its own.)
        """
        state_dict = dict(state_dict)
        thinning = state_dict.pop(THINNING, None)
        current = _named_leaves(self.state)
        unknown = [name for name in state_dict if name not in current]
        if unknown:
            raise RuntimeError(f"There is no array {unknown[0]!r} in this model's learner.")
        missing = [name for name in current if name not in state_dict]
        if strict and (missing or thinning is None):
            raise RuntimeError(f"The saved learner lacks the array {[*missing, THINNING][0]!r}.")
        if thinning is not None and int(thinning) != self.programs.thinning:
            raise RuntimeError(
                f"The saved pool was filled with thinning={int(thinning)}, and this model has "
                f"{self.programs.thinning}; load it with the options it was saved with."
            )
        leaves = [
            _to_leaf(name, state_dict[name], leaf) if name in state_dict else leaf
            for name, leaf in current.items()
        ]
        self.state = jax.tree.unflatten(jax.tree.structure(self.state), leaves)


def noise_key(key: Array) -> Array:
    """Return the key from which all updates of a seed derive theirs."""
    return jax.random.split(key, 3)[0]


def _named_leaves(state: ModelState) -> dict[str, Any]:
    """Return the arrays under names such as ``learned.learner.sampler.params.body.0.w``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _to_tensor(leaf: Any) -> torch.Tensor:
    if _is_key(leaf):
        # PyTorch does little with uint32.
        return torch.from_numpy(np.array(jax.random.key_data(leaf), np.int64))
    return torch.from_numpy(np.array(leaf))


def _to_leaf(name: str, tensor: torch.Tensor, like: Any) -> Any:
    expected = _to_tensor(like)
    if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
        raise RuntimeError(
            f"The saved array {name!r} is {tuple(tensor.shape)} of {tensor.dtype}, but this model "
            f"has {tuple(expected.shape)} of {expected.dtype}; load it with the options it was "
            "saved with."
        )
    array = tensor.detach().cpu().numpy()
    if _is_key(like):
        data = jnp.asarray(array.astype(np.uint32))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like))
    return jnp.array(array)  # a copy: the tensor may change later
