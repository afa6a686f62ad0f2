"""Names of array types by element type, read-only views, rows a chunk at a time, fields made when read, a factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHUNK_ROWS",
    "AnyFloats",
    "Booleans",
    "Floats",
    "Floats32",
    "Indices",
    "MadeWhenRead",
    "Positions",
    "positive_semidefinite_factor",
    "read_only",
    "row_chunks",
]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Indices = NDArray[np.int64]
Positions = NDArray[np.intp]
Booleans = NDArray[np.bool_]

Array = TypeVar("Array", bound=NDArray[Any])
T = TypeVar("T")

_SYMMETRY_TOLERANCE = 1e-8  # relative; a matrix given by the user may carry rounding
_EIGENVALUE_TOLERANCE = 1e-10  # relative; smaller negative eigenvalues count as rounding
CHUNK_ROWS = 2048  # 12.6 MB of float64 at 768 features


def read_only(array: Array) -> Array:
    """A read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def row_chunks(
    features: AnyFloats, rows: NDArray[np.intp] | None = None, centre: Floats | None = None
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


class MadeWhenRead(Generic[T]):
    """A field of a dataclass that is given as a value, or as a function of no arguments that returns it.

    The function is called when the field is first read, and once. A function that is pickled with the object must be
    one that pickle knows, such as a ``functools.partial`` of a module's function.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the field's name, under which the value is kept in the object's ``__dict__``."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """The value, made now if it is read for the first time."""
        if instance is None:
            raise AttributeError(self._name)  # so that dataclass sees no default
        value = instance.__dict__[self._name]
        if callable(value):
            value = instance.__dict__[self._name] = value()
        return cast(T, value)

    def __set__(self, instance: object, value: T | Callable[[], T]) -> None:
        """Keep the value, or the function that makes it."""
        instance.__dict__[self._name] = value


def positive_semidefinite_factor(matrix: Floats, name: str) -> Floats:
    """Factor B, shape (d, r), of a positive semidefinite matrix B B' of rank r.

    Args:
        matrix: Shape (d, d).
        name: Name for the message.

    Raises:
        ValueError: If the matrix is not square, symmetric and positive semidefinite (to rounding).
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"Expected {name} as a square matrix (d, d), got shape {matrix.shape}.")
    scale = float(np.abs(matrix).max(initial=0.0))
    off = float(np.abs(matrix - matrix.T).max(initial=0.0))
    if off > _SYMMETRY_TOLERANCE * scale:
        raise ValueError(f"Expected a symmetric {name}, got one that differs from its transpose by {off:.3g}.")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    largest = float(values[-1]) if values.size else 0.0
    if values.size and values[0] < -_EIGENVALUE_TOLERANCE * max(largest, scale):
        raise ValueError(f"Expected a positive semidefinite {name}, got an eigenvalue of {values[0]:.3g}.")
    # eigh errs by about eps times the largest eigenvalue, so smaller ones are indistinguishable from 0
    keep = values > largest * len(values) * np.finfo(np.float64).eps
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))
