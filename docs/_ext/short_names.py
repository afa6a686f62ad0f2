"""Names in docstrings become links: ``Session`` in single backticks, and types in signatures.

A name is looked up by its end among all documented objects. A full name of this package that is not documented must at
least import; another one is a warning, which ends a build with ``-W``. Names of other packages stay text, as no other
site is read.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode

__all__ = ["setup"]


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def resolve(app: Any, env: Any, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """The link of a name, the name as text where there is none, or None for a mistake."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip(".~").removesuffix("()")
    found = _by_end(env).get(target, set())
    if len(found) == 1:
        name = next(iter(found))
        entry = env.domains.python_domain.objects[name]
        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name)
    if target.startswith("edpbrl_gym.") and not _imports(target):
        return None
    return contnode


def _by_end(env: Any) -> dict[str, set[str]]:
    """Documented names by each of their ends, "agents.Agent" and "Agent"; without canonical names."""
    objects = env.domains.python_domain.objects
    kept = getattr(env, "_names_by_end", None)
    if kept is not None and kept[0] == len(objects):
        return kept[1]  # type: ignore[no-any-return]
    ends: dict[str, set[str]] = {}
    for name, entry in objects.items():
        if entry.aliased:
            continue
        parts = name.split(".")
        for start in range(1, len(parts)):
            ends.setdefault(".".join(parts[start:]), set()).add(name)
    env._names_by_end = (len(objects), ends)
    return ends


def _imports(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[length:]:
                value = getattr(value, part)
        except AttributeError:
            return parts[-1] in getattr(value, "__annotations__", {})
        return True
    return False
