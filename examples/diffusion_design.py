"""Questions about images, designed by deep RL
===========================================

Design questions about images where there is no table: Frank-Wolfe whose linear oracle is PPO.

The agent plays a small diffusion model of handwritten digits. What its design misses is reported under three names:
what the last policy gained in training (no certificate), an upper bound, and the gap itself, by trying every sequence
of directions from fresh noises. Then a simulated user answers its questions and those of a random agent.

On the command line::

    python examples/diffusion_design.py  # four minutes on one core
    python examples/diffusion_design.py --tensorboard runs/tensorboard
"""
# sphinx_gallery_thumbnail_path = "diffusion-digits.png"

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.design.gaps import enumerated_gap, gap_bound, optimum_bound
from edpbrl_gym.diffusion import enumerate_episodes
from edpbrl_gym.features.strokes import StrokeEncoder

ID = "edpbrl/DiffusionGuidance-v0"
FRESH = 1_000_000_000  # the number of the first noise of the gap; training draws from all 2**31


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    conditions: list[int] = field(default_factory=lambda: [0, 1, 7, 8])
    """classes to guide towards"""
    blocks: int = 5
    """decisions of an image, with one denoising step each"""
    lanes: int = 4
    """options K of a question"""
    episodes: int = 12
    """episodes T, each with a question for every block"""
    iterations: int = 4
    """iterations of Frank-Wolfe"""
    timesteps: int = 20_000
    """steps of training in each"""
    rollouts: int = 512
    """episodes from which the moments of a policy are estimated"""
    noises: int = 30
    """fresh noises of the gap"""
    draws: int = 8
    """episodes of the mixture on each of them"""
    scale: float = 10.0
    """inverse temperature of the user"""
    seed: int = 0
    """seed of everything"""
    tensorboard: str | None = None
    """folder for TensorBoard"""


# %%
# What is known about the gap of the design.
def played_sequences(env: gymnasium.vector.VectorEnv, agent: Any, args: Args) -> np.ndarray:
    """Actions of the agent's mixture on the fresh noises, (noises, draws, blocks)."""
    noises = np.repeat(np.arange(FRESH, FRESH + args.noises), args.draws)
    observations, _ = env.reset(options={"noise_seed": noises.tolist()})
    state, taken = None, []
    for _ in range(args.blocks):
        actions, state = agent.predict(observations, state)
        observations, *_ = env.step(actions)
        taken.append(actions)
    return np.stack(taken, axis=1).reshape(args.noises, args.draws, args.blocks)


def report_gap(agent: Any, arguments: dict[str, Any], args: Args) -> dict[str, float]:
    """Print and return what is known about the gap."""
    lanes = gymnasium.make_vec(ID, num_envs=args.noises * args.draws, **arguments)
    model: Any = lanes.unwrapped.model  # type: ignore[attr-defined]
    trees = enumerate_episodes(model, np.arange(FRESH, FRESH + args.noises))
    reward = agent.problem.gradient(agent.moments)
    gap = enumerated_gap(trees, reward, played_sequences(lanes, agent, args))
    bound = gap_bound(reward, agent.moments, radius=3.0)  # no row of StrokeEncoder is longer
    optimum = optimum_bound(trees, agent.problem, agent.moments)
    value, nothing = agent.problem.value(agent.moments), agent.problem.baseline
    achieved = agent.history[-1].achieved_gap
    interval, confident = f"{gap.low:.3f} to {gap.high:.3f}", f"{optimum.high:.3f}"
    print(f"objective {value:.3f}, {nothing:.3f} without data")
    print(f"  achieved gap of the last policy    {achieved:8.3f}   too low, no certificate")
    print(f"  the gap, by trying all sequences   {gap.mean:8.3f}   {gap.level:.0%} interval {interval}")
    print(f"  upper bound, for any features      {bound:8.3f}")
    print(f"  no policy has an objective above   {optimum.mean:8.3f}   {optimum.level:.0%} interval up to {confident}")
    return {"value": value, "gap": gap.mean, "low": gap.low, "high": gap.high, "bound": bound, "optimum": optimum.high}


# %%
# Two agents ask the same user.
def answers_of(agent: Any, arguments: dict[str, Any], user: eg.SyntheticUser, args: Args) -> eg.Comparisons:
    """Let the agent play, and the user compare its images after every block."""
    # the design is about independent episodes, so no noise is shared
    lanes = gymnasium.make_vec(ID, num_envs=args.episodes * args.lanes, **arguments)
    return eg.collect(lanes, agent, user, episodes=args.episodes, seed=args.seed)


def main(args: Args) -> dict[str, Any]:
    """Design, report the gap, ask, estimate; print and return the figures."""
    arguments: dict[str, Any] = {"conditions": args.conditions, "blocks": args.blocks, "steps": args.blocks}
    env = gymnasium.make_vec(ID, num_envs=args.lanes, **arguments)
    common: dict[str, Any] = {"num_options": args.lanes, "episodes": args.episodes, "criterion": "D", "seed": args.seed}
    agent: Any = eg.make_agent(
        "deep",
        env,
        iterations=args.iterations,
        timesteps=args.timesteps,
        rollouts=args.rollouts,
        progress=True,
        **common,
    ).learn()
    for record in agent.history:
        print(f"iteration {record.iteration}: objective {record.value:.3f}, achieved gap {record.achieved_gap:.3f}")
    results: dict[str, Any] = report_gap(agent, arguments, args)
    if args.tensorboard is not None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(args.tensorboard) as writer:
            for record in agent.history:
                writer.add_scalar("objective", record.value, record.iteration)
                writer.add_scalar("achieved gap", record.achieved_gap, record.iteration)

    theta = StrokeEncoder().direction(thickness=1, slant=1)
    for name, asking in (("deep", agent), ("random", eg.make_agent("random", env, **common))):
        user = eg.SyntheticUser(theta, mode="sampled", scale=args.scale, seed=args.seed)
        comparisons = answers_of(asking, arguments, user, args)
        estimate = eg.estimate(comparisons, regularization=1.0).theta
        results[name] = float(estimate @ theta / np.linalg.norm(estimate))
        print(f"{name:6s} {len(comparisons)} answers, cosine with the true taste {results[name]:.3f}")
    return results


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
