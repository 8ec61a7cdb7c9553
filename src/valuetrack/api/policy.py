"""A policy that users give, in any of its forms, as the trainers follow it.

In compiled code a policy is a pure function ``(observation, mask) -> probabilities``; the host
trainer calls users' own functions and ``predict``. Whatever is wrong in what they return or raise
is said in one sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.api.environment import Backend, find_in_jax, only_in_jax, task_in_jax
from valuetrack.api.playing import Player
from valuetrack.envs.gym.actions import Actions
from valuetrack.envs.gym.guards import one_line
from valuetrack.envs.gym.vectorised import Observed
from valuetrack.learner import Task
from valuetrack.policies import (
    NO_POLICY,
    PROBABILITY_TOLERANCE,
    action_probabilities,
    draw_action,
)
from valuetrack.training.evaluation import values_key
from valuetrack.training.host_acting import HostPolicy
from valuetrack.types import Array, NDArray

if TYPE_CHECKING:
    from valuetrack.api.agent import Agent

Probabilities = Callable[[Array, Array], Array]
"""A policy in JAX, for one observation: (observation, mask) -> probabilities."""
MASK_NAMES = ("action_mask", "action_masks")
"""What the argument for the legal actions is called in ``predict``, here and in sb3-contrib."""


class PolicyError(ValueError):
    """A policy raised an error, or returned what is no action."""


class Given(NamedTuple):
    """A policy as a user gave it.

    Attributes
    ----------
    policy
        A function, an object with ``predict``, one of our agents, or ``None``.
    probabilities
        Whether a function returns the probabilities of all actions rather than an action.
    deterministic
        What ``predict`` is told; for one of our agents, whether it never explores.
    """

    policy: Any
    probabilities: bool
    deterministic: bool

    @property
    def is_agent(self) -> bool:
        """Whether it is one of our agents, whose policy can be compiled."""
        return isinstance(self.policy, Player)

    def check(self) -> None:
        """Refuse what is no policy."""
        if self.policy is None or self.is_agent:
            return
        if isinstance(self.policy, type):
            raise PolicyError(f"The policy is the class {self.policy.__name__}; make one of it.")
        if hasattr(self.policy, "predict"):
            if self.probabilities:
                raise PolicyError("`predict` returns actions: leave `probabilities=True` out.")
            return
        if not callable(self.policy):
            raise PolicyError(
                "A policy is a function of the observation, or has `predict`; this is a "
                f"{type(self.policy).__name__}."
            )
        _takes_mask(self.policy)

    def may_compile(self, *, must: bool) -> bool:
        """Return whether to try and compile it.

        A function that returns an action may draw it with a generator of its own, which compiled
        code would call just once: such a function is compiled only if there is no other way.
        """
        if self.is_agent:
            return True
        return not hasattr(self.policy, "predict") and (must or self.probabilities)

    def in_jax(self, task: Task) -> Probabilities:
        """Return it as a pure function for one observation; an agent's policy as it is now."""
        if self.is_agent:
            _check_task(self.policy, task)
            return _of_agent(self.policy, self.deterministic)
        call = _with_mask(self.policy)
        if self.probabilities:
            return lambda observation, mask: jnp.asarray(call(observation, mask))
        return lambda observation, mask: jax.nn.one_hot(call(observation, mask), task.actions)

    def on_host(self, task: Task, actions: Actions) -> HostPolicy:
        """Return it as the host trainer calls it."""
        if self.policy is None:
            return _absent
        if self.is_agent:
            return _Compiled(self.in_jax(task))
        return _InPython(self, actions)


def compiled_policy(policy: Probabilities) -> Callable[[Array, Array, Array], Array]:
    """Return ``(observations, masks, uniforms) -> actions``; the last uniform number is used."""

    def act(observations: Array, masks: Array, uniforms: Array) -> Array:
        return draw_action(uniforms[..., -1], jax.vmap(policy)(observations, masks), masks)

    return act


def backend_for(
    given: Given, env: Any, env_options: Mapping[str, Any], backend: Backend
) -> Backend:
    """Return the trainer for a policy in an environment: compiled where both can be.

    Raises
    ------
    PolicyError
        If the policy cannot be compiled where it must be.
    """
    found = None if given.policy is None else find_in_jax(env, env_options, backend)
    if found is None:
        return backend
    must = backend == "compiled" or only_in_jax(env)
    problem: str | None = "it has `predict`"
    if given.may_compile(must=must):
        problem = check_traced(given.in_jax(task_in_jax(found)), found)
        if problem is None:
            return "compiled"
    if not must:
        return "host"
    instead = "" if only_in_jax(env) else ', or take backend="host"'
    raise PolicyError(
        f"This policy cannot be compiled ({problem}): give a pure JAX function of "
        f"(observation, mask) that returns probabilities, with `probabilities=True`{instead}."
    )


def check_traced(policy: Probabilities, env: Any) -> str | None:
    """Try a policy in an environment in JAX; return why it cannot be compiled, if so.

    Raises
    ------
    PolicyError
        If it can, but does not return probabilities.
    """
    state = env.reset(jnp.full(env.reset_uniforms, 0.5))
    observation, mask = env.observe(state), env.action_mask(state)
    try:
        traced = jax.eval_shape(policy, observation, mask)
    except Exception as error:
        return f"{type(error).__name__}: {one_line(error)[:160].rstrip('.')}"
    _check_shape(traced, env.num_actions)
    _checked_probabilities(policy(observation, mask), np.asarray(mask))
    return None


def _check_task(agent: Agent[Any], task: Task) -> None:
    if (agent.task.shape, agent.task.actions) != (task.shape, task.actions):
        raise PolicyError(
            f"The policy has learned from observations of shape {agent.task.shape} and "
            f"{agent.task.actions} actions; this environment has {task.shape} and {task.actions}."
        )


def _of_agent(agent: Agent[Any], deterministic: bool) -> Probabilities:
    state, learner = agent.trainer.member(0).learner, agent.learner
    now = agent.trainer.settings.exploration(agent.num_timesteps)
    epsilon = 0.0 if deterministic else float(now)

    def probabilities(observation: Array, mask: Array) -> Array:
        values = jnp.mean(learner.values(values_key(), state, observation[None]), axis=0)[0]
        return action_probabilities(values, mask, epsilon)

    return probabilities


def _absent(observed: Observed, rows: NDArray, uniforms: NDArray) -> NDArray:
    """Stand in for the policy of a tracker that was loaded without one, and never steps."""
    return np.zeros(len(observed.mask), np.int32)


class _Compiled:
    """A policy in JAX on the host: of encoded observations, for all environments at once."""

    def __init__(self, policy: Probabilities) -> None:
        self._act = jax.jit(compiled_policy(policy))

    def __call__(self, observed: Observed, rows: NDArray, uniforms: NDArray) -> NDArray:
        actions = np.asarray(self._act(observed.observation, observed.mask, uniforms))
        if (actions[rows] == NO_POLICY).any():
            raise PolicyError("The values of the agent that is the policy are not finite.")
        return actions


class _InPython:
    """A user's function or ``predict``, called for one observation at a time."""

    def __init__(self, given: Given, actions: Actions) -> None:
        self.given, self.actions = given, actions
        policy = given.policy
        self._call = _predict(given) if hasattr(policy, "predict") else _with_mask(policy)

    def __call__(self, observed: Observed, rows: NDArray, uniforms: NDArray) -> NDArray:
        chosen = np.zeros(len(rows), np.int32)
        for row in np.flatnonzero(rows):
            mask = observed.mask[row]
            try:
                answer = self._call(observed.given(int(row)), mask.copy())
            except Exception as error:
                what = f"{type(error).__name__}: {one_line(error)}"
                raise PolicyError(f"The policy failed: {what}") from error
            chosen[row] = self._action(answer, mask, uniforms[row, -1])
        return chosen

    def _action(self, answer: Any, mask: NDArray, uniform: NDArray) -> int:
        if not self.given.probabilities:
            return self._checked_action(answer, mask)
        probabilities = _checked_probabilities(answer, mask)
        return draw_on_host(uniform, np.where(mask, probabilities, 0.0))

    def _checked_action(self, answer: Any, mask: NDArray) -> int:
        action, value = self.actions.number(answer), _array(answer)
        first, last = self.actions.first, self.actions.first + self.actions.count - 1
        is_one = value is not None and value.size == 1 and value.dtype.kind in "iu"
        if action is None and self.actions.sizes:
            raise PolicyError(
                f"The policy returned {_shown(answer)}; an action is one of {self.actions.space}, "
                "and `probabilities=True` is for probabilities of all combinations."
            )
        if not self.actions.sizes and not is_one:
            raise PolicyError(
                f"The policy returned {_shown(answer)}; an action is one integer from "
                f"{first} to {last}, and `probabilities=True` is for probabilities."
            )
        if action is None:
            raise PolicyError(
                f"The policy returned the action {_shown(answer)}; actions are from {first} to "
                f"{last}."
            )
        if not mask[action]:
            raise PolicyError(
                f"The policy chose the action {self.actions.names[action]}, which is not legal "
                "there; a function of (observation, mask) is told which ones are."
            )
        return action


def draw_on_host(uniform: Any, probabilities: NDArray) -> int:
    """Draw an action like :func:`valuetrack.policies.draw_action`, from checked probabilities."""
    sums = np.cumsum(probabilities, dtype=np.float64)
    reached = (probabilities > 0.0) & (sums > float(uniform) * sums[-1])
    return int(np.argmax(reached if reached.any() else probabilities))


def _predict(given: Given) -> Callable[[Any, NDArray], Any]:
    predict = given.policy.predict
    names = inspect.signature(predict).parameters
    mask_name = next((name for name in MASK_NAMES if name in names), None)

    def call(observation: Any, mask: NDArray) -> Any:
        legal = {} if mask_name is None else {mask_name: mask}
        answer = predict(observation, deterministic=given.deterministic, **legal)
        return answer[0] if isinstance(answer, tuple) else answer  # (action, state) in SB3

    return call


def _with_mask(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return the function with the mask as its second argument, whether it asks for that or not."""
    return function if _takes_mask(function) else lambda observation, mask: function(observation)


def _takes_mask(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions written in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind in positional]
    if len(needed) > 2:
        names = ", ".join(parameter.name for parameter in needed)
        raise PolicyError(
            f"A policy is a function of (observation) or (observation, mask), not of ({names})."
        )
    return len(needed) == 2


def _check_shape(answer: Any, actions: int) -> None:
    if answer.shape != (actions,):
        raise PolicyError(
            f"The policy returned an array of shape {answer.shape}; the probabilities of "
            f"{actions} actions have the shape ({actions},)."
        )


def _checked_probabilities(answer: Any, mask: NDArray) -> NDArray:
    """Return probabilities as an array, and refuse what is none."""
    values = _array(answer)
    if values is None or values.dtype.kind not in "fiub":
        raise PolicyError(
            f"The policy returned {_shown(answer)}; it should be the probabilities of {len(mask)} "
            "actions."
        )
    _check_shape(values, len(mask))
    mass = values[mask].sum(dtype=np.float64)
    if not (values >= 0).all() or not abs(mass - 1.0) <= PROBABILITY_TOLERANCE:
        raise PolicyError(
            f"The policy returned {_shown(answer)}, where {_shown(mask)} is legal; probabilities "
            "are not negative and sum to one over the legal actions, which a function of "
            "(observation, mask) is told."
        )
    return values


def _array(answer: Any) -> NDArray | None:
    try:
        return np.asarray(answer)
    except Exception:  # whatever the user's own class raises
        return None


def _shown(value: Any) -> str:
    """Return a value in one short line."""
    text = " ".join(str(value).split())
    return f"a {type(value).__name__}" if len(text) > 60 or not text else text
