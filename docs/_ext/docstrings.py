"""What the docstrings write freely, as reStructuredText understands it.

Norms and absolute values stand between bars, which are no substitutions; formulas and commands are indented, which
makes them literal blocks and not quotations; the docstrings of environments are Markdown, and have pages of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edpbrl_gym.envs import ENVIRONMENTS

__all__ = ["as_rst", "environment_of", "setup"]


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx, before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def environment_of(cls: Any) -> str | None:
    """The id of the environment whose class, single or in lanes, this is."""
    path = f"{getattr(cls, '__module__', '')}:{getattr(cls, '__qualname__', '')}"
    for entry in ENVIRONMENTS:
        if path in (entry["entry_point"], entry["vector_entry_point"]):
            return str(entry["id"])
    return None


def as_rst(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring, with literal blocks marked and bars escaped."""
    made: list[str] = []
    level: int | None = None  # of the text before a literal block
    previous = ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if level is not None and line.strip() and indent <= level:
            level = None
        if level is None and line.strip() and made and not made[-1].strip() and previous.strip():
            before = len(previous) - len(previous.lstrip())
            item = re.match(r"\s*(?:[-*]|\d+\.)\s+", previous)
            if indent > before and not (item and indent == item.end()):
                level = before
                if not previous.rstrip().endswith("::"):
                    made += [" " * before + "::", ""]
        made.append(line if level is not None else _escape(line))
        if line.strip():
            previous = line
    return made


def _escape(line: str) -> str:
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def _process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    env_id = environment_of(thing) if what == "class" else None
    if env_id is None:
        lines[:] = as_rst(lines)
        return
    page = env_id.split("/")[-1]
    lines[:] = [lines[0] if lines else "", "", f"Its page: :doc:`/reference/environments/{page}`.", ""]
