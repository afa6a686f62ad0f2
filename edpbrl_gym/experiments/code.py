"""The version of the code behind a number: a hash of all modules that could have contributed."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import edpbrl_gym

__all__ = ["code_fingerprint", "modules_behind"]

_PACKAGE = edpbrl_gym.__name__
_ROOT = Path(edpbrl_gym.__file__).parent
_IMPORT_STRING = re.compile(rf"{_PACKAGE}(\.\w+)+(:\w+)?")


@functools.lru_cache(maxsize=8)
def code_fingerprint(module: str) -> str:
    """First 12 hex digits of the sha256 of the code behind a module of the package (see ``modules_behind``).

    Results may be added to a folder over days, so a table that mixes versions of the code must report it. The same
    files give the same digits in every process.
    """
    digest = hashlib.sha256()
    for name in modules_behind(module):
        path = _file_of(name)
        assert path is not None, name
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def modules_behind(module: str) -> tuple[str, ...]:
    """All modules of the package that a module can load, itself included, sorted.

    They are taken from the source, since the modules that a process has loaded depend on its history. Followed are
    imports, including those inside functions, and import strings: texts that name a module of the package, with or
    without ``:Class``; for a text that names a package (registries look names up in it) all its modules. Imports for
    annotations only are ignored.

    Args:
        module: Full name, such as "edpbrl_gym.experiments.bench.unit".

    Raises:
        ValueError: If the package has no such module.
    """
    if _file_of(module) is None:
        raise ValueError(f"Expected a module of {_PACKAGE}, got {module!r}")
    modules: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        if name in modules:
            continue
        modules.add(name)
        parent = name.rpartition(".")[0]
        if parent:
            queue.append(parent)  # Python runs the package's __init__ first
        queue += [candidate for candidate in _named_in(name) if candidate not in modules]
    return tuple(sorted(modules))


def _file_of(module: str) -> Path | None:
    """The file of a module of the package; None where there is no such module."""
    first, _, parts = module.partition(".")
    if first != _PACKAGE:
        return None
    place = _ROOT.joinpath(*parts.split(".")) if parts else _ROOT
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@functools.cache
def _named_in(module: str) -> frozenset[str]:
    """The modules of the package that a module names."""
    path = _file_of(module)
    assert path is not None, module
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_bytes(), filename=str(path))
    return frozenset(name for node in _running(tree) for name in _named_by(node, package) if _file_of(name) is not None)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``."""
    queue = [tree]
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            queue += node.orelse
        else:
            queue += ast.iter_child_nodes(node)


@functools.cache
def _lazy_names(package: str) -> dict[str, str]:
    """Name -> module of the package that loads it, of a package that loads its names on first use."""
    path = _file_of(package)
    if path is None or path.name != "__init__.py":
        return {}
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_names":
            return {name: module for module, names in ast.literal_eval(node.args[1]).items() for name in names}
    return {}


def _named_by(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
        yield source
        yield from (f"{source}.{alias.name}" for alias in node.names)
        lazy = _lazy_names(source)
        yield from (f"{source}.{lazy[alias.name]}" for alias in node.names if alias.name in lazy)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IMPORT_STRING.fullmatch(node.value):
        name = node.value.partition(":")[0]
        yield name
        place = _ROOT.joinpath(*name.split(".")[1:])
        if place.is_dir():
            inside = (path.relative_to(place).with_suffix("").parts for path in sorted(place.rglob("*.py")))
            yield from (".".join((name, *parts)) for parts in inside if parts[-1] != "__init__")
