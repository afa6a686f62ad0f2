"""What the batched solver needs of numpy and torch where their names differ; the rest is in `namespace`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, NumpyBackend, TorchBackend

__all__ = ["Arrays", "arrays_of", "inverse_of_factors"]


_CHUNK = 8 * 2**20  # of the Hessians of a chunk: about what stays in the caches of a processor
_STRIP = 2**18  # of those that are computed at once: about what stays in a core's own cache
_CUDA = 2**31
# dimensions up to which triangular matrices are inverted directly; measured for 1 to 1,000 of them at d = 4 to 64: from
# twice as many on blocks are faster, but for a single matrix up to 32
_DIRECT = 8


class Arrays(Protocol):
    """Operations on stacks of arrays, one entry for each user.

    Attributes:
        namespace: The module numpy or torch.
        chunk_bytes: Of the Hessians of the users that are solved for at once.
        strip_bytes: Of the Hessians that are computed at once.
    """

    namespace: Any
    chunk_bytes: int
    strip_bytes: int

    def array(self, values: NDArray) -> Any:
        """A native array with these values and their type."""
        ...

    def numpy(self, values: Any) -> NDArray:
        """The values of a native array."""
        ...

    def cast(self, values: Any, single: bool) -> Any:
        """The values in float32 or in float64."""
        ...

    def empty(self, values: Any, shape: tuple[int, ...]) -> Any:
        """An array to be filled, of the type of another."""
        ...

    def cholesky(self, matrices: Any) -> Any:
        """Lower Cholesky factors, shape (U, d, d); NaN where a matrix is not positive definite."""
        ...

    def taken(self, values: Any, index: Any) -> Any:
        """Entries of each row, shape (U, k), of an array (U, n)."""
        ...

    def replaced(self, values: Any, index: Any, entries: Any) -> Any:
        """A copy of an array (U, n) with other entries (U, k) at an index (U, k)."""
        ...

    def largest(self, values: Any, count: int) -> Any:
        """Positions of the largest entries of each row, shape (U, count), in any order."""
        ...

    def full_precision(self) -> AbstractContextManager[None]:
        """See `ArrayBackend.full_precision`."""
        ...


class _NumpyArrays:
    namespace: Any = np
    chunk_bytes = _CHUNK
    strip_bytes = _STRIP

    def __init__(self, backend: ArrayBackend) -> None:
        self.full_precision = backend.full_precision

    def array(self, values: NDArray) -> NDArray:
        return values

    def numpy(self, values: NDArray) -> NDArray:
        return values

    def cast(self, values: NDArray, single: bool) -> NDArray:
        return values.astype(np.float32 if single else np.float64, copy=False)

    def empty(self, values: NDArray, shape: tuple[int, ...]) -> NDArray:
        return np.empty(shape, dtype=values.dtype)

    def cholesky(self, matrices: NDArray) -> NDArray:
        try:
            return np.linalg.cholesky(matrices)
        except np.linalg.LinAlgError:  # of any of them
            if len(matrices) == 1:
                return np.full_like(matrices, np.nan)
            return np.concatenate([self.cholesky(matrix[None]) for matrix in matrices])

    def taken(self, values: NDArray, index: NDArray) -> NDArray:
        return np.take_along_axis(values, index, 1)

    def replaced(self, values: NDArray, index: NDArray, entries: NDArray) -> NDArray:
        result = values.copy()
        np.put_along_axis(result, index, entries, 1)
        return result

    def largest(self, values: NDArray, count: int) -> NDArray:
        return np.argpartition(-values, count - 1, axis=1)[:, :count]


class _TorchArrays:
    def __init__(self, backend: TorchBackend) -> None:
        import torch

        self.namespace: Any = torch
        self.full_precision = backend.full_precision
        cpu = backend.device.type == "cpu"
        self.chunk_bytes, self.strip_bytes = (_CHUNK, _STRIP) if cpu else (_CUDA, _CUDA)
        self._device = backend.device

    def array(self, values: NDArray) -> Any:
        return self.namespace.tensor(values, device=self._device)

    def numpy(self, values: Any) -> NDArray:
        return np.asarray(values.cpu().numpy())

    def cast(self, values: Any, single: bool) -> Any:
        return values.to(self.namespace.float32 if single else self.namespace.float64)

    def empty(self, values: Any, shape: tuple[int, ...]) -> Any:
        return values.new_empty(shape)

    def cholesky(self, matrices: Any) -> Any:
        factors, failed = self.namespace.linalg.cholesky_ex(matrices)
        return self.namespace.where((failed > 0)[:, None, None], np.nan, factors)

    def taken(self, values: Any, index: Any) -> Any:
        return self.namespace.take_along_dim(values, index, 1)

    def replaced(self, values: Any, index: Any, entries: Any) -> Any:
        return values.scatter(1, index, entries)

    def largest(self, values: Any, count: int) -> Any:
        return self.namespace.topk(values, count, dim=1, sorted=False).indices


def arrays_of(backend: ArrayBackend) -> Arrays:
    """The operations of a backend.

    Raises:
        ValueError: If it is neither numpy nor torch.
    """
    if isinstance(backend, TorchBackend):
        return _TorchArrays(backend)
    if isinstance(backend, NumpyBackend):
        return _NumpyArrays(backend)
    raise ValueError(f'Expected the backend "numpy", "torch" or "torch:cuda", got {backend.name!r}.')


def inverse_of_factors(arrays: Arrays, factors: Any) -> Any:
    """L^-1 of lower triangular matrices L, shape (U, d, d), by blocks: products are faster than substitutions."""
    dimension = factors.shape[1]
    if dimension <= _DIRECT:
        return arrays.namespace.linalg.inv(factors)
    half = dimension // 2
    result = arrays.namespace.zeros_like(factors)
    first = inverse_of_factors(arrays, factors[:, :half, :half])
    second = inverse_of_factors(arrays, factors[:, half:, half:])
    result[:, :half, :half] = first
    result[:, half:, half:] = second
    result[:, half:, :half] = -second @ (factors[:, half:, :half] @ first)
    return result
