"""Prompt MDPs: vocabularies, and what is encoded of them once and kept in the run folder for every unit of work."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import SENTENCES, BenchSettings
from edpbrl_gym.experiments.bench.tastes import prepare_directions
from edpbrl_gym.experiments.bench.worlds import (
    World,
    option_texts,
    unit_rows,
    vocabulary_folder,
    world_file,
    write_arrays,
    write_vocabulary,
)
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import BUILT_IN, Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["bench_vocabulary", "load_prompts", "near_duplicates", "prepare_prompts"]

_BEFORE = ("", "very ", "quite ", "really ", "rather ", "truly ", "somewhat ", "slightly ")
_AFTER = ("", " indeed", " of course", " as ever", " once more", " here")


def bench_vocabulary(settings: BenchSettings, name: str) -> Vocabulary:
    """Return a vocabulary, the same whenever it is called.

    Args:
        settings: Of the benchmark.
        name: "train", "test", "small" or "skewed" of the settings' vocabulary; or a built-in one, "images" or
            "interiors", its train split by head word, and "images-test" or "interiors-test".
    """
    words, _, part = name.partition("-")
    if words in BUILT_IN:
        return load_vocabulary(words).split(settings.split_seed, by="head")[part == "test"]
    train, test = load_vocabulary(settings.vocabulary).split(settings.split_seed)
    if name == "test":
        return test
    if name == "small":
        return train.subset(settings.small_per_step, settings.split_seed)
    if name == "skewed":
        return near_duplicates(train, settings.skewed_per_step, settings.split_seed)
    return train


def near_duplicates(vocabulary: Vocabulary, per_step: int, seed: int) -> Vocabulary:
    """Return a vocabulary in which 80% of the tokens of each step are near-duplicates of a few others.

    Of every step one token in five of ``per_step`` is an original, drawn from the step's tokens; one original in ten
    (at least one) is repeated with small words before and behind it ("very foggy", "quite foggy indeed") until the
    step is full. Random questions then mostly compare the same thing with itself.

    Args:
        vocabulary: Where the originals come from.
        per_step: Tokens of each step, at least 10.
        seed: Of the drawn originals.
    """
    variants = [f"{before}{{}}{after}" for before in _BEFORE for after in _AFTER][1:]
    steps = []
    for originals in vocabulary.subset(max(2, per_step // 5), seed).tokens:
        repeated = originals[: max(1, len(originals) // 10)]
        count = 4 * len(originals)
        folded = {fold(token) for token in originals}
        duplicates: list[str] = []
        for variant in variants:
            for token in repeated:
                text = variant.format(token)
                if len(duplicates) < count and fold(text) not in folded:
                    folded.add(fold(text))
                    duplicates.append(text)
        steps.append((*originals, *duplicates))
    return Vocabulary(vocabulary.names, tuple(steps))


def prepare_prompts(
    settings: BenchSettings, regime: Regime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Encode the world of a regime with prompts and write it to the run folder, unless it is there; see ``prepare``."""
    path = world_file(folder, regime.world)
    if regime.first:
        train = bench_vocabulary(settings, regime.vocabulary)
        prepare_directions(regime.taste, regime.vocabulary, train, encoder, folder, development=settings.development)
    if path.is_file():
        return
    vocabulary = bench_vocabulary(settings, regime.vocabulary)
    test = bench_vocabulary(settings, f"{regime.vocabulary}-test" if regime.first else "test")
    write_vocabulary(vocabulary_folder(folder, regime.vocabulary), vocabulary)
    rng = generator(settings.split_seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    prompts = encoder.encode([test.prompt(row) for row in sample.tokens], progress=progress)
    shared: dict[str, NDArray[Any]] = {
        "tokens": encoder.encode(vocabulary.all_tokens, progress=progress),
        "prompts": prompts,
        "pairs": sample.pairs,
    }
    if regime.first:
        write_arrays(path, **shared, pool=_pool(settings, test, prompts, encoder, progress))
        return
    tastes = encoder.encode(list(SENTENCES.values())).astype(np.float64)
    held_out = _held_out(settings, regime, test, encoder, progress)
    write_arrays(path, **shared, held_out=held_out, tastes=unit_rows(tastes))


def _pool(
    settings: BenchSettings, test: Vocabulary, prompts: Floats32, encoder: TextEncoder, progress: bool
) -> Floats32:
    """The held-out prompts of the preference error and random ones, ``settings.pool`` together."""
    rng = generator(settings.split_seed, "pool")
    more = max(0, settings.pool - len(prompts))
    tokens = np.stack([rng.integers(size, size=more) for size in test.sizes], axis=1)
    rows = encoder.encode([test.prompt(row) for row in tokens], progress=progress)
    return np.concatenate([prompts, rows])[: settings.pool]


def _held_out(
    settings: BenchSettings, regime: Regime, test: Vocabulary, encoder: TextEncoder, progress: bool
) -> Floats32:
    """Random questions from held-out words, at every step, (episodes * H, K, d)."""
    rng = generator(settings.split_seed, "held-out questions", regime.num_options)
    lanes = max(1, settings.held_out_questions // test.horizon) * regime.num_options
    tokens = np.stack([rng.integers(size, size=lanes) for size in test.sizes], axis=1)
    texts = [text for step in range(test.horizon) for text in option_texts(test, regime.feedback, tokens, step)]
    rows = encoder.encode(texts, progress=progress)
    return rows.reshape(-1, regime.num_options, rows.shape[1])


def load_prompts(settings: BenchSettings, regime: Regime, folder: Path, fingerprint: str) -> World:
    """Read what ``prepare_prompts`` has written; each process keeps the last worlds in memory."""
    return _load(settings, regime.world, regime.vocabulary, regime.feedback, folder, fingerprint)


@functools.lru_cache(maxsize=8)
def _load(settings: BenchSettings, name: str, vocabulary: str, feedback: str, folder: Path, fingerprint: str) -> World:
    with np.load(world_file(folder, name), allow_pickle=False) as data:
        arrays = {key: data[key] for key in data.files}
    return World(
        name=name,
        vocabulary=bench_vocabulary(settings, vocabulary),
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        pairs=arrays["pairs"],
        held_out=arrays["held_out"] if "held_out" in arrays else arrays["prompts"][:0, None],
        tastes=dict(zip(SENTENCES, arrays["tastes"], strict=True)) if "tastes" in arrays else {},
        encoder_spec=settings.encoder,
        fingerprint=fingerprint,
        feedback=feedback,
        pool=arrays.get("pool"),
    )
