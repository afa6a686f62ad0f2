"""A model's folder on disk: written atomically, and never over anything but an earlier prompt model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edpbrl_gym._files import replacing_folder

__all__ = ["KIND", "TRAINING_FILE", "check_replaceable", "replacing_model"]

TRAINING_FILE = "training.json"
KIND = "edpbrl prompt language model"


def _is_prompt_model(folder: Path) -> bool:
    try:
        document = json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("kind") == KIND


def check_replaceable(folder: Path) -> None:
    """Make sure that a prompt model may be written to ``folder``: nothing there, an empty folder, or a prompt model.

    Raises:
        ValueError: Something else is there, or the place can't be written.
    """
    if folder.exists() and not (folder.is_dir() and (_is_prompt_model(folder) or not any(folder.iterdir()))):
        raise ValueError(
            f"Expected {folder} to be free or a folder written by `edpbrl train-prompt-lm` (with {TRAINING_FILE}), got "
            "something else there; choose another --out, or remove it yourself"
        )
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    parent = existing.parent if existing == folder.absolute() else existing
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"Expected to write {folder}, but {parent} can't be written; choose another --out")


@contextmanager
def replacing_model(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to, then put it in the place of ``folder`` (``_files.replacing_folder``).

    Raises:
        ValueError: By ``check_replaceable``, before and after the writing.
        OSError: The place can't be written.
    """
    check_replaceable(folder)
    with replacing_folder(folder) as part:
        yield part
        check_replaceable(folder)
