"""After a build: no page loads anything from another host, and every link within the site leads somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.util import logging

__all__ = ["PageLinks", "mistakes", "setup"]

logger = logging.getLogger(__name__)


class PageLinks(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "author", "license"):
            self.loads.append(values.get("href", ""))
        elif "src" in values:
            self.loads.append(values["src"])
        self.loads += re.findall(r"url\(([^)]+)\)", values.get("style", ""))


def mistakes(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder, one line each."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.parts:  # a template of the theme
            continue
        pages[path] = parser = PageLinks()
        parser.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        found += [f"{name} loads {load}" for load in page.loads if urlsplit(load).netloc]
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link in ("", "#"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name} links to {link}: no such place on that page")
    for path in sorted(folder.rglob("*.css")):
        addresses = re.findall(
            r"(?:url\(\s*|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text(encoding="utf-8")
        )
        found += [f"{path.relative_to(folder).as_posix()} loads {address}" for address in addresses]
    return list(dict.fromkeys(found))


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""

    def check(app: Any, exception: Exception | None) -> None:
        if exception is None and app.builder.format == "html":
            for mistake in mistakes(Path(app.outdir)):
                logger.warning(mistake, type="html")

    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
