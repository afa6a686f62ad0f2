"""Prompt MDPs: vocabularies, and what is encoded of them once and kept in the run folder for every unit of work."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from edpbrl_gym._arrays import Floats32
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.experiments.bench.settings import SENTENCES, BenchSettings, Regime
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
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["bench_vocabulary", "load_prompts", "near_duplicates", "prepare_prompts"]

_BEFORE = ("", "very ", "quite ", "really ", "rather ", "truly ", "somewhat ", "slightly ")
_AFTER = ("", " indeed", " of course", " as ever", " once more", " here")


def bench_vocabulary(settings: BenchSettings, name: str) -> Vocabulary:
    """Return the vocabulary "train", "test", "small" or "skewed" of the settings; the same whenever it is called."""
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
    if path.is_file():
        return
    vocabulary, test = bench_vocabulary(settings, regime.vocabulary), bench_vocabulary(settings, "test")
    write_vocabulary(vocabulary_folder(folder, regime.vocabulary), vocabulary)
    rng = generator(settings.split_seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    prompts = encoder.encode([test.prompt(row) for row in sample.tokens], progress=progress)
    tastes = encoder.encode(list(SENTENCES.values())).astype(np.float64)
    write_arrays(
        path,
        tokens=encoder.encode(vocabulary.all_tokens, progress=progress),
        prompts=prompts,
        pairs=sample.pairs,
        held_out=_held_out(settings, regime, test, encoder, progress),
        tastes=unit_rows(tastes),
    )


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
    with np.load(world_file(folder, name)) as data:
        arrays = {key: data[key] for key in data.files}
    return World(
        name=name,
        vocabulary=bench_vocabulary(settings, vocabulary),
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        pairs=arrays["pairs"],
        held_out=arrays["held_out"],
        tastes=dict(zip(SENTENCES, arrays["tastes"], strict=True)),
        encoder_spec=settings.encoder,
        fingerprint=fingerprint,
        feedback=feedback,
    )
