"""Frank-Wolfe whose linear oracle is a deep RL agent (MaskablePPO), for environments that have no table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Floats32, Indices
from edpbrl_gym._base_environment import base_environment, check_shows
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._validation import check_count, check_feedback
from edpbrl_gym.agents.base import Agent, EpisodeStart, State, jsonable, write_arrays
from edpbrl_gym.agents.design import criterion_of
from edpbrl_gym.agents.lanes import (
    LegalMasks,
    RewardLanes,
    StandardReward,
    discrete_actions,
    play_episodes,
    remade_lanes,
)
from edpbrl_gym.agents.sb3 import DeepOracle, LearnedPolicy, check_hyperparameters, own_randomness
from edpbrl_gym.agents.tabular import draw_actions
from edpbrl_gym.design.criteria import Criterion, read_criterion
from edpbrl_gym.design.gaps import achieved_gap
from edpbrl_gym.design.moments import MomentProblem, PolicyMoments, fully_corrective

__all__ = ["DeepDesignAgent", "Mixture", "OracleRecord"]


@dataclass(frozen=True)
class OracleRecord:
    """One iteration of Frank-Wolfe."""

    iteration: int  # from 0
    value: float  # objective of the mixture before it, at the estimated moments
    achieved_gap: float  # of the trained policy over it, on rollouts: no certificate
    weight: float  # that the trained policy got
    timesteps: int  # of training
    seconds: float  # wall-clock time


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policies found so far, one of which is drawn for every episode; replaced as a whole."""

    policies: tuple[LearnedPolicy | None, ...]  # the first is None, the uniformly random policy
    moments: tuple[PolicyMoments, ...]  # what each shows, by rollouts
    weights: Floats  # their probabilities, (n,)
    history: tuple[OracleRecord, ...]  # one record for each iteration
    restricted: bool  # whether an action was illegal while the first policy was played
    value: float  # objective at the estimated moments

    @property
    def mean(self) -> PolicyMoments:
        """Moments of the mixture."""
        return PolicyMoments.mixture(self.moments, self.weights)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays by names, without objects."""
        record = {
            "restricted": self.restricted,
            "value": self.value,
            "history": [asdict(one) for one in self.history],
        }
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "record": np.array(json.dumps(record))}
        for index, (policy, moments) in enumerate(zip(self.policies, self.moments, strict=True)):
            arrays[f"{index}/means"], arrays[f"{index}/second"] = moments.means, moments.second
            for name, value in ({} if policy is None else policy.parameters()).items():
                arrays[f"{index}/network/{name}"] = value
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], network: Callable[[dict[str, NDArray[Any]]], LearnedPolicy]
    ) -> Self:
        """Rebuild what ``arrays`` gave, with a function that builds a policy from its parameters."""
        record = json.loads(str(arrays["record"]))
        policies: list[LearnedPolicy | None] = []
        moments = []
        for index in range(len(arrays["weights"])):
            prefix = f"{index}/network/"
            own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            policies.append(network(own) if own else None)
            moments.append(PolicyMoments(arrays[f"{index}/means"], arrays[f"{index}/second"]))
        history = tuple(OracleRecord(**entry) for entry in record["history"])
        state = arrays["weights"], history, record["restricted"], record["value"]
        return cls(tuple(policies), tuple(moments), *state)


def _probabilities(policy: LearnedPolicy | None, observations: NDArray[Any], masks: Booleans) -> Floats:
    """Probabilities (n, A) of a network's actions, or equal ones of all legal actions."""
    if policy is None:
        return masks / masks.sum(axis=1, keepdims=True)
    return policy.probabilities(observations, masks)


class DeepDesignAgent(Agent):
    """Maximises the surrogate information (paper, Alg. 2) where the environment has no table.

    The gradient of the objective is a reward of what is shown. In every iteration MaskablePPO is trained on it, from
    the network of the last iteration; the moments of its policy are estimated by rollouts, and the weights of all
    policies found so far are computed again. The first policy is uniformly random. Rewards are standardised by what
    that policy shows (`StandardReward`).

    Every lane draws a policy of the mixture when its episode begins and follows it to the end, so pass
    ``episode_start``. Deterministic play takes the most probable actions of the policy with the largest weight.

    The design assumes that the options of a question are independent episodes. Lanes that share their noise
    (``shared_noise``) tell less about what differs between noises, and are not what it optimises.

    The reported objective is that of estimated moments, at an unknown distance from the optimum (`design.gaps`).

    Args:
        env: Environment or vector environment; episodes have one length.
        iterations: Iterations of Frank-Wolfe.
        timesteps: Steps of training in each.
        rollouts: Episodes from which the moments of each policy are estimated.
        hyperparameters: Arguments of MaskablePPO as names, numbers and dicts, such as ``learning_rate``.
        feedback: What is compared at every step: "truncated" (``trajectory_features``) or "state".
        num_envs: Lanes that train and play at once.
        v_matrix: The array that the criterion takes, as V of "V", shape (d, d); for "V" None takes ``target_matrix`` of
            ``.mdp`` and ``.features``.
        make_lanes: Function of a number of lanes that returns a vector environment with ``autoreset_mode`` "same_step";
            None makes lanes by the environment's spec.
        progress: Show a progress bar.
        **arguments: See ``Agent``.

    Attributes:
        mixture: The policies and weights, after ``learn``. Each iteration replaces it as a whole, so after Ctrl-C it
            holds the iterations that were finished.
        model: The MaskablePPO, after ``learn``; None for a loaded agent.

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
        iterations: int = 10,
        timesteps: int = 20_000,
        rollouts: int = 512,
        hyperparameters: Mapping[str, Any] | None = None,
        feedback: str = "truncated",
        num_envs: int = 64,
        v_matrix: ArrayLike | None = None,
        make_lanes: Callable[[int], VectorEnv] | None = None,
        progress: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        self.iterations = check_count(iterations, "iterations")
        self.timesteps = check_count(timesteps, "timesteps")
        self.rollouts = check_count(rollouts, "rollouts")
        self.hyperparameters = jsonable(dict(hyperparameters or {}))
        self.feedback = check_feedback(feedback, every_step=f"the agent {self.name!r}")
        self.num_envs = check_count(num_envs, "num_envs")
        self.progress = bool(progress)
        check_shows(self.base, feedback)
        self.num_actions = discrete_actions(self.base, who=self.name)
        self.criterion, self.v_matrix = read_criterion(self.criterion, v_matrix)
        self.make_lanes = make_lanes
        self.mixture: Mixture | None = None
        self.model: Any = None
        self._legal = LegalMasks(env, self.num_actions)

    def play_on(self, env: Any) -> Self:
        """From now on play these lanes, of the same kind; their legal actions are asked of them."""
        self.env, self.base = env, base_environment(env)
        self._legal = LegalMasks(env, self.num_actions)
        return self

    @property
    def history(self) -> tuple[OracleRecord, ...]:
        """Record of each iteration."""
        return self._made(self.mixture, "policies").history

    @property
    def moments(self) -> PolicyMoments:
        """Moments of the mixture, estimated by rollouts."""
        return self._made(self.mixture, "policies").mean

    @property
    def problem(self) -> MomentProblem:
        """The design problem of the moments, once the agent has learned what is shown."""
        horizon, dimension = self._made(self.mixture, "policies").moments[0].means.shape
        return self._problem_of(criterion_of(self), horizon, dimension)

    def _problem_of(self, criterion: Criterion, horizon: int, dimension: int) -> MomentProblem:
        return MomentProblem(
            criterion=criterion,
            episodes=self.episodes,
            horizon=horizon,
            dimension=dimension,
            regularization=self.regularization,
        )

    def learn(self) -> Self:
        """Run all iterations; see the class. Forgets an earlier mixture once the first policy has been played."""
        criterion = criterion_of(self)  # raises at once where there is none
        check_hyperparameters(self.hyperparameters)
        env = self.make_lanes(self.num_envs) if self.make_lanes else remade_lanes(self.env, self.num_envs)
        try:
            lanes = RewardLanes(env, feedback=self.feedback)
            with own_randomness():
                self._frank_wolfe(lanes, criterion)
        finally:
            env.close()
        return self

    def _frank_wolfe(self, lanes: RewardLanes, criterion: Criterion) -> None:
        from tqdm.auto import tqdm

        first = self._roll_out(lanes, None, "uniform")
        problem = self._problem_of(criterion, *first.shape[1:])
        uniform = PolicyMoments.from_features(first)
        mixture = Mixture((None,), (uniform,), np.ones(1), (), lanes.restricted, problem.value(uniform))
        oracle = DeepOracle(
            lanes,
            hyperparameters=self.hyperparameters,
            horizon=problem.horizon,
            seed=derive_seed(self.seed, "deep training"),
        )
        self.mixture, self.model = mixture, oracle.model
        for iteration in tqdm(range(self.iterations), desc=self.name, unit="iteration", disable=not self.progress):
            began = time.perf_counter()
            reward = problem.gradient(mixture.mean)
            lanes.reward = StandardReward(reward, first)
            timesteps = oracle.train(self.timesteps)
            policy = oracle.policy()
            lanes.reward = None
            found = PolicyMoments.from_features(self._roll_out(lanes, policy, "rollouts", iteration))
            gap = achieved_gap(reward, found, mixture.mean)
            moments = (*mixture.moments, found)
            weights = fully_corrective(problem, moments, np.append(mixture.weights, 0.0)).weights
            seconds = time.perf_counter() - began
            record = OracleRecord(iteration, mixture.value, gap, float(weights[-1]), timesteps, seconds)
            mixture = self.mixture = Mixture(
                policies=(*mixture.policies, policy),
                moments=moments,
                weights=weights,
                history=(*mixture.history, record),
                restricted=mixture.restricted,
                value=problem.value(PolicyMoments.mixture(moments, weights)),
            )

    def _roll_out(self, lanes: RewardLanes, policy: LearnedPolicy | None, *key: int | str) -> Floats32:
        """Episodes of one policy, with draws and noises of their own."""
        rng = np.random.default_rng(derive_seed(self.seed, "deep draws", *key))

        def choose(observations: NDArray[Any], masks: Booleans) -> Indices:
            table = _probabilities(policy, observations, masks)
            return draw_actions(table, rng.random(len(table)), False)

        seed = derive_seed(self.seed, "deep noises", *key) % 2**31
        return play_episodes(lanes, choose, episodes=self.rollouts, seed=seed)

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Follow the policy that each lane drew at the start of its episode."""
        mixture = self._made(self.mixture, "policies")
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
            table = _probabilities(mixture.policies[index], observations[lanes], masks[lanes])
            actions[lanes] = draw_actions(table, draws[1, lanes], deterministic)
        return (actions[0] if single else actions), (chosen, steps + 1)

    def _arguments(self) -> dict[str, Any]:
        names = ("iterations", "timesteps", "rollouts", "hyperparameters", "feedback", "num_envs")
        return {**super()._arguments(), **{name: getattr(self, name) for name in names}}

    def _save(self, folder: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {} if self.mixture is None else self.mixture.arrays()
        if self.v_matrix is not None:
            arrays["v_matrix"] = self.v_matrix
        write_arrays(folder / "mixture.npz", arrays)

    def _load(self, folder: Path) -> None:
        with np.load(folder / "mixture.npz", allow_pickle=False) as data:
            arrays = dict(data)
        self.v_matrix = arrays.pop("v_matrix", None)
        if arrays:  # it had learned
            with own_randomness():
                self.mixture = Mixture.from_arrays(arrays, self._network)

    def _network(self, parameters: dict[str, NDArray[Any]]) -> LearnedPolicy:
        space = getattr(self.base, "single_observation_space", None) or self.base.observation_space
        return LearnedPolicy(
            space,
            self.num_actions,
            hyperparameters=self.hyperparameters,
            parameters=parameters,
        )
