"""What is an image, in JAX and in Gymnasium, and what becomes of observations that are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiBinary

from tests.small_envs import Spaced
from valuetrack.agents.dqn import DQN
from valuetrack.envs import IN_JAX, ObservationSpec, Step, find, register

SMALL = {"hidden": (8,), "batch_size": 8, "replay_capacity": 200, "samples": 4}


class SideState(NamedTuple):
    column: Any


@dataclass(frozen=True)
class Side:
    """One step: say on which half of a picture the mark is; right pays 1, wrong -1."""

    num_actions: ClassVar[int] = 2
    reset_uniforms: ClassVar[int] = 1
    step_uniforms: ClassVar[int] = 0

    observation_shape: tuple[int, ...] = (6, 6, 1)
    observation_dtype: np.dtype = np.dtype(np.float32)  # noqa: RUF009 (immutable)
    mark: float = 1

    def reset(self, uniforms):
        return SideState((uniforms[0] * self.observation_shape[1]).astype(jnp.int32))

    def step(self, state, action, uniforms):
        is_right = action == (state.column >= self.observation_shape[1] // 2)
        reward = jnp.where(is_right, 1.0, -1.0).astype(jnp.float32)
        return Step(state, self.observe(state), reward, jnp.bool_(True), jnp.bool_(False))

    def observe(self, state):
        blank = jnp.zeros(self.observation_shape, self.observation_dtype)
        return blank.at[:, state.column].set(jnp.asarray(self.mark, self.observation_dtype))

    def action_mask(self, state):
        return jnp.ones(2, bool)


def kernels(agent):
    """Return the shapes of the weights of an agent's first layer, without the axis of seeds."""
    weights = jax.tree.leaves(agent.trainer.states.sampler.params["body"][0]["w"])[0]
    return weights.shape[1:]


@pytest.mark.parametrize(
    ("shape", "dtype", "is_image"),
    [
        ((10, 10, 4), bool, True),
        ((10, 10, 10), np.float32, True),
        ((5, 5, 1), np.int32, True),
        ((84, 84, 3), np.uint8, True),
        ((2, 3, 4), np.uint8, True),
        ((4, 9, 3), np.float32, False),
        ((9, 4, 3), bool, False),
        ((), np.int32, False),
        ((7,), np.uint8, False),
        ((10, 10), bool, False),
        ((2, 10, 10, 3), np.uint8, False),
    ],
)
def test_what_is_an_image(shape, dtype, is_image):
    spec = ObservationSpec.of(shape, dtype)
    assert spec == (shape, np.dtype(dtype), is_image)
    assert spec.size == int(np.prod(shape))
    env = Side(shape, np.dtype(dtype))
    assert ObservationSpec.of_env(env) == spec


@pytest.mark.parametrize("env", sorted(IN_JAX))
def test_environments_observe_what_they_say(env):
    made = find(env)()
    spec = ObservationSpec.of_env(made)
    state = jax.eval_shape(made.reset, jnp.zeros(made.reset_uniforms))
    after = jax.eval_shape(made.step, state, jnp.int32(0), jnp.zeros(made.step_uniforms))
    for seen in (jax.eval_shape(made.observe, state), after.observation):
        assert (seen.shape, seen.dtype) == (spec.shape, spec.dtype)


IMAGES = [
    Box(0, 1, (10, 10, 4), np.bool_),
    Box(0, 1, (10, 10, 7), np.float32),
    Box(0, 255, (10, 10, 4), np.uint8),
    MultiBinary([10, 10, 4]),
]


@pytest.mark.parametrize("space", IMAGES, ids=repr)
def test_convolutions_are_used_on_images_of_any_dtype(space):
    agent = DQN(lambda: Spaced(space), convolutions=((5, 3, 2),), **SMALL)
    assert kernels(agent) == (3, 3, space.shape[-1], 5)
    assert agent.trainer.replay.layout.observation_dtype == (
        np.bool_ if isinstance(space, MultiBinary) else space.dtype
    )
    agent.learn(16)


def test_small_images_have_convolutions_that_fit_by_default():
    in_jax = DQN(Side((10, 10, 4), np.dtype(np.bool_)), **SMALL)
    on_host = DQN(lambda: Spaced(Box(0, 1, (10, 10, 4), np.bool_)), **SMALL)
    assert kernels(in_jax) == kernels(on_host) == (3, 3, 4, 16)


@pytest.mark.parametrize(
    "env",
    ["CartPole-v1", lambda: Spaced(Box(0, 1, (4,))), Side((4, 8, 3)), Side((6, 6))],
    ids=["id", "gymnasium", "table", "matrix"],
)
def test_convolutions_on_what_is_no_image_are_refused(env):
    with pytest.raises(ValueError, match="`convolutions` are for images, and an obs") as error:
        DQN(env, convolutions=((4, 3, 1),), **SMALL)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((6, 6, 1), np.bool_), ((2, 4, 1), np.int32), ((2, 2, 2, 2), np.float32)]
)
def test_observations_of_any_shape_and_dtype_are_learned_from_in_jax(shape, dtype):
    env = Side(shape, np.dtype(dtype))
    convolutions = ((4, 3, 2),) if ObservationSpec.of_env(env).is_image else None
    options = {"hidden": (16,), "batch_size": 32, "learning_starts": 50, "learning_rate": 3e-3}
    agent = DQN(env, convolutions=convolutions, **{**SMALL, **options})
    agent.learn(2_000)
    states = jax.vmap(lambda c: env.observe(SideState(c)))(jnp.arange(shape[1]))
    chosen, _ = agent.predict(np.asarray(states))
    np.testing.assert_array_equal(chosen, np.arange(shape[1]) >= shape[1] // 2)
    assert agent.predict(np.asarray(states[0]))[0] == chosen[0]


@pytest.mark.parametrize(
    ("dtype", "wrong", "said"),
    [
        (np.bool_, np.full((6, 6, 1), 2), "zeros and ones, but 2"),
        (np.uint8, np.full((6, 6, 1), 256), "from 0 to 255, but 256"),
        (np.uint8, np.full((6, 6, 1), 0.5), "dtype uint8, but float32"),
        (np.float32, np.zeros((6, 6)), "came has the shape"),
    ],
)
def test_a_wrong_observation_is_one_sentence(dtype, wrong, said):
    agent = DQN(Side((6, 6, 1), np.dtype(dtype)), **SMALL)
    with pytest.raises(ValueError, match=said):
        agent.predict(wrong)


def test_ids_of_environments_in_jax():
    try:
        register("Side-v0")(Side)
        assert find("Side-v0") is Side
        register("Side-v0")(Side)  # as when its module is imported again
        with pytest.raises(ValueError, match=r"The id Side-v0 belongs to .*Side already"):
            register("Side-v0")(Spaced)
        assert DQN("Side-v0", env_options={"mark": 2}, **SMALL).env.in_jax == Side(mark=2)
    finally:
        IN_JAX.pop("Side-v0", None)
    assert find("Side-v0") is None
    with pytest.raises(ValueError, match="are those of gymnax"):
        register("gymnax/Side-v0")
