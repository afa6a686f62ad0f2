"""A policy that writes for a taste
================================

Train MaskablePPO to write prompts for a taste from held-out words, and rank what it writes.

On the command line::

    python examples/personalize_policy.py  # a simulated user first answers questions
    python examples/personalize_policy.py --theta runs/theta.safetensors
"""
# sphinx_gallery_thumbnail_path = "posters-warm.png"

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from sb3_contrib import MaskablePPO

import edpbrl_gym as eg


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    theta: Path | None = None
    """taste file of `edpbrl estimate`, estimated with MiniLM; without one a simulated user answers questions"""
    user: str = "a stormy sea at night, dark and dramatic"
    """what the simulated user likes"""
    episodes: int = 30
    """episodes of questions to the simulated user, K = 4 options each"""
    tokens_per_step: int = 8
    """size of the held-out vocabulary"""
    total_timesteps: int = 6_000
    """steps of training"""
    samples: int = 100
    """prompts that the trained policy and a uniform one write for the comparison"""
    seed: int = 0
    """seed of everything"""
    out: Path = Path("runs/policy")
    """folder for policy.zip (`MaskablePPO.load` reads it) and theta.safetensors"""


# %%
# Random questions, a simulated user, an estimate in a file.
def learn_taste(args: Args) -> Path:
    """Ask the simulated user random questions about the train words; write the estimate and return its file."""
    words: dict[str, Any] = {"split": "train", "tokens_per_step": args.tokens_per_step}
    lanes: Any = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=4 * args.episodes, **words)
    user = eg.SyntheticUser.from_text(args.user, lanes.unwrapped.encoder, seed=args.seed)
    agent = eg.make_agent("random", lanes, num_options=4, episodes=args.episodes, seed=args.seed)
    answers = eg.collect(lanes, agent, user, episodes=args.episodes, seed=args.seed)
    taste = eg.estimate(answers, regularization=1.0)
    encoder = lanes.unwrapped.encoder
    provenance = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "questions": len(answers)}
    return eg.save_taste(args.out / "theta.safetensors", taste.theta, provenance, vocabulary=eg.load_vocabulary())


# %%
# The policy writes in many lanes at once.
def write(model: MaskablePPO, count: int, words: dict[str, Any]) -> list[str]:
    """Return prompts drawn from the trained policy."""
    lanes: Any = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=count, **words)
    observations, infos = lanes.reset()
    for _ in range(lanes.unwrapped.mdp.horizon):
        actions, _ = model.predict(observations, action_masks=infos["action_mask"].astype(bool))
        observations, _, _, _, infos = lanes.step(actions)
    return list(infos["prompt"])


# %%
# Train on held-out words, save the policy, and compare it with random prompts.
def main(args: Args) -> dict[str, tuple[float, float]]:
    """Train, save, print and return mean and best score of the policy's prompts and of uniform ones."""
    file = args.theta or learn_taste(args)
    theta = eg.load_taste(file).theta
    held_out: dict[str, Any] = {"split": "test", "tokens_per_step": args.tokens_per_step}
    env: Any = gymnasium.make("edpbrl/PromptConstruction-v0", **held_out)
    direction = theta / np.linalg.norm(theta)  # the scale of a linear reward doesn't change what is best
    model = MaskablePPO(
        "MlpPolicy",
        eg.LearnedReward(env, direction),
        n_steps=384,
        batch_size=96,
        learning_rate=1e-3,
        gamma=1.0,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
    )
    model.learn(args.total_timesteps)
    model.save(args.out / "policy.zip")

    words, encoder = env.unwrapped.vocabulary, env.unwrapped.encoder
    rng = np.random.default_rng(args.seed)
    uniform = np.stack([rng.integers(size, size=args.samples) for size in words.sizes], axis=1)
    prompts = {
        "MaskablePPO": write(model, args.samples, held_out),
        "Random": [words.prompt(row) for row in uniform],
    }
    results = {}
    print(f"theta . phi over {args.samples} prompts, mean and best")
    for name, texts in prompts.items():
        scores = encoder.encode(texts).astype(float) @ direction
        results[name] = (float(scores.mean()), float(scores.max()))
        print(f"  {name:12s} {results[name][0]:.4f} {results[name][1]:.4f}")
        print(f"    {texts[int(scores.argmax())]}")
    print(f"without training: edpbrl personalize {file} --split test --tokens-per-step {args.tokens_per_step}")
    return results


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
