"""What LKTD, SGLD and SGHMC share as algorithms of Stable-Baselines3."""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    PyTorchObs,
    Schedule,
    TensorDict,
)
from stable_baselines3.common.utils import LinearSchedule

from valuetrack.agents.sampling import one_step
from valuetrack.api.agent import AnyAgent
from valuetrack.api.estimate import Estimate
from valuetrack.api.solving import Solver
from valuetrack.replay import host_transitions
from valuetrack.sb3.learner import ModelLearner
from valuetrack.sb3.memory import ModelSource
from valuetrack.sb3.names import check_names, check_numbers, option_defaults, under_our_names
from valuetrack.sb3.parts import QNetwork
from valuetrack.sb3.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, ValuePolicy
from valuetrack.types import Json, NDArray, Transition

UPDATES_PER_CALL = 64
"""How many updates one compiled call makes at most; their batches are in memory together."""


class SamplingAlgorithm(OffPolicyAlgorithm):
    """Q-learning by sampling from the posterior of the network's parameters.

    Parameters
    ----------
    policy
        ``"MlpPolicy"``, ``"CnnPolicy"`` or ``"MultiInputPolicy"``.
    env
        A Gymnasium id, an environment or a ``VecEnv``, with discrete actions.
    buffer_size, learning_starts, batch_size, gamma, train_freq, gradient_steps, n_steps
        As in SB3's DQN.
    replay_buffer_class, replay_buffer_kwargs, optimize_memory_usage
        As in SB3's DQN.
    target_update_interval
        The target network moves towards the network by the share ``tau`` every this many
        environment steps, and unless ``tau`` is given it becomes the network, as in SB3's DQN. By
        default it moves after every update, by the sampler's own ``tau``.
    exploration_fraction, exploration_initial_eps, exploration_final_eps
        As in SB3's DQN: the share of the training over which epsilon falls, from where to where.
    policy_kwargs
        ``net_arch``, ``activation_fn``, ``normalize_images`` and, for images, ``convolutions``.
    stats_window_size, tensorboard_log, verbose, seed
        As in all of SB3.
    device
        Accepted and not used: the arrays are JAX's, which chooses its own device.
    **options
        Those of the sampler, with the names and defaults of valuetrack's own class:
        ``learning_rate`` or ``step_size`` (numbers or schedules), ``pseudo_population``, ``init``,
        ``double``, ..., and ``samples`` and ``thinning`` for the pool behind :meth:`posterior`.

    Examples
    --------
    >>> from valuetrack.sb3 import LKTD
    >>> model = LKTD("MlpPolicy", "CartPole-v1", samples=10, seed=0).learn(100)
    >>> model.posterior(model.get_env().reset()).mean.shape
    (1, 2)
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    agent: ClassVar[type[AnyAgent]]
    """valuetrack's own class of this algorithm: its name, its options, its learner."""

    policy: ValuePolicy
    learner: ModelLearner
    exploration_schedule: Schedule

    def __init__(
        self,
        policy: str | type[ValuePolicy],
        env: GymEnv | str,
        *,
        buffer_size: int = 50_000,
        learning_starts: int = 1_000,
        batch_size: int = 64,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        n_steps: int = 1,
        gamma: float = 0.99,
        target_update_interval: int | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: Json | None = None,
        optimize_memory_usage: bool = False,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        policy_kwargs: Json | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        **options: Any,
    ) -> None:
        del device
        # SB3's base class takes most of these under the same name.
        theirs = inspect.signature(OffPolicyAlgorithm).parameters
        given: Json = {name: value for name, value in locals().items() if name in theirs}
        self.algorithm = self.agent.name
        defaults = option_defaults(self.agent.options_type)
        check_names(options, defaults, type(self).__name__)
        own = defaults | one_step(options)
        if target_update_interval is not None:
            own = {**own, "tau": options.get("tau", 1.0)}  # the target is copied, as in SB3's DQN
        super().__init__(
            **given,
            learning_rate=0.0,  # there is no optimiser
            tau=1.0,
            device="cpu",
            support_multi_env=True,
            sde_support=False,
            supported_action_spaces=(spaces.Discrete,),
        )
        # One attribute each, so that SB3 saves them and `load(path, step_size=...)` changes them.
        self.__dict__.update(own)
        self.target_update_interval = target_update_interval
        self.exploration_fraction = exploration_fraction
        self.exploration_initial_eps = exploration_initial_eps
        self.exploration_final_eps = exploration_final_eps
        self.exploration_rate = 0.0
        self._n_calls = 0
        if _init_setup_model:
            self._setup_model()

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for a number of environment steps, as every algorithm of SB3 does."""
        if progress_bar and not all(map(importlib.util.find_spec, ("tqdm", "rich"))):
            raise ImportError("progress_bar needs tqdm and rich: pip install 'valuetrack[sb3]'.")
        return super().learn(
            total_timesteps,
            callback,
            log_interval,
            tb_log_name or type(self).__name__,
            reset_num_timesteps,
            progress_bar,
        )

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Make updates, each on a batch drawn from the replay buffer."""
        was_finite = self.learner.diverged < 0
        residuals = [
            self.learner.update(
                self._draw(updates, batch_size), refresh=self.target_update_interval is None
            )
            for updates in self._updates_of_calls(gradient_steps)
        ]
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(np.concatenate(residuals).mean()))
        if was_finite and self.learner.diverged >= 0:
            warnings.warn(
                f"{type(self).__name__} diverged at update {self.learner.diverged}: its values are "
                "NaN from then on; use a smaller step size.",
                RuntimeWarning,
                stacklevel=2,
            )

    def predict(
        self,
        observation: NDArray | dict[str, NDArray],
        state: tuple[NDArray, ...] | None = None,
        episode_start: NDArray | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray, tuple[NDArray, ...] | None]:
        """Choose an action by the current sample.

        Unless ``deterministic``, explore with the present epsilon, independently for each
        observation of a batch.
        """
        action, state = self.policy.predict(observation, state, episode_start, deterministic)
        if deterministic:
            return action, state
        explores = self._coins.random(np.shape(action)) < self.exploration_rate
        if not explores.any():
            return action, state
        drawn = [self.action_space.sample() for _ in range(explores.size)]
        return np.where(explores, np.reshape(drawn, explores.shape), action), state

    def posterior(self, observation: NDArray | dict[str, NDArray]) -> Estimate:
        """Return posterior samples of the Q-values at one observation, or at a batch of them.

        With ``VecNormalize`` these are normalised observations, as for :meth:`predict`. Intervals
        for the value are solved from the replay buffer.
        """
        if "_solver" not in self.__dict__:
            self._solver = Solver(ModelSource(self), of_mean=self.agent.is_sampler)
        return self.policy.posterior(observation, self._solver)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the environments, exploration, the replay buffer's draws and the sampler's noise."""
        super().set_random_seed(seed)
        self._coins = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        if seed is not None and "learner" in self.__dict__:
            self.learner.reseed(seed)

    @property
    def q_net(self) -> QNetwork:
        """The Q-values of the current sample, as SB3's DQN calls them."""
        return self.policy.q_net

    @property
    def q_net_target(self) -> QNetwork:
        """Those of the target network."""
        return self.policy.q_net_target

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Take over what :meth:`get_parameters` returns, or a file's.

        ``policy`` holds the networks, ``policy.optimizer`` the sampler's state and its pool.
        ``{"learner": ...}``, all of it in one, is what earlier versions wrote.
        """
        if not isinstance(load_path_or_dict, dict):
            _, load_path_or_dict, _ = load_from_zip_file(
                load_path_or_dict, device=device, load_data=False
            )
        if load_path_or_dict.keys() == {"learner"}:
            whole: Any = load_path_or_dict["learner"]
            self.learner.load_state_dict(whole, strict=exact_match)
        else:
            super().set_parameters(load_path_or_dict, exact_match, device)

    @classmethod
    def load(cls, path: Any, env: GymEnv | None = None, *args: Any, **kwargs: Any) -> Self:
        """Load a model as in all of SB3; options given here replace those of the file.

        With another ``seed``, training continues with other random numbers.
        """
        own = inspect.signature(SamplingAlgorithm).parameters
        known = {*own, *inspect.signature(OffPolicyAlgorithm.load).parameters}
        names = option_defaults(cls.agent.options_type)
        check_names(kwargs.keys() - known, names, cls.__name__, only_mistakes=True)
        if kwargs.get("custom_objects"):  # the zoo replaces rates that it cannot read by zeros
            replaced = kwargs["custom_objects"]
            kwargs["custom_objects"] = {
                name: value
                for name, value in replaced.items()
                if name != "learning_rate" or value != 0.0
            }
        model = super().load(path, env, *args, **one_step(kwargs))
        if kwargs.get("seed") is not None:
            model.set_random_seed(kwargs["seed"])
        return model

    def _setup_model(self) -> None:
        self._check_options()
        super()._setup_model()
        options = {name: getattr(self, name) for name in option_defaults(self.agent.options_type)}
        options |= under_our_names(self)
        # Without a seed every model is different, as in SB3.
        drawn = int(np.random.SeedSequence().generate_state(1)[0])
        self.policy.start(self.agent, options, drawn if self.seed is None else self.seed)
        self.learner = self.policy.learner
        self.exploration_schedule = LinearSchedule(
            self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        )
        interval = self.target_update_interval
        if self.env is not None and interval is not None and self.n_envs > interval:
            warnings.warn(
                # SB3's words come first, for those who filter its warnings by them.
                f"The number of environments used is greater than target_update_interval: "
                f"{self.n_envs} environments take {self.n_envs} steps at a time, so the target "
                f"network is refreshed every {self.n_envs} steps, not every {interval}.",
                UserWarning,
                stacklevel=2,
            )

    def _setup_lr_schedule(self) -> None:
        """Give SB3 the schedule of an optimiser that is not there; the sampler has its own."""
        self.lr_schedule = LinearSchedule(0.0, 0.0, 1.0)

    def _check_options(self) -> None:
        """Refuse what SB3 would accept but cannot work, and files of another algorithm."""
        if self.algorithm != self.agent.name:
            saved = self.algorithm.upper()
            raise RuntimeError(f"The file holds {saved}: load it with valuetrack.sb3.{saved}.load.")
        if not issubclass(self.policy_class, ValuePolicy):
            raise ValueError(
                f"{type(self).__name__} takes the policies of valuetrack.sb3, "
                f"{', '.join(self.policy_aliases)}, not {self.policy_class.__name__}, whose "
                "network is PyTorch's."
            )
        check_numbers(self)

    def _on_step(self) -> None:
        """After every step, refresh the target network if it is due, and lower epsilon."""
        self._n_calls += 1
        interval = self.target_update_interval
        if interval is not None and self._n_calls % max(interval // self.n_envs, 1) == 0:
            self.learner.refresh_target()
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def _updates_of_calls(self, updates: int) -> list[int]:
        """Return how many updates each compiled call makes: all of them in one, if possible.

        A number that changes with the length of an episode is split into powers of two, so that
        few programs are compiled.
        """
        if updates == self.gradient_steps <= UPDATES_PER_CALL:
            return [updates]
        full, rest = divmod(updates, UPDATES_PER_CALL)
        powers = [2**bit for bit in reversed(range(rest.bit_length())) if rest & 2**bit]
        return [UPDATES_PER_CALL] * full + powers

    def _draw(self, updates: int, batch_size: int) -> Transition:
        """Draw batches from the replay buffer, as (updates, batch, ...)."""
        assert self.replay_buffer is not None
        drawn = self.replay_buffer.sample(updates * batch_size, env=self._vec_normalize_env)
        lead = (updates, batch_size)

        def column(tensor: torch.Tensor) -> NDArray:
            return tensor.cpu().numpy().reshape(lead)

        def batches(observations: PyTorchObs) -> NDArray:
            encoded = self.policy.encode(observations)
            return encoded.reshape(*lead, *encoded.shape[1:])

        action = column(drawn.actions).astype(np.int32) - self.policy.first_action
        gamma = self.gamma if drawn.discounts is None else column(drawn.discounts)
        return host_transitions(
            observation=batches(drawn.observations),
            action=action,
            reward=column(drawn.rewards),
            discount=np.asarray(gamma, np.float32) * (1 - column(drawn.dones)),
            next_observation=batches(drawn.next_observations),
            next_action=action,  # SB3 does not keep it, and Q-learning does not use it
            next_mask=np.ones((*lead, self.policy.task.actions), bool),
        )

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "learner",
            "exploration_schedule",
            "_coins",
            "_solver",
        ]
