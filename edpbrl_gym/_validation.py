"""Argument checks whose messages read "Expected X, got Y", often with advice: "; do Z".

Every check takes the value and its name, and raises ``ValueError`` (a wrong value) or ``TypeError`` (a wrong type). All
but ``check_path`` return the value in the type that the code works with.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["check_path", "check_array", "check_choice_of", "check_count", "check_integers", "check_number"]

# None: any length. A string: any length, shown by its letter in the message.
Shape = tuple[int | str | None, ...]

_CHUNK = 1 << 20  # entries checked at once: bounds the memory


def _describe(shape: Shape) -> str:
    sizes = ["*" if size is None else str(size) for size in shape]
    return "(" + ", ".join(sizes) + ("," if len(sizes) == 1 else "") + ")"


def _check_shape(array: NDArray[Any], name: str, shape: Shape, hint: str) -> None:
    fits = array.ndim == len(shape) and all(
        not isinstance(size, int) or size == actual for size, actual in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"Expected {name} of shape {_describe(shape)}, got shape {array.shape}{hint}")


def _check_finite(array: NDArray[Any], name: str) -> None:
    """Raise ValueError for NaN or infinity; chunk by chunk, since the array may be larger than free memory."""
    if not array.size or (array.size <= _CHUNK and np.isfinite(array).all()):
        return
    table = np.atleast_1d(array)
    step = max(1, _CHUNK * len(table) // table.size)
    count, first_index = 0, None
    for start in range(0, len(table), step):
        finite = np.isfinite(table[start : start + step])
        if finite.all():
            continue
        bad = np.argwhere(~finite)
        count += len(bad)
        if first_index is None:
            first_index = (start + int(bad[0][0]), *(int(i) for i in bad[0][1:]))[: array.ndim]
    if count:
        raise ValueError(
            f"Expected finite {name}, got {count} NaN or infinite value(s), the first at index {first_index}; "
            f"remove or recompute these values"
        )


def check_array(
    value: Any,
    name: str,
    *,
    shape: Shape,
    dtype: DTypeLike = np.float64,
    keep: tuple[DTypeLike, ...] = (),
    finite: bool = True,
    hint: str = "",
) -> NDArray[Any]:
    """Return ``value`` as a real array of the expected shape without NaN or infinity.

    An array of the right type is returned as it is, without a copy, memory-mapped ones included.

    Args:
        value: Anything that numpy converts to an array of numbers.
        name: Name of the argument, for the message.
        shape: Expected shape; an int is a required length, a letter or None stands for any length.
        dtype: Floating type of the result.
        keep: Other types that are returned as they are.
        finite: Reject NaN and infinity.
        hint: Advice appended to a message about the shape.

    Raises:
        TypeError: ``value`` does not contain real numbers.
        ValueError: Wrong shape, NaN or infinity.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"dtype {array.dtype}")
        if not any(array.dtype == kind for kind in keep):
            array = np.asarray(array, dtype=dtype)
    except (TypeError, ValueError) as error:  # ragged lists are a ValueError in numpy
        raise TypeError(f"Expected {name} as an array of real numbers, got {type(value).__name__} ({error})") from None
    _check_shape(array, name, shape, f"; {hint}" if hint else "")
    if finite:
        _check_finite(array, name)
    return array


def check_integers(
    value: Any, name: str, *, shape: Shape, low: int | None = None, high: int | None = None, hint: str = ""
) -> NDArray[np.int64]:
    """Return ``value`` as an int64 array of the expected shape with all entries in ``low..high`` (both included).

    Raises:
        TypeError: The entries are not integers.
        ValueError: Wrong shape, or an entry out of range (the message names the first).
    """
    array = np.asarray(value)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"Expected {name} as integers, got dtype {array.dtype}; convert with .astype(int) if whole")
    _check_shape(array, name, shape, f"; {hint}" if hint else "")
    outside = np.zeros(array.shape, dtype=bool)
    if low is not None:
        outside |= array < low
    if high is not None:
        outside |= array > high
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        limits = f"{'-inf' if low is None else low}..{'inf' if high is None else high}"
        raise ValueError(f"Expected {name} in {limits}, got {int(array[index])} at index {index}")
    return array.astype(np.int64, copy=False)


def check_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum``.

    Raises:
        TypeError: ``value`` is not an integer; a bool does not count as one.
        ValueError: It is below ``minimum``.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"Expected {name} as an integer, got {value!r} ({type(value).__name__})") from None
    if count < minimum:
        raise ValueError(f"Expected {name} >= {minimum}, got {count}")
    return count


def check_number(value: Any, name: str, *, minimum: float | None = None, exclusive: bool = False) -> float:
    """Return ``value`` as a finite float, at least ``minimum`` (above it when ``exclusive``).

    Raises:
        TypeError: ``value`` is not a number.
        ValueError: It is NaN, infinite, or below the minimum.
    """
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"Expected {name} as a number, got {value!r} ({type(value).__name__})") from None
    limit = "" if minimum is None else f" {'>' if exclusive else '>='} {minimum:g}"
    low = minimum is not None and (number <= minimum if exclusive else number < minimum)
    if low or not math.isfinite(number):
        raise ValueError(f"Expected a finite {name}{limit}, got {number}")
    return number


def check_choice_of(value: Any, name: str, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of the ``allowed`` names.

    Raises:
        ValueError: It is not; the message lists the allowed names.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"Expected {name} as one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def check_path(path: str | None, name: str) -> None:
    """Reject an empty path, which would stand for the current folder.

    Raises:
        ValueError: If the path is empty.
    """
    if path == "":
        raise ValueError(f"Expected {name} as a path, got an empty path; leave the option out for its default")
