"""A taste in images
=================

Learn a taste from questions about images of a small diffusion model, then make images for it.

A simulated user likes thick strokes that lean to the right, and compares pictures of handwritten digits.

On the command line::

    python examples/diffusion_taste.py  # two minutes; see runs/diffusion-taste/sheet.png
    python examples/diffusion_taste.py --how episodes --tensorboard runs/tensorboard
"""
# sphinx_gallery_thumbnail_path = "diffusion-taste.png"

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.diffusion import TrajectoryPool
from edpbrl_gym.features.strokes import StrokeEncoder
from edpbrl_gym.oracles import answers_of
from edpbrl_gym.personalize import ImageSamples, best_samples, given_samples
from edpbrl_gym.planners import TokenFeatures
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

FRESH = 1_000_000  # the number of the first noise that no question is about
LABELS = ("for the taste", "random", "one class")  # of the rows of the contact sheet


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    how: Literal["pool", "episodes"] = "pool"
    """ask about last images of any noise ("pool"), or play episodes that share their noise ("episodes")"""
    model: str | None = None
    """diffusion model; None is the package's own, of handwritten digits"""
    conditions: list[int] = field(default_factory=lambda: [0, 1, 2, 7])
    """classes to guide towards"""
    blocks: int = 4
    """decisions B of an image"""
    steps: int = 8
    """denoising steps of an image"""
    answers: int = 60
    """answers of the user"""
    lanes: int = 4
    """options K of a question"""
    pool_noises: int = 8
    """noises of the pool; every sequence of directions from each is an item"""
    scale: float = 10.0
    """inverse temperature of the user, who chooses with probability softmax(scale * theta . phi)"""
    samples: int = 60
    """images of each kind, from noises that no question was about"""
    seed: int = 0
    """seed of everything"""
    out: Path = Path("runs/diffusion-taste")
    """folder of the contact sheet"""
    tensorboard: str | None = None
    """folder for TensorBoard"""


# %%
# The environment, and the user's answers about a pool of its images or about its episodes.
def make(args: Args, weights: list[float], lanes: int | None = None) -> Any:
    """The environment, or lanes of it that share their noise."""
    arguments: dict[str, Any] = {"model": args.model, "conditions": args.conditions, "weights": weights}
    arguments |= {"blocks": args.blocks, "steps": args.steps}
    if lanes is None:
        return gymnasium.make("edpbrl/DiffusionGuidance-v0", **arguments)
    arguments |= {"shared_noise": lanes, "autoreset_mode": "same_step"}
    return gymnasium.make_vec("edpbrl/DiffusionGuidance-v0", num_envs=lanes, **arguments)


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine between two tastes; 0 where one of them is 0."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norms if norms else 0.0


def ask_about_pool(args: Args, env: Any, user: eg.SyntheticUser) -> tuple[np.ndarray, list[float]]:
    """Ask about last images of several noises; the estimate, and its cosine with the true taste by answer."""
    pool = TrajectoryPool.enumerate(env.unwrapped.model, range(args.pool_noises))
    print(f"a pool of {len(pool)} images, such as {pool.vocabulary.tokens[0][0]!r}")
    options = TokenFeatures(pool.vocabulary, pool.features)
    planner = eg.make_planner("adaptive", pool.vocabulary, options, num_options=args.lanes, seed=args.seed)
    session = eg.Session(planner, vocabulary=pool.vocabulary, encoder=pool, num_options=args.lanes)
    cosines = []
    for _ in range(args.answers):
        question = session.ask()  # a person would be shown pool.images(question.tokens[:, 0])
        session.tell(int(answers_of(user, question.queries).choices[0]))
        cosines.append(cosine(planner.estimate.theta, user.theta))
    return planner.estimate.theta, cosines


def ask_in_episodes(args: Args, user: eg.SyntheticUser) -> tuple[np.ndarray, list[float]]:
    """Play the most informative K episodes of one noise after another; the answer to every block counts."""
    lanes = make(args, [2.0], args.lanes)
    episodes = max(1, args.answers // args.blocks)
    agent: Any = eg.make_agent("enumerated", lanes, num_options=args.lanes, episodes=episodes, seed=args.seed).learn()
    query = eg.PreferenceQuery(lanes, lanes=args.lanes, oracle=user)
    observations, _ = query.reset(seed=args.seed)
    state, cosines = None, []
    for _ in range(episodes * args.blocks):
        actions, state = agent.predict(observations, state, query.episode_start)
        observations, *_ = query.step(actions)
        agent.observe(query.comparisons)
        cosines.append(cosine(agent.planner.estimate.theta, user.theta))
    return agent.planner.estimate.theta, cosines


# %%
# Images for the taste that was learnt, beside random ones.
def draw_samples(args: Args, env: Any, theta: np.ndarray) -> dict[str, ImageSamples]:
    """Images for a taste, and images of two kinds that know nothing of it, from the same fresh noises."""
    rng = np.random.default_rng(args.seed)
    noises = np.arange(FRESH, FRESH + args.samples)
    actions = rng.integers(len(args.conditions), size=(args.samples, args.blocks))
    classes = np.repeat(rng.integers(len(args.conditions), size=(args.samples, 1)), args.blocks, axis=1)
    return {
        "personalised": best_samples(env, theta, noises),
        "random directions": given_samples(env, theta, noises, actions),
        "one class, weight 1": given_samples(make(args, [1.0]), theta, noises, classes),
    }


def draw_sheet(args: Args, env: Any, kinds: dict[str, ImageSamples], theta: np.ndarray) -> Path:
    """A contact sheet: a column for each of the first eight noises, with the scores by the true taste."""
    from PIL import Image

    rows: list[list[Tile]] = []
    for samples in kinds.values():
        scores = samples.scores_by(theta)
        frames = [Image.fromarray(env.unwrapped.model.frame(image)) for image in samples.images[:8]]  # enlarged
        rows.append([Tile(frame, lines=(f"{scores[number]:.2f}",)) for number, frame in enumerate(frames)])
    columns = [f"noise {number + 1}" for number in range(len(rows[0]))]
    title = "thick strokes, leaning right: images and their scores by the true taste"
    return contact_sheet(rows, args.out / "sheet.png", columns=columns, labels=LABELS, title=title, tile=96)[0]


# %%
# From the questions to the contact sheet.
def main(args: Args) -> dict[str, Any]:
    """Ask, estimate, make images, print and return the figures."""
    theta = StrokeEncoder().direction(thickness=1, slant=1)
    user = eg.SyntheticUser(theta, mode="sampled", scale=args.scale, seed=args.seed)
    env = make(args, [2.0])
    estimate, cosines = ask_about_pool(args, env, user) if args.how == "pool" else ask_in_episodes(args, user)
    if args.tensorboard is not None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(args.tensorboard) as writer:
            for number, value in enumerate(cosines, start=1):
                writer.add_scalar("cosine with the true taste", value, number)
    print(f"{len(cosines)} answers, cosine with the true taste {cosines[-1]:.3f}")

    estimate = estimate / np.linalg.norm(estimate)
    kinds = draw_samples(args, env, estimate)
    results: dict[str, Any] = {"cosine": cosines[-1]}
    print(f"{args.samples} images each, mean and standard error: by the estimated taste, by the true one")
    for name, samples in kinds.items():
        both = np.stack([samples.scores, samples.scores_by(theta)])
        mean, error = both.mean(axis=1), both.std(axis=1, ddof=1) / np.sqrt(args.samples)
        results[name] = {"mean": mean, "error": error}
        print(f"  {name:20s} {mean[0]:7.3f} +- {error[0]:.3f}   {mean[1]:7.3f} +- {error[1]:.3f}")
    best = results["personalised"]
    for name in list(kinds)[1:]:
        gap = (best["mean"] - results[name]["mean"]) / np.hypot(best["error"], results[name]["error"])
        print(
            f"personalised above {name}: {gap[0]:.1f} standard errors by the estimated taste, {gap[1]:.1f} by the true"
        )
    print(f"contact sheet: {draw_sheet(args, env, kinds, theta)}")
    return results


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
