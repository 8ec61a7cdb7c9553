"""Exploration by noisy layers, as an option of the agents that follow a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import pydantic

from valuetrack.agents.target_network import GradientOptions
from valuetrack.host_networks import Forward
from valuetrack.learner import Acted, Learner, LearnerState
from valuetrack.measurement import TargetBatch
from valuetrack.networks import Network
from valuetrack.noise import perturbed, with_noise
from valuetrack.samplers.base import Info, Sampler
from valuetrack.types import Array, Batch, Keywords, Params, Scalar, Tree

Prepare = Callable[[Array, TargetBatch], Tree]
"""(key, target batch) -> the data of an update."""
BY_NOISE: Keywords = {
    "exploration_initial": 0.0,
    "exploration_final": 0.0,
    "random_warmup": True,  # before the first update, one draw would play all the time
}
"""What noisy layers make of exploration, unless it is given."""


class NoisyOptions(GradientOptions):
    """Noisy layers.

    Attributes
    ----------
    noisy
        Whether the weights of all fully connected layers are drawn around learned means, with
        learned sds, once per update for acting and once for learning. Exploration is by them alone
        once learning has started: epsilon is 0 and ``random_warmup`` is true unless they are given.
        Values that are asked for are those of the means.
    """

    noisy: bool = False

    @pydantic.model_validator(mode="before")
    @classmethod
    def _by_noise(cls, given: Keywords) -> Keywords:
        return {**BY_NOISE, **given} if given.get("noisy") else given

    def around_noise(self, network: Network) -> Network:
        """Return the network, with noisy layers if they are wanted."""
        return with_noise(network) if self.noisy else network

    def optimiser(
        self,
        loss: Callable[[Params, Tree], Array],
        errors: Callable[[Params, Tree], Array],
        **own: Tree,
    ) -> Sampler:
        """Return Adam with these options, on the loss of drawn layers if they are noisy."""
        if self.noisy:
            loss, errors = with_drawn_layers(loss), with_drawn_layers(errors)
        return super().optimiser(loss, errors, **own)

    def prepare(self, prepare: Prepare | None = None) -> Prepare | None:
        """Return what adds the noise of an update to its data, after what else is added."""
        return noisy_batch(prepare) if self.noisy else prepare

    def acting_by_noise(self, learner: Learner) -> Learner:
        """Return the learner, acting by drawn layers if they are noisy."""
        return acting_by_noise(learner) if self.noisy else learner


class NoisyBatch(NamedTuple):
    """The data of an update, and the key of the network's noise in it."""

    data: Tree
    key: Array


def noisy_batch(prepare: Prepare | None) -> Prepare:
    """Return what draws the target network's layers, and the key for the network's own."""

    def add(key: Array, batch: TargetBatch) -> NoisyBatch:
        target_key, own_key, data_key = jax.random.split(key, 3)
        drawn = batch._replace(target_params=perturbed(target_key, batch.target_params))
        return NoisyBatch(drawn if prepare is None else prepare(data_key, drawn), own_key)

    return add


def with_drawn_layers(
    function: Callable[[Params, Tree], Array],
) -> Callable[[Params, NoisyBatch], Array]:
    """Return a function of parameters and data, of one draw of the layers for the whole batch.

    The same draw predicts and, with ``double``, chooses the maximising action.
    """
    return lambda params, noisy: function(perturbed(noisy.key, params), noisy.data)


def acting_by_noise(learner: Learner) -> Learner:
    """Return a learner that acts by layers drawn anew with every update, and fixed in between.

    They are the state's ``snapshots``. All environments of a seed act by the same draw.
    """

    def drawn(state: LearnerState) -> LearnerState:
        return state._replace(sampler=state.sampler._replace(params=state.snapshots))

    def init(key: Array) -> LearnerState:
        own_key, noise_key = jax.random.split(key)
        state = learner.init(own_key)
        return state._replace(snapshots=perturbed(noise_key, state.sampler.params))

    def act(
        state: LearnerState, observation: Array, mask: Array, uniforms: Array, epsilon: Scalar
    ) -> Acted:
        return learner.act(drawn(state), observation, mask, uniforms, epsilon)

    def update(key: Array, state: LearnerState, batch: Batch) -> tuple[LearnerState, Info]:
        own_key, noise_key = jax.random.split(key)
        state, info = learner.update(own_key, state, batch)
        return state._replace(snapshots=perturbed(noise_key, state.sampler.params)), info

    def on_host(states: LearnerState) -> Forward:
        assert learner.on_host is not None
        return learner.on_host(drawn(states))

    return learner._replace(
        init=init,
        act=act,
        update=update,
        on_host=on_host if learner.on_host is not None else None,
    )
