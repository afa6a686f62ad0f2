"""What a test needs beyond the core of edpbrl-gym: found in its imports and fixtures, or declared with ``needs``."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import pytest

from edpbrl_gym._compat import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
# extras that everything in a folder of tests/ needs
FOLDERS = {
    "asking": ("study", "pictures"),
    "benchmarks": ("text", "experiments"),
    "cli": ("text", "experiments"),
    "diffusion": ("images",),
    "experiments": ("text", "experiments"),
    "language": ("text",),
    "rendering": ("images",),
    "workers": ("text", "experiments", "cluster"),
    "study": ("study",),
}
FIXTURES = {"minilm": "text", "gpt2": "text", "digits": "images", "tiny_pipeline": "images"}
# what the tests themselves import beside them
BROUGHT = EXTRAS | {
    "cluster": (*EXTRAS["cluster"], "psutil"),
    "test": ("statsmodels", "botorch", "gpytorch", "linear_operator", "optuna", "optuna_dashboard"),
}


@functools.cache
def is_installed(extra: str) -> bool:
    """Whether all packages of an extra are there."""
    return all(importlib.util.find_spec(package) is not None for package in BROUGHT[extra])


def reason(extras: Iterable[str]) -> str:
    """Why tests that need these extras are skipped; "" where all of them are installed."""
    missing = ",".join(sorted({extra for extra in extras if not is_installed(extra)}))
    return f"needs pip install 'edpbrl-gym[{missing}]'" if missing else ""


def skip_without(*extras: str) -> None:
    """Skip the test that runs, or for which a fixture is made."""
    if why := reason(extras):
        pytest.skip(why)


def extras_of_module(path: Path) -> tuple[str, ...]:
    """Extras that a file of tests needs: those of its folder, and of what it imports at its top level."""
    own = path.resolve().is_relative_to(ROOT / "tests")  # pytest may be given files from elsewhere
    folder = path.resolve().relative_to(ROOT / "tests").parts[0] if own else ""
    return (*FOLDERS.get(folder, ()), *_of_packages(_imported(path)))


def _of_packages(packages: Iterable[str]) -> list[str]:
    """For each package that is missing and belongs to extras, the first of them."""
    named = {package: extra for extra, brought in reversed(BROUGHT.items()) for package in brought}
    return [named[one] for one in packages if one in named and importlib.util.find_spec(one) is None]


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """Packages that a file imports at its top level, and those that its helpers import there."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            found.add(name.partition(".")[0])
            helper = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("tests.") and helper.is_file():
                found |= _imported(helper)
    return frozenset(found)
