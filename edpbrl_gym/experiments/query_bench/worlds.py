"""What questions are made of and estimates are judged on: vocabularies, their embeddings, held-out prompts, tastes.

A world (vocabulary, feedback, K) is encoded once, kept in the run folder, and read by every unit of work.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.experiments.query_bench.settings import SENTENCES, BenchSettings, Regime
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.memo import MemoEncoder, raw_encoder
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = [
    "World",
    "bench_vocabulary",
    "load_world",
    "near_duplicates",
    "option_texts",
    "prepare_world",
    "vocabulary_folder",
    "write_vocabulary",
]

_BEFORE = ("", "very ", "quite ", "really ", "rather ", "truly ", "somewhat ", "slightly ")
_AFTER = ("", " indeed", " of course", " as ever", " once more", " here")


@dataclass(frozen=True, eq=False)
class World:
    """One vocabulary with one kind of question.

    Attributes:
        name: Such as "train-truncated-K4".
        vocabulary: From which questions and prompts are made.
        tokens: Embeddings of ``vocabulary.all_tokens``, (N, d).
        prompts: Embeddings of held-out prompts, (n, d).
        pairs: Pairs of them, (p, 2).
        held_out: Held-out questions, (m, K, d).
        tastes: theta* of each sentence, unit norm, (d,) each.
        encoder_spec: What makes the embeddings.
        fingerprint: Of that encoder.
        feedback: "truncated" or "state".
    """

    name: str
    vocabulary: Vocabulary
    tokens: NDArray[np.float32]
    prompts: NDArray[np.float32]
    pairs: NDArray[np.int64]
    held_out: NDArray[np.float32]
    tastes: dict[str, NDArray[np.float64]]
    encoder_spec: str
    fingerprint: str
    feedback: str

    def encoder(self) -> MemoEncoder:
        """A new encoder with a memory of its own that knows the tokens: one for each unit of work."""
        inner = raw_encoder(self.encoder_spec, self.fingerprint)
        return MemoEncoder(inner, texts=self.vocabulary.all_tokens, rows=self.tokens)

    def options(self, tokens: NDArray[np.int64], step: int, encoder: TextEncoder) -> NDArray[np.float32]:
        """What a user compares at a step, (n, d): partial prompts up to it, or its tokens.

        Args:
            tokens: Token index of each step, (n, H) or at least (n, step + 1).
            step: h, from 0.
            encoder: From ``encoder``.
        """
        return encoder.encode(option_texts(self.vocabulary, self.feedback, tokens, step))


def option_texts(vocabulary: Vocabulary, feedback: str, tokens: NDArray[np.int64], step: int) -> list[str]:
    """The texts of a step's options, for tokens (n, >= step + 1)."""
    if feedback == "state":
        return [vocabulary.tokens[step][index] for index in tokens[:, step].tolist()]
    steps = vocabulary.tokens[: step + 1]
    return [SEPARATOR.join(words[index] for words, index in zip(steps, row, strict=False)) for row in tokens.tolist()]


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
        wanted = 4 * len(originals)
        seen = {fold(token) for token in originals}
        made: list[str] = []
        for variant in variants:
            for token in repeated:
                text = variant.format(token)
                if len(made) < wanted and fold(text) not in seen:
                    seen.add(fold(text))
                    made.append(text)
        steps.append((*originals, *made))
    return Vocabulary(vocabulary.names, tuple(steps))


def vocabulary_folder(folder: Path, name: str) -> Path:
    """Where a vocabulary is kept as token files, for environments."""
    return folder / "vocabularies" / name


def _material(folder: Path, name: str) -> Path:
    return folder / "worlds" / f"{name}.npz"


def prepare_world(
    settings: BenchSettings, regime: Regime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Encode a regime's world and write it to the run folder, unless it is there.

    Args:
        settings: Of the benchmark.
        regime: Whose world.
        encoder: With the cache on disk.
        folder: The run folder.
        progress: Show progress bars while texts are encoded.
    """
    path = _material(folder, regime.world)
    if path.is_file():
        return
    vocabulary, test = bench_vocabulary(settings, regime.vocabulary), bench_vocabulary(settings, "test")
    write_vocabulary(vocabulary_folder(folder, regime.vocabulary), vocabulary)
    rng = generator(settings.split_seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    prompts = encoder.encode([test.prompt(row) for row in sample.tokens], progress=progress)
    tastes = encoder.encode(list(SENTENCES.values())).astype(np.float64)
    tastes /= np.linalg.norm(tastes, axis=1, keepdims=True)
    arrays: dict[str, Any] = {
        "tokens": encoder.encode(vocabulary.all_tokens, progress=progress),
        "prompts": prompts,
        "pairs": sample.pairs,
        "held_out": _held_out(settings, regime, test, encoder, progress),
        "tastes": tastes,
    }

    def save(name: Path) -> None:
        with open(name, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(path, save)


def _held_out(
    settings: BenchSettings, regime: Regime, test: Vocabulary, encoder: TextEncoder, progress: bool
) -> NDArray[np.float32]:
    """Random questions from held-out words, at every step, (episodes * H, K, d)."""
    rng = generator(settings.split_seed, "held-out questions", regime.num_options)
    lanes = settings.held_out_episodes * regime.num_options
    tokens = np.stack([rng.integers(size, size=lanes) for size in test.sizes], axis=1)
    texts = [text for step in range(test.horizon) for text in option_texts(test, regime.feedback, tokens, step)]
    rows = encoder.encode(texts, progress=progress)
    return rows.reshape(-1, regime.num_options, rows.shape[1])


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Write token files that ``load_vocabulary`` reads."""
    for number, (name, words) in enumerate(zip(vocabulary.names, vocabulary.tokens, strict=True)):
        _write_text(folder / f"{number}-{name}.txt", words)


def _write_text(path: Path, lines: Sequence[str]) -> None:
    write_atomically(path, lambda name: name.write_text("\n".join(lines) + "\n", encoding="utf-8"))


def load_world(settings: BenchSettings, regime: Regime, folder: Path, fingerprint: str) -> World:
    """Read a world that ``prepare_world`` has written; each process keeps the last ones in memory."""
    return _load(settings, regime.world, regime.vocabulary, regime.feedback, folder, fingerprint)


@functools.lru_cache(maxsize=8)
def _load(settings: BenchSettings, name: str, vocabulary: str, feedback: str, folder: Path, fingerprint: str) -> World:
    with np.load(_material(folder, name)) as data:
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
