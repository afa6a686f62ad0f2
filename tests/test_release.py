"""The script that builds releases: links that work on the page of a package index, and URLs."""

import configparser
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SPEC = importlib.util.spec_from_file_location("release_build", ROOT / "release" / "build.py")
build = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(build)
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
