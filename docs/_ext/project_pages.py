"""Pages of the repository's root that the site has too."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PAGES", "pages"]

ROOT = Path(__file__).resolve().parents[2]
# file of the root, page of the site
PAGES = {"ARCHITECTURE.md": "architecture", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}


def pages() -> Mapping[str, str | bytes]:
    """The pages, whose links lead from where they are now."""
    return {f"project/{name}.md": moved((ROOT / file).read_text(encoding="utf-8")) for file, name in PAGES.items()}


def moved(text: str) -> str:
    """A page of the root with its relative links as they are from ``docs/reference/project``."""
    place = ROOT / "docs" / "reference" / "project"

    def link(match: re.Match[str]) -> str:
        return f"]({os.path.relpath(ROOT / match[1], place)}"

    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)", link, text)
