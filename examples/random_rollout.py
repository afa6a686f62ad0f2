"""A prompt of random words
========================

Make the prompt environment and write one prompt of random legal tokens.

On the command line::

    python examples/random_rollout.py --seed 3
"""
# sphinx_gallery_thumbnail_path = "posters-calm.png"

from dataclasses import dataclass

import gymnasium
import tyro

import edpbrl_gym

gymnasium.register_envs(edpbrl_gym)  # importing edpbrl_gym has registered its environments; this line says so


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the rollout."""

    seed: int = 0
    """seed of the environment and of the random actions"""
    tokens_per_step: int | None = None
    """draw a smaller vocabulary with this many tokens per step"""


# %%
# An episode: one token a step.
args = tyro.cli(Args, description=__doc__)
env = gymnasium.make("edpbrl/PromptConstruction-v0", tokens_per_step=args.tokens_per_step, render_mode="ansi")
print(f"observations {env.observation_space}\nactions      {env.action_space}")

env.action_space.seed(args.seed)
observation, info = env.reset(seed=args.seed)
done = False
while not done:
    action = env.action_space.sample(info["action_mask"])  # only tokens of the current step
    observation, reward, terminated, truncated, info = env.step(action)
    done = terminated or truncated
    print(f"step {info['step']}: token {action:4d}   {env.render()}")
print(f"prompt: {info['prompt']}")
env.close()
