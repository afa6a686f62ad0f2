"""Questions about images, learnt by REINFORCE
===========================================

Train small policy networks on the latents of a diffusion model to show images worth comparing, then ask.

The K networks learn by REINFORCE: what is maximised is the information of comparisons of the images that they lead to.

On the command line::

    python examples/diffusion_reinforce.py  # two minutes on one core
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.features.strokes import StrokeEncoder
from edpbrl_gym.language.objective import d_objective


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
    lanes: Any = gymnasium.make_vec(
        "edpbrl/DiffusionGuidance-v0",
        num_envs=args.episodes * args.lanes,
        model=args.model,
        conditions=args.conditions,
        blocks=args.blocks,
        steps=args.steps,
        shared_noise=args.lanes,
        autoreset_mode="same_step",
    )
    shared: dict[str, Any] = {"num_options": args.lanes, "episodes": args.episodes, "seed": args.seed}
    shared["regularization"] = args.regularization
    agent: Any = eg.make_agent(
        "reinforce-network",
        lanes,
        iterations=args.iterations,
        meta_samples=args.meta_samples,
        learning_rate=args.learning_rate,
        progress=True,
        **shared,
    ).learn()
    if args.tensorboard is not None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(args.tensorboard) as writer:
            for record in agent.history:
                writer.add_scalar("objective/training", record.objective, record.iteration)
                writer.add_scalar("policies/entropy", record.entropy, record.iteration)
                writer.add_scalar("gradient/norm", record.gradient_norm, record.iteration)
    first, last = agent.history[0], agent.history[-1]
    print(f"objective in training: {first.objective:.2f} in step 0, {last.objective:.2f} in step {last.iteration}")

    theta = StrokeEncoder().direction(thickness=1, slant=1)
    agents = {"REINFORCE (networks)": agent, "Random": eg.make_agent("random", lanes, **shared)}
    results: dict[str, Any] = {}
    print(f"{args.evaluations} times {args.episodes * args.blocks} answers, mean and standard error")
    for name, player in agents.items():
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
