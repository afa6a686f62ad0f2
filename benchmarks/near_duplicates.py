"""What near-duplicates cost the `newton` solver: docs/performance.md.

    OMP_NUM_THREADS=1 python -m benchmarks.near_duplicates    # about a minute
    python -m benchmarks.near_duplicates --seed 9

1,000 tokens of unit norm with a decaying spectrum, each five times, with Gaussian noise of the norm in the heading
(0: equal copies), beside 5,000 tokens that differ. One vocabulary for six steps, K = 4, T = 60, lambda = 1. CPU time of
`newton` to a gap of 1e-6 of the gain, the fastest of five runs, over that for the 1,000 tokens alone.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import make_parser, newton_seconds, six_steps
from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.reporting.tables import TextTable

COUNT, COPIES = 1_000, 5
NOISES = (0.0, 1e-6, 1e-4, 1e-2)


def tokens(rng: np.random.Generator, count: int, dimension: int) -> Floats:
    """Rows of unit norm, the variance along axis j proportional to 1/j; shape (count, dimension)."""
    rows = rng.standard_normal((count, dimension)) / np.sqrt(np.arange(1, dimension + 1))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def seconds(rows: Floats, criterion: str) -> float:
    """CPU time of the fastest of five runs."""
    return newton_seconds(six_steps(rows.astype(np.float32), criterion), 5)


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--seed", type=int, default=7, help="of the tokens")
    seed = parser.parse_args().seed
    header = ("problem", "1,000 alone", *(f"noise {noise:g}" for noise in NOISES), "5,000 distinct")
    rows = []
    with one_blas_thread():
        for dimension in (64, 384):
            for criterion in ("D", "A"):
                rng = np.random.default_rng(seed)
                alone = tokens(rng, COUNT, dimension)
                base = seconds(alone, criterion)
                cells = []
                for noise in NOISES:
                    copies = np.repeat(alone, COPIES, axis=0)
                    copies += noise * rng.standard_normal(copies.shape) / np.sqrt(dimension)
                    cells.append(f"{seconds(copies, criterion) / base:.1f}")
                distinct = seconds(tokens(rng, COUNT * COPIES, dimension), criterion) / base
                rows.append((f"d = {dimension}, {criterion}", f"{1e3 * base:.0f} ms", *cells, f"{distinct:.1f}"))
    print("\n".join(TextTable("", header, rows, words=1).markdown()))


if __name__ == "__main__":
    main()
