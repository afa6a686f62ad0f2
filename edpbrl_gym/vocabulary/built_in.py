"""The built-in vocabularies by name."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["BUILT_IN", "BuiltIn", "locate"]

_log = logging.getLogger(__name__)
_DATA = Path(__file__).resolve().parent / "data"


class BuiltIn(NamedTuple):
    """The files of a built-in vocabulary.

    Attributes:
        folder: Where they are.
        order: Names of the steps, in prompt order.
    """

    folder: Path
    order: tuple[str, ...]


BUILT_IN: dict[str, BuiltIn] = {
    # the paper's order
    "images": BuiltIn(_DATA / "images", ("bases", "ambient", "style", "composition", "lighting", "detail")),
    "interiors": BuiltIn(_DATA / "interiors", ("room", "furnishing", "palette", "style", "light", "detail")),
}
"""Name -> vocabulary: "images", any image that a prompt can describe, and "interiors", rooms."""


def locate(path: str | os.PathLike[str] | None) -> tuple[Path, tuple[str, ...] | None]:
    """Return the folder that a path or a built-in name stands for, and the order of a built-in vocabulary.

    None is "images". A name wins over a folder of that name in the current directory, which the log names if it has
    token files; "./NAME"
    and ``Path(NAME)`` are the folder.
    """
    if path is None:
        return BUILT_IN["images"]
    if isinstance(path, str) and path in BUILT_IN:
        if any(Path(path).glob("*.txt")):
            log_folder(path)
        return BUILT_IN[path]
    return Path(path).expanduser(), None


@functools.cache  # once per process, although every environment asks
def log_folder(name: str) -> None:
    _log.warning("Took the built-in vocabulary %r, not the folder %s; write ./%s for the folder", name, name, name)
