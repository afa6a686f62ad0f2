"""What a community's questions are made of and estimates are judged on; encoded once and kept in the run folder."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.experiments.bench.worlds import World, unit_rows, world_file, write_arrays
from edpbrl_gym.experiments.communities.settings import NUM_OPTIONS, CommunitySettings
from edpbrl_gym.experiments.communities.styles import style_sentences
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

__all__ = ["CommunityWorld", "distinct_rows", "load_world", "prepare_world"]


@dataclass(frozen=True, eq=False)
class CommunityWorld:
    """A vocabulary as a community sees it.

    Attributes:
        judged: Tokens of the training vocabulary and held-out prompts, as the scorer of first answers takes them.
        shown: Embeddings of the prompts of which questions consist, (n, d).
        held_out: Questions about held-out prompts, (m, K, d).
        styles: Unit-norm centred embeddings of the styles, the unseen ones last, (s, d).
        centred: Embeddings of the training vocabulary's tokens minus their mean, (N, d).
    """

    judged: World
    shown: Floats
    held_out: Floats
    styles: Floats
    centred: Floats


def distinct_rows(size: int, questions: int, rng: np.random.Generator) -> np.ndarray:
    """Random questions of K different prompts out of ``size``, (questions, K)."""
    return np.stack([rng.choice(size, size=NUM_OPTIONS, replace=False) for _ in range(questions)])


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
    more = _random_prompts(test, max(0, settings.pool - len(sample.tokens)), rng)
    held_out = [test.prompt(row) for row in sample.tokens] + more
    sentences = list(style_sentences(words, development=settings.development).values())
    texts = [train.all_tokens, _random_prompts(train, settings.shown, rng), held_out, sentences]
    tokens, shown, pool, styles = (encoder.encode(part, progress=progress) for part in texts)
    prompts = pool[: len(sample.tokens)]
    write_arrays(path, tokens=tokens, shown=shown, prompts=prompts, pairs=sample.pairs, pool=pool, styles=styles)


def _random_prompts(vocabulary: Vocabulary, count: int, rng: np.random.Generator) -> list[str]:
    tokens = np.stack([rng.integers(size, size=count) for size in vocabulary.sizes], axis=1)
    return [vocabulary.prompt(row) for row in tokens]


@functools.lru_cache(maxsize=2)
def load_world(settings: CommunitySettings, words: str, folder: Path) -> CommunityWorld:
    """Read what ``prepare_world`` has written; each process keeps the last worlds in memory."""
    with np.load(world_file(folder, words), allow_pickle=False) as data:
        arrays = {key: data[key] for key in data.files}
    tokens = arrays["tokens"].astype(np.float64)
    middle = tokens.mean(axis=0)
    pool = arrays["pool"]
    judged = World(
        name=words,
        vocabulary=load_vocabulary(words).split(settings.seed, by="head")[0],
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        pairs=arrays["pairs"],
        held_out=pool[:0, None],
        tastes={},
        encoder_spec=settings.encoder,
        fingerprint="",
        feedback="prompt",
        pool=pool,
    )
    questions = distinct_rows(len(pool), settings.held_out, generator(settings.seed, "communities", words, "held out"))
    return CommunityWorld(
        judged=judged,
        shown=arrays["shown"].astype(np.float64),
        held_out=pool[questions].astype(np.float64),
        styles=unit_rows(arrays["styles"].astype(np.float64) - middle),
        centred=tokens - middle,
    )
