"""Write the pages that come out of the code into ``docs/reference/`` when a build begins."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import api_pages
import command_pages
import environment_pages
import project_pages
import registry_pages

FOLDER = "reference"
ROOT = Path(__file__).resolve().parents[2]

# what each makes: the file below docs/reference, and its text or bytes
MAKERS: tuple[Callable[[], Mapping[str, str | bytes]], ...] = (
    environment_pages.pages,
    registry_pages.pages,
    command_pages.pages,
    api_pages.pages,
    project_pages.pages,
)


def write_pages(folder: Path) -> None:
    """Write all pages below a folder; files with the same content stay as they are, others that were there go."""
    made: dict[str, str | bytes] = {}
    for maker in MAKERS:
        made |= maker()
    for name, content in made.items():
        data = content.encode() if isinstance(content, str) else content
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:  # an unchanged page is not built again
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(folder).as_posix() not in made:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / FOLDER))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
