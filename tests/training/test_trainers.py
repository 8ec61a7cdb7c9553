"""Both trainers as one: the same names, and one goes on with what the other has learned."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.small_envs import Counter
from tests.training.copies import fresh
from valuetrack import networks, priors, samplers, schedules
from valuetrack.envs.base import Step
from valuetrack.envs.gym.make import make_vectorised
from valuetrack.io.arrays import from_arrays
from valuetrack.learner import build_learner
from valuetrack.measurement import sarsa
from valuetrack.training.compiled_trainer import CompiledTrainer
from valuetrack.training.host_trainer import HostTrainer
from valuetrack.training.trainer import LEARNED, Clock, Settings, Trainer, read_clock

SETTINGS = {
    "steps_per_update": 5,
    "replay_capacity": 50,
    "batch_size": 10,
    "learning_starts": 10,
    "pool_size": 4,
    "thinning": 2,
}


class PixelState(NamedTuple):
    column: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Pixel:
    """A lit pixel in a row of three; the action of its column pays 1, and it moves on."""

    observation_shape: tuple[int, ...] = (3, 3, 1)
    observation_dtype: Any = np.uint8
    num_actions: ClassVar[int] = 3
    reset_uniforms: ClassVar[int] = 1
    step_uniforms: ClassVar[int] = 0

    def reset(self, uniforms):
        return PixelState(jnp.floor(3 * uniforms[0]).astype(jnp.int32), jnp.int32(0))

    def step(self, state, action, uniforms):
        right = (action == state.column).astype(jnp.float32)
        after = PixelState((state.column + 1) % 3, state.steps + 1)
        return Step(after, self.observe(after), right, jnp.bool_(False), after.steps >= 4)

    def observe(self, state):
        if self.observation_shape == (1,):  # the number of the column
            return (100 + state.column)[None].astype(self.observation_dtype)
        picture = jnp.zeros(self.observation_shape, self.observation_dtype)
        return picture.at[1, state.column, 0].set(jnp.asarray(255, self.observation_dtype))

    def action_mask(self, state):
        return jnp.ones(3, bool)


@functools.cache
def settings():
    return Settings(exploration=schedules.constant(0.3), **SETTINGS)


@functools.cache
def learner(kind="mlp", inputs=2):
    network = networks.mlp(inputs, 3, (8,))
    if kind == "cnn":
        network = networks.cnn((3, 3, 1), 3, convolutions=((4, 2, 1),), hidden=(8,))
    chain = samplers.lktd(
        sarsa(network.apply),
        priors.gaussian(1.0),
        step_size=1e-5,
        pseudo_population=100,
        observation_sd=1,
    )
    return build_learner(network, chain)


def pixels(seeds=(0,), dtype=np.uint8, shape=(3, 3, 1)):
    of = learner("cnn") if len(shape) == 3 else learner(inputs=1)
    return CompiledTrainer(of, settings(), Pixel(shape, dtype), seeds)


class Twin(NamedTuple):
    """The counter's observations and actions in JAX, where nothing happens."""

    observation_shape: tuple[int, ...] = (2,)
    observation_dtype: Any = np.dtype(np.float32)
    num_actions: int = 3
    reset_uniforms: int = 0
    step_uniforms: int = 0

    def reset(self, uniforms):
        return PixelState(jnp.int32(0), jnp.int32(0))

    def step(self, state, action, uniforms):
        after = state._replace(steps=state.steps + 1)
        over = after.steps >= 4
        return Step(after, self.observe(after), jnp.float32(1), jnp.bool_(False), over)

    def observe(self, state):
        return jnp.stack([state.column, state.steps]).astype(jnp.float32)

    def action_mask(self, state):
        return jnp.ones(3, bool)


def compiled(seeds=(0, 1)) -> Trainer:
    return fresh(build_compiled(seeds))


@functools.cache
def build_compiled(seeds) -> Trainer:
    return CompiledTrainer(learner(), settings(), Twin(), seeds)


def host(seeds=(0, 1)) -> Trainer:
    envs = make_vectorised(Counter, len(seeds))
    return HostTrainer(learner(), settings(), envs, seeds)


BOTH = {"compiled": compiled, "host": host}


def copied(trainer):
    return {name: array.copy() for name, array in trainer.arrays().items()}


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_arrays_have_names(make):
    trainer = make()
    trainer.run(4)
    names = set(trainer.arrays())
    assert {
        "learned.learner.sampler.params.body.0.w",
        "learned.pool.samples.head.b",
        "learned.pool.weights",
        "learned.diverged",
        "replay.observation",
        "replay.written",
        "clock.cycles",
        "clock.updates",
        "clock.emptied",
    } <= names
    rooms = {name.partition(".")[0] for name in names}
    assert rooms == {"learned", "replay", "clock", "trace"} | (
        {"env", "loop"} if make is compiled else set()
    )
    assert trainer.arrays()["replay.reward"].shape == (2, 20)
    assert not any(name.startswith("replay.") for name in trainer.arrays(replay=False))


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_what_is_restored_goes_on(make):
    saved, again = make(), make()
    saved.run(6)
    before = copied(saved)
    again.restore(before)
    assert again.clock == saved.clock == Clock(6, 5, 0)
    for name, array in before.items():
        np.testing.assert_array_equal(again.arrays()[name], array, err_msg=name)
    again.run(3)
    assert again.clock == Clock(9, 8, 0)


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_a_field_that_is_missing_or_wrong_is_named(make):
    trainer = make()
    saved = copied(trainer)
    name = "learned.learner.sampler.params.head.w"
    with pytest.raises(ValueError, match=name):
        trainer.restore({**saved, name: saved[name][:, :-1]})
    del saved[name]
    with pytest.raises(ValueError, match=name):
        trainer.restore(saved)


@pytest.mark.parametrize(("make", "other"), [(compiled, host), (host, compiled)])
def test_one_trainer_goes_on_with_what_the_other_has_learned(make, other):
    one, two = make(), other()
    one.run(12)
    saved = copied(one)
    two.run(3)  # what it has learned itself is lost
    two.adopt(from_arrays(saved, two.learned, LEARNED), read_clock(saved))
    assert two.clock == Clock(12, 11, 12)
    assert two.steps == one.steps
    for ours, theirs in zip(
        jax.tree.leaves(two.learned), jax.tree.leaves(one.learned), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    weights = "learned.learner.sampler.params.head.w"
    two.run(1)  # the memory is filled first
    assert two.clock == Clock(13, 11, 12)
    np.testing.assert_array_equal(two.arrays()[weights], saved[weights])
    two.run(2)
    assert two.clock == Clock(15, 13, 12)
    assert (two.arrays()[weights] != saved[weights]).any()
    assert int(two.member(1).pool.filled) == 4


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_members_are_the_rows_of_all(make):
    trainer = make((0, 1, 2))
    trainer.run(4)
    everyone = trainer.learned
    for index in range(3):
        mine = jax.tree.map(lambda leaf, i=index: leaf[i], everyone)
        jax.tree.map(np.testing.assert_array_equal, trainer.member(index), mine)
    jax.tree.map(np.testing.assert_array_equal, trainer.states, everyone.learner)
    np.testing.assert_array_equal(trainer.diverged, everyone.diverged)


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.uint8, (3, 3, 1)), (np.int32, (1,)), (np.bool_, (3, 3, 1))]
)
def test_observations_keep_their_dtype(dtype, shape):
    trainer = pixels((0, 1), dtype, shape)
    seen = np.ones((2, *shape), dtype)
    trainer.track(seen)
    values = trainer.run(8)
    assert np.isfinite(trainer.trace.squared_residual).all()
    assert values.shape == (7, 2, 1, 2, 3)
    saved = copied(trainer)
    for name in ("replay.observation", "replay.next_observation"):
        assert saved[name].dtype == dtype
        assert saved[name].shape == (2, 40, *shape)
    if dtype == np.uint8:
        assert set(np.unique(saved["replay.observation"])) == {0, 255}
    if dtype == np.int32:
        assert set(np.unique(saved["replay.observation"])) == {100, 101, 102}
    again = pixels((0, 1), dtype, shape)
    again.track(seen)  # the same program, the same bits
    again.restore(saved)
    for one in (trainer, again):
        one.run(5)
    for name, array in trainer.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array, err_msg=name)


@pytest.mark.parametrize(
    "changed",
    [
        {"clock.cycles": np.array(-1)},
        {"clock.emptied": np.array(7)},
        {"clock.updates": np.array(2**31)},
        {"clock.cycles": np.array(6.0)},
        {"clock.cycles": np.array([6])},
    ],
)
def test_clocks_that_cannot_be(changed):
    with pytest.raises(ValueError, match="the saved clock"):
        read_clock({**Clock(6, 5, 0).arrays(), **changed})
