"""Embeddings that a run folder keeps for all its units, and what is measured with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._places import write_atomically
from edpbrl_gym.estimation.metrics import preference_error
from edpbrl_gym.vocabulary import Vocabulary


def unit_rows(rows: Floats) -> Floats:
    """The rows divided by their lengths."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def random_prompts(vocabulary: Vocabulary, count: int, rng: np.random.Generator) -> list[str]:
    """Complete prompts of uniformly random tokens."""
    tokens = np.stack([rng.integers(size, size=count) for size in vocabulary.sizes], axis=1)
    return [vocabulary.prompt(row) for row in tokens]


def world_file(folder: Path, name: str) -> Path:
    """Where the embeddings of a world are kept."""
    return folder / "worlds" / f"{name}.npz"


def write_arrays(path: Path, **arrays: NDArray[np.generic]) -> None:
    """Write arrays to a file of the run folder, whole or not at all."""

    def save(name: Path) -> None:
        with open(name, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(path, save)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what ``write_arrays`` has written."""
    with np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}


# -- measures ----------------------------------------------------------------------------------------------------------

_BEST = 10  # prompts that an estimate chooses


def order_error(estimated: NDArray[np.floating], true: NDArray[np.floating], pairs: NDArray[np.int64]) -> float:
    """Preference error of any utilities (n,): share of the pairs (p, 2) that the estimate puts in the wrong order."""
    both = np.stack([estimated, true], axis=1)  # utilities: two features of a prompt
    return preference_error([1.0, 0.0], [0.0, 1.0], both, pairs)


def regret_of_the_best(estimated: ArrayLike, true: ArrayLike, *, count: int = _BEST) -> float:
    """Share of the attainable gain that is lost by choosing the best prompts by an estimate.

        (mean of u over the truly best - mean of u over those with the largest estimate)
        / (mean of u over the truly best - mean of u over all)

    0 is perfect, 1 as good as random prompts. Of equal estimates the first ones are taken.

    Args:
        estimated: Estimated utilities of prompts, (n,).
        true: Their true utilities u, (n,), not all equal.
        count: Number of prompts chosen, at most n.
    """
    values = np.asarray(true, dtype=np.float64)
    best = np.sort(values)[::-1][:count].mean()
    chosen = np.argsort(-np.asarray(estimated, dtype=np.float64), kind="stable")[:count]
    return float((best - values[chosen].mean()) / (best - values.mean()))
