"""Pickled objects that make a folder when they are unpickled: what a stranger's file may hold instead of data."""

from __future__ import annotations

import os
from pathlib import Path


class Bomb:
    """An object whose unpickling makes a folder.

    Args:
        mark: The folder; it exists if the object was unpickled.
    """

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)
