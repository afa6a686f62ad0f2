"""Stable-Baselines3 on our lanes: one VecEnv over all of them, a learner that goes on, policies as probabilities."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._compat import constructor_options
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.reward_lanes import RewardLanes

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

__all__ = ["ALGORITHMS", "DeepOracle", "LearnedPolicy", "check_hyperparameters", "own_randomness", "sb3_lanes"]

ALGORITHMS = ("maskable_ppo", "ppo", "dqn")

_UPDATE = 2048  # steps of all lanes between two updates of PPO, at least


def sb3_lanes(lanes: RewardLanes, *, horizon: int | None = None) -> VecEnv:
    """The lanes as one SB3 VecEnv, which steps all of them at once.

    An episode of a design has exactly H steps, so its end is final: the infos never say that it was truncated, and no
    value is bootstrapped beyond it. ``env_method("action_masks")`` serves MaskablePPO.

    Args:
        lanes: The lanes.
        horizon: H, to add the step of the episode to the observation, as a Dict of "observation" and "step". None
            leaves the observation as it is.
    """
    from stable_baselines3.common.vec_env import VecEnv

    single = lanes.observation_space
    space = single if horizon is None else Dict({"observation": single, "step": Discrete(horizon)})

    class RewardVecEnv(VecEnv):
        render_mode = None

        def __init__(self) -> None:
            super().__init__(lanes.num_envs, space, Discrete(lanes.num_actions))
            self._actions: NDArray[Any] = np.zeros(lanes.num_envs, dtype=np.int64)

        def reset(self) -> Any:
            observations = lanes.reset(self._seeds[0])
            self._reset_seeds()
            self._reset_options()
            return with_step(observations, lanes.steps, horizon)

        def step_async(self, actions: NDArray[Any]) -> None:
            self._actions = np.asarray(actions)

        def step_wait(self) -> Any:
            before = lanes.steps
            observations, rewards, done, reached = lanes.step(self._actions)
            infos: list[dict[str, Any]] = [{} for _ in range(lanes.num_envs)]
            for lane in np.flatnonzero(done):
                final = with_step(reached[lane][None], before[lane][None] + 1, horizon)
                infos[lane]["terminal_observation"] = (
                    final[0] if horizon is None else {name: part[0] for name, part in final.items()}
                )
            return with_step(observations, lanes.steps, horizon), rewards.astype(np.float32), done.copy(), infos

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


def with_step(observations: NDArray[Any], steps: Indices, horizon: int | None) -> Any:
    """Observations (n, ...) as the policy sees them: with the step of the episode, if there is a horizon."""
    if horizon is None:
        return observations
    return {"observation": observations, "step": np.minimum(steps, horizon - 1)}


class LearnedPolicy:
    """A policy network of SB3 as probabilities of actions; its parameters are plain arrays.

    Args:
        algorithm: One of `ALGORITHMS`.
        observation_space: Of one lane, as the policy sees it.
        num_actions: A.
        hyperparameters: Of the SB3 model; only ``policy_kwargs`` matters here.
        parameters: Arrays by their names in the network.
        horizon: H if the policy sees the step, else None.
    """

    def __init__(
        self,
        algorithm: str,
        observation_space: gymnasium.Space[Any],
        num_actions: int,
        *,
        hyperparameters: Mapping[str, Any],
        parameters: Mapping[str, NDArray[Any]],
        horizon: int | None,
    ) -> None:
        import torch

        self.algorithm, self.horizon, self.num_actions = algorithm, horizon, num_actions
        model = _model_class(algorithm)
        aliases: Mapping[str, type] = model.policy_aliases
        policy = aliases["MlpPolicy" if horizon is None else "MultiInputPolicy"]
        space = (
            observation_space
            if horizon is None
            else Dict({"observation": observation_space, "step": Discrete(horizon)})
        )
        self.network: Any = policy(
            space, Discrete(num_actions), lambda _: 0.0, **dict(hyperparameters.get("policy_kwargs", {}))
        )
        self.network.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in parameters.items()})
        self.network.set_training_mode(False)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Arrays by their names in the network."""
        return {name: value.numpy().copy() for name, value in self.network.state_dict().items()}

    def probabilities(self, observations: NDArray[Any], steps: Indices, masks: Booleans) -> Floats:
        """Probabilities (n, A) of the actions of n lanes.

        Args:
            observations: As the environment gives them, shape (n, ...).
            steps: Step of each lane, shape (n,).
            masks: Legal actions, shape (n, A); used by "maskable_ppo" alone.
        """
        import torch

        seen, _ = self.network.obs_to_tensor(with_step(observations, steps, self.horizon))
        with torch.no_grad():
            if self.algorithm == "dqn":
                best = self.network.q_net(seen).argmax(dim=1).numpy()
                return np.eye(self.num_actions)[best]
            options = {"action_masks": masks} if self.algorithm == "maskable_ppo" else {}
            table = self.network.get_distribution(seen, **options).distribution.probs
        probabilities = table.double().numpy() * (masks if self.algorithm == "maskable_ppo" else 1.0)
        return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


class DeepOracle:
    """An SB3 model that is trained on one reward after another, each time from where it stands.

    Args:
        lanes: The lanes that it trains on; their ``reward`` is the current one.
        algorithm: One of `ALGORITHMS`.
        hyperparameters: Of the SB3 model, in place of this class's defaults (gamma = 1: a design has no discount).
        horizon: H.
        observe_step: Add the step of the episode to the observation.
        seed: Of SB3. Create and train inside `own_randomness`: SB3 seeds the global generators.

    Raises:
        ValueError: If the lanes have had illegal actions so far and the algorithm can't mask them.
    """

    def __init__(
        self,
        lanes: RewardLanes,
        *,
        algorithm: str,
        hyperparameters: Mapping[str, Any],
        horizon: int,
        observe_step: bool,
        seed: int,
    ) -> None:
        self.lanes = lanes
        self.algorithm = check_choice_of(algorithm, "algorithm", ALGORITHMS)
        self.hyperparameters = dict(hyperparameters)
        if algorithm != "maskable_ppo" and lanes.restricted:
            raise ValueError(
                f"Expected an environment in which every action is always legal for {algorithm!r}, got one that "
                'forbade some while its lanes were played; use algorithm="maskable_ppo", which masks them.'
            )
        self.seen_horizon = horizon if observe_step else None
        self.venv = sb3_lanes(lanes, horizon=self.seen_horizon)
        options = {**_defaults(algorithm, horizon, lanes.num_envs), **self.hyperparameters}
        policy = "MultiInputPolicy" if observe_step else "MlpPolicy"
        self.model: Any = _model_class(algorithm)(policy, self.venv, seed=seed % 2**32, **options)

    def train(self, timesteps: int, *, callback: Any = None) -> int:
        """Train on the current reward of the lanes from the network as it is; returns the steps taken.

        A replay buffer is emptied first: its rewards are those of another gradient. Schedules begin anew.
        """
        if self.algorithm == "dqn":
            self.model.replay_buffer.reset()
        self.model.set_env(self.venv, force_reset=True)
        self.model.learn(check_count(timesteps, "timesteps"), callback=callback)
        return int(self.model.num_timesteps)

    def policy(self) -> LearnedPolicy:
        """The current policy; it does not change when the training goes on."""
        parameters = {name: value.cpu().numpy().copy() for name, value in self.model.policy.state_dict().items()}
        return LearnedPolicy(
            self.algorithm,
            self.lanes.observation_space,
            self.lanes.num_actions,
            hyperparameters=self.hyperparameters,
            parameters=parameters,
            horizon=self.seen_horizon,
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


def check_hyperparameters(algorithm: str, names: Iterable[str]) -> None:
    """Raise a TypeError for names that are no arguments of the SB3 model: before minutes of rollouts, not after."""
    options = constructor_options(_model_class(algorithm))
    known = [name for name in options if name not in ("policy", "env", "seed") and not name.startswith("_")]
    for name in names:
        if name not in known:
            raise TypeError(f"Expected hyperparameters of {algorithm!r} among {', '.join(known)}, got {name!r}.")


def _model_class(algorithm: str) -> Any:
    if algorithm == "maskable_ppo":
        from sb3_contrib import MaskablePPO

        return MaskablePPO
    import stable_baselines3

    return {"ppo": stable_baselines3.PPO, "dqn": stable_baselines3.DQN}[algorithm]


def _defaults(algorithm: str, horizon: int, num_envs: int) -> dict[str, Any]:
    """Hyperparameters of a design: no discount, and for PPO whole episodes between two updates and much entropy.

    A random policy covers more features than a deterministic one, and can still follow the next gradient.
    """
    if algorithm == "dqn":
        return {"gamma": 1.0, "device": "cpu", "learning_starts": 10 * num_envs, "buffer_size": 50_000}
    episodes = -(-_UPDATE // (horizon * num_envs))
    rollout = horizon * episodes * num_envs
    return {
        "gamma": 1.0,
        "device": "cpu",
        "n_steps": horizon * episodes,
        # equal batches where there are such of a fair size: SB3 warns of a rest
        "batch_size": max((size for size in range(64, 257) if rollout % size == 0), default=256),
        "learning_rate": 1e-3,
        "ent_coef": 0.1,
    }
