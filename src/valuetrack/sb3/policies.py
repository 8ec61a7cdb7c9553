"""Policies for Stable-Baselines3 that act by the current sample of the Q-function.

They turn SB3's observations into the arrays of valuetrack's networks; the network itself and its
parameters belong to the learner.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule

from valuetrack.algorithms.build import Task
from valuetrack.envs.gym.encoders import Encoder
from valuetrack.envs.gym.spaces import action_count, action_offset, encoder
from valuetrack.networks import ACTIVATIONS
from valuetrack.sb3.learner import ModelLearner

NDArray = npt.NDArray[Any]

TORCH_ACTIVATIONS: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.Tanh: "tanh",
    torch.nn.ELU: "elu",
    torch.nn.GELU: "gelu",
    torch.nn.SiLU: "silu",
    torch.nn.LeakyReLU: "leaky_relu",
}
"""SB3 names an activation by PyTorch's class, valuetrack by a word."""
ONLY_PART = "observation"
"""The key under which an image becomes a part of a Dict, whose parts are flattened."""


class ValuePolicy(BasePolicy):
    """Greedy in the Q-values of the current parameter sample.

    Parameters
    ----------
    observation_space, action_space, lr_schedule
        As SB3 hands them to every policy; the schedule is not used.
    net_arch
        Widths of the hidden layers (those after the convolutions, for images).
    activation_fn
        A name such as ``"tanh"``, or PyTorch's class for it.
    convolutions
        (channels, kernel, stride) of each convolution, for images.
    """

    takes_images: ClassVar[bool] = False

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        net_arch: Sequence[int] = (256, 256),
        activation_fn: str | type[torch.nn.Module] = "relu",
        convolutions: Sequence[Sequence[int]] | None = None,
        **others: Any,
    ) -> None:
        if others:
            raise TypeError(
                f"policy_kwargs has no {next(iter(others))!r} here, whose networks are not "
                "PyTorch's; there are net_arch, activation_fn and convolutions."
            )
        super().__init__(observation_space, action_space)
        _check_axes(observation_space)
        self.hidden = _widths(net_arch)
        self.activation = _activation(activation_fn)
        self.convolutions = convolutions
        self.inputs = self._make_inputs()
        self.actions, self.first_action = action_count(action_space), action_offset(action_space)
        self.learner: ModelLearner | None = None

    @property
    def task(self) -> Task:
        """What an agent must know of the environment."""
        return Task(self.inputs.shape, self.inputs.is_image, self.actions)

    def encode(self, observations: PyTorchObs) -> NDArray:
        """Return a batch of SB3's tensors as one array, (n, ...)."""
        if isinstance(observations, Mapping):
            inside = self.observation_space
            assert isinstance(inside, spaces.Dict)
            parts = {name: _shaped(part, inside[name]) for name, part in observations.items()}
            return self.inputs.encode_batch(parts, len(next(iter(parts.values()))))
        array = _shaped(observations, self.observation_space)
        wrapped = {ONLY_PART: array} if self._flattens_an_image else array
        return self.inputs.encode_batch(wrapped, len(array))

    def forward(self, obs: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        """Return the best actions of the current sample."""
        return self._predict(obs, deterministic)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the learner's state, which holds all parameters."""
        del args, kwargs  # where PyTorch would put it
        assert self.learner is not None
        return self.learner.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> None:
        """Take up the learner's state."""
        del assign  # PyTorch's way to keep the given tensors
        assert self.learner is not None
        self.learner.load_state_dict(state_dict, strict)

    def parameters_to_vector(self) -> NoReturn:
        """Refuse: there is more to the state than parameters."""
        raise NotImplementedError("Take the arrays by their names, from policy.state_dict().")

    def load_from_vector(self, vector: NDArray) -> NoReturn:
        """Refuse: there is more to the state than parameters."""
        raise NotImplementedError("Give the arrays by their names, to policy.load_state_dict().")

    def save(self, path: str) -> NoReturn:
        """Refuse: the parameters are the model's."""
        raise NotImplementedError("Save the model itself, model.save(path): it has the parameters.")

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        assert self.learner is not None
        chosen = self.learner.greedy(self.encode(observation), self.actions)
        return torch.from_numpy(chosen.astype(np.int64) + self.first_action)

    @property
    def _flattens_an_image(self) -> bool:
        return encoder(self.observation_space).is_image and not self.takes_images

    def _make_inputs(self) -> Encoder:
        space = self.observation_space
        if self._flattens_an_image:
            space = spaces.Dict({ONLY_PART: space})
        return encoder(space)


class MlpPolicy(ValuePolicy):
    """Fully connected layers on the flattened observation; a byte a pixel is divided by 255."""


class CnnPolicy(ValuePolicy):
    """Convolutions on an image, as in Mnih et al. (2015), or smaller ones on a smaller image."""

    takes_images = True

    def _make_inputs(self) -> Encoder:
        inputs = encoder(self.observation_space)
        if not inputs.is_image:
            raise ValueError(
                f"CnnPolicy needs images, and {self.observation_space} holds none; use MlpPolicy."
            )
        return inputs


class MultiInputPolicy(ValuePolicy):
    """Fully connected layers on the parts of a Dict observation, flattened one after the other."""

    def _make_inputs(self) -> Encoder:
        if not isinstance(self.observation_space, spaces.Dict):
            raise ValueError(
                f"MultiInputPolicy needs Dict observations, not {self.observation_space}; use "
                "MlpPolicy, or CnnPolicy for images."
            )
        return encoder(self.observation_space)


def _shaped(observations: torch.Tensor, space: spaces.Space[Any]) -> NDArray:
    """Return a batch with the shape of the space: SB3 gives single numbers an axis of their own."""
    shape = space.shape
    assert shape is not None
    return observations.cpu().numpy().reshape(-1, *shape)


def _check_axes(space: spaces.Space[Any]) -> None:
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


def _widths(net_arch: Any) -> tuple[int, ...]:
    is_list = isinstance(net_arch, Sequence) and not isinstance(net_arch, str)
    if not is_list or not all(isinstance(w, numbers.Integral) and int(w) > 0 for w in net_arch):
        raise ValueError(f"net_arch is a list of layer widths such as [256, 256], not {net_arch}.")
    return tuple(map(int, net_arch))


def _activation(activation: Any) -> str:
    name = TORCH_ACTIVATIONS.get(activation, activation)
    if name not in ACTIVATIONS:
        raise ValueError(
            f"activation_fn is one of {', '.join(ACTIVATIONS)} or PyTorch's class for it, "
            f"not {activation!r}."
        )
    return str(name)
