"""At the end of each page: where its numbers come from, out of docs/claims.toml."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.claims import checks, page, registry

__all__ = ["section", "setup"]

CLAIMS = cache(lambda: (registry.read(), checks.all_pages()))


def section(name: str) -> str:
    """The section for a page, "docs/..."; empty for a page without numbers."""
    claims, pages = CLAIMS()
    if name not in pages or not (listed := page.origins(claims, name, pages)):
        return ""
    return f"\n\n## {page.HEADING}\n\n:::{{dropdown}} Commands, days and tests\n{listed}\n:::\n"


def _add(app: Any, docname: str, source: list[str]) -> None:
    added = section(f"docs/{docname}.md")
    if added:
        source[0] += added
        for file in (registry.FILE, page.__file__):
            app.env.note_dependency(str(file))


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
