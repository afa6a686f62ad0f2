"""Markdown of a study's texts as HTML for its pages: links, emphasis, lists, headings, tables, images of the folder.

Raw HTML stays text, links to anything but the web and mail addresses too. Images are files beside the texts, which the
pages serve under names of their own; those of other sites are refused, since they would learn who looks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["IMAGES", "image_name", "images_of", "render", "wrong_image"]

IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
"""Types of images by the ends of their names."""
_BLOCKS = {
    f"{name}_open"
    for name in ("paragraph", "heading", "bullet_list", "ordered_list", "list_item", "blockquote", "th", "td")
}
_MAX_IMAGE = 20 * 1024 * 1024  # bytes


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = _is_safe  # type: ignore[method-assign, assignment]
    return parser


def _is_safe(address: str) -> bool:
    """Whether a link, or an image, may be where it is; what may not stays text."""
    scheme, colon, _ = re.split("[/?#]", address.strip())[0].partition(":")
    return not colon or scheme.lower() in ("http", "https", "mailto")


def _tokens(text: str) -> list[Any]:
    return _parser().parse(text)


def _images(tokens: list[Any]) -> Iterator[Any]:
    for token in tokens:
        if token.type == "image":
            yield token
        yield from _images(token.children or [])


def images_of(text: str) -> list[str]:
    """The addresses of the images of a text, as they are written."""
    return [unquote(str(token.attrs["src"])) for token in _images(_tokens(text))]


def wrong_image(folder: Path, address: str) -> str | None:
    """What is expected of an image and not so; None: it can be shown."""
    path = folder / address
    if Path(address).suffix.lower() not in IMAGES:
        return f"a file {', '.join(IMAGES)}"
    if ":" in address or not path.resolve().is_relative_to(folder.resolve()):
        return f"a file in {folder}"
    if not path.is_file():
        return f"a file that is there, relative to {folder}"
    return None if path.stat().st_size <= _MAX_IMAGE else f"at most {_MAX_IMAGE // 2**20} MB"


def image_name(path: Path) -> str:
    """The name under which pages serve a file: it tells nothing about it, and changes with it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24] + path.suffix.lower()


def render(text: str, source: Callable[[str], str]) -> str:
    """The HTML of a text; ``source`` gives the address of an image of the text.

    Headings begin with the second level, below that of the page; links open beside the study.
    """
    tokens = _tokens(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
        if token.type in _BLOCKS:
            token.attrSet("dir", "auto")
        for child in token.children or []:
            if child.type == "link_open":
                child.attrSet("target", "_blank")
                child.attrSet("rel", "noopener noreferrer")
    for token in _images(tokens):
        token.attrSet("src", source(unquote(str(token.attrs["src"]))))
    return str(_parser().renderer.render(tokens, _parser().options, {}))
