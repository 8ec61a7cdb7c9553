"""Policies for Stable-Baselines3 that act by the current sample of the Q-function.

They turn SB3's observations into the arrays of valuetrack's networks.
"""

from __future__ import annotations

import dataclasses
import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule

from valuetrack.api.agent import AnyAgent
from valuetrack.api.estimate import Estimate
from valuetrack.api.options import parse
from valuetrack.api.solving import Solver
from valuetrack.envs.gym.encoders import Encoder
from valuetrack.envs.gym.spaces import action_count, action_offset, encoder
from valuetrack.learner import Task
from valuetrack.networks import ACTIVATIONS
from valuetrack.registry import agent_type
from valuetrack.sb3.learner import ModelLearner, compiled
from valuetrack.sb3.parts import Q_NET, TARGET, Part, QNetwork, name_in_optimizer, name_in_policy
from valuetrack.training.trainer import LEARNED
from valuetrack.types import Json, NDArray

Space = spaces.Space[Any]

NOT_PYTORCH = "as the networks are not PyTorch's"
NO_OPTIMISER = "as the sampler is in the optimiser's place: its options are the model's own"
WHY_NOT = {"optimizer_class": NO_OPTIMISER, "optimizer_kwargs": NO_OPTIMISER}

TORCH_ACTIVATIONS: dict[object, str] = {
    torch.nn.ReLU: "relu",
    torch.nn.Tanh: "tanh",
    torch.nn.ELU: "elu",
    torch.nn.GELU: "gelu",
    torch.nn.SiLU: "silu",
    torch.nn.LeakyReLU: "leaky_relu",
}
"""SB3 names an activation by PyTorch's class, valuetrack by a word."""


class ValuePolicy(BasePolicy):
    """Greedy in the Q-values of the current parameter sample.

    Parameters
    ----------
    observation_space, action_space, lr_schedule
        As SB3 hands them to every policy; the schedule is not used.
    net_arch
        Widths of the hidden layers (those after the convolutions, for images); ``None`` for the
        agent's default.
    activation_fn
        A name such as ``"tanh"``, or PyTorch's class for it.
    convolutions
        (channels, kernel, stride) of each convolution, for images.
    normalize_images
        Whether to divide images of dtype uint8 by 255.
    features_extractor_kwargs
        With ``CnnPolicy``, ``features_dim``: the width of a layer between the convolutions and
        ``net_arch``, as in SB3's ``NatureCNN``. ``MultiInputPolicy`` warns about
        ``cnn_output_dim``, as it flattens images.
    agent, options, sampler
        Whose values these are, and the rest of its state; :meth:`load` passes what :meth:`save`
        wrote. A model calls :meth:`start` instead.
    """

    learner: ModelLearner
    optimizer: Part  # type: ignore[assignment]
    """The sampler, in the place of SB3's optimiser: its state, and the pool of samples."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        net_arch: Sequence[int] | None = None,
        activation_fn: str | type[torch.nn.Module] = "relu",
        convolutions: Sequence[Sequence[int]] | None = None,
        normalize_images: bool = True,
        features_extractor_kwargs: Json | None = None,
        agent: str | None = None,
        options: Json | None = None,
        sampler: Mapping[str, torch.Tensor] | None = None,
        **others: object,
    ) -> None:
        if others:
            name = next(iter(others))
            raise TypeError(
                f"policy_kwargs has no {name!r} here, {WHY_NOT.get(name, NOT_PYTORCH)}; there are "
                "net_arch, activation_fn, convolutions, normalize_images and "
                "features_extractor_kwargs."
            )
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        _check_axes(observation_space)
        self.net_arch = None if net_arch is None else _widths(net_arch)
        if features_extractor_kwargs:
            self._take_features(features_extractor_kwargs)
        self.activation = _activation(activation_fn)
        self.convolutions = convolutions
        self.inputs = self._make_inputs(
            observation_space if normalize_images else _with_float_images(observation_space)
        )
        if convolutions is not None and not self.inputs.is_image:
            raise ValueError(f"convolutions are for CnnPolicy, not for {type(self).__name__}.")
        self.first_action = action_offset(action_space)
        if agent is not None:
            self.start(agent_type(agent), options or {}, seed=0)
        if sampler is not None:
            self.optimizer.load_state_dict(sampler)

    @property
    def task(self) -> Task:
        """The shape of encoded observations, and the number of actions."""
        return Task(self.inputs.shape, self.inputs.is_image, action_count(self.action_space))

    def start(self, agent: type[AnyAgent], options: Json, seed: int) -> None:
        """Start to learn as an agent with these options and this policy's network."""
        own = {"activation": self.activation, "convolutions": self.convolutions}
        hidden = {} if self.net_arch is None else {"hidden": self.net_arch}
        parsed = parse(agent.options_type, {**options, **own, **hidden}, agent.__name__)
        self.learner = ModelLearner(compiled(agent.name, self.task, parsed), seed)
        self.optimizer = Part(self.learner, name_in_optimizer)

    def encode(self, observations: PyTorchObs) -> NDArray:
        """Return a batch of SB3's tensors as one array, (n, ...)."""
        space = self.observation_space
        if isinstance(observations, torch.Tensor):
            array = _shaped(observations, space)
            return self.inputs.encode_batch(array, len(array))
        assert isinstance(space, spaces.Dict)
        parts = {name: _shaped(part, space[name]) for name, part in observations.items()}
        return self.inputs.encode_batch(parts, len(next(iter(parts.values()))))

    def posterior(self, observation: Any, solver: Solver | None = None) -> Estimate:
        """Return posterior samples of the Q-values at one observation, or at a batch of them.

        A policy has no replay buffer; its model gives a ``solver`` for intervals for the value.
        """
        if isinstance(observation, tuple) and isinstance(observation[-1], dict):
            raise ValueError(
                "posterior takes an observation; Gymnasium's env.reset() also returns a dict of "
                "information: write observation, info = env.reset()."
            )
        tensors, is_batch = self.obs_to_tensor(observation)
        encoded = self.encode(tensors)
        found = self.learner.posterior(encoded)
        solve = None if solver is None else solver.later(0, encoded, not is_batch)
        if is_batch:
            return dataclasses.replace(found, solve=solve)
        one = {"samples": found.samples[:, 0], "latest": found.latest[0]}
        return dataclasses.replace(found, solve=solve, **one)

    def forward(self, obs: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        """Return the best actions of the current sample."""
        return self._predict(obs, deterministic)

    @property
    def q_net(self) -> QNetwork:
        """The Q-values of the current sample, under SB3's name."""
        return QNetwork(self, Q_NET)

    @property
    def q_net_target(self) -> QNetwork:
        """Those of the target network."""
        return QNetwork(self, TARGET)

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Return the parameters of the current sample and of its target network."""
        del args, kwargs  # where PyTorch would put it
        return Part(self.learner, name_in_policy).state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, torch.Tensor], strict: bool = True, assign: bool = False
    ) -> None:
        """Take over the parameters of both networks."""
        del assign  # PyTorch's way to keep the given tensors
        if any(name.startswith(LEARNED) for name in state_dict):  # a file of an earlier version
            self.learner.load_state_dict(state_dict, strict)
        else:
            Part(self.learner, name_in_policy).load_state_dict(state_dict, strict)

    def parameters_to_vector(self) -> NoReturn:
        """Refuse: the state is more than parameters."""
        raise NotImplementedError("Take the arrays by their names, from policy.state_dict().")

    def load_from_vector(self, vector: NDArray) -> NoReturn:
        """Refuse: the state is more than parameters."""
        raise NotImplementedError("Give the arrays by their names, to policy.load_state_dict().")

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        chosen = self.learner.greedy(self.encode(observation))
        return torch.from_numpy(chosen.astype(np.int64) + self.first_action)

    def _get_constructor_parameters(self) -> Json:
        """Return what ``save`` writes besides the networks."""
        return {**self.described(), "sampler": self.optimizer.state_dict()}

    def described(self) -> Json:
        """Return what makes a policy of the same kind, without anything learned."""
        functions = self.learner.functions
        return {
            **super()._get_constructor_parameters(),
            "lr_schedule": self._dummy_schedule,
            "net_arch": self.net_arch,
            "activation_fn": self.activation,
            "convolutions": self.convolutions,
            "agent": functions.agent.name,
            "options": functions.options.model_dump(),
        }

    def _make_inputs(self, space: Space) -> Encoder:
        return encoder(space, flat=True)

    def _take_features(self, given: Json) -> None:
        """Do what SB3's extractor of features would do with these, as far as there is such."""
        raise TypeError(f"{type(self).__name__} has no features_extractor_kwargs, {NOT_PYTORCH}.")


class MlpPolicy(ValuePolicy):
    """Fully connected layers on the flattened observation."""


class CnnPolicy(ValuePolicy):
    """Convolutions on an image, as in Mnih et al. (2015), or smaller ones on a smaller image."""

    def _make_inputs(self, space: Space) -> Encoder:
        inputs = encoder(space)
        if not inputs.is_image:
            raise ValueError(f"CnnPolicy needs images, and {space} holds none; use MlpPolicy.")
        return inputs

    def _take_features(self, given: Json) -> None:
        _check_keys(given, "features_dim")
        self.net_arch = _widths([given["features_dim"], *(self.net_arch or ())])


class MultiInputPolicy(ValuePolicy):
    """Fully connected layers on the parts of a Dict observation, flattened one after the other."""

    def _make_inputs(self, space: Space) -> Encoder:
        if not isinstance(space, spaces.Dict):
            raise ValueError(
                f"MultiInputPolicy needs Dict observations, not {space}; use MlpPolicy, or "
                "CnnPolicy for images."
            )
        return super()._make_inputs(space)

    def _take_features(self, given: Json) -> None:
        _check_keys(given, "cnn_output_dim")
        warnings.warn(
            "MultiInputPolicy flattens all parts of an observation, images too, so that "
            "cnn_output_dim is not used.",
            UserWarning,
            stacklevel=2,
        )


def _shaped(observations: torch.Tensor, space: Space) -> NDArray:
    """Return a batch with the shape of the space: SB3 adds an axis to single numbers."""
    assert space.shape is not None
    return observations.cpu().numpy().reshape(-1, *space.shape)


def _with_float_images(space: Space) -> Space:
    """Return the space with images of floats, which no network divides by 255."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _with_float_images(part) for name, part in space.items()})
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        return spaces.Box(0, 255, space.shape, np.float32)
    return space


def _check_axes(space: Space) -> None:
    """Refuse observations that SB3's replay buffer cannot hold."""
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            _check_axes(part)
    scalar = isinstance(space, spaces.Box) and space.shape == ()
    table = isinstance(space, spaces.MultiDiscrete) and len(space.shape) > 1
    if scalar or table:
        raise ValueError(
            f"SB3's replay buffer cannot hold observations of {space}; give them one axis with "
            "gymnasium.wrappers.ReshapeObservation or TransformObservation."
        )


def _check_keys(given: Json, known: str) -> None:
    if unknown := sorted(given.keys() - {known}):
        raise TypeError(
            f"features_extractor_kwargs has {known} here, not {unknown[0]}, {NOT_PYTORCH}."
        )


def _widths(net_arch: object) -> tuple[int, ...]:
    if isinstance(net_arch, Sequence):
        widths = [int(w) for w in net_arch if isinstance(w, numbers.Integral) and int(w) > 0]
        if len(widths) == len(net_arch) and not isinstance(net_arch, str):
            return tuple(widths)
    raise ValueError(f"net_arch is a list of layer widths such as [256, 256], not {net_arch}.")


def _activation(activation: str | type[torch.nn.Module]) -> str:
    name = TORCH_ACTIVATIONS.get(activation, activation)
    if name not in ACTIVATIONS:
        raise ValueError(
            f"activation_fn is one of {', '.join(ACTIVATIONS)} or PyTorch's class for it, "
            f"not {activation!r}."
        )
    return str(name)
