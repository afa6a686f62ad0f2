"""How much more a question carries when the person says more than which option is best: docs/richer-answers.md.

    python -m benchmarks.richer_answers [--runs 10]    # about five minutes on a quiet core

A run is a seed with a sentence of its own: uniform questions (agent ``random``) of partial prompts from the built-in
vocabulary's train split, K = 4, answered by simulated users whose taste is the sentence's embedding. Every format is
asked the same questions. The estimate's prior comes from the vocabulary's embeddings (power 0.5), its scale from the
evidence of the answers. Sentences and seeds are not those of the reported experiments.

Prints the cosine error against the episodes (6 questions each), how many times fewer questions a format needs for the
error of best-of-4 after 60 episodes, the Fisher information of the questions, and what a wrong nu costs. Intervals are
95% bootstrap intervals over the runs (paired: a resample takes all formats of a run).
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.common import make_parser, training_tokens
from edpbrl_gym._arrays import Floats
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions, make_prompt_lanes
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.evidence import PriorFit, fit_prior
from edpbrl_gym.estimation.metrics import cosine_error
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import BestOf, BestWorst, Ranking, Response, ResponseModel, WithTies

K = 4
EPISODES = (5, 10, 15, 20, 30, 40, 60)
USERS: dict[str, float | None] = {"argmax": None, "scale 50": 50.0, "scale 20": 20.0, "scale 5": 5.0}
FORMATS: dict[str, ResponseModel] = {
    "best": BestOf(),
    "best and worst": BestWorst(),
    "ranking": Ranking(),
    "best or tie": WithTies(1.0),
    "ties left out": BestOf(),  # the same answers, ties read as skips
}
TIES = 3  # from here on the users may call a tie
ASSUMED = (0.1, 0.3, 1.0, 3.0, 10.0)  # nu of the estimate where the users' is 1
SENTENCES = (
    "a cosy winter cabin",
    "baroque gold ornaments",
    "a harbour in thick morning fog",
    "neon signs and wet asphalt at night",
    "pale watercolours of garden flowers",
    "rusty machines in an abandoned hall",
    "children's drawings in wax crayon",
    "a lonely lighthouse in a storm",
    "clean white rooms with one red chair",
    "market stalls full of ripe fruit",
)
ENVIRONMENT_ARGUMENTS = {"split": "train", "split_seed": 0}


def draw_options(encoder: TextEncoder, seed: int) -> Floats:
    """Embeddings of the options of 60 episodes of uniform questions, (360, K, d), by episode and step."""
    lanes = make_prompt_lanes(K, **ENVIRONMENT_ARGUMENTS)
    agent = make_agent("random", lanes, num_options=K, episodes=max(EPISODES), seed=seed)
    questions = draw_questions(
        ENVIRONMENT, agent, episodes=max(EPISODES), env_arguments=ENVIRONMENT_ARGUMENTS, distinct=False
    ).questions
    lanes.close()
    texts = [text for _, _, options in questions for text in options]
    return encoder.encode(texts).reshape(len(questions), K, -1).astype(np.float64)


def curve(
    options: Floats, responses: list[Response], model: ResponseModel, theta: Floats, base: GaussianPrior
) -> list[float]:
    """Cosine error after each number of episodes; the scale's search starts from the last one."""
    per_episode = len(options) // max(EPISODES)
    errors: list[float] = []
    fit: PriorFit | None = None
    for episodes in EPISODES:
        asked = episodes * per_episode
        fit = fit_prior(model.terms(options[:asked], responses[:asked]), base=base, start=fit, typical_scale=400.0)
        if not fit.estimate.converged:
            raise RuntimeError(f"{model.name} after {episodes} episodes: {fit.estimate.reason}")
        errors.append(cosine_error(fit.estimate.theta, theta))
    return errors


def wrong_nu(options: Floats, theta: Floats, base: GaussianPrior, scale: float, seed: int) -> list[float]:
    """Cosine error after 30 episodes for each assumed nu; the users' is 1."""
    some = options[: 30 * len(options) // max(EPISODES)]
    responses = WithTies(1.0).sample(some, scale * theta, np.random.default_rng(seed).random(len(options))[: len(some)])
    fits = (fit_prior(WithTies(nu).terms(some, responses), base=base, typical_scale=400.0) for nu in ASSUMED)
    return [cosine_error(fit.estimate.theta, theta) for fit in fits]


def one_run(encoder: TextEncoder, base: GaussianPrior, run: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Errors (users, formats, episodes), information (scales, formats), share of ties (users,), wrong nu (2, nus)."""
    options = draw_options(encoder, 1000 + run)
    sentence = SENTENCES[run % len(SENTENCES)]
    theta = encoder.encode([sentence])[0].astype(np.float64)
    errors = np.full((len(USERS), len(FORMATS), len(EPISODES)), np.nan)
    ties = np.full(len(USERS), np.nan)
    for user, scale in enumerate(USERS.values()):
        uniforms = None if scale is None else np.random.default_rng(5000 + run).random(len(options))
        for place, model in enumerate(FORMATS.values()):
            with_ties = place >= TIES
            if with_ties and scale is None:
                continue  # a user without noise calls no tie in Davidson's model with nu = 1
            responses = (WithTies(1.0) if with_ties else model).sample(options, theta * (scale or 1.0), uniforms)
            if with_ties:
                ties[user] = np.mean([response.kind == "tie" for response in responses])
            if with_ties and model.name == "best":
                responses = [Response.skip() if response.kind == "tie" else response for response in responses]
            errors[user, place] = curve(options, responses, model, theta, base)
    information = np.array(
        [
            [float(np.trace(model.information(options, scale * theta))) for model in list(FORMATS.values())[: TIES + 1]]
            for scale in (0.0, 5.0, 20.0, 50.0)
        ]
    )
    misread = np.array([wrong_nu(options, theta, base, scale, 5000 + run) for scale in (20.0, 5.0)])
    return errors, information / information[:, :1], ties, misread


def episodes_needed(errors: Floats, target: float) -> float:
    """Episodes until the mean curve reaches the target, between the marks on logarithmic axes; inf if it does not."""
    below = np.flatnonzero(errors <= target * (1 + 1e-12))
    if not len(below):
        return float("inf")
    after = int(below[0])
    if after == 0:
        return float(EPISODES[0])
    x, y = np.log(EPISODES[after - 1 : after + 1]), np.log(errors[after - 1 : after + 1])
    return float(np.exp(x[0] + (x[1] - x[0]) * (np.log(target) - y[0]) / (y[1] - y[0])))


def saving(errors: Floats, place: int) -> float:
    """60 over the episodes that the format needs for the error of best-of-4 after 60; errors (runs, formats, T).

    A format that does not get there is compared the other way round: the episodes that best-of-4 needs for its error,
    over 60.
    """
    means = errors.mean(axis=0)
    needed = episodes_needed(means[place], float(means[0, -1]))
    if np.isfinite(needed):
        return EPISODES[-1] / needed
    return episodes_needed(means[0], float(means[place, -1])) / EPISODES[-1]


def report(errors: Floats, information: Floats, ties: Floats, misread: Floats) -> None:
    """Print the tables; errors (runs, users, formats, episodes)."""
    rng = np.random.default_rng(0)
    draws = rng.integers(len(errors), size=(2000, len(errors)))
    for user, title in enumerate(USERS):
        told = "" if np.isnan(ties[0, user]) else f" ({100 * ties[:, user].mean():.0f}% ties under nu = 1)"
        print(f"\n{title}{told}: cosine error, mean over {len(errors)} runs")
        print(f"  {'episodes':16s}" + "".join(f"{episodes:>7d}" for episodes in EPISODES) + "   questions saved")
        for place, name in enumerate(FORMATS):
            mine = errors[:, user]
            if np.isnan(mine[:, place]).any():
                continue
            row = "".join(f"{value:7.3f}" for value in mine[:, place].mean(axis=0))
            if place == 0:
                print(f"  {name:16s}{row}")
                continue
            low, high = np.quantile([saving(mine[draw], place) for draw in draws], [0.025, 0.975])
            print(f"  {name:16s}{row}   {saving(mine, place):.2f}x ({low:.2f} to {high:.2f})")
    print("\nFisher information of the questions at the users' tastes (trace, best = 1), mean over the runs")
    print(f"  {'scale':16s}" + "".join(f"{name:>16s}" for name in list(FORMATS)[: TIES + 1]))
    for scale, row in zip((0, 5, 20, 50), information.mean(axis=0), strict=True):
        print(f"  {scale:<16d}" + "".join(f"{value:16.2f}" for value in row))
    print("\nBest or tie, 30 episodes: cosine error where the estimate assumes another nu than the users' 1")
    print(f"  {'assumed nu':16s}" + "".join(f"{nu:7g}" for nu in ASSUMED))
    for name, row in zip(("scale 20", "scale 5"), misread.mean(axis=0), strict=True):
        print(f"  {name:16s}" + "".join(f"{value:7.3f}" for value in row))


def main() -> None:
    """Run all users and formats, print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="seeds, each with its own sentence (default: 10)")
    arguments = parser.parse_args()
    _, encoder, tokens = training_tokens()
    features = tokens.astype(np.float64)
    base = GaussianPrior.from_embeddings(features, power=0.5, scale=1.0 / features.shape[1])
    print(f"{len(features)} training tokens, {encoder.name}, d = {features.shape[1]}, K = {K}, uniform questions")
    found = []
    for run in range(arguments.runs):
        begun = time.perf_counter()
        found.append(one_run(encoder, base, run))
        print(f"run {run}: {time.perf_counter() - begun:.0f} s", flush=True)
    errors, information, ties, misread = (np.stack(parts) for parts in zip(*found, strict=True))
    report(errors, information, ties, misread)


if __name__ == "__main__":
    main()
