"""What is installed: every import is declared, every extra is real, and pages name extras that exist."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edpbrl_gym._compat import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
OPTIONAL = {"certifi"}  # used where it happens to be installed
BESIDE_EXTRAS = {"test", "docs"}  # for contributors


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def _listed(text: str) -> set[str]:
    """Names of the distributions in some lines of setup.cfg, with those of the extras that they name."""
    found: set[str] = set()
    for line in text.split("\n"):
        own = re.match(r"edpbrl-gym\[(.*)\]", line)
        if own:
            found |= {name for extra in own[1].split(",") for name in _listed(SETUP["options.extras_require"][extra])}
        elif line.strip():
            found.add(_name(line))
    return found


CORE = _listed(SETUP["options"]["install_requires"])
BROUGHT = {extra: _listed(text) for extra, text in SETUP["options.extras_require"].items()}


_DISTRIBUTIONS = functools.cache(importlib.metadata.packages_distributions)


def _distributions(package: str) -> set[str]:
    found = _DISTRIBUTIONS().get(package, [package])
    return {name.lower().replace("_", "-") for name in found}


@functools.cache
def _tracked() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@functools.cache
def _imports() -> dict[str, set[str]]:
    """Package -> files that import it, outside ``if TYPE_CHECKING``; by import statements or by ``require``."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, path: Path) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("require", "Need") and node.args:
            first = getattr(node.args[0], "value", None)
            names = [first] if isinstance(first, str) else []
        for name in names:
            found.setdefault(name.partition(".")[0], set()).add(str(path.relative_to(ROOT)))
        for child in ast.iter_child_nodes(node):
            visit(child, path)

    for folder in ("edpbrl_gym", "agents", "envs"):
        for path in (ROOT / folder).rglob("*.py"):
            if not (ROOT / folder).joinpath(path.relative_to(ROOT / folder).parts[0]).is_symlink():
                visit(ast.parse(path.read_text(encoding="utf-8")), path)
    return found


def test_every_file_of_the_package_is_installed():
    """What setup.cfg names is in the wheel; MANIFEST.in in the archive of the sources."""
    files = [
        ROOT / name for name in _tracked() if name.startswith("edpbrl_gym/") and not name.endswith((".py", ".pyi"))
    ]
    patterns = ((ROOT / package.replace(".", "/"), line) for package, line in SETUP["options.package_data"].items())
    named = {path for place, line in patterns for one in line.split(", ") for path in place.glob(one)}
    assert {path for path in files if path.is_file()} == {path for path in named if path.is_file()}
    listed = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split()
    assert {f"*{path.suffix}" for path in files if "data" in path.parts} <= set(listed)


def test_every_import_is_declared():
    """Of the core in install_requires, of an extra in ``EXTRAS``, and there is no third way."""
    known = (
        sys.stdlib_module_names | OPTIONAL | {"edpbrl_gym"} | {one for brought in EXTRAS.values() for one in brought}
    )
    undeclared = {name: files for name, files in _imports().items() if name not in known}
    assert {name: files for name, files in undeclared.items() if not _distributions(name) & CORE} == {}


def test_no_package_of_the_core_is_unused():
    names = {name for package in _imports() for name in _distributions(package)}
    assert CORE <= names


@pytest.mark.parametrize(
    ("rooms", "extras", "imported"),
    [
        (
            ("mdp", "likelihood", "vocabulary", "comparisons", "session", "planners", "estimation", "design"),
            (),
            {
                ("cvxpy", "design/solvers/reference.py"),
                ("pandas", "comparisons/frames.py"),
                ("pandas", "estimation/map_estimate.py"),
                ("sklearn", "estimation/gaussian_process.py"),
            },
        ),
        (
            ("study",),
            ("study",),
            {
                ("PIL", "study/own_photos.py"),
                ("matplotlib", "study/reporting/flow.py"),
                ("matplotlib", "study/reporting/report.py"),
                ("psycopg", "study/config.py"),
                ("psycopg", "study/database.py"),
            },
        ),
    ],
    ids=["the core", "studies"],
)
def test_what_needs_no_extra_imports_none_inside_functions_either(rooms, extras, imported):
    """So `.ci/core` needs not run all tests of these rooms without the extras; those that it runs know these files."""
    optional = {one for brought in EXTRAS.values() for one in brought} - {one for own in extras for one in EXTRAS[own]}
    found = {
        (package, file.removeprefix("edpbrl_gym/"))
        for package, files in _imports().items()
        for file in files
        if package in optional and file.split("/")[1] in rooms
    }
    assert found == imported


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_its_packages(extra):
    for package in EXTRAS[extra]:
        assert _distributions(package) & BROUGHT[extra], f"the extra {extra!r} does not bring {package!r}"


def test_the_extras_of_setup_are_those_of_the_table():
    assert set(BROUGHT) - BESIDE_EXTRAS == set(EXTRAS)
    assert BROUGHT["test"] >= set().union(*(BROUGHT[extra] for extra in EXTRAS))


def test_pages_and_messages_name_extras_that_exist():
    for file in _tracked():
        if not file.endswith((".py", ".md", ".pyi", ".yml", ".toml", ".cfg")) or file == "tests/test_packaging.py":
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        for named in re.findall(r"(?:edpbrl-gym|-e \"?\.)\[([a-z,]+)\]", text):
            assert set(named.split(",")) <= set(BROUGHT), f"{file} names the extras {named}"
