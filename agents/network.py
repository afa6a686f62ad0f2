"""REINFORCE with small networks in place of language models, on any environment with array observations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._base_environment import check_shows
from edpbrl_gym._feedback import check_feedback
from edpbrl_gym._files import replacing
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.agents.base import Agent, EpisodeStart, State
from edpbrl_gym.agents.legal import LegalMasks, PlaysLegally, discrete_actions
from edpbrl_gym.agents.policy_networks import PolicyNetworks, score_surrogate
from edpbrl_gym.agents.reward_lanes import RewardLanes, play_episodes, remade_lanes
from edpbrl_gym.agents.tabular import draw_actions
from edpbrl_gym.language.credit import Credit, Rewards
from edpbrl_gym.language.objective import TruncatedObjective

__all__ = ["NetworkRecord", "NetworkReinforceAgent"]


@dataclass(frozen=True)
class NetworkRecord:
    """One gradient step.

    Attributes:
        iteration: Its number, from 0.
        objective: Mean of log det(sum_t sum_h I_h + lambda E) over the M meta-samples that were played before the step.
        deviation: Their standard deviation.
        entropy: Mean entropy of the policies, nats a decision.
        gradient_norm: Norm of the gradient of the objective and the entropy's bonus, of all policies together.
        seconds: Wall-clock time.
    """

    iteration: int
    objective: float
    deviation: float
    entropy: float
    gradient_norm: float
    seconds: float


@dataclass(frozen=True, eq=False)
class _Played:
    """Episodes of all policies; the lanes are those of (meta-sample, episode, policy), the policy changing fastest."""

    inputs: NDArray[Any]  # (n, H, inputs)
    masks: Booleans  # (n, H, A)
    actions: Indices  # (n, H)
    features: Floats32  # (n, H, d)


class NetworkReinforceAgent(PlaysLegally, Agent):
    """K policy networks that learn by REINFORCE to show options worth comparing (paper, Alg. 3); lane i plays i mod K.

    In every iteration each of M meta-samples plays T = ``episodes`` episodes with each of the K policies. The
    objective of a meta-sample is the D-criterion of the options that it compares (`TruncatedObjective`), and a step of
    Adam follows the score-function gradient with the weights of a `Credit`. Nothing is differentiated but the
    networks: the environment may be any with array observations and discrete actions, such as
    ``edpbrl/DiffusionGuidance-v0``, where the networks see the latent.

    The episodes are those that will be asked about: lanes that share their noise (``shared_noise``) do so here too.
    Observations are flattened and standardised by mean and deviation over uniformly random episodes, which are played
    first and then fixed.

    Args:
        env: Environment or vector environment; episodes have one length.
        iterations: Gradient steps.
        meta_samples: M, at least 2, whose other members are the baseline of each.
        hidden: Sizes of the hidden layers.
        learning_rate: Of Adam.
        credit: Name of the credit, see `edpbrl_gym.language.credit`; "batch_mean" is the paper's.
        entropy: Weight of the mean entropy of the policies (nats a decision), added to the objective.
        feedback: What is compared at every step: "truncated" (``trajectory_features``) or "state".
        num_envs: Lanes that play at once, at most.
        observe_step: Show the step of the episode to the networks, for environments whose observation lacks it.
        criterion: "D", the only one that it optimises.
        make_lanes: Function of a number of lanes that returns a vector environment with ``autoreset_mode`` "same_step";
            None makes lanes by the environment's spec. It is not saved with the agent.
        progress: Show a progress bar.
        **arguments: See ``Agent``.

    Attributes:
        networks: The K policies, after ``learn``; after Ctrl-C those of the last step that was finished.
        history: A record for each step, after ``learn``.

    Raises:
        TypeError: If the environment can't give the features, has other actions, or observations that are no array.
        ValueError: If the criterion is another one, or an option is out of range.
    """

    name = "reinforce-network"
    needs = ("torch",)

    def __init__(
        self,
        env: Any,
        *,
        iterations: int = 100,
        meta_samples: int = 8,
        hidden: Sequence[int] = (32,),
        learning_rate: float = 1e-2,
        credit: str = "marginal_causal",
        entropy: float = 0.0,
        feedback: str = "truncated",
        num_envs: int = 512,
        observe_step: bool = False,
        criterion: str = "D",
        make_lanes: Callable[[int], VectorEnv] | None = None,
        progress: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(env, criterion=criterion, **arguments)
        if self.criterion != "D":
            raise ValueError(f"Expected criterion 'D', the only one that {self.name!r} optimises, got {criterion!r}.")
        check_number(self.regularization, "regularization (lambda)", minimum=0.0, exclusive=True)
        self.iterations = check_count(iterations, "iterations")
        self.meta_samples = check_count(meta_samples, "meta_samples (M)", minimum=2)
        self.hidden = tuple(check_count(size, "hidden") for size in hidden)
        self.learning_rate = check_number(learning_rate, "learning_rate", minimum=0.0, exclusive=True)
        self.credit = Credit(credit).name
        self.entropy = check_number(entropy, "entropy", minimum=0.0)
        self.feedback = check_feedback(feedback, every_step=f"the agent {self.name!r}")
        self.num_envs = check_count(num_envs, "num_envs", minimum=self.num_options)
        self.observe_step = bool(observe_step)
        self.make_lanes, self.progress = make_lanes, bool(progress)
        check_shows(self.base, feedback)
        self.num_actions = discrete_actions(self.base, who=self.name)
        space = getattr(self.base, "single_observation_space", None) or self.base.observation_space
        if space.shape is None or space.dtype is None:
            raise TypeError(f"Expected observations as one array, got the space {type(space).__name__}.")
        self.networks: PolicyNetworks | None = None
        self.history: tuple[NetworkRecord, ...] = ()
        self._legal = LegalMasks(env, self.num_actions)

    def learn(self) -> Self:
        """Take all gradient steps, from new networks."""
        from tqdm.auto import tqdm

        wanted = self.meta_samples * self.episodes * self.num_options
        count = min(wanted, self.num_envs // self.num_options * self.num_options)
        env = self.make_lanes(count) if self.make_lanes else remade_lanes(self.env, count, questions=True)
        try:
            lanes = RewardLanes(env, feedback=self.feedback)
            networks = self._new_networks(self._play(lanes, None, "standardisation"))
            trainer = _Trainer(self, networks)
            self.networks, self.history = networks, ()
            for iteration in tqdm(range(self.iterations), desc=self.name, unit="step", disable=not self.progress):
                began = time.perf_counter()
                played = self._play(lanes, networks, "iteration", iteration)
                self.history = (*self.history, trainer.step(iteration, played, began))
        finally:
            env.close()
        return self

    def _new_networks(self, played: _Played) -> PolicyNetworks:
        rows = played.inputs.reshape(-1, played.inputs.shape[-1]).astype(np.float64)
        return PolicyNetworks(
            num_policies=self.num_options,
            num_actions=self.num_actions,
            mean=rows.mean(axis=0),
            deviation=rows.std(axis=0),
            hidden=self.hidden,
            seed=derive_seed(self.seed, "network weights"),
        )

    def _play(self, lanes: RewardLanes, networks: PolicyNetworks | None, *key: int | str) -> _Played:
        """M T K episodes, with draws and noises of their own; uniformly random ones without networks."""
        rng = np.random.default_rng(derive_seed(self.seed, "network draws", *key))
        seen: list[tuple[NDArray[Any], Booleans]] = []

        def choose(observations: NDArray[Any], steps: Indices, masks: Booleans) -> Indices:
            inputs = self._inputs(observations, steps)
            seen.append((inputs, np.array(masks)))
            if networks is None:
                table = masks / masks.sum(axis=1, keepdims=True)
            else:
                table = networks.probabilities(np.arange(len(inputs)) % self.num_options, inputs, masks)
            return draw_actions(table, rng.random(len(table)), False)

        wanted = self.meta_samples * self.episodes * self.num_options
        seed = derive_seed(self.seed, "network noises", *key) % 2**31
        episodes = play_episodes(lanes, choose, episodes=wanted, seed=seed)
        horizon = episodes.features.shape[1]

        def by_episode(parts: list[NDArray[Any]]) -> NDArray[Any]:
            batches = [np.stack(parts[first : first + horizon], axis=1) for first in range(0, len(parts), horizon)]
            return np.concatenate(batches)[:wanted]

        inputs, masks = (by_episode([pair[index] for pair in seen]) for index in (0, 1))
        return _Played(inputs, masks, episodes.actions, episodes.features)

    def _inputs(self, observations: NDArray[Any], steps: Indices) -> NDArray[Any]:
        """Flat observations, with the step if it is shown, (n, inputs)."""
        flat = np.asarray(observations, dtype=np.float32).reshape(len(observations), -1)
        return np.concatenate([flat, steps[:, None].astype(np.float32)], axis=1) if self.observe_step else flat

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw the action of each lane from its policy; a single environment plays policy 0. See the base class."""
        if self.networks is None:
            raise RuntimeError(f"The agent {self.name!r} has no policies yet; call learn() first.")
        observations, single = self._batch(observation)
        count = len(observations)
        steps = np.zeros(count, dtype=np.int64)
        if state is not None:
            steps = np.array(state[0], dtype=np.int64)
            if steps.shape != (count,):
                raise ValueError(f"Expected the state of {count} lanes, got one of shape {steps.shape}.")
            if episode_start is not None:
                steps[np.asarray(episode_start, dtype=np.bool_)] = 0
        masks = self._legal(observations, steps)
        table = self.networks.probabilities(
            np.arange(count) % self.num_options, self._inputs(observations, steps), masks
        )
        actions = draw_actions(table, self.rng.random(count), deterministic)
        return (actions[0] if single else actions), (steps + 1,)

    def _arguments(self) -> dict[str, Any]:
        names = ("iterations", "meta_samples", "hidden", "learning_rate", "credit", "entropy", "feedback", "num_envs")
        return {**super()._arguments(), **{name: getattr(self, name) for name in (*names, "observe_step")}}

    def _save(self, folder: Path) -> None:
        arrays = {} if self.networks is None else self.networks.arrays()
        history = np.array(json.dumps([asdict(record) for record in self.history]))
        with replacing(folder / "networks.npz") as part, open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, history=history, **arrays)

    def _load(self, folder: Path) -> None:
        with np.load(folder / "networks.npz", allow_pickle=False) as data:
            arrays = dict(data)
        self.history = tuple(NetworkRecord(**record) for record in json.loads(str(arrays.pop("history"))))
        if arrays:  # it had learned
            self.networks = PolicyNetworks.from_arrays(
                arrays, num_policies=self.num_options, num_actions=self.num_actions, hidden=self.hidden
            )


class _Trainer:
    """The optimiser and the credit of a run."""

    def __init__(self, agent: NetworkReinforceAgent, networks: PolicyNetworks) -> None:
        import torch

        self.agent, self.networks = agent, networks
        self.credit = Credit(agent.credit)
        self.optimiser = torch.optim.Adam(networks.parameters, lr=agent.learning_rate)

    def step(self, iteration: int, played: _Played, began: float) -> NetworkRecord:
        """One gradient step."""
        import torch

        agent = self.agent
        shape = (agent.meta_samples, agent.episodes, agent.num_options, played.actions.shape[1])  # (M, T, K, H)
        objective = TruncatedObjective(played.features.reshape(*shape, -1), agent.regularization)
        rewards = Rewards.of(objective, self.credit.parts)
        weights = self.credit.weights(rewards)[..., :-1]  # an action of step h is drawn when h are complete
        surrogate, entropy = score_surrogate(
            self.networks,
            played.inputs.reshape(*shape, -1),
            played.masks.reshape(*shape, -1),
            played.actions.reshape(shape),
            weights,
        )
        self.optimiser.zero_grad()
        (-(surrogate + agent.entropy * entropy)).backward()  # type: ignore[no-untyped-call]
        gradients = [parameter.grad for parameter in self.networks.parameters if parameter.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not np.isfinite(norm):
            raise ValueError(
                f"Expected a finite gradient, got one of norm {norm} in iteration {iteration}; lower learning_rate"
            )
        self.optimiser.step()
        return NetworkRecord(
            iteration=iteration,
            objective=float(rewards.values.mean()),
            deviation=float(rewards.values.std(ddof=1)),
            entropy=float(entropy.detach()),
            gradient_norm=norm,
            seconds=time.perf_counter() - began,
        )
