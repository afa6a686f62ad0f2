"""Rows of a feature array as float64, a few thousand at a time.

Features are float64, or float32 where they are large (a million tokens of 768 numbers are 3 GB, and may lie in a
memory-mapped file). All mathematics is float64; so that no float64 copy of a large array is ever made, float32 rows
are converted chunk by chunk. A float64 array is its own single chunk: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats

__all__ = ["CHUNK_ROWS", "Features", "row_chunks"]

Features = NDArray[np.float32] | NDArray[np.float64]

CHUNK_ROWS = 2048  # 12.6 MB of float64 at 768 features


def row_chunks(
    features: Features, rows: NDArray[np.intp] | None = None, centre: Floats | None = None
) -> Iterator[tuple[slice, Floats]]:
    """Some rows of the features in float64, in order.

    Args:
        features: Phi, shape (N, d), float32 or float64.
        rows: Which rows, shape (k,); None takes all of them.
        centre: Subtracted from every row, shape (d,).

    Yields:
        Positions in `rows` (in 0..N-1 for None) as a slice, and these rows, shape (size of the slice, d). At most
        `CHUNK_ROWS` at a time for float32 or where a centre is subtracted, else all at once.
    """
    count = len(features) if rows is None else len(rows)
    if features.dtype == np.float64 and centre is None:
        yield slice(0, count), np.asarray(features if rows is None else features[rows], dtype=np.float64)
        return
    for begin in range(0, count, CHUNK_ROWS):
        part = slice(begin, min(begin + CHUNK_ROWS, count))
        chunk = np.asarray(features[part if rows is None else rows[part]], dtype=np.float64)
        yield part, chunk if centre is None else chunk - centre
