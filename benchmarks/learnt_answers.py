"""What a skip, a "can't tell" and a further tap teach in the first answers: docs/richer-answers.md.

    python -m benchmarks.learnt_answers [--seeds 2]    # some ten minutes on a quiet core

A run is a sentence for development with a seed: random questions about the built-in vocabulary's train part under
MiniLM, answered by a simulated user whose taste is the sentence's embedding. Three parts:

skips   users of scale 20 who skip where no option reaches the cosine 0.19 (the bench's regime "skips"), K = 4, partial
        and complete prompts: the skips ignored, or an outside option with a learnt offset; and users who never skip.
        Then users who skip a fifth of the complete prompts at random, whom the outside option misunderstands
ties    users of scale 20 who call ties by Davidson's model with several nu, K = 4, complete prompts: the ties left out,
        nu = 1 assumed, nu learnt, the true nu
taps    users who tap the best 1, 2, 3 or 8 of nine complete prompts in order

The estimate is ``VocabularyPrior`` in every case. Prints the preference error on held-out prompts; intervals are 95%
bootstrap intervals of the paired difference, by sentence, then seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.estimation import VocabularyPrior, learn_outside, learn_ties, preference_error, sample_pairs
from edpbrl_gym.experiments.bench.sentences import DEVELOPMENT
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.likelihood import BestOf, PartialRanking, Response, ResponseModel, WithTies
from edpbrl_gym.oracles import ImperfectUser
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

QUESTIONS = (24, 60)
FEW = (6, 12, 24)
SCALE, THRESHOLD, RANDOM_SKIPS = 20.0, 0.19, 0.2
NUS = (0.3, 1.0, 3.0)
TAPS = (1, 2, 3, 8)
MEDIAN_NU = "median nu learnt"

Errors = dict[tuple[str, ...], list[float]]


class World:
    """The vocabulary, the prior and the held-out prompts that all runs share."""

    def __init__(self) -> None:
        self.words, test = load_vocabulary().split(seed=0)
        self.encoder: TextEncoder = load_encoder("minilm")
        tokens = self.encoder.encode(self.words.all_tokens, progress=True).astype(np.float64)
        self.prior, self.centre = VocabularyPrior(tokens), tokens.mean(axis=0)
        sample = sample_pairs(test.sizes, prompts=1000, pairs=5000, rng=generator(0, "evaluation"))
        self.prompts = self.encoder.encode([test.prompt(row) for row in sample.tokens], progress=True)
        self.pairs = sample.pairs

    def questions(self, count: int, num_options: int, *, complete: bool, seed: int) -> Queries:
        """Random questions, in the order of their episodes."""
        words: Vocabulary = self.words
        rng = generator(seed, "questions", num_options, int(complete))
        horizon = words.horizon
        steps = [horizon - 1] * count if complete else [number % horizon for number in range(count)]
        episodes = list(range(count)) if complete else [number // horizon for number in range(count)]
        tokens = np.stack([rng.integers(size, size=(episodes[-1] + 1, num_options)) for size in words.sizes], axis=2)
        pairs = list(zip(episodes, steps, strict=True))
        texts = [words.prompt(lane[: step + 1]) for episode, step in pairs for lane in tokens[episode]]
        rows = self.encoder.encode(texts).reshape(count, num_options, -1)
        return Queries(rows, np.array(episodes), np.array(steps))

    def error(self, told: Comparisons, model: ResponseModel, theta: Floats) -> float:
        """Preference error of the estimate from these answers."""
        return preference_error(self.prior.fit(told.terms(model)).theta, theta, self.prompts, self.pairs)


def told(queries: Queries, responses: Sequence[Response], count: int) -> Comparisons:
    """The first answers."""
    return Comparisons(
        queries.features[:count], tuple(responses[:count]), queries.episode[:count], queries.step[:count]
    )


def judge_skips(
    world: World, part: Comparisons, theta: Floats, count: int, key: tuple[str, str], found: Errors
) -> None:
    """Errors with skips ignored, read as dislike, and read so only where that is more probable."""
    outside = learn_outside(part, base=world.prior.base, reference=world.centre)
    chosen = outside.model if outside.log_odds > 0 else BestOf()
    for name, value in (
        ("share skipped", 1.0 - len(part.answered) / count),
        ("ignored", world.error(part, BestOf(), theta)),
        ("learnt", world.error(part, outside.model, theta)),
        ("if odds > 1", world.error(part, chosen, theta)),
        ("share odds > 1", float(outside.log_odds > 0)),
    ):
        found.setdefault((*key, name), []).append(value)


def skips(world: World, theta: Floats, seed: int, found: Errors) -> None:
    """Users who skip what they dislike, and users who skip at random."""
    for kind, complete in (("partial", False), ("complete", True)):
        queries = world.questions(max(QUESTIONS), 4, complete=complete, seed=seed)
        given = {"mode": "sampled", "scale": SCALE, "seed": seed}
        answers = ImperfectUser(theta, skip_threshold=THRESHOLD, **given).answer(queries).responses  # type: ignore[arg-type]
        patient = ImperfectUser(theta, **given).answer(queries).responses  # type: ignore[arg-type]
        for count in QUESTIONS:
            part, key = told(queries, answers, count), (kind, str(count))
            judge_skips(world, part, theta, count, key, found)
            found.setdefault((*key, "never skips"), []).append(
                world.error(told(queries, patient, count), BestOf(), theta)
            )
        if not complete:
            continue
        chance = generator(seed, "random skips").random(len(queries)) < RANDOM_SKIPS
        careless = [Response.skip() if skip else answer for skip, answer in zip(chance, patient, strict=True)]
        for count in QUESTIONS:
            part, key = told(queries, careless, count), ("complete, at random", str(count))
            judge_skips(world, part, theta, count, key, found)


def ties(world: World, theta: Floats, seed: int, found: Errors) -> None:
    """Users who can't always tell."""
    queries = world.questions(max(QUESTIONS), 4, complete=True, seed=seed)
    for nu in NUS:
        user = ImperfectUser(theta, mode="sampled", scale=SCALE, response="ties", nu=nu, seed=seed)
        answers = user.answer(queries).responses
        for count in QUESTIONS:
            part, key = told(queries, answers, count), (f"nu {nu:g}", str(count))
            learnt = learn_ties(part, base=world.prior.base).model
            assert isinstance(learnt, WithTies)
            found.setdefault((*key, MEDIAN_NU), []).append(learnt.nu)
            share = sum(answer.kind == "tie" for answer in part.responses) / count
            found.setdefault((*key, "share of ties"), []).append(share)
            found.setdefault((*key, "left out"), []).append(world.error(part.decided, BestOf(), theta))
            for name, model in (("nu = 1", WithTies(1.0)), ("learnt", learnt), ("true nu", WithTies(nu))):
                found.setdefault((*key, name), []).append(world.error(part, model, theta))


def taps(world: World, theta: Floats, seed: int, found: Errors) -> None:
    """Users who tap the best of nine in order."""
    queries = world.questions(max(FEW), 9, complete=True, seed=seed)
    for name, mode in (("argmax", "argmax"), ("scale 20", "sampled")):
        for number in TAPS:
            user = ImperfectUser(theta, mode=mode, scale=SCALE, response="partial", taps=number, seed=seed)  # type: ignore[arg-type]
            answers = user.answer(queries).responses
            for count in FEW:
                error = world.error(told(queries, answers, count), PartialRanking(), theta)
                found.setdefault((name, str(count), f"{number} taps"), []).append(error)


def report(found: Errors, reference: str, sentences: int) -> None:
    """Print means and, of errors, the paired difference to the reference with its interval."""
    rng = np.random.default_rng(0)
    groups: dict[tuple[str, ...], dict[str, Floats]] = {}
    for key, values in found.items():
        groups.setdefault(key[:-1], {})[key[-1]] = np.array(values).reshape(sentences, -1)
    seeds = next(iter(next(iter(groups.values())).values())).shape[1]
    rows = rng.integers(sentences, size=(4000, sentences))
    columns = rng.integers(seeds, size=(4000, sentences, seeds))
    for group, columns_by_name in groups.items():
        print(f"\n{', '.join(group)} questions")
        for name, values in columns_by_name.items():
            line = f"  {name:16s} {np.median(values) if name == MEDIAN_NU else values.mean():.3f}"
            if reference in columns_by_name and name != reference and not name.startswith(("share", "median")):
                gap = values - columns_by_name[reference]
                draws = np.take_along_axis(gap[rows], columns, axis=2).mean(axis=(1, 2))
                low, high = np.quantile(draws, [0.025, 0.975])
                line += f"   {gap.mean():+.4f} [{low:+.4f}, {high:+.4f}] against {reference}"
            print(line)


def main() -> None:
    """Run the three parts and print their tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each of the 12 sentences (default: 2)")
    parser.add_argument("--part", choices=("skips", "ties", "taps"), nargs="*", default=["skips", "ties", "taps"])
    arguments = parser.parse_args()
    world, sentences = World(), list(DEVELOPMENT["images"].values())
    tastes = world.encoder.encode(sentences).astype(np.float64)
    parts = {"skips": (skips, "ignored"), "ties": (ties, "left out"), "taps": (taps, "1 taps")}
    for name in arguments.part:
        run, reference = parts[name]
        found: Errors = {}
        for number, taste in enumerate(tastes):
            for seed in range(arguments.seeds):
                run(world, taste / np.linalg.norm(taste), 7000 + 100 * seed + number, found)
        print(f"\n== {name}: {len(tastes)} sentences x {arguments.seeds} seeds, preference error")
        report(found, reference, len(tastes))


if __name__ == "__main__":
    main()
