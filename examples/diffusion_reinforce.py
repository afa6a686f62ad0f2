"""Questions about images, learnt by REINFORCE
===========================================

Train small policy networks on the latents of a diffusion model to show images worth comparing, then ask.

The K networks learn by REINFORCE (the paper's Algorithm 3, with networks in place of language models): what is
maximised is the information of comparisons of the images that they lead to.

On the command line::

    python examples/diffusion_reinforce.py  # two minutes on one core
"""
# sphinx_gallery_thumbnail_path = "diffusion-blocks.png"

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from torch import nn

import edpbrl_gym as eg
from edpbrl_gym.features.strokes import StrokeEncoder
from edpbrl_gym.language.objective import TruncatedObjective, d_objective


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    model: str | None = None
    """diffusion model; None is the package's own, of handwritten digits"""
    conditions: list[int] = field(default_factory=lambda: [0, 1, 2, 7])
    """classes to guide towards"""
    blocks: int = 4
    """decisions B of an image"""
    steps: int = 4
    """denoising steps of an image"""
    lanes: int = 4
    """options K of a question, and number of networks"""
    episodes: int = 8
    """episodes T that the questions are planned for, of which each asks B questions"""
    iterations: int = 60
    """gradient steps"""
    meta_samples: int = 8
    """M, repetitions of the T episodes in every step"""
    learning_rate: float = 0.01
    """of Adam"""
    regularization: float = 0.1
    """lambda of the objective and of the estimate"""
    evaluations: int = 20
    """repetitions of the T episodes from which the trained and the uniformly random policies are judged"""
    scale: float = 10.0
    """inverse temperature of the simulated user, who likes thick strokes that lean to the right"""
    seed: int = 0
    """seed of everything"""
    tensorboard: str | None = None
    """folder for TensorBoard"""


# %%
# K networks from a standardised latent to the directions; lane i plays network i mod K.
class Networks(nn.Module):
    """K perceptrons, and what the package asks of an agent: ``num_options`` and ``predict``."""

    def __init__(self, args: Args, latents: np.ndarray, directions: int) -> None:
        super().__init__()
        self.num_options = args.lanes
        sizes = (latents.shape[1], 32, directions)
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2]))
            for _ in range(args.lanes)
        )
        for name, parameter in self.named_parameters():  # nearly uniform, but not equal
            if ".2." in name:  # the last layer
                parameter.data *= 0.1
        spread = latents.std(axis=0)
        self.mean, self.spread = latents.mean(axis=0), np.where(spread > 0, spread, np.inf)

    def forward(self, observations: np.ndarray) -> torch.distributions.Categorical:
        """The distributions of the actions of n K lanes, (n, K)."""
        rows = np.clip((observations.reshape(len(observations), -1) - self.mean) / self.spread, -10, 10)
        inputs = torch.as_tensor(rows, dtype=torch.float32).reshape(-1, self.num_options, rows.shape[1])
        logits = [network(inputs[:, option]) for option, network in enumerate(self.networks)]
        return torch.distributions.Categorical(logits=torch.stack(logits, dim=1))

    def predict(self, observation: np.ndarray, state: Any = None, *_: Any) -> tuple[np.ndarray, Any]:
        """Draw the action of each lane."""
        with torch.no_grad():
            return self(observation).sample().reshape(-1).numpy(), state


# %%
# Episodes of all lanes at once: latents, actions and features of the images that they show.
def play(lanes: Any, agent: Any, blocks: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents (B, n, ...), actions (B, n) and features (B, n, d)."""
    observation, _ = lanes.reset(seed=seed)
    state, latents, actions, features = None, [], [], []
    for block in range(blocks):
        action, state = agent.predict(observation, state, np.full(lanes.num_envs, block == 0))
        latents.append(observation)
        actions.append(action)
        observation, *_ = lanes.step(action)
        features.append(lanes.unwrapped.trajectory_features(observation))
    return np.stack(latents), np.stack(actions), np.stack(features)


# %%
# REINFORCE: a choice at block h counts by what its episode tells from h on, less what others tell on average.
def train(args: Args, lanes: Any, uniform: Any, writer: Any) -> Networks:
    """Take all gradient steps on the D-criterion of the comparisons."""
    latents, *_ = play(lanes, uniform, args.blocks, args.seed)
    flat = latents.reshape(-1, int(np.prod(latents.shape[2:])))
    networks = Networks(args, flat, int(lanes.single_action_space.n))
    optimiser = torch.optim.Adam(networks.parameters(), lr=args.learning_rate)
    for iteration in range(args.iterations):
        latents, actions, features = play(lanes, networks, args.blocks, args.seed + 1 + iteration)
        shape = (args.meta_samples, args.episodes, args.lanes, args.blocks)  # (M, T, K, B)
        objective = TruncatedObjective(np.moveaxis(features, 0, 1).reshape(*shape, -1), args.regularization)
        gains = objective.contributions[..., :-1]
        means = gains.mean(axis=1, keepdims=True)
        weights = gains - (means.sum(axis=0) - means) / (args.meta_samples - 1)  # of the other meta-samples
        weights = torch.as_tensor(weights.reshape(-1, args.lanes, args.blocks), dtype=torch.float32)
        loss, entropy = torch.zeros(()), 0.0
        for block in range(args.blocks):
            policies = networks(latents[block])
            taken = torch.as_tensor(actions[block]).reshape(-1, args.lanes)
            loss = loss - (weights[..., block] * policies.log_prob(taken)).sum() / args.meta_samples
            entropy += float(policies.entropy().mean().detach()) / args.blocks
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if iteration in (0, args.iterations - 1):
            print(f"objective in training: {objective.values.mean():.2f} in step {iteration}")
        if writer is not None:
            writer.add_scalar("objective/training", objective.values.mean(), iteration)
            writer.add_scalar("policies/entropy", entropy, iteration)
    return networks


# %%
# What the agent's questions are worth: their information, and the taste learnt from them.
def judge(args: Args, lanes: Any, agent: Any, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Objective of T episodes, and the cosine of the estimate from their answers with the true taste, (n,) each."""
    count = args.evaluations * args.episodes
    user = eg.SyntheticUser(theta, mode="sampled", scale=args.scale, seed=args.seed)
    answers = eg.collect(lanes, agent, user, episodes=count, seed=args.seed + 1)
    objectives, cosines = [], []
    for first in range(0, count, args.episodes):
        own = answers.select((answers.episode >= first) & (answers.episode < first + args.episodes))
        order = np.lexsort((own.step, own.episode))
        features = own.features[order].reshape(1, args.episodes, args.blocks, args.lanes, -1).swapaxes(2, 3)
        objectives.append(d_objective(features, args.regularization)[0])
        estimate = eg.estimate(own, regularization=args.regularization).theta
        cosines.append(estimate @ theta / np.linalg.norm(estimate) / np.linalg.norm(theta))
    return np.array(objectives), np.array(cosines)


# %%
# Train, ask and compare with random questions.
def main(args: Args) -> dict[str, Any]:
    """Train, ask with the networks and at random, print and return the figures."""
    torch.manual_seed(args.seed)

    def make(count: int) -> Any:
        return gymnasium.make_vec(
            "edpbrl/DiffusionGuidance-v0",
            num_envs=count,
            model=args.model,
            conditions=args.conditions,
            blocks=args.blocks,
            steps=args.steps,
            shared_noise=args.lanes,
        )

    writer = None
    if args.tensorboard is not None:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(args.tensorboard)
    lanes = make(args.episodes * args.lanes)
    uniform = eg.make_agent("random", lanes, num_options=args.lanes, episodes=args.episodes, seed=args.seed)
    networks = train(args, make(args.meta_samples * args.episodes * args.lanes), uniform, writer)
    if writer is not None:
        writer.close()

    theta = StrokeEncoder().direction(thickness=1, slant=1)
    results: dict[str, Any] = {}
    print(f"{args.evaluations} times {args.episodes * args.blocks} answers, mean and standard error")
    for name, player in {"REINFORCE (networks)": networks, "Random": uniform}.items():
        values = np.stack(judge(args, lanes, player, theta))
        mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(args.evaluations)
        results[name] = {"mean": mean, "error": error}
        print(
            f"  {name:20s} objective {mean[0]:7.3f} +- {error[0]:.3f}   "
            f"cosine with the true taste {mean[1]:.3f} +- {error[1]:.3f}"
        )
    return results


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
