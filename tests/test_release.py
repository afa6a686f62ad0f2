"""The script that builds releases: links that work on the page of a package index, and URLs."""

import configparser
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load(name: str):
    """A file of the folder ``release`` as a module."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load("build")
ADDRESS = "https://example.org/owner/name"


def test_no_link_of_the_readme_stays_relative():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = re.findall(r"\]\((?!https?:|#)([^)\s]+)", text)
    made = build.absolute_links(text, ADDRESS, "v1")
    assert len(relative) > 20 and not re.findall(r"\]\((?!https?:|#)([^)\s]+)", made)
    assert made.count(f"]({ADDRESS}/") == len(relative)


def test_the_urls_reach_the_metadata():
    parser = configparser.ConfigParser()
    parser.read_string(build.with_urls((ROOT / "setup.cfg").read_text(encoding="utf-8"), ADDRESS, "v1"))
    urls = dict(line.split(" = ") for line in parser["metadata"]["project_urls"].strip().split("\n"))
    assert urls["Homepage"] == ADDRESS and urls["Changelog"] == f"{ADDRESS}/blob/v1/CHANGELOG.md"
    assert parser["metadata"]["name"] == "edpbrl-gym"


def test_a_copy_holds_the_links(tmp_path):
    build.copy_tracked(tmp_path)
    package = tmp_path / "edpbrl_gym"
    assert (package / "agents").is_symlink() and (package / "envs" / "base.py").is_file()
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert build.version_of(tmp_path) == re.search(r"^version: (\S+)", citation, flags=re.M)[1]


def test_the_notes_are_ten_lines_with_links_that_work():
    text = build.notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), build.version_of(ROOT))
    assert len(re.findall(r"^- ", text, flags=re.M)) == 10 and "#" not in text.replace(".md#", "")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 10 and all((ROOT / link).is_file() for link in links)
    assert build.absolute_links(text, ADDRESS, "v1").count(f"]({ADDRESS}/blob/v1/") == len(links)


@pytest.mark.parametrize(
    "text", ["", "## 9.9.9\n\n### Added\n", "## 9.9.9\n\n### Added\n\n## 1\n\n### In short\n\n- a\n\n### b\n"]
)
def test_a_version_without_notes_is_an_error(text):
    with pytest.raises(SystemExit, match="In short"):
        build.notes(text, "9.9.9")


def test_a_checkout_whose_links_are_text_files_is_built_from_folders(tmp_path, monkeypatch):
    """As git makes it on Windows; .ci/release builds such a wheel and compares it with what git tracks."""
    backend = load("backend")
    for name in ("agents/one.py", "envs/lanes/two.py", "edpbrl_gym/__init__.py", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    for room in backend.ROOMS:
        (tmp_path / "edpbrl_gym" / room).write_text(f"../{room}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with backend.rooms_as_folders():
        assert Path.cwd() != tmp_path and not Path(".git").exists()
        assert Path("edpbrl_gym/agents/one.py").read_text(encoding="utf-8") == "agents/one.py"
        assert Path("edpbrl_gym/envs/lanes/two.py").is_file() and Path("agents/one.py").is_file()
    assert Path.cwd() == tmp_path and (tmp_path / "edpbrl_gym" / "agents").is_file()
    (tmp_path / "edpbrl_gym" / "envs").write_text("../nowhere", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="nowhere is none; clone again"), backend.rooms_as_folders():
        pass
    monkeypatch.chdir(ROOT)
    with backend.rooms_as_folders():
        assert Path.cwd() == ROOT


def test_the_rooms_are_found_beside_a_package_whose_links_are_text_files(tmp_path):
    build.copy_tracked(tmp_path)
    for room in ("agents", "envs"):
        (tmp_path / "edpbrl_gym" / room).unlink()
        (tmp_path / "edpbrl_gym" / room).write_text(f"../{room}", encoding="utf-8")
    program = (
        "import edpbrl_gym.envs.wrappers as found, edpbrl_gym; print(found.__file__, edpbrl_gym.make_agent.__module__)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert said.split()[0].startswith(str(tmp_path / "envs")) and said.split()[1].startswith("edpbrl_gym.agents")
