"""A learner's state in SB3's two parts: the networks, and what else the sampler keeps.

SB3's models are made of ``policy`` and ``policy.optimizer``. Here the first is the current sample
and its target network, arrays of floats as in SB3's DQN; the second has the pool of samples, the
sampler's own numbers, counters and the random key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from valuetrack.sb3.learner import ModelLearner
from valuetrack.types import Json

if TYPE_CHECKING:
    from valuetrack.sb3.policies import ValuePolicy

Tensors = dict[str, torch.Tensor]

Q_NET, TARGET = "q_net", "q_net_target"
NETWORKS = {Q_NET: "learned.learner.sampler.params", TARGET: "learned.learner.target"}
"""SB3's names of the two networks, and those of the learner's state."""


def name_in_policy(name: str) -> str | None:
    """Return what an array of the learner's state is called in the policy's, if it is there.

    Examples
    --------
    >>> name_in_policy("learned.learner.target.head.w")
    'q_net_target.head.w'
    >>> name_in_policy("learned.learner.sampler.updates")
    """
    for network, prefix in NETWORKS.items():
        if name.startswith(f"{prefix}."):
            return network + name.removeprefix(prefix)
    return None


def name_in_optimizer(name: str) -> str | None:
    """Return the name itself if the array is in no network."""
    return name if name_in_policy(name) is None else None


class Part:
    """Some arrays of a learner's state, with ``state_dict`` and ``load_state_dict``.

    Parameters
    ----------
    learner
        Whose state it is.
    named
        From the name of an array to the one it has here, or to ``None`` if it is not in this part.
    """

    def __init__(self, learner: ModelLearner, named: Callable[[str], str | None]) -> None:
        self.learner, self.named = learner, named

    def state_dict(self) -> Tensors:
        """Return a copy of the arrays."""
        state = self.learner.state_dict()
        return {here: array for name, array in state.items() if (here := self.named(name))}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over the arrays; with ``strict=False`` it may be some of them.

        Raises
        ------
        RuntimeError
            If an array is missing, unknown or of another shape or dtype.
        """
        theirs = {here: name for name in self.learner.state_dict() if (here := self.named(name))}
        if unknown := sorted(state_dict.keys() - theirs.keys()):
            raise RuntimeError(f"This model has no array {unknown[0]!r} here.")
        if strict and (missing := sorted(theirs.keys() - state_dict.keys())):
            raise RuntimeError(f"The saved state lacks the array {missing[0]!r}.")
        self.learner.load_state_dict({theirs[k]: v for k, v in state_dict.items()}, strict=False)


class QNetwork(BasePolicy):
    """The Q-values of the current sample, or those of its target network, under SB3's names.

    ``model.q_net(tensor)`` returns them as a tensor, for observations as
    ``model.policy.obs_to_tensor`` makes them. Gradients do not reach the parameters, which are
    JAX's; ``parameters()`` returns copies.

    Examples
    --------
    >>> from valuetrack.sb3 import LKTD
    >>> model = LKTD("MlpPolicy", "CartPole-v1", samples=1)
    >>> seen, _ = model.policy.obs_to_tensor(model.get_env().reset())
    >>> model.q_net(seen).shape
    torch.Size([1, 2])
    """

    action_space: spaces.Discrete

    def __init__(self, policy: ValuePolicy | tuple[type[ValuePolicy], Json], network: str) -> None:
        if isinstance(policy, tuple):
            kind, data = policy
            policy = kind(**data)
        super().__init__(
            policy.observation_space,
            policy.action_space,
            normalize_images=policy.normalize_images,
        )
        # Not as a submodule: PyTorch would walk from one to the other without an end.
        self.__dict__["owner"] = policy
        self.network = network
        self.part = Part(policy.learner, self._name)

    @property
    def device(self) -> torch.device:
        """Where tensors are: on the processor."""
        return torch.device("cpu")

    def forward(self, obs: PyTorchObs) -> torch.Tensor:
        """Return the Q-values, (n, actions)."""
        owner: ValuePolicy = self.__dict__["owner"]
        values = owner.learner.values(owner.encode(obs), of_target=self.network == TARGET)
        return torch.from_numpy(np.array(values))

    def state_dict(self, *args: object, **kwargs: object) -> Tensors:  # type: ignore[override]
        """Return a copy of the network's parameters."""
        del args, kwargs  # where PyTorch would put it
        return self.part.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, torch.Tensor], strict: bool = True, assign: bool = False
    ) -> None:
        """Take over parameters."""
        del assign  # PyTorch's way to keep the given tensors
        self.part.load_state_dict(state_dict, strict)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return copies of the parameters with their names."""
        del recurse, remove_duplicate
        for name, tensor in self.state_dict().items():
            dotted = f"{prefix}.{name}" if prefix else name
            yield dotted, torch.nn.Parameter(tensor, requires_grad=False)

    def parameters_to_vector(self) -> NoReturn:
        """Refuse: give and take parameters by their names."""
        raise NotImplementedError("Take the arrays by their names, from state_dict().")

    def load_from_vector(self, vector: object) -> NoReturn:
        """Refuse: give and take parameters by their names."""
        raise NotImplementedError("Give the arrays by their names, to load_state_dict().")

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        first: int = self.__dict__["owner"].first_action
        values: torch.Tensor = self(observation)
        return values.argmax(dim=1) + first

    def _get_constructor_parameters(self) -> Json:
        """Return what ``save`` writes besides the parameters."""
        owner: ValuePolicy = self.__dict__["owner"]
        return {"policy": (type(owner), owner.described()), "network": self.network}

    def _name(self, name: str) -> str | None:
        here = name_in_policy(name)
        prefix = f"{self.network}."
        return here.removeprefix(prefix) if here and here.startswith(prefix) else None
