"""MaskablePPO of sb3-contrib on our lanes: one VecEnv over all, a learner that goes on, policies as probabilities."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats
from edpbrl_gym._compat import constructor_options
from edpbrl_gym._validation import check_count
from edpbrl_gym.agents.lanes import RewardLanes

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

__all__ = ["DeepOracle", "LearnedPolicy", "check_hyperparameters", "own_randomness", "sb3_lanes"]

_UPDATE = 2048  # steps of all lanes between two updates, at least: SB3's own number


def sb3_lanes(lanes: RewardLanes) -> VecEnv:
    """The lanes as one SB3 VecEnv, which steps all of them at once.

    An episode of a design has exactly H steps, so its end is final: the infos never say that it was truncated, and no
    value is bootstrapped beyond it. ``env_method("action_masks")`` serves MaskablePPO.
    """
    from stable_baselines3.common.vec_env import VecEnv

    class RewardVecEnv(VecEnv):
        render_mode = None

        def __init__(self) -> None:
            super().__init__(lanes.num_envs, lanes.observation_space, Discrete(lanes.num_actions))
            self._actions: NDArray[Any] = np.zeros(lanes.num_envs, dtype=np.int64)

        def reset(self) -> Any:
            observations = lanes.reset(self._seeds[0])
            self._reset_seeds()
            self._reset_options()
            return observations

        def step_async(self, actions: NDArray[Any]) -> None:
            self._actions = np.asarray(actions)

        def step_wait(self) -> Any:
            observations, rewards, done, reached = lanes.step(self._actions)
            infos: list[dict[str, Any]] = [
                {"terminal_observation": last} if ended else {} for ended, last in zip(done, reached, strict=True)
            ]
            return observations, rewards.astype(np.float32), done.copy(), infos

        def close(self) -> None:
            lanes.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            owner = self if attr_name == "render_mode" else lanes
            return [getattr(owner, attr_name) for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            if len(list(self._get_indices(indices))) != lanes.num_envs:
                raise ValueError("Expected to set an attribute of all lanes; they are one environment.")
            setattr(lanes, attr_name, value)

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            result = getattr(lanes, method_name)(*args, **kwargs)
            return [result[lane] for lane in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            return [False for _ in self._get_indices(indices)]

    return RewardVecEnv()


class LearnedPolicy:
    """A policy network as probabilities of actions; its parameters are plain arrays."""

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        num_actions: int,
        *,
        hyperparameters: Mapping[str, Any],
        parameters: Mapping[str, NDArray[Any]],
    ) -> None:
        import torch
        from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

        self.network = MaskableActorCriticPolicy(
            observation_space, Discrete(num_actions), lambda _: 0.0, **hyperparameters.get("policy_kwargs", {})
        )
        self.network.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in parameters.items()})
        self.network.set_training_mode(False)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Arrays by their names in the network."""
        return {name: value.numpy().copy() for name, value in self.network.state_dict().items()}

    def probabilities(self, observations: NDArray[Any], masks: Booleans) -> Floats:
        """Probabilities (n, A) of the actions of n lanes with these observations (n, ...) and legal actions (n, A)."""
        import torch

        seen, _ = self.network.obs_to_tensor(observations)
        with torch.no_grad():
            table: Any = self.network.get_distribution(seen, action_masks=masks).distribution
        probabilities = table.probs.double().numpy() * masks
        return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


class DeepOracle:
    """A MaskablePPO that is trained on one reward after another, each time from where it stands.

    Args:
        lanes: The lanes that it trains on; their ``reward`` is the current one.
        hyperparameters: Of the model, in place of this class's defaults: gamma = 1, as a design has no discount; whole
            episodes between two updates; and much entropy, since a random policy covers more features than a
            deterministic one, and can still follow the next gradient.
        horizon: H.
        seed: Of SB3. Create and train inside `own_randomness`: SB3 seeds the global generators.
    """

    def __init__(self, lanes: RewardLanes, *, hyperparameters: Mapping[str, Any], horizon: int, seed: int) -> None:
        from sb3_contrib import MaskablePPO

        self.lanes, self.hyperparameters = lanes, dict(hyperparameters)
        steps = horizon * -(-_UPDATE // (horizon * lanes.num_envs))
        # equal batches where there are such of a fair size: SB3 warns of a rest
        batch = max((size for size in range(64, 257) if steps * lanes.num_envs % size == 0), default=256)
        defaults = {"gamma": 1.0, "n_steps": steps, "batch_size": batch, "learning_rate": 1e-3, "ent_coef": 0.1}
        self.venv = sb3_lanes(lanes)
        options: dict[str, Any] = {**defaults, "device": "cpu", **self.hyperparameters}
        self.model = MaskablePPO("MlpPolicy", self.venv, seed=seed % 2**32, **options)

    def train(self, timesteps: int) -> int:
        """Train on the current reward of the lanes from the network as it is; returns the steps taken."""
        self.model.set_env(self.venv, force_reset=True)
        self.model.learn(check_count(timesteps, "timesteps"))
        return int(self.model.num_timesteps)

    def policy(self) -> LearnedPolicy:
        """The current policy; it does not change when the training goes on."""
        parameters = {name: value.cpu().numpy().copy() for name, value in self.model.policy.state_dict().items()}
        return LearnedPolicy(
            self.lanes.observation_space,
            self.lanes.num_actions,
            hyperparameters=self.hyperparameters,
            parameters=parameters,
        )


@contextmanager
def own_randomness() -> Iterator[None]:
    """Give the global generators of Python, numpy and torch back as they were; SB3 seeds and uses them."""
    import torch

    python, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)


def check_hyperparameters(names: Iterable[str]) -> None:
    """Raise a TypeError for names that are no arguments of the model: before minutes of rollouts, not after."""
    from sb3_contrib import MaskablePPO

    options = constructor_options(MaskablePPO)
    known = [name for name in options if name not in ("policy", "env", "seed") and not name.startswith("_")]
    for name in names:
        if name not in known:
            raise TypeError(f"Expected hyperparameters of MaskablePPO among {', '.join(known)}, got {name!r}.")
