"""The files that `edpbrl study init` writes: a configuration that explains itself, and texts to start from."""

from __future__ import annotations

import functools
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from edpbrl_gym._places import write_atomically
from edpbrl_gym.study.config import CONFIG, TEXTS
from edpbrl_gym.study.own_photos import OWN_PHOTOS

__all__ = ["write_template"]

_FILES = (*(f"texts/{name}.en.txt" for name in (*TEXTS, OWN_PHOTOS)), CONFIG)  # the last one makes the folder a study


def write_template(folder: Path) -> list[Path]:
    """Write study.toml and the texts to a folder; the files, study.toml first.

    Raises:
        FileExistsError: The folder has one of them already; nothing is written.
    """
    there = [folder / name for name in _FILES if (folder / name).exists()]
    if there:
        raise FileExistsError(f"Expected a new folder for the study, found {there[-1]} already; choose another folder")
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    with as_file(files("edpbrl_gym.study") / "new_study") as source:
        for name in _FILES:
            write_atomically(folder / name, functools.partial(shutil.copyfile, source / name))
    return [folder / name for name in reversed(_FILES)]
