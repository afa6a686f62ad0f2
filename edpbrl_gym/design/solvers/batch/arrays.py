"""What the batched solver needs of numpy and torch where their names differ; the rest is in `namespace`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, NumpyBackend, TorchBackend

__all__ = ["Arrays", "arrays_of"]


_BYTES_NUMPY = 8 * 2**20  # of the Hessians of a chunk: about what stays in the caches of a processor
_BYTES_TORCH = {"cpu": _BYTES_NUMPY, "cuda": 2**31}


class Arrays(Protocol):
    """Operations on stacks of arrays, one entry for each user.

    Attributes:
        namespace: The module numpy or torch.
        chunk_bytes: Of the Hessians of the users that are solved for at once.
    """

    namespace: Any
    chunk_bytes: int

    def array(self, values: NDArray) -> Any:
        """A native array with these values and their type."""
        ...

    def numpy(self, values: Any) -> NDArray:
        """The values of a native array."""
        ...

    def cast(self, values: Any, single: bool) -> Any:
        """The values in float32 or in float64."""
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
    chunk_bytes = _BYTES_NUMPY

    def __init__(self, backend: ArrayBackend) -> None:
        self.full_precision = backend.full_precision

    def array(self, values: NDArray) -> NDArray:
        return values

    def numpy(self, values: NDArray) -> NDArray:
        return values

    def cast(self, values: NDArray, single: bool) -> NDArray:
        return values.astype(np.float32 if single else np.float64, copy=False)

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
        self.chunk_bytes = _BYTES_TORCH[backend.device.type]
        self._device = backend.device

    def array(self, values: NDArray) -> Any:
        return self.namespace.tensor(values, device=self._device)

    def numpy(self, values: Any) -> NDArray:
        return np.asarray(values.cpu().numpy())

    def cast(self, values: Any, single: bool) -> Any:
        return values.to(self.namespace.float32 if single else self.namespace.float64)

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
