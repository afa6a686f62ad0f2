"""setuptools, also for a checkout without symbolic links, as git makes it on Windows.

There ``edpbrl_gym/agents`` and ``edpbrl_gym/envs`` are small text files, and setuptools alone would leave both rooms
out of the wheel without a word. So wheel and sdist are then built in a temporary copy, where they are folders. An
editable installation needs no copy: ``edpbrl_gym/__init__.py`` finds the rooms beside the package.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOMS = ("agents", "envs")
_NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "runs", "site", "venv", "*.egg-info", "__pycache__")


@contextlib.contextmanager
def rooms_as_folders() -> Iterator[None]:
    """Work in the current folder, a checkout; or in a copy of it with folders where it has text files for links.

    Raises:
        FileNotFoundError: If such a text file leads nowhere.
    """
    texts = [Path("edpbrl_gym", room) for room in ROOMS if Path("edpbrl_gym", room).is_file()]
    if not texts:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "checkout")
        shutil.copytree(".", copy, ignore=_NOT_COPIED)
        for text in texts:
            room = text.parent / text.read_text(encoding="utf-8").strip()
            if not room.is_dir():
                raise FileNotFoundError(f"Expected the text of {text} to lead to a folder, {room} is none; clone again")
            (copy / text).unlink()
            shutil.copytree(room, copy / text, ignore=_NOT_COPIED)
        with contextlib.chdir(copy):
            yield


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel (PEP 517)."""
    out = str(Path(wheel_directory).resolve())
    metadata = None if metadata_directory is None else str(Path(metadata_directory).resolve())
    with rooms_as_folders():
        return build_meta.build_wheel(out, config_settings, metadata)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build the sdist (PEP 517)."""
    out = str(Path(sdist_directory).resolve())
    with rooms_as_folders():
        return build_meta.build_sdist(out, config_settings)
