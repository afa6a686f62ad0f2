"""Features to solve on: the built-in vocabulary under MiniLM, and synthetic ones of any size, kept in .npy files.

Every synthetic source is drawn from a seed, in float32:

    clip          x = mean + cluster + noise, scaled to unit norm: one mean vector of squared norm 0.7, one of 100
                  random directions of squared norm 0.1, Gaussian noise of expected squared norm 0.2 whose variance
                  along the j-th axis of a random basis is proportional to 1/j; so two texts have a cosine of 0.7 on
                  average (0.8 within a cluster), as CLIP's text encoder gives to short phrases
    decaying      Gaussian, variance along the j-th axis of a random basis proportional to 1/j, scaled to unit norm
    isotropic     Gaussian directions: no structure at all, the case where nearly every token carries mass
    clustered     one of 100 random directions of squared norm 0.95 and Gaussian noise of 0.05, scaled to unit norm
    heavy-tailed  multivariate t with 3 degrees of freedom, in units of sqrt(d): a few rows are many times as long

A source may end in "+float16": its rows rounded to float16.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

__all__ = ["Vocabulary", "default_folder", "features_file", "prepare"]

CLUSTERS = 100
EXPONENT = 1.0  # of the noise's variances
FREEDOM = 3.0  # of the heavy tails
CHUNK = 4096  # rows drawn at once, each chunk from its own seed: a vocabulary is the beginning of any larger one
SEED = 2026
SHARES = {"clip": (0.7, 0.1, 0.2), "decaying": (0.0, 0.0, 1.0), "clustered": (0.0, 0.95, 0.05)}
"""Squared norms of the mean, the clusters and the noise."""
PLAIN = ("isotropic", "heavy-tailed")
SYNTHETIC = (*SHARES, *PLAIN)


@dataclass(frozen=True)
class Vocabulary:
    """Feature rows on disk.

    Attributes:
        features: Shape (n, d), float32, memory-mapped.
        sizes: Tokens of each distinct vocabulary; they sum to n.
    """

    features: NDArray[np.float32]
    sizes: tuple[int, ...]

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Rows of each distinct vocabulary."""
        ends = np.cumsum(self.sizes)
        return tuple(slice(int(end - size), int(end)) for end, size in zip(ends, self.sizes, strict=True))


def default_folder() -> Path:
    """Where features are kept between runs: in the system's temporary folder."""
    return Path(tempfile.gettempdir()) / "edpbrl-benchmarks"


def features_file(source: str, tokens: int, dimension: int, seed: int, folder: Path) -> Path:
    """The file that holds a vocabulary's features."""
    return folder / f"{source}-{tokens}x{dimension}-{seed}.npy"


def prepare(source: str, tokens: int, dimension: int, split: int, seed: int, folder: Path) -> Vocabulary:
    """Open a vocabulary, making its file first where there is none.

    Args:
        source: "minilm" (the built-in training vocabulary, 3,869 x 384 in six parts) or a synthetic one.
        tokens: n.
        dimension: d.
        split: Number of distinct vocabularies.
        seed: Of synthetic features.
        folder: Where the files are.

    Raises:
        ValueError: If the source is unknown, or the built-in vocabulary has not the size asked for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = features_file(source, tokens, dimension, seed, folder)
    if source == "minilm":
        if not path.exists():
            _write_builtin(path, tokens, dimension, split)
        sizes = tuple(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
    elif source.split("+")[0] in SYNTHETIC and source.partition("+")[2] in ("", "float16"):
        if not path.exists():
            _write_synthetic(path, source, tokens, dimension, seed)
        sizes = tuple(len(part) for part in np.array_split(np.arange(tokens), split))
    else:
        known = ", ".join(("minilm", *SYNTHETIC))
        raise ValueError(f'Expected a source of {known}, perhaps with "+float16", got {source!r}.')
    return Vocabulary(np.load(path, mmap_mode="r", allow_pickle=False), sizes)


def _write_builtin(path: Path, tokens: int, dimension: int, split: int) -> None:
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.vocabulary import load_vocabulary

    vocabulary, _ = load_vocabulary().split(seed=0)
    features = np.asarray(load_encoder("minilm").encode(list(vocabulary.all_tokens)), dtype=np.float32)
    if features.shape != (tokens, dimension) or len(vocabulary.sizes) != split:
        raise ValueError(
            f"Expected the built-in training vocabulary to have {tokens} tokens x {dimension} in {split} parts, got "
            f"{features.shape} in {len(vocabulary.sizes)}; correct the case in benchmarks/solvers/suites.py."
        )
    path.with_suffix(".json").write_text(json.dumps(list(vocabulary.sizes)), encoding="utf-8")
    part = path.with_suffix(f".{os.getpid()}.part")
    with open(part, "wb") as file:
        np.save(file, features)
    os.replace(part, path)


def _write_synthetic(path: Path, source: str, tokens: int, dimension: int, seed: int) -> None:
    """Draw the rows chunk by chunk straight into the file: no more memory than a chunk, whatever the size."""
    part = path.with_suffix(f".{os.getpid()}.part")
    rows = open_memmap(part, mode="w+", dtype=np.float32, shape=(tokens, dimension))
    kind, _, change = source.partition("+")
    rng = np.random.default_rng([seed, dimension])
    shares = SHARES.get(kind, (0.0, 0.0, 1.0))
    mean = np.sqrt(shares[0]) * _directions(rng, 1, dimension)
    centres = np.sqrt(shares[1]) * _directions(rng, CLUSTERS, dimension)
    variances = np.ones(dimension) if kind == "clustered" else np.arange(1, dimension + 1) ** -EXPONENT
    basis = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0].T
    noise = (np.sqrt(shares[2] * variances / variances.sum())[:, None] * basis).astype(np.float32)
    for number, begin in enumerate(range(0, tokens, CHUNK)):
        own = np.random.default_rng([seed, dimension, number])
        chunk = own.standard_normal((CHUNK, dimension), dtype=np.float32)
        if kind in SHARES:
            chunk = chunk @ noise
            chunk += mean + centres[own.integers(CLUSTERS, size=CHUNK)]
        if kind == "heavy-tailed":
            chunk /= np.sqrt(dimension * own.chisquare(FREEDOM, size=(CHUNK, 1)) / FREEDOM).astype(np.float32)
        else:
            chunk /= np.linalg.norm(chunk, axis=1, keepdims=True)
        if change == "float16":
            chunk = chunk.astype(np.float16).astype(np.float32)
        rows[begin : begin + CHUNK] = chunk[: tokens - begin]
    rows.flush()
    del rows
    os.replace(part, path)


def _directions(rng: np.random.Generator, count: int, dimension: int) -> NDArray[np.float32]:
    drawn = rng.standard_normal((count, dimension))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
