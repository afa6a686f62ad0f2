"""A small vocabulary folder for tests of experiments and the command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from edpbrl_gym.features import save_precomputed
from edpbrl_gym.vocabulary import load_vocabulary

TOKENS = {
    "1-bases": ("a lighthouse", "an old fisherman", "a red bicycle", "a quiet harbour", "a fox", "a market stall",
                "a mountain hut", "a violin"),
    "2-ambient": ("cheerful", "melancholic", "before a thunderstorm", "first snow", "solemn", "hot afternoon",
                  "foggy morning", "festive"),
    "3-lighting": ("golden hour light", "blue hour", "candlelit", "hard noon sun", "neon glow", "moonlight",
                   "backlit", "overcast"),
}  # fmt: skip


def write_vocabulary(folder: Path) -> Path:
    """Write three files with eight tokens each; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in TOKENS.items():
        (folder / f"{name}.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return folder


def write_embedded(place: Path, sentences: Iterable[str] = ()) -> tuple[str, str]:
    """Write the vocabulary and the embeddings of its partial prompts: sums of token vectors, bent a little; d = 10.

    Args:
        place: For both.
        sentences: Of users, embedded too.

    Returns:
        The vocabulary's folder and the name of the encoder.
    """
    words = load_vocabulary(write_vocabulary(place / "vocabulary"))
    rng = np.random.default_rng(0)
    vectors = {token: rng.normal(size=10) for token in words.all_tokens}
    rows = dict(vectors)
    for length in (2, 3):
        for tokens in itertools.product(*words.tokens[:length]):
            rows[", ".join(tokens)] = np.sum([vectors[token] for token in tokens], axis=0) + 0.3 * rng.normal(size=10)
    for text in sentences:
        rows.setdefault(text, rng.normal(size=10))
    save_precomputed(place / "embeddings.npz", list(rows), np.stack(list(rows.values())))
    return str(place / "vocabulary"), f"precomputed:{place / 'embeddings.npz'}"
