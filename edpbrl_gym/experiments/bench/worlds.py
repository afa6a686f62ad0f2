"""What questions are made of and estimates are judged on: a vocabulary, its embeddings, held-out prompts, tastes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Floats32
from edpbrl_gym._places import write_atomically
from edpbrl_gym.features import PrecomputedEncoder, TextEncoder
from edpbrl_gym.features.memo import MemoEncoder, raw_encoder
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = [
    "World",
    "option_texts",
    "question_steps",
    "unit_rows",
    "vocabulary_folder",
    "world_file",
    "write_arrays",
    "write_vocabulary",
]


@dataclass(frozen=True, eq=False)
class World:
    """A prompt MDP with one kind of question, or a pool of items: an MDP of one step whose tokens are the items' names.

    Attributes:
        name: Such as "train-truncated-K4".
        vocabulary: From which questions and prompts are made.
        tokens: Embeddings of ``vocabulary.all_tokens``, (N, d).
        prompts: Embeddings of held-out prompts or items, (n, d).
        pairs: Pairs of them, (p, 2).
        held_out: Held-out questions, (m, K, d).
        tastes: theta* of each user, unit norm, (d,) each.
        encoder_spec: What makes the embeddings.
        fingerprint: Of that encoder.
        feedback: "truncated", "state" or "prompt".
        items: Whether it is a pool of items.
        pool: Embeddings of held-out prompts, (m, d), from which estimates of first answers choose; None elsewhere.
    """

    name: str
    vocabulary: Vocabulary
    tokens: Floats32
    prompts: Floats32
    pairs: NDArray[np.int64]
    held_out: Floats32
    tastes: dict[str, Floats]
    encoder_spec: str
    fingerprint: str
    feedback: str
    items: bool = False
    pool: Floats32 | None = None

    @property
    def question_steps(self) -> tuple[int, ...]:
        """The steps at which a user is asked: all, or the last one of complete prompts."""
        return question_steps(self.vocabulary, self.feedback)

    def encoder(self, texts: Sequence[str] = (), rows: Floats32 | None = None) -> MemoEncoder:
        """A new encoder with a memory of its own that knows the tokens: one for each unit of work.

        Args:
            texts: More texts that it knows.
            rows: Their embeddings, (n, d).
        """
        names = self.vocabulary.all_tokens
        inner: TextEncoder
        if self.items:
            inner = PrecomputedEncoder.from_arrays(names, self.tokens, name=self.name)
        else:
            inner = raw_encoder(self.encoder_spec, self.fingerprint)
        known = self.tokens if rows is None else np.concatenate([self.tokens, rows])
        return MemoEncoder(inner, texts=[*names, *texts], rows=known)

    def options(self, tokens: NDArray[np.int64], step: int, encoder: TextEncoder) -> Floats32:
        """What a user compares at a step, (n, d): prompts up to it, or its tokens.

        Args:
            tokens: Token index of each step, (n, H) or at least (n, step + 1).
            step: h, from 0.
            encoder: From ``encoder``.
        """
        return encoder.encode(option_texts(self.vocabulary, self.feedback, tokens, step))


def question_steps(vocabulary: Vocabulary, feedback: str) -> tuple[int, ...]:
    """The steps of an episode at which a user is asked."""
    return tuple(range(vocabulary.horizon))[-1 if feedback == "prompt" else 0 :]


def option_texts(vocabulary: Vocabulary, feedback: str, tokens: NDArray[np.int64], step: int) -> list[str]:
    """The texts of a step's options, for tokens (n, >= step + 1)."""
    if feedback == "state":
        return [vocabulary.tokens[step][index] for index in tokens[:, step].tolist()]
    steps = vocabulary.tokens[: step + 1]
    return [SEPARATOR.join(words[index] for words, index in zip(steps, row, strict=False)) for row in tokens.tolist()]


def unit_rows(rows: Floats) -> Floats:
    """The rows divided by their lengths."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def world_file(folder: Path, name: str) -> Path:
    """Where the embeddings of a world are kept."""
    return folder / "worlds" / f"{name}.npz"


def vocabulary_folder(folder: Path, name: str) -> Path:
    """Where a vocabulary is kept as token files, for environments."""
    return folder / "vocabularies" / name


def write_arrays(path: Path, **arrays: NDArray[np.generic]) -> None:
    """Write arrays to a file of the run folder, whole or not at all."""

    def save(name: Path) -> None:
        with open(name, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(path, save)


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Write token files that ``load_vocabulary`` reads."""
    for number, (name, words) in enumerate(zip(vocabulary.names, vocabulary.tokens, strict=True)):
        _write_lines(folder / f"{number}-{name}.txt", words)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_atomically(path, lambda name: name.write_text("\n".join(lines) + "\n", encoding="utf-8"))
