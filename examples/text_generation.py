"""Prompts by a language model
===========================

Language models write prompts, a simulated user compares them word by word, and the answers give a taste.

On the command line::

    python examples/text_generation.py --episodes 20
"""
# sphinx_gallery_thumbnail_path = "agents-regret.png"

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.envs.wrappers import WordSteps

gymnasium.register_envs(eg)  # importing edpbrl_gym has registered its environments; this line says so


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the example."""

    model: str | None = None
    """hub id or folder of a GPT-2-like model; None uses the bundled model"""
    taste: str = "a quiet rainy street in soft grey tones"
    """what the simulated user likes"""
    lanes: int = 4
    """number of prompts compared at once (K)"""
    words: int = 8
    """words per prompt (H)"""
    episodes: int = 20
    """number of episodes, each with one question per word"""
    temperature: float = 1.0
    """temperature of the language model"""
    seed: int = 0
    """seed of the prompts"""


args = tyro.cli(Args, description=__doc__)

# %%
# Token by token: the language model is a policy over the legal tokens.
env = gymnasium.make("edpbrl/TextGeneration-v0", model=args.model, words=args.words, render_mode="ansi")
writer: Any = env.unwrapped
observation, info = env.reset(seed=args.seed)
rng, done = np.random.default_rng(args.seed), False
while not done:
    probabilities = writer.next_token_probabilities(args.temperature)  # feeds the model the newest token only
    observation, reward, done, truncated, info = env.step(rng.choice(len(probabilities), p=probabilities))
print(f"{info['step']} tokens, {info['word']} words: {info['prompt']!r}")
env.close()

# %%
# Word by word: every lane writes a whole word, then the user compares the lanes.
lanes = gymnasium.make_vec("edpbrl/TextGeneration-v0", num_envs=args.lanes, model=args.model, words=args.words)
base: Any = lanes.unwrapped
user = eg.SyntheticUser.from_text(args.taste, base.encoder, mode="argmax")
questions = eg.PreferenceQuery(
    WordSteps(lanes, temperature=args.temperature, seed=args.seed), lanes=args.lanes, oracle=user
)
# every lane uses the same model; to compare several: WordSteps(lanes, [model_1, ...])
policies = np.zeros(args.lanes, dtype=np.int64)
for episode in range(args.episodes):
    questions.reset()
    for word in range(args.words):
        observation, rewards, terminated, _, info = questions.step(policies)
        if episode == 0:
            print(f"word {word + 1}")
            for lane, text in enumerate(info["question"][0]):
                print(f"  {'>' if rewards[lane] else ' '} {text!r}")

# %%
# What the answers teach.
answers = questions.comparisons
taste = eg.estimate(answers, regularization=1.0)
cosine = taste.theta @ user.theta / (np.linalg.norm(taste.theta) * np.linalg.norm(user.theta))
print(f"{len(answers)} answers, cosine with the true taste {cosine:.3f}")
