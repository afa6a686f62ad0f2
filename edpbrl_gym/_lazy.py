"""Names of packages that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports its names when they are first used.

    Type checkers read the ``__init__.pyi`` beside the package's ``__init__.py``, which imports the same names. These
    are given by module, relative to the package, whose ``__name__`` comes first.
    """
    modules = {name: module for module, module_names in names.items() for name in module_names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names_of, sorted(modules, key=lambda name: (name[0].islower(), not name.isupper(), name))
