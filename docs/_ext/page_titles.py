"""A link whose text is the file of a page, such as ``people.md``, says the title of the page on the site."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from docutils import nodes

__all__ = ["setup", "title_of"]

_FILE = re.compile(r"(?:\.\./)?(?:docs/)?[\w-]+\.md")


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", _name_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def title_of(text: str, address: str, docname: str, titles: dict[str, Any]) -> str | None:
    """The title that a link gets in place of its text; None where it keeps it.

    Args:
        text: Of the link.
        address: Of its target, relative to the page.
        docname: Of the page.
        titles: Name of a page -> its title node.
    """
    if not _FILE.fullmatch(text):
        return None
    page = posixpath.normpath(posixpath.join(posixpath.dirname(docname), address.partition("#")[0]))
    title = titles.get(page.removesuffix(".html"))
    return None if title is None else title.astext()


def _name_pages(app: Any, doctree: Any, docname: str) -> None:
    for node in list(doctree.findall(nodes.reference)):
        title = title_of(node.astext(), node.get("refuri", ""), docname, app.env.titles)
        if title is not None:
            node.clear()
            node += nodes.inline("", title)
