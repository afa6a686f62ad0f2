"""Links out of the docs, and names in code, lead to the page of the site that shows what they name.

A link such as ``../examples/ask_tell.py`` or ``../edpbrl_gym/mdp/prompt.py``, and a literal that is the path of a file,
a test or a public name, become links: an example's to its page in the gallery, a page of the root's to its page here, a
public name's to the API, another file's to a page with its source. A link to a file that is not there is a warning,
which ends a build with ``-W``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import api_pages
import project_pages
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

import edpbrl_gym

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("edpbrl_gym", "agents", "envs", "examples", "benchmarks", "tests", "docs", ".ci")
TEXT_FILES = (".py", ".pyi", ".cfg", ".toml", ".txt", ".R", ".html", ".css", ".js")


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_transform(FileLinks)
    app.add_transform(LiteralLinks)
    app.connect("env-purge-doc", _purge)
    app.connect("doctree-resolved", _resolve_sources)
    app.connect("html-collect-pages", source_pages)
    return {"version": "1", "env_version": 1, "parallel_read_safe": False, "parallel_write_safe": True}


# -- links -----------------------------------------------------------------------------------------------------------


class FileLinks(SphinxTransform):
    """Markdown links to files outside ``docs``."""

    default_priority = 10

    def apply(self, **kwargs: Any) -> None:
        """Replace them."""
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for node in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            target = node.get("reftarget", "")
            if node.get("reftype") != "myst":
                continue
            if node.get("refdomain") == "doc":
                path = Path(self.env.srcdir, target + ".md").resolve()
            else:
                path = Path(os.path.normpath(folder / target.partition("#")[0]))
            if not path.is_relative_to(ROOT) or path.is_relative_to(self.env.srcdir):
                continue
            text = node.astext() or path.name
            new = reference_to_file(self.env, path, text)
            if new is None:
                logger.warning("link to %s, which is not there", target, location=node, type="repository")
                continue
            node.replace_self(new)


def reference_to_file(env: Any, path: Path, text: str, line: int | None = None) -> nodes.Node | None:
    """A link to the page that shows a file or a folder of the repository; None if there is no such file."""
    if not path.exists():
        return None
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("examples/"):
        page = "gallery/index" if path.suffix != ".py" else f"gallery/{path.stem}"
        return _document(env, page, text)
    if name in project_pages.PAGES:
        return _document(env, f"reference/project/{project_pages.PAGES[name]}", text)
    if name == "README.md":
        return _document(env, "index", text)
    if name.startswith("docs/") and path.suffix == ".md":
        return _document(env, name.removeprefix("docs/").removesuffix(".md"), text)
    if not path.is_file() or (path.suffix not in TEXT_FILES and path.name != "run"):
        return nodes.literal(text, text)
    _sources(env).setdefault(env.docname, set()).add(name)
    return nodes.reference("", "", nodes.literal(text, text), internal=True, refuri="", source_file=name, line=line)


def _document(env: Any, docname: str, text: str) -> nodes.Node:
    inner = nodes.inline(text, text, classes=["std", "std-doc"])
    return addnodes.pending_xref(
        "", inner, refdomain="std", reftype="doc", reftarget=f"/{docname}", refexplicit=True, refwarn=True,
        refdoc=env.docname,
    )  # fmt: skip


# -- names in code ---------------------------------------------------------------------------------------------------


class LiteralLinks(SphinxTransform):
    """Literals that are the path of a file, a test or a public name."""

    default_priority = 20

    def apply(self, **kwargs: Any) -> None:
        """Link them."""
        if self.env.docname.startswith("gallery/"):
            return
        for node in list(self.document.findall(nodes.literal)):
            if not isinstance(node.parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
                new = literal_link(self.env, node.astext())
                if new is not None:
                    node.replace_self(new)


def literal_link(env: Any, text: str) -> nodes.Node | None:
    """A link of a literal, or None where it names nothing that has a page."""
    test = re.fullmatch(r"((?:tests/[\w/]+\.py)?(?:::)?)(test_\w+)", text)
    if test is not None:
        for file, line in _tests().get(test[2], ()):
            if not test[1].strip(":") or file == test[1].strip(":"):
                return reference_to_file(env, ROOT / file, text, line)
        file = next(ROOT.glob(f"tests/**/{test[2]}.py"), None)
        return None if file is None else reference_to_file(env, file, text)
    if re.fullmatch(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+", text):
        return reference_to_file(env, ROOT / text, text) if (ROOT / text).is_file() else None
    full = _public_names().get(text.removesuffix("()"))
    if full is None:
        return None
    node = addnodes.pending_xref(
        "", nodes.literal(text, text), refdomain="py", reftype="obj", reftarget=full, refexplicit=True,
        refdoc=env.docname, refwarn=True,
    )  # fmt: skip
    return node


@cache
def _public_names() -> dict[str, str]:
    """Full names by what a page may write: a class's name, ``eg.name``, the full name; no ambiguous ones."""
    found: dict[str, set[str]] = {}
    entries = api_pages.documented()
    for full, (_, value) in entries.items():
        found.setdefault(full, set()).add(full)
        if isinstance(value, type):
            found.setdefault(full.rpartition(".")[2], set()).add(full)
    by_object = {id(value): full for full, (_, value) in entries.items()}
    for room in api_pages.rooms():
        for name in room.__all__:
            full = by_object[id(getattr(room, name))]
            found.setdefault(f"{room.__name__}.{name}", set()).add(full)
    for name in edpbrl_gym.__all__:
        full = by_object[id(getattr(edpbrl_gym, name))]
        for spelling in (f"eg.{name}", f"edpbrl_gym.{name}"):
            found.setdefault(spelling, set()).add(full)
    return {spelling: next(iter(names)) for spelling, names in found.items() if len(names) == 1}


@cache
def _tests() -> dict[str, list[tuple[str, int]]]:
    """File and line of every test, by its name."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = re.match(r"(?:async )?def (test_\w+)", line)
            if match is not None:
                found.setdefault(match[1], []).append((path.relative_to(ROOT).as_posix(), number))
    return found


# -- pages with the source of files ----------------------------------------------------------------------------------


def _sources(env: Any) -> dict[str, set[str]]:
    """Files of which a page shows the source, by the page that links to them."""
    if not hasattr(env, "linked_sources"):
        env.linked_sources = {}
    found: dict[str, set[str]] = env.linked_sources
    return found


def _purge(app: Any, env: Any, docname: str) -> None:
    _sources(env).pop(docname, None)


def _resolve_sources(app: Any, doctree: nodes.document, docname: str) -> None:
    """Only now is it known where the source pages are from here."""
    for node in doctree.findall(nodes.reference):
        if "source_file" in node:
            address = app.builder.get_relative_uri(docname, f"source/{node['source_file']}")
            node["refuri"] = address + (f"#L-{node['line']}" if node["line"] else "")


def source_pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page with the source of every file that is linked."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    for name in sorted(set().union(*_sources(app.env).values())):
        try:
            lexer = get_lexer_for_filename(name)
        except ClassNotFound:
            lexer = TextLexer()
        code = (ROOT / name).read_text(encoding="utf-8")
        body = highlight(code, lexer, HtmlFormatter(lineanchors="L", linenos="inline", anchorlinenos=True))
        yield f"source/{name}", {"title": name, "body": f"<h1>{name}</h1>\n{body}"}, "page.html"
