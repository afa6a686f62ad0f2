"""The people of a community and the new ones: tastes, questions and answers, and what estimates are judged on.

A taste is a unit vector: a style's centred embedding and an individual part, the direction of the mean of three random
tokens of the vocabulary, centred too. Answers are the best option, or sampled by the multinomial logit at a scale.
Tastes, questions and the noise of answers are the same in all regimes of a vocabulary, and for all estimators and
rules: whoever asks a person the same question gets the same answer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.communities.settings import KINDS, NUM_OPTIONS, CommunitySettings, CommunityUnit
from benchmarks.kit.sentences import UNSEEN
from benchmarks.kit.worlds import (
    order_error,
    random_prompts,
    read_arrays,
    regret_of_the_best,
    unit_rows,
    world_file,
    write_arrays,
)
from benchmarks.people.data import Person
from benchmarks.people.estimators import Fit
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.vocabulary import load_vocabulary

INDIVIDUAL = 0.5
"""Length of the individual part of a taste, relative to its style."""

_TOKENS = 3  # of an individual part
_DEVELOPMENT = 1000  # added to the seed


@dataclass(frozen=True, eq=False)
class CommunityWorld:
    """A vocabulary as a community sees it."""

    tokens: NDArray[np.float32]  # embeddings of the training vocabulary, (N, d)
    shown: Floats  # embeddings of the prompts of which questions consist, (n, d)
    prompts: NDArray[np.float32]  # embeddings of held-out prompts, (m, d)
    pairs: NDArray[np.int64]  # of them, (p, 2)
    pool: NDArray[np.float32]  # embeddings of the held-out prompts of which an estimate chooses ten
    held_out: Floats  # questions about held-out prompts, (q, K, d)
    styles: Floats  # unit-norm centred embeddings of the styles, the unseen ones last, (s, d)
    centred: Floats  # embeddings of the tokens minus their mean, (N, d)


def prepare_world(
    settings: CommunitySettings, words: str, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Encode the world of a built-in vocabulary and write it to the run folder, unless it is there."""
    path = world_file(folder, words)
    if path.is_file():
        return
    train, test = load_vocabulary(words).split(settings.seed, by="head")
    rng = generator(settings.seed, "communities", words, "prompts")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    more = random_prompts(test, max(0, settings.pool - len(sample.tokens)), rng)
    held_out = [test.prompt(row) for row in sample.tokens] + more
    texts = [train.all_tokens, random_prompts(train, settings.shown, rng), held_out, [*settings.styles(words).values()]]
    tokens, shown, pool, styles = (encoder.encode(part, progress=progress) for part in texts)
    prompts = pool[: len(sample.tokens)]
    write_arrays(path, tokens=tokens, shown=shown, prompts=prompts, pairs=sample.pairs, pool=pool, styles=styles)


@functools.lru_cache(maxsize=2)
def load_world(settings: CommunitySettings, words: str, folder: Path) -> CommunityWorld:
    """Read what ``prepare_world`` has written; each process keeps the last worlds in memory."""
    arrays: dict[str, Any] = read_arrays(world_file(folder, words))
    tokens = arrays["tokens"].astype(np.float64)
    middle, pool = tokens.mean(axis=0), arrays["pool"]
    rng = generator(settings.seed, "communities", words, "held out")
    return CommunityWorld(
        tokens=arrays["tokens"],
        shown=arrays["shown"].astype(np.float64),
        prompts=arrays["prompts"],
        pairs=arrays["pairs"],
        pool=pool,
        held_out=pool[_questions(len(pool), settings.held_out, rng)].astype(np.float64),
        styles=unit_rows(arrays["styles"].astype(np.float64) - middle),
        centred=tokens - middle,
    )


def _questions(size: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random questions of K different prompts out of ``size``, (count, K)."""
    return np.stack([rng.choice(size, size=NUM_OPTIONS, replace=False) for _ in range(count)])


@dataclass(frozen=True, eq=False)
class NewPerson:
    """A person whom nobody has asked yet."""

    kind: str  # one of ``KINDS``
    number: int  # among the new people of the kind
    taste: Floats  # unit norm, (d,)
    candidates: Person  # the questions that may be asked, in random order, with the person's answers


def draw_taste(world: CommunityWorld, kind: str, number: int, rng: np.random.Generator) -> Floats:
    """A taste of unit norm, (d,); people take the styles in turn. Those of the community are of the first kind."""
    if kind == "atypical":
        return unit_rows(np.asarray(rng.normal(size=world.styles.shape[1])))
    styles = world.styles[-UNSEEN:] if kind == "unseen style" else world.styles[:-UNSEEN]
    own: Floats = np.mean(world.centred[rng.choice(len(world.centred), size=_TOKENS, replace=False)], axis=0)
    taste: Floats = styles[number % len(styles)] + INDIVIDUAL * unit_rows(own)
    return unit_rows(taste)


def known_people(settings: CommunitySettings, unit: CommunityUnit, world: CommunityWorld) -> list[Terms]:
    """The answers of the people of the community."""
    kind = next(iter(KINDS))
    return [
        _answered(settings, unit, world, "known", kind, number, settings.questions)[1].terms()
        for number in range(settings.people)
    ]


def new_people(settings: CommunitySettings, unit: CommunityUnit, world: CommunityWorld) -> list[NewPerson]:
    """The new people, kind after kind."""
    return [
        NewPerson(kind, number, *_answered(settings, unit, world, "new", kind, number, settings.candidates))
        for kind in KINDS
        for number in range(settings.new)
    ]


def _answered(
    settings: CommunitySettings,
    unit: CommunityUnit,
    world: CommunityWorld,
    group: str,
    kind: str,
    number: int,
    questions: int,
) -> tuple[Floats, Person]:
    """A person's taste, and random questions with the person's answers."""
    seed = settings.seed + (_DEVELOPMENT if settings.development else 0)
    rng = generator(seed, "communities", unit.words, group, kind, number)
    taste = draw_taste(world, kind, number, rng)
    options = world.shown[_questions(len(world.shown), questions, rng)]
    utilities, noise = options @ taste, rng.gumbel(size=options.shape[:2])
    chosen = (utilities if np.isinf(unit.scale) else unit.scale * utilities + noise).argmax(axis=1)
    return taste, Person(f"{kind} {number}", options, chosen)


def measure(fit: Fit, world: CommunityWorld, taste: Floats, scale: float) -> dict[str, float]:
    """How well a taste is known.

    - preference_error: share of pairs of held-out prompts that the estimate orders wrongly;
    - regret_ten: share of the attainable gain that is lost by choosing ten held-out prompts by the estimate;
    - log_likelihood: of the answers to held-out questions, in nats: the expectation over the person's answers.

    Args:
        fit: The estimate and what it predicts.
        world: With the held-out prompts.
        taste: The true one, unit norm, (d,).
        scale: Inverse temperature of the answers; infinity: the best option.
    """
    prompts, pool = world.prompts, world.pool
    utilities = world.held_out @ taste
    if np.isinf(scale):
        truth = (utilities == utilities.max(axis=1, keepdims=True)).astype(np.float64)
    else:
        truth = np.exp(scale * (utilities - utilities.max(axis=1, keepdims=True)))
    truth /= truth.sum(axis=1, keepdims=True)
    predicted = np.clip(fit.probabilities(world.held_out), np.finfo(np.float64).tiny, 1.0)
    return {
        "preference_error": order_error(prompts @ fit.theta, prompts.astype(np.float64) @ taste, world.pairs),
        "regret_ten": regret_of_the_best(pool @ fit.theta, pool.astype(np.float64) @ taste),
        "log_likelihood": float((truth * np.log(predicted)).sum(axis=1).mean()),
    }
