"""MaskablePPO on a learnt reward
==============================

Learn a taste from random questions, then train MaskablePPO to write prompts for it.

On the command line::

    python examples/maskable_ppo.py  # about a minute on one core
"""
# sphinx_gallery_thumbnail_path = "agents.png"

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.vec_env import DummyVecEnv

import edpbrl_gym as eg


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    user: str = "a stormy sea at night, dark and dramatic"
    """what the simulated user likes"""
    episodes: int = 30
    """episodes of questions, K = 4 options each"""
    tokens_per_step: int = 6
    """size of the vocabulary"""
    total_timesteps: int = 8_000
    """steps of training"""
    num_envs: int = 8
    """environments of PPO"""
    evaluation_episodes: int = 100
    """prompts of each mean reward"""
    regularization: float = 1.0
    """ridge lambda of the estimate"""
    seed: int = 0
    """seed of everything"""


# %%
# Random questions, a simulated user, an estimate.
def learn_taste(args: Args) -> np.ndarray:
    """Ask the simulated user random questions and return the estimated taste, shape (d,)."""
    env = gymnasium.make_vec(
        "edpbrl/PromptConstruction-v0",
        num_envs=4,
        tokens_per_step=args.tokens_per_step,
        autoreset_mode="same_step",
    )
    base: Any = env.unwrapped  # with .encoder and .mdp
    user = eg.SyntheticUser.from_text(args.user, base.encoder, seed=args.seed)
    query = eg.PreferenceQuery(env, lanes=4, oracle=user)
    agent = eg.make_agent("random", query, num_options=4, episodes=args.episodes, seed=args.seed)
    observations, _ = query.reset(seed=args.seed)
    for _ in range(args.episodes * base.mdp.horizon):
        actions, _ = agent.predict(observations)
        observations, *_ = query.step(actions)
    return eg.estimate(query.comparisons, regularization=args.regularization).theta


# %%
# Train on the reward theta . phi(prompt), and compare with random prompts.
def final_rewards(venv: DummyVecEnv, choose: Callable[[Any], Any], episodes: int) -> np.ndarray:
    """Rewards of complete prompts; all lanes finish at the same step, as every prompt has H tokens."""
    rewards: list[float] = []
    observations = venv.reset()
    while len(rewards) < episodes:
        observations, reward, dones, _ = venv.step(choose(observations))
        rewards.extend(reward[dones])
    return np.array(rewards[:episodes])


def main(args: Args) -> dict[str, tuple[float, float]]:
    """Train, print and return mean reward and standard error of MaskablePPO and of Random."""
    theta = learn_taste(args)
    theta /= np.linalg.norm(theta)  # the scale of a linear reward doesn't change what is best

    def make() -> gymnasium.Env:
        env = gymnasium.make("edpbrl/PromptConstruction-v0", tokens_per_step=args.tokens_per_step)
        return eg.LearnedReward(env, theta)

    venv = DummyVecEnv([make] * args.num_envs)
    model = MaskablePPO(
        "MlpPolicy",
        venv,
        n_steps=96,
        batch_size=192,
        learning_rate=1e-3,
        gamma=1.0,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
    )
    model.learn(args.total_timesteps)

    agent = eg.make_agent("random", venv, num_options=2, episodes=1, seed=args.seed)
    policies = {
        "MaskablePPO": lambda batch: model.predict(batch, action_masks=get_action_masks(venv))[0],
        "Random": lambda batch: agent.predict(batch)[0],
    }
    results = {}
    print(f"reward theta . phi(prompt) over {args.evaluation_episodes} prompts, mean and standard error")
    for name, choose in policies.items():
        rewards = final_rewards(venv, choose, args.evaluation_episodes)
        results[name] = (float(rewards.mean()), float(rewards.std(ddof=1) / np.sqrt(rewards.size)))
        print(f"  {name:12s} {results[name][0]:.4f} +- {results[name][1]:.4f}")

    observation, info = (env := make()).reset()
    done = False
    while not done:
        action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
        observation, _, done, _, info = env.step(action)
    print(f"most probable prompt: {info['prompt']}")
    return results


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
