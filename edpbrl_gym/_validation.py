"""Argument checks whose messages read "Expected X, got Y", often with advice: "; do Z".

Every check takes the value and its name, and raises ``TypeError`` (another type: no number, no integer, a bool as a
count) or ``ValueError`` (a wrong shape, NaN, out of range; the message names the first entry). All but ``check_path``
return the value in the type that the code works with.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = [
    "FEEDBACKS",
    "MOST_EPISODES",
    "MOST_OPTIONS",
    "MOST_PROMPTS",
    "Feedback",
    "check_array",
    "check_choice_of",
    "check_count",
    "check_feedback",
    "check_integers",
    "check_number",
    "check_path",
    "check_selection",
    "check_tolerance",
    "did_you_mean",
    "known_name",
]

# what commands take at most, so that a slip of the hand is told at once rather than when the memory is full
MOST_OPTIONS = 50  # of a question; a person can not compare more
MOST_EPISODES = 10_000
MOST_PROMPTS = 100_000  # written, searched or drawn by one command

Feedback = Literal["truncated", "state", "prompt"]
FEEDBACKS: tuple[Feedback, ...] = get_args(Feedback)
"""What the options of a question are compared by.

truncated   K partial prompts (embeddings of the trajectories so far), at every step
state       K last tokens (features of what the last action showed), at every step
prompt      K complete prompts, once an episode, at its last step: what a person who looks at pictures compares
"""

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
    """Return ``value`` as an int64 array of the expected shape with all entries in ``low..high`` (both included)."""
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


def check_selection(value: Any, count: int) -> NDArray[np.int64]:
    """Return the indices in a record of ``count`` entries that a slice, a mask (count,), integers or one select.

    Raises:
        IndexError: A single integer is out of range.
        TypeError: ``value`` holds neither booleans nor integers.
        ValueError: A mask of another length, or one of several indices out of range.
    """
    if isinstance(value, slice):
        return np.arange(count)[value]
    selection = np.asarray(value)
    if selection.ndim == 0 and selection.dtype.kind in "iu":
        if not -count <= selection < count:
            raise IndexError(f"Expected an index in {-count}..{count - 1}, got {int(selection)}")
        selection = selection[None]
    if selection.dtype == bool:
        if selection.shape != (count,):
            raise ValueError(f"Expected a mask of shape ({count},), got shape {selection.shape}")
        selection = np.flatnonzero(selection)
    return check_integers(selection, "indices", shape=("m",), low=-count, high=count - 1)


def check_count(value: Any, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as an int of at least ``minimum``, and at most ``maximum`` where there is one."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"Expected {name} as an integer, got {value!r} ({type(value).__name__})") from None
    if count < minimum:
        raise ValueError(f"Expected {name} >= {minimum}, got {count}")
    if maximum is not None and count > maximum:
        raise ValueError(f"Expected {name} of at most {maximum}, got {count}")
    return count


def check_number(value: Any, name: str, *, minimum: float | None = None, exclusive: bool = False) -> float:
    """Return ``value`` as a finite float, at least ``minimum`` (above it when ``exclusive``)."""
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


def check_tolerance(value: Any, name: str = "tolerance") -> float:
    """Return the gap relative to the gain, in [0, 1), at which a solver may stop: at 1 the first design would do."""
    tolerance = check_number(value, name, minimum=0.0)
    if tolerance >= 1.0:
        raise ValueError(f"Expected {name} below 1, a gap relative to the gain such as 1e-4, got {tolerance:g}")
    return tolerance


def check_choice_of(value: Any, name: str, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of the ``allowed`` names."""
    if not isinstance(value, str) or value not in allowed:
        meant = did_you_mean(value, allowed)
        raise ValueError(f"Expected {name} as one of {', '.join(map(repr, allowed))}, got {value!r}{meant}")
    return value


def check_feedback(feedback: object, *, every_step: str = "") -> Feedback:
    """Return a known feedback, or raise a ValueError.

    ``every_step`` is the name of what designs a question for every step of an episode, and so refuses "prompt".
    """
    known = tuple(name for name in FEEDBACKS if not (every_step and name == "prompt"))
    if feedback in known:
        return feedback
    why = f"; {every_step} designs a question for every step of an episode" if feedback == "prompt" else ""
    raise ValueError(f"Expected feedback as one of {', '.join(map(repr, known))}, got {feedback!r}{why}")


def check_path(path: str | None, name: str) -> None:
    """Reject an empty path, which would stand for the current folder."""
    if path == "":
        raise ValueError(f"Expected {name} as a path, got an empty path; leave the option out for its default")


def known_name(name: str, known: Iterable[str]) -> str:
    """The known name that is meant, whatever its case and whether it has - or _; else the name itself."""
    by_form = {_form(one): one for one in known}
    return by_form.get(_form(name), name) if isinstance(name, str) else name


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'X'?"`` where a known name is close, else ``""``."""
    if not isinstance(name, str):
        return ""
    by_form = {_form(one): one for one in known}
    close = difflib.get_close_matches(_form(name), by_form, n=1, cutoff=0.6)
    return f"; did you mean {by_form[close[0]]!r}?" if close else ""


def _form(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")
