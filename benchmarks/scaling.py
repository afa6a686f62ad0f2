"""What designs, estimates, encoding and workers cost as each size grows by itself: docs/scaling.md.

    OMP_NUM_THREADS=1 python -m benchmarks.scaling [--only tokens dimension ...]

Each row runs in a process of its own: CPU seconds of one thread, the fastest of three repeats, and the peak memory of
the process over that of one that only imports. Features are float32 rows in a memory-mapped file, unit norm, a common
mean and decaying variances. "slope" is that of log seconds against log size between neighbouring rows: 1 is linear.

A design is for 20,000 tokens, d = 256, six vocabularies, K = 4, T = 10, lambda = 10, criterion D, to a gap of 1e-4 of
the gain; "answers" an estimate with a ridge of 1, d = 384, K = 4; "texts" what the cache and the .npy file of
`edpbrl encode` add to the encoder (an encoder that costs next to nothing, d = 384); "workers" MiniLM on 4,096 texts in
as many processes, CPU seconds of all together with their start, once.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import clustered_items, fastest, make_parser
from benchmarks.solvers.worker import peak_memory

DESIGN = {"tokens": 20_000, "dimension": 256, "steps": 6, "options": 4, "episodes": 10}
AXES: dict[str, tuple[int, ...]] = {
    "tokens": (5_000, 20_000, 80_000, 320_000),
    "dimension": (64, 128, 256, 512),
    "steps": (1, 6, 24, 96),
    "options": (2, 4, 8, 16),
    "episodes": (1, 10, 100, 1_000),
    "answers": (60, 240, 960, 3_840),
    "texts": (10_000, 40_000, 160_000),
    "workers": (1, 2, 4),
}
NAMES = {
    "tokens": "tokens", "dimension": "dimension d", "steps": "steps H", "options": "options K",
    "episodes": "episodes T", "answers": "answers", "texts": "texts", "workers": "workers",
}  # fmt: skip
CHUNK = 8192


class QuickEncoder:
    """Rows that cost next to nothing: one of a thousand, by the text's length and last letters."""

    name = "benchmarks.scaling:QuickEncoder"
    dimension = 384
    fingerprint = "0123abcd" * 8

    def __init__(self) -> None:
        rows = np.random.default_rng(0).standard_normal((1000, self.dimension), dtype=np.float32)
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Rows of texts."""
        return self._rows[[int(text[-3:]) for text in texts]]


def write_rows(path: Path, tokens: int, dimension: int) -> NDArray[np.float32]:
    """Features in a file, as a memory map."""
    rng = np.random.default_rng(0)
    spread = np.arange(1, dimension + 1, dtype=np.float32) ** -0.4
    mean = rng.standard_normal(dimension, dtype=np.float32)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(tokens, dimension))
    for start in range(0, tokens, CHUNK):
        block = rng.standard_normal((min(CHUNK, tokens - start), dimension), dtype=np.float32) * spread + mean
        rows[start : start + CHUNK] = block / np.linalg.norm(block, axis=1, keepdims=True)
    rows.flush()
    del rows
    loaded: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    return loaded


def design(folder: Path, tokens: int, dimension: int, steps: int, options: int, episodes: int) -> float:
    """Seconds of a design."""
    from edpbrl_gym.design import DesignProblem, make_criterion, newton
    from edpbrl_gym.mdp import PromptMDP

    rows = write_rows(folder / "rows.npy", tokens, dimension)
    sizes = tuple(len(part) for part in np.array_split(np.arange(tokens), steps))

    def solve() -> None:
        problem = DesignProblem(
            mdp=PromptMDP(sizes), features=rows, num_policies=options, episodes=episodes,
            criterion=make_criterion("D"), regularization=10.0,
        )  # fmt: skip
        assert newton(problem, tolerance=1e-4).relative_gap <= 1e-4

    return fastest(solve)


def answers(count: int) -> float:
    """Seconds of an estimate."""
    from edpbrl_gym.estimation import estimate

    rng = np.random.default_rng(0)
    shown = clustered_items(5_000, 384)[rng.integers(5_000, size=(count, 4))]
    utility = shown @ (20.0 * rng.standard_normal(384) / math.sqrt(384)) + rng.gumbel(size=(count, 4))
    choices = utility.argmax(axis=1)
    return fastest(lambda: estimate((shown, choices), regularization=1.0))


def texts(folder: Path, count: int) -> float:
    """Seconds of cache and file, without the model."""
    from edpbrl_gym.features import encode_to_file, load_encoder

    given = [f"a text of some length, number {number:09d}" for number in range(count)]

    def encode() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            encoder: Any = load_encoder(QuickEncoder.name, cache_folder=cache)
            encode_to_file(encoder, given, folder / "features.npy")

    return fastest(encode)


def workers(folder: Path, count: int) -> float:
    """CPU seconds of MiniLM in some processes and of this one."""
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.vocabulary import load_vocabulary
    from edpbrl_gym.workers import LocalProcesses

    tokens = list(dict.fromkeys(load_vocabulary().all_tokens))[:4096]
    begun = time.process_time()
    executor = LocalProcesses(count) if count > 1 else None
    load_encoder("minilm", cache_folder=folder / "cache", executor=executor).encode(tokens)
    own = time.process_time() - begun
    if executor is None:
        return own
    import psutil

    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return own + sum(one.user + one.system for one in times)


def measure(axis: str, size: int) -> dict[str, float]:
    """One row: seconds and bytes."""
    if axis in DESIGN:
        import edpbrl_gym.design as loaded
    else:
        import edpbrl_gym.estimation as loaded  # type: ignore[no-redef]
    del loaded
    before = peak_memory()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if axis in DESIGN:
            seconds = design(folder, **{**DESIGN, axis: size})
        elif axis in ("texts", "workers"):
            seconds = {"texts": texts, "workers": workers}[axis](folder, size)
        else:
            seconds = answers(size)
    return {"seconds": seconds, "memory": peak_memory() - before}


def main() -> None:
    """Print a table, a process for each row."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="*", choices=list(AXES), default=list(AXES))
    parser.add_argument("--row", nargs=2, help="measure this axis and size only")
    given = parser.parse_args()
    if given.row:
        print(json.dumps(measure(given.row[0], int(given.row[1]))))
        return
    print("| what grows | size | CPU time | slope | memory |\n|---|---:|---:|---:|---:|")
    for axis in given.only:
        last: tuple[int, float] | None = None
        for size in AXES[axis]:
            command = [sys.executable, "-m", "benchmarks.scaling", "--row", axis, str(size)]
            variables = {**os.environ, "OMP_NUM_THREADS": "1"}
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=variables).stdout)
            seconds = found["seconds"]
            slope = f"{math.log(seconds / last[1]) / math.log(size / last[0]):.2f}" if last else ""
            shown = f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
            print(f"| {NAMES[axis]} | {size:,} | {shown} | {slope} | {found['memory'] / 1e6:,.0f} MB |", flush=True)
            last = size, seconds


if __name__ == "__main__":
    main()
