"""``import edpbrl_gym as eg``: the names that it gives, that they load when they are used, and that they are typed."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import edpbrl_gym


def lazy() -> list[str]:
    return [room for room in rooms() if Path(str(importlib.import_module(room).__file__)).with_suffix(".pyi").is_file()]


def rooms() -> list[str]:
    packages = (module for module in pkgutil.iter_modules(edpbrl_gym.__path__, "edpbrl_gym.") if module.ispkg)
    return ["edpbrl_gym", *sorted(module.name for module in packages)]


@pytest.mark.parametrize("name", edpbrl_gym.__all__)
def test_every_public_name_is_what_it_says(name):
    value = getattr(importlib.import_module("edpbrl_gym"), name)
    assert not inspect.ismodule(value)
    assert value.__name__ == name
    assert value.__doc__
    namespace: dict[str, object] = {}
    exec(f"from edpbrl_gym import {name}", namespace)
    assert namespace[name] is value
    assert name in dir(edpbrl_gym)


@pytest.mark.parametrize("room", rooms())
def test_every_room_gives_what_it_lists_in_order(room):
    module = importlib.import_module(room)
    assert module.__doc__
    names = getattr(module, "__all__", [])
    constants_first = sorted(set(names), key=lambda name: (name[0].islower(), not name.isupper(), name))
    assert list(names) == constants_first
    for name in names:
        assert hasattr(module, name), f"{room}.{name}"


@pytest.mark.parametrize("package", lazy())
def test_type_checkers_read_the_names_that_are_there(package):
    module = importlib.import_module(package)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    declared = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(map(str, declared)) == sorted(module.__all__)
    for name, source in declared.items():
        origin, _, attribute = source.rpartition(".")
        assert getattr(importlib.import_module(origin), attribute) is getattr(module, str(name))


@pytest.mark.parametrize("package", lazy())
def test_no_name_hides_a_module(package):
    """``edpbrl_gym.design`` is the room, whatever was used before."""
    module = importlib.import_module(package)
    assert not set(module.__all__) & {inner.name for inner in pkgutil.iter_modules(module.__path__)}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'edpbrl_gym' has no attribute 'make_planet'$"):
        _ = edpbrl_gym.make_planet
    with pytest.raises(ImportError, match="make_planet"):
        exec("from edpbrl_gym import make_planet")


def test_names_load_when_they_are_used():
    """The list of names loads no room; a name loads its own."""
    code = """
import sys
import edpbrl_gym as eg
dir(eg), eg.__all__
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("edpbrl_gym.")}
assert rooms == {"_lazy", "envs"}, rooms
heavy = {"torch", "transformers", "pandas", "scipy", "matplotlib", "cvxpy", "pyarrow", "rich", "tyro"}
assert not heavy & set(sys.modules)
eg.load_vocabulary
assert "edpbrl_gym.vocabulary" in sys.modules
import edpbrl_gym.design
eg.verify, eg.estimate
assert eg.design is sys.modules["edpbrl_gym.design"]
assert not {"torch", "pandas", "transformers", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
