"""Python blocks of README and docs run; links, paths, modules and tests are there; every number has its claim."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claims import checks, page, registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")])
TUTORIAL = "tutorial.md"  # its blocks need what its commands write
EXAMPLES = sorted((ROOT / "examples").iterdir())


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page) and page.name != TUTORIAL], ids=lambda page: page.name
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of a page run in order in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # pages append "." to it, the folder of each
    sys.path_importer_cache.pop(".", None)
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for number, block in enumerate(python_blocks(page), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


def test_the_commands_and_the_blocks_of_the_tutorial_run(tmp_path, monkeypatch):
    """As a newcomer types them, one after the other in one folder, with any answers to the questions."""
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answers = "3\n1\ns\n4\n2\n4\n1\n2\n3\n2\n1\n"
    namespace: dict[str, object] = {"__name__": "__docs__"}
    text = (ROOT / "docs" / TUTORIAL).read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(python|bash)\n(.*?)^```$", text, flags=re.M | re.S):
        if language == "python":
            exec(compile(block, TUTORIAL, "exec"), namespace)
        elif "pip install" not in block:
            command = ["bash", "-euo", "pipefail", "-c", block]
            subprocess.run(command, input=answers, text=True, check=True, env={**os.environ, "PATH": path})
    written = {file.name for file in Path("my-dinner").iterdir()}
    assert written >= {"answers.parquet", "taste.safetensors", "session"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page):
    """A page that names a test as evidence must not outlive it."""
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.M)
    }
    files = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    assert named <= defined | files, sorted(named - defined - files)


def test_every_number_has_a_claim_that_holds():
    """docs/claims.toml says where the numbers come from; none is changed, added or removed without its entry."""
    assert "\n".join(checks.problems(registry.read(), checks.all_pages())) == ""


def test_the_page_of_the_claims_is_current():
    written = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert written == page.make_page(registry.read(), checks.all_pages()), "python -m benchmarks.claims write"


def resolve(name: str) -> object:
    """Return what a full dotted name stands for: a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # the module is there, a package that it needs is not
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", [*PAGES, *(p for p in EXAMPLES if p.suffix in (".md", ".py"))], ids=lambda p: p.name)
def test_dotted_names_import(page):
    for name in set(re.findall(r"\bedpbrl_gym(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8"))):
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_paths_exist(page):
    folders = "edpbrl_gym|agents|envs|examples|benchmarks|tests|docs"
    for path in set(re.findall(rf"`((?:{folders})/[\w/.*-]*)`", page.read_text(encoding="utf-8"))):
        assert list(ROOT.glob(path)), f"{page.name} names {path}, which is not there"


def test_names_and_paths_that_are_gone_are_found(tmp_path):
    """The two tests above can fail."""
    page = tmp_path / "page.md"
    page.write_text("`edpbrl_gym.design.no_such_name` and `tests/no_such_folder/`", encoding="utf-8")
    with pytest.raises(AttributeError, match="no_such_name"):
        test_dotted_names_import(page)
    with pytest.raises(AssertionError, match="no_such_folder"):
        test_named_paths_exist(page)
