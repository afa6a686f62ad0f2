"""A model's folder on disk: written whole or not at all, never over something that isn't ours."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["KIND", "TRAINING_FILE", "check_replaceable", "replacing_folder"]

TRAINING_FILE = "training.json"
KIND = "edpbrl prompt language model"


def _is_ours(folder: Path) -> bool:
    try:
        document = json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("kind") == KIND


def check_replaceable(folder: Path) -> None:
    """Make sure that a prompt model may be written to ``folder``: nothing there, an empty folder, or one of ours.

    Raises:
        ValueError: Something else is there, or the place can't be written.
    """
    if folder.exists() and not (folder.is_dir() and (_is_ours(folder) or not any(folder.iterdir()))):
        raise ValueError(
            f"Expected {folder} to be free or a folder written by `edpbrl train-prompt-lm` (with {TRAINING_FILE}), got "
            "something else there; choose another --out, or remove it yourself"
        )
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    parent = existing.parent if existing == folder.absolute() else existing
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"Expected to write {folder}, but {parent} can't be written; choose another --out")


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``folder`` to write to, then put it in its place.

    On an exception ``folder`` stays as it was and the temporary one is removed. A folder can't be exchanged in one
    step: an earlier one is moved aside first and put back if the exchange fails.

    Raises:
        ValueError: By ``check_replaceable``, before and after the writing.
        OSError: The place can't be written.
    """
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex}"
    part, old = folder.with_name(f"{name}.part"), folder.with_name(f"{name}.old")
    part.mkdir()
    try:
        yield part
        check_replaceable(folder)
        for written in part.iterdir():
            with open(written, "r+b") as file:
                os.fsync(file.fileno())  # the new name must not reach the disk before the contents
        if folder.exists():
            os.replace(folder, old)
        os.replace(part, folder)
    except BaseException:
        if old.exists() and not folder.exists():
            os.replace(old, folder)
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
