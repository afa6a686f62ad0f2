"""Frank-Wolfe whose linear oracle is a deep RL agent, for environments that have no table."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._base_environment import check_shows
from edpbrl_gym._feedback import check_feedback
from edpbrl_gym._files import replacing
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.base import Agent, EpisodeStart, State
from edpbrl_gym.agents.design import target_matrix
from edpbrl_gym.agents.legal import LegalMasks, PlaysLegally, discrete_actions
from edpbrl_gym.agents.mixture import Mixture, OracleRecord, action_probabilities
from edpbrl_gym.agents.reward_lanes import Episodes, RewardLanes, StandardReward, play_episodes, remade_lanes
from edpbrl_gym.agents.sb3 import ALGORITHMS, DeepOracle, LearnedPolicy, check_hyperparameters, own_randomness
from edpbrl_gym.agents.tabular import draw_actions
from edpbrl_gym.design.criteria import make_criterion
from edpbrl_gym.design.gaps import achieved_gap
from edpbrl_gym.design.moments import (
    MomentProblem,
    PolicyMoments,
    fully_corrective,
    pairwise_step,
)

__all__ = ["DeepDesignAgent"]


class DeepDesignAgent(PlaysLegally, Agent):
    """Maximises the surrogate information (paper, Alg. 2) where the environment has no table.

    The gradient of the objective is a reward of what is shown. In every iteration an SB3 model is trained on it, from
    the network of the last iteration; the moments of its policy are estimated by rollouts, and the weights of all
    policies found so far are computed again. The first policy is uniformly random. Rewards are standardised by what
    that policy shows (`StandardReward`).

    Every lane draws a policy of the mixture when its episode begins and follows it to the end, so pass
    ``episode_start``. Deterministic play takes the most probable actions of the policy with the largest weight.

    The design assumes that the options of a question are independent episodes. Lanes that share their noise
    (``shared_noise``) tell less about what differs between noises, and are not what it optimises.

    The objective that is reported is that of estimated moments. How far it is from the optimum no training can tell:
    see `edpbrl_gym.design.gaps`.

    Args:
        env: Environment or vector environment; episodes have one length.
        algorithm: "maskable_ppo", "ppo" or "dqn"; the last two need all actions to be always legal.
        iterations: Iterations of Frank-Wolfe.
        timesteps: Steps of training in each.
        rollouts: Episodes from which the moments of each policy are estimated.
        weights: "fully_corrective" (the best weights over all policies found) or "pairwise" (one pairwise step).
        hyperparameters: Arguments of the SB3 model as names, numbers and dicts, such as ``learning_rate``.
        feedback: What is compared at every step: "truncated" (``trajectory_features``) or "state".
        num_envs: Lanes that train and play at once.
        observe_step: Show the step of the episode to the policies, for environments whose observation lacks it.
        v_matrix: V of the criterion "V", shape (d, d); None takes ``target_matrix`` of ``.mdp`` and ``.features``.
        make_lanes: Function of a number of lanes that returns a vector environment with ``autoreset_mode`` "same_step";
            None makes lanes by the environment's spec. It is not saved with the agent.
        progress: Show a progress bar.
        **arguments: See ``Agent``.

    Attributes:
        mixture: The policies and weights, after ``learn``. Each iteration replaces it as a whole, so after Ctrl-C it
            holds the iterations that were finished.
        model: The SB3 model, after ``learn``; None for a loaded agent.

    Raises:
        TypeError: If the environment can't give the features or has no spec, or a hyperparameter can't be saved.
        ValueError: If an option is out of range.
    """

    name = "deep"
    needs = ("stable_baselines3", "sb3_contrib")

    def __init__(
        self,
        env: Any,
        *,
        algorithm: str = "maskable_ppo",
        iterations: int = 10,
        timesteps: int = 20_000,
        rollouts: int = 512,
        weights: str = "fully_corrective",
        hyperparameters: Mapping[str, Any] | None = None,
        feedback: str = "truncated",
        num_envs: int = 64,
        observe_step: bool = False,
        v_matrix: ArrayLike | None = None,
        make_lanes: Callable[[int], VectorEnv] | None = None,
        progress: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        self.algorithm = check_choice_of(algorithm, "algorithm", ALGORITHMS)
        self.iterations = check_count(iterations, "iterations")
        self.timesteps = check_count(timesteps, "timesteps")
        self.rollouts = check_count(rollouts, "rollouts")
        self.weights = check_choice_of(weights, "weights", ("fully_corrective", "pairwise"))
        self.hyperparameters = _jsonable(dict(hyperparameters or {}))
        self.feedback = check_feedback(feedback, every_step=f"the agent {self.name!r}")
        self.num_envs = check_count(num_envs, "num_envs")
        self.observe_step = bool(observe_step)
        self.progress = bool(progress)
        check_shows(self.base, feedback)
        self.num_actions = discrete_actions(self.base, who=self.name)
        if self.criterion not in ("A", "V", "D"):
            raise ValueError(f'Expected a criterion "A", "V" or "D", got {self.criterion!r}.')
        if v_matrix is not None and self.criterion != "V":
            raise ValueError(f'The criterion {self.criterion!r} takes no v_matrix; use criterion="V".')
        self.v_matrix = None if v_matrix is None else np.array(v_matrix, dtype=np.float64)
        self.make_lanes = make_lanes
        self.mixture: Mixture | None = None
        self._problem: MomentProblem | None = None
        self.model: Any = None
        self._legal = LegalMasks(env, self.num_actions)

    @property
    def history(self) -> tuple[OracleRecord, ...]:
        """Record of each iteration."""
        return self._ready().history

    @property
    def moments(self) -> PolicyMoments:
        """Moments of the mixture, estimated by rollouts."""
        return self._ready().mean

    @property
    def problem(self) -> MomentProblem:
        """The design problem of the moments, once the agent has learned what is shown."""
        if self._problem is None:
            mixture = self._ready()
            self._problem = self._problem_of(*mixture.moments[0].means.shape)
        return self._problem

    def _problem_of(self, horizon: int, dimension: int) -> MomentProblem:
        return MomentProblem(
            criterion=make_criterion(self.criterion, self._target()),
            episodes=self.episodes,
            horizon=horizon,
            dimension=dimension,
            regularization=self.regularization,
        )

    def learn(self) -> Self:
        """Run all iterations; see the class. Forgets an earlier mixture once the first policy has been played."""
        self._target()  # raises at once where there is none
        check_hyperparameters(self.algorithm, self.hyperparameters)
        env = self.make_lanes(self.num_envs) if self.make_lanes else remade_lanes(self.env, self.num_envs)
        try:
            lanes = RewardLanes(env, feedback=self.feedback)
            with own_randomness():
                self._frank_wolfe(lanes)
        finally:
            env.close()
        return self

    def _frank_wolfe(self, lanes: RewardLanes) -> None:
        from tqdm.auto import tqdm

        first = self._roll_out(lanes, None, "uniform")
        problem = self._problem_of(*first.features.shape[1:])
        moments = PolicyMoments.from_features(first.features)
        mixture = Mixture.uniform(problem, moments, restricted=lanes.restricted)
        oracle = DeepOracle(
            lanes,
            algorithm=self.algorithm,
            hyperparameters=self.hyperparameters,
            horizon=problem.horizon,
            observe_step=self.observe_step,
            seed=derive_seed(self.seed, "deep training"),
        )
        self._problem, self.mixture, self.model = problem, mixture, oracle.model
        for iteration in tqdm(range(self.iterations), desc=self.name, unit="iteration", disable=not self.progress):
            began = time.perf_counter()
            reward = problem.gradient(mixture.mean)
            lanes.reward = StandardReward(reward, first.features)
            timesteps = oracle.train(self.timesteps)
            policy = oracle.policy()
            lanes.reward = None
            found = PolicyMoments.from_features(self._roll_out(lanes, policy, "rollouts", iteration).features)
            gap = achieved_gap(reward, found, mixture.mean)
            weights = self._reweighted(problem, (*mixture.moments, found), mixture.weights)
            record = OracleRecord(
                iteration, mixture.value, gap, float(weights[-1]), timesteps, time.perf_counter() - began
            )
            mixture = self.mixture = mixture.extended(problem, policy, found, weights, record)

    def _roll_out(self, lanes: RewardLanes, policy: LearnedPolicy | None, *key: int | str) -> Episodes:
        """Episodes of one policy, with draws and noises of their own."""
        rng = np.random.default_rng(derive_seed(self.seed, "deep draws", *key))

        def choose(observations: NDArray[Any], steps: Indices, masks: Booleans) -> Indices:
            table = action_probabilities(policy, observations, steps, masks)
            return draw_actions(table, rng.random(len(table)), False)

        seed = derive_seed(self.seed, "deep noises", *key) % 2**31
        return play_episodes(lanes, choose, episodes=self.rollouts, seed=seed)

    def _reweighted(self, problem: MomentProblem, moments: tuple[PolicyMoments, ...], weights: Floats) -> Floats:
        start = np.append(weights, 0.0)
        if self.weights == "pairwise":
            return pairwise_step(problem, moments, start, len(moments) - 1).weights
        return fully_corrective(problem, moments, start).weights

    def _target(self) -> Floats | None:
        """V of the criterion "V"."""
        if self.criterion != "V" or self.v_matrix is not None:
            return self.v_matrix
        if not (hasattr(self.base, "mdp") and hasattr(self.base, "features")):
            raise TypeError(
                f'Expected a v_matrix for the criterion "V", as {type(self.base).__name__} has no .mdp and .features '
                'to build one from; give v_matrix, or use criterion="D".'
            )
        return target_matrix(self.base)

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Follow the policy that each lane drew at the start of its episode. See the base class."""
        mixture = self._ready()
        observations, single = self._batch(observation)
        count = len(observations)
        chosen = np.full(count, -1, dtype=np.int64)
        steps = np.zeros(count, dtype=np.int64)
        if state is not None:
            chosen, steps = (np.array(part, dtype=np.int64) for part in state)
            if chosen.shape != (count,):
                raise ValueError(f"Expected the state of {count} lanes, got one of shape {chosen.shape}.")
            if episode_start is not None:
                begins = np.asarray(episode_start, dtype=np.bool_)
                chosen[begins], steps[begins] = -1, 0
        if hasattr(self.base, "mdp_step"):
            steps = np.asarray(self.base.mdp_step(observations), dtype=np.int64)
        draws = self.rng.random((2, count))  # for every lane, so that lanes don't affect each other
        if deterministic:
            drawn = np.full(count, int(np.argmax(mixture.weights)))
        else:
            drawn = draw_actions(np.broadcast_to(mixture.weights, (count, len(mixture.weights))), draws[0], False)
        chosen = np.where(chosen < 0, drawn, chosen)
        masks = np.ones((count, self.num_actions), dtype=np.bool_)
        if mixture.restricted:
            masks = self._legal(observations, steps)
        actions = np.zeros(count, dtype=np.int64)
        for index in np.unique(chosen):
            lanes = np.flatnonzero(chosen == index)
            table = mixture.probabilities(index, observations[lanes], steps[lanes], masks[lanes])
            actions[lanes] = draw_actions(table, draws[1, lanes], deterministic)
        return (actions[0] if single else actions), (chosen, steps + 1)

    def _ready(self) -> Mixture:
        if self.mixture is None:
            raise RuntimeError(f"The agent {self.name!r} has no policies yet; call learn() first.")
        return self.mixture

    def _arguments(self) -> dict[str, Any]:
        names = ("algorithm", "iterations", "timesteps", "rollouts", "weights", "hyperparameters", "feedback")
        own = {name: getattr(self, name) for name in (*names, "num_envs", "observe_step")}
        return {**super()._arguments(), **own}

    def _save(self, folder: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {} if self.mixture is None else self.mixture.arrays()
        if self.v_matrix is not None:
            arrays["v_matrix"] = self.v_matrix
        with replacing(folder / "mixture.npz") as part, open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def _load(self, folder: Path) -> None:
        with np.load(folder / "mixture.npz", allow_pickle=False) as data:
            arrays = dict(data)
        self.v_matrix = arrays.pop("v_matrix", None)
        if arrays:  # it had learned
            with own_randomness():
                self.mixture = Mixture.from_arrays(arrays, self._network)
            self._problem = None

    def _network(self, parameters: dict[str, NDArray[Any]], horizon: int) -> LearnedPolicy:
        space = getattr(self.base, "single_observation_space", None) or self.base.observation_space
        return LearnedPolicy(
            self.algorithm,
            space,
            self.num_actions,
            hyperparameters=self.hyperparameters,
            parameters=parameters,
            horizon=horizon if self.observe_step else None,
        )


def _jsonable(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    """A copy of hyperparameters that the agent can be saved with."""
    for name, value in hyperparameters.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"Expected the hyperparameter {name} as names, numbers, lists and dicts, got {value!r}: the agent is "
                "saved with it."
            ) from None
    return copy.deepcopy(hyperparameters)
