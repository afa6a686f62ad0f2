"""Where the products over all tokens run: numpy, or torch on a CPU or a CUDA device.

The solvers keep their small matrices in numpy, float64; a backend holds the features (float32, or float64 for checks)
and multiplies them. Both give the same results to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

__all__ = ["ArrayBackend", "NumpyBackend"]

FloatArray = NDArray[np.float64]


class ArrayBackend:
    """Products of rows that live on a device; a native array is whatever the device works with."""

    name: str

    def array(self, values: NDArray, dtype: np.dtype) -> Any:
        """A native array of these values."""
        raise NotImplementedError

    def numpy(self, values: Any) -> NDArray:
        """The values of a native array."""
        raise NotImplementedError

    def factor_squares(self, rows: Any, factor: Any, triangle: str | None) -> Any:
        """Squared norms of F x for native rows x, shape (m,); the rows may be overwritten."""
        raise NotImplementedError

    def weighted_gram(self, rows: Any, roots: Any) -> Any:
        """X' diag(roots)^2 X for native rows X, shape (d, d)."""
        raise NotImplementedError

    def resident(self, size: int) -> bool:
        """Whether to keep an array of so many bytes on the device beside the features as they were given."""
        raise NotImplementedError


class NumpyBackend(ArrayBackend):
    """BLAS through numpy and scipy."""

    name = "numpy"

    def array(self, values: NDArray, dtype: np.dtype) -> NDArray:
        """See the base class."""
        return np.ascontiguousarray(values, dtype=dtype)

    def numpy(self, values: NDArray) -> NDArray:
        """See the base class."""
        return values

    def factor_squares(self, rows: NDArray, factor: NDArray, triangle: str | None) -> NDArray:
        """See the base class; a triangular factor takes half the work."""
        if triangle is None:
            product = rows @ factor.T
        else:
            multiply = blas.strmm if rows.dtype == np.float32 else blas.dtrmm
            # BLAS takes the transposes of C-ordered arrays as they are, and overwrites the rows in place
            product = multiply(1.0, factor.T, rows.T, lower=triangle != "lower", trans_a=1, overwrite_b=True).T
        return np.asarray(np.einsum("nr,nr->n", product, product))

    def weighted_gram(self, rows: NDArray, roots: NDArray) -> NDArray:
        """See the base class."""
        scaled = rows * roots[:, None]
        return np.asarray(scaled.T @ scaled)

    def resident(self, size: int) -> bool:
        """See the base class: a copy costs memory, subtracting the centre in every pass costs little."""
        return size <= 64 * 2**20
