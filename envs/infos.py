"""Infos of vector environments, whose texts and masks are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans

__all__ = ["LaneInfos", "final_infos", "lane_infos"]


class _Deferred:
    """A value that is made when it is first asked for, and once."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> Any:
        """The value."""
        if self._make is not None:
            self._value, self._make = self._make(), None
        return self._value


class LaneInfos(dict[str, Any]):
    """A dict some of whose values are made when they are first read, by functions without arguments.

    A step of many lanes would spend nearly all its time on texts and masks that most programs never read. Every way of
    reading a value gives what the function returned; ``keys()``, ``in`` and ``len`` make nothing. ``dict(infos)``,
    ``{**infos}``, pickles and deep copies are plain dicts with all values made; ``copy()`` and ``infos | other`` leave
    them to be made. The functions must not depend on anything that later steps change.
    """

    def defer(self, key: str, make: Callable[[], Any]) -> None:
        """Store a value that ``make()`` returns when it is first read."""
        super().__setitem__(key, _Deferred(make))

    def __getitem__(self, key: str) -> Any:
        """The value of a key, made now if it is read for the first time."""
        value = super().__getitem__(key)
        if isinstance(value, _Deferred):
            value = value.value()
            super().__setitem__(key, value)
        return value

    def __iter__(self) -> Iterator[str]:
        """The keys. Defined here so that ``dict(infos)`` and ``{**infos}`` read values by ``__getitem__``."""
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self[key] if key in self else default

    def items(self) -> Any:
        """Keys and values."""
        self._make_all()
        return super().items()

    def values(self) -> Any:
        """All values."""
        self._make_all()
        return super().values()

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, or the default."""
        value = super().pop(key, *default)
        return value.value() if isinstance(value, _Deferred) else value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value."""
        key, value = super().popitem()
        return key, value.value() if isinstance(value, _Deferred) else value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which becomes the default if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def copy(self) -> Self:
        """A shallow copy."""
        other = type(self)()
        for key in self:
            dict.__setitem__(other, key, super().__getitem__(key))
        return other

    __copy__ = copy

    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        """A shallow copy, updated."""
        if not isinstance(other, Mapping):
            return NotImplemented
        together = self.copy()
        together.update(other)
        return together

    def __eq__(self, other: object) -> bool:
        """Equality as dicts."""
        self._make_all()
        if isinstance(other, LaneInfos):
            other._make_all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        """Inequality as dicts."""
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        """As that of a dict."""
        self._make_all()
        return super().__repr__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A plain dict."""
        return dict, (dict(self),)

    def _make_all(self) -> None:
        for key in self:
            self[key]


def lane_infos(
    mask: Booleans,
    texts: Callable[[], list[str]],
    masks: Callable[[], NDArray[np.int8]],
    counts: Mapping[str, NDArray[np.int64]],
    *,
    text: str = "prompt",
) -> LaneInfos:
    """Return Gymnasium's vector infos: an array over lanes for each key, and which lanes it holds for under "_key".

    Args:
        mask: Lanes that have infos, (n,).
        texts: Gives their prompts, or another text, when these are read.
        masks: Gives the legal actions of all lanes, a new array (n, V), when these are read.
        counts: Numbers of all lanes by their key, (n,).
        text: Key of the texts.
    """
    present = mask.copy()

    def make_masks() -> NDArray[np.int8]:
        made = masks()
        made[~present] = 0
        return made

    def make_texts() -> NDArray[np.object_]:
        made = np.full(len(present), None, dtype=object)
        made[present] = texts()
        return made

    infos = LaneInfos()
    infos.defer("action_mask", make_masks)
    infos["_action_mask"] = mask.copy()
    infos.defer(text, make_texts)
    infos[f"_{text}"] = mask.copy()
    for key, count in counts.items():
        infos[key] = np.where(mask, count, 0)
        infos[f"_{key}"] = mask.copy()
    return infos


def final_infos(observations: NDArray[Any], infos: dict[str, Any], mask: Booleans) -> dict[str, Any]:
    """Return Gymnasium's infos about lanes that terminate and restart in the same step."""
    lanes = np.flatnonzero(mask)
    final = np.full(len(mask), None, dtype=object)
    for lane, row in zip(lanes.tolist(), observations[lanes], strict=True):  # rows of one new array
        final[lane] = row
    return {"final_obs": final, "_final_obs": mask.copy(), "final_info": infos, "_final_info": mask.copy()}
