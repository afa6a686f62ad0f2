"""The documentation site: every page can be reached, what is registered has its entry, and mistakes are found.

The build itself (``python -m sphinx -W``, in ``.ci/checks``) checks the rest.
"""

from __future__ import annotations

import dataclasses
import importlib
import posixpath
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: pip install 'edpbrl-gym[docs]'")

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def makers():
    """The modules that write pages, by name."""
    names = (
        *("environment_pages", "registry_pages", "command_pages", "api_pages", "project_pages", "generated_pages"),
        *("claim_sections", "docstrings", "html_checks", "page_titles", "repository_links"),
    )
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(DOCS / "_ext"))


@pytest.fixture(scope="module")
def pages(makers, tmp_path_factory):
    """All pages by name: those of the repository and those that are written out of the code; no episode is played."""
    from edpbrl_gym.envs import ENVIRONMENTS

    environments = makers["environment_pages"]
    folder = tmp_path_factory.mktemp("docs") / "reference"
    names = [f"environments/{environments.page_name(entry['id'])}.md" for entry in ENVIRONMENTS]
    listed = {"environments/index.md": environments.index(), **dict.fromkeys(names, "")}
    others = [make for make in makers["generated_pages"].MAKERS if make is not environments.pages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(makers["generated_pages"], "MAKERS", (lambda: listed, *others))
        makers["generated_pages"].write_pages(folder)
    found = {path.stem: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    for path in [*folder.rglob("*.md"), *folder.rglob("*.rst")]:
        found[path.relative_to(folder.parent).with_suffix("").as_posix()] = path.read_text(encoding="utf-8")
    return found


def toctree(text: str) -> list[str]:
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text, flags=re.M | re.S)
    blocks += re.findall(r"^\.\. toctree::\n((?:[ ]{3}.*\n|\n)+)", text, flags=re.M)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [re.sub(r".*<(.*)>", r"\1", line) for line in lines if line and not line.startswith(":")]


def links(name: str, text: str) -> set[str]:
    """Pages that a page links to, in its text, on its cards and in its toctree."""
    found = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r"^:link: (.+)$", text, flags=re.M) + toctree(text)
    found += re.findall(r":doc:`[^`]*<([^>]+)>`", text)
    folder = posixpath.dirname(name)
    return {re.sub(r"\.(md|rst)$", "", posixpath.normpath(posixpath.join(folder, link.lstrip("/")))) for link in found}


def clicks(pages: dict[str, str]) -> dict[str, int]:
    """How many links lead from the first page to each page."""
    found, frontier = {"index": 0}, ["index"]
    while frontier:
        name = frontier.pop(0)
        for target in sorted(links(name, pages[name])):
            if target in pages and target not in found:
                found[target] = found[name] + 1
                frontier.append(target)
    return found


def test_every_page_is_in_one_toctree_below_the_first_page(pages):
    seen, frontier = ["index"], ["index"]
    while frontier:
        name = frontier.pop()
        for entry in toctree(pages[name]):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry))
            if target == "gallery/index":  # by sphinx-gallery
                continue
            seen.append(target)
            frontier.append(target)
    assert sorted(seen) == sorted(pages)


@pytest.mark.parametrize("goal", ["own-agent", "own-people", "own-vocabulary", "own-environment", "tutorial", "study"])
def test_a_newcomer_finds_it_in_two_clicks(pages, goal):
    assert clicks(pages)[goal] <= 2


def test_every_environment_has_a_page_with_an_episode(makers):
    from edpbrl_gym.envs import ENVIRONMENTS

    made = makers["environment_pages"].pages()
    for entry in ENVIRONMENTS:
        text = made[f"environments/{entry['id'].split('/')[1]}.md"]
        assert entry["id"] in text and "## Action Space" in text
        assert len(re.findall(r"^step \d+  \S", text, flags=re.M)) >= 5
    assert made["environments/DiffusionGuidance-v0.png"].startswith(b"\x89PNG")


def test_everything_registered_has_its_entry(pages):
    from edpbrl_gym.agents.registry import AGENTS
    from edpbrl_gym.experiments.registry import EXPERIMENTS, get_experiment
    from edpbrl_gym.planners.registry import PLANNERS, RULES

    names = set(re.findall(r"\* - ``([\w-]+)``", pages["reference/agents"] + pages["reference/planners"]))
    assert names >= {*AGENTS, *PLANNERS, *RULES}
    for kind in EXPERIMENTS:
        assert f".. _experiment-{kind}:" in pages["reference/experiments"]
        for field in dataclasses.fields(get_experiment(kind).settings):
            assert f"``{field.name}``" in pages["reference/experiments"]


def test_oracles_and_public_names_have_their_entries(pages, makers):
    import edpbrl_gym

    for name in ("SyntheticUser", "ImperfectUser", "JudgeOracle", "HumanOracle"):
        assert re.search(rf"autoclass:: edpbrl_gym[\w.]*\.{name}\n", pages["reference/oracles"])
    text = "\n".join(pages[page] for page in pages if page.startswith("reference/"))
    for full in makers["api_pages"].documented():
        assert re.search(rf"\.\. (autoclass|autofunction|py:data):: {re.escape(full)}\n", text), full
    assert all(f"``eg.{name}``" in pages["reference/api/index"] for name in edpbrl_gym.__all__)


def test_every_command_has_its_help(pages):
    text = pages["reference/commands"]
    for command in ("ask", "design", "estimate", "study serve", "reproduce synthetic"):
        assert f"# edpbrl {command}\n\n```text\nusage: edpbrl {command}" in text


def test_pages_with_numbers_end_with_where_these_come_from(makers):
    section = makers["claim_sections"].section
    assert "python -m benchmarks.people" in section("docs/people.md")
    assert section("docs/index.md") == section("docs/reference/agents.md") == ""


def test_requests_to_other_hosts_and_broken_links_are_found(makers, tmp_path):
    (tmp_path / "good.html").write_text('<a href="#here">1</a><p id="here"></p><a href="https://example.org">2</a>')
    assert makers["html_checks"].mistakes(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<script src="https://cdn.example.org/x.js"></script><img src="//example.org/y.png">'
        '<a href="gone.html">1</a><a href="good.html#gone">2</a>'
    )
    (tmp_path / "bad.css").write_text("@import 'https://fonts.example.org/css'; p { background: url(//example.org/z) }")
    assert makers["html_checks"].mistakes(tmp_path) == [
        "bad.html loads https://cdn.example.org/x.js",
        "bad.html loads //example.org/y.png",
        "bad.html links to gone.html, which is not there",
        "bad.html links to good.html#gone: no such place on that page",
        "bad.css loads https://fonts.example.org/css",
        "bad.css loads //example.org/z",
    ]


def test_formulas_and_norms_in_docstrings_are_kept(makers):
    lines = ["The norm |x| is", "", "    |x|^2 = x' x", "", "and ``a | b`` stays.", "", "Args:", "    x: A vector."]
    assert makers["docstrings"].as_rst(lines) == [
        *("The norm \\|x\\| is", "", "::", "", "    |x|^2 = x' x", "", "and ``a | b`` stays.", ""),
        *("Args:", "    x: A vector."),
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_has_a_title_and_cells_for_the_gallery(path):
    text = path.read_text(encoding="utf-8")
    title, line = re.match(r'"""(.+)\n(=+)\n', text).groups()
    assert len(title) == len(line)
    assert "\n# %%\n# " in text


def test_links_say_the_titles_of_pages(makers):
    from docutils import nodes

    titles = {"people": nodes.title("", "Other people"), "reference/index": nodes.title("", "All")}
    title_of = makers["page_titles"].title_of
    assert title_of("people.md", "people.html#a", "index", titles) == "Other people"
    assert title_of("docs/people.md", "../people.html", "reference/index", titles) == "Other people"
    assert title_of("people", "people.html", "index", titles) is None  # the text is the author's
    assert title_of("gone.md", "gone.html", "index", titles) is None
