"""The API reference: a page for every room with public names, which are those of its ``__all__``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from docstrings import as_rst
from sphinx.pycode import ModuleAnalyzer
from texts import first_paragraph, rst_heading, rst_table

import edpbrl_gym

__all__ = ["MODULES", "documented", "entry", "pages", "rooms"]

# modules with public names in rooms whose own __init__ lists none
MODULES = (
    "edpbrl_gym.design.gaps",
    "edpbrl_gym.design.moments",
    "edpbrl_gym.estimation.metrics",
    "edpbrl_gym.experiments.framework",
    "edpbrl_gym.experiments.registry",
    "edpbrl_gym.experiments.runs",
    "edpbrl_gym.planners.registry",
    "edpbrl_gym.reporting.report",
    "edpbrl_gym.reporting.statistics",
    "edpbrl_gym.reporting.tables",
)
# their names are for the rooms around them
_INTERNAL = (
    "edpbrl_gym.cli",
    "edpbrl_gym.design.solvers.newton",
    "edpbrl_gym.study.web",
    "edpbrl_gym.study.migrations",
)


def rooms() -> list[ModuleType]:
    """All packages with public names, sorted, and the modules of ``MODULES``."""
    packages = pkgutil.walk_packages(edpbrl_gym.__path__, "edpbrl_gym.")
    names = {module.name for module in packages if module.ispkg and not module.name.startswith(_INTERNAL)}
    modules = [importlib.import_module(name) for name in sorted(names | set(MODULES))]
    return [module for module in modules if getattr(module, "__all__", ())]


def documented() -> dict[str, tuple[str, Any]]:
    """Public names by the full name under which each is documented, with its room: the deepest that lists it."""
    found: dict[str, tuple[str, Any]] = {}
    seen: set[int] = set()
    for room in sorted(rooms(), key=lambda room: (-room.__name__.count("."), room.__name__)):
        for name in room.__all__:
            value = getattr(room, name)
            is_object = inspect.isclass(value) or inspect.isroutine(value)
            if is_object and id(value) in seen:
                continue
            seen.add(id(value))
            found[f"{room.__name__}.{name}"] = (room.__name__, value)
    return found


def pages() -> Mapping[str, str | bytes]:
    """A page for every room, and the page that lists the rooms and the names of ``edpbrl_gym``."""
    from registry_pages import described

    entries, elsewhere = documented(), {id(cls) for cls in described()}
    by_object = {id(value): name for name, (_, value) in entries.items()}
    made: dict[str, str | bytes] = {}
    rows = []
    for room in rooms():
        short = room.__name__.removeprefix("edpbrl_gym.")
        made[f"api/{short}.rst"] = _room_page(room, entries, by_object, elsewhere)
        rows.append((f":doc:`{room.__name__} <{short}>`", first_paragraph(room)))
    top = [
        (f"``eg.{name}``", f":py:obj:`{by_object[id(value)]} <{by_object[id(value)]}>`", first_paragraph(value))
        for name, value in ((name, getattr(edpbrl_gym, name)) for name in edpbrl_gym.__all__)
    ]
    toctree = "\n".join(f"   {room.__name__} <{room.__name__.removeprefix('edpbrl_gym.')}>" for room in rooms())
    made["api/index.rst"] = (
        rst_heading("API")
        + "\n``import edpbrl_gym as eg`` gives the names that most programs need. Each room lists the rest.\n\n"
        + rst_heading("Names of edpbrl_gym", "-")
        + "\n"
        + rst_table(("name", "is", "what"), top)
        + "\n"
        + rst_heading("Rooms", "-")
        + "\n"
        + rst_table(("room", "what is there"), rows)
        + f"\n.. toctree::\n   :hidden:\n\n{toctree}\n"
    )
    return made


def _room_page(
    room: ModuleType, entries: Mapping[str, Any], by_object: Mapping[int, str], elsewhere: Collection[int]
) -> str:
    parts = [
        rst_heading(room.__name__),
        f"\n.. py:module:: {room.__name__}\n",
        "\n".join(as_rst((room.__doc__ or "").splitlines())),
        "\n",
    ]
    rows, details = [], []
    for name in room.__all__:
        full, value = f"{room.__name__}.{name}", getattr(room, name)
        here = full in entries
        target = full if here else by_object[id(value)]
        is_object = inspect.isclass(value) or inspect.isroutine(value)
        what = first_paragraph(value) if is_object else _comment(name, value).partition("\n\n")[0].replace("\n", " ")
        rows.append((f":py:obj:`{name} <{target}>`", what))
        if here and id(value) not in elsewhere:
            details.append(entry(full, value))
    return "\n".join([*parts, rst_table(("name", "what"), rows), "", *details])


def entry(full: str, value: Any) -> str:
    """The directive that documents a public name."""
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n   :show-inheritance:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {full}\n"
    text = "\n   ".join(as_rst(_comment(full.rpartition(".")[2], value).splitlines()))
    return f".. py:data:: {full}\n\n   {text}\n"


def _comment(name: str, value: Any) -> str:
    """The docstring below a constant, where it is defined."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name.startswith("edpbrl_gym.") and vars(module).get(name) is value:
            text = ModuleAnalyzer.for_module(module_name).find_attr_docs().get(("", name))
            if text:
                return "\n".join(text)
    return ""
