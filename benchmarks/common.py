"""What several benchmarks share: command line, CPU times, the training vocabulary under MiniLM, items."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

__all__ = ["PROGRAM", "clustered_items", "fastest", "make_parser", "show", "training_tokens"]

POOL_SEED = 1000
PROGRAM = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"
"""The command line, for ``python -c``."""


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that shows the benchmark's docstring as it is written."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def show(table: TextTable, *, width: int = 160) -> None:
    """Print a table."""
    Console(width=width).print(table.rich())


def fastest(call: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds of a call, the least of some repeats."""
    seconds = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def training_tokens() -> tuple[Vocabulary, TextEncoder, NDArray[np.float32]]:
    """The training part of the built-in vocabulary, MiniLM, and the embeddings of all tokens (N, d)."""
    vocabulary, _ = load_vocabulary().split(seed=0)
    encoder = load_encoder("minilm")
    return vocabulary, encoder, encoder.encode(list(vocabulary.all_tokens), progress=True)


def clustered_items(count: int, dimension: int) -> NDArray[np.float64]:
    """Items (n, d) of unit norm around n / 25 centres, with a decaying spectrum like that of text embeddings."""
    rng = np.random.default_rng(POOL_SEED)
    spread = np.arange(1, dimension + 1) ** -0.5
    centres = rng.normal(size=(max(1, count // 25), dimension)) * spread
    items = centres[rng.integers(len(centres), size=count)] + 0.7 * rng.normal(size=(count, dimension)) * spread
    return np.asarray(items / np.linalg.norm(items, axis=1, keepdims=True))
