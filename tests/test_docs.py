"""Python blocks of README and docs run; links, paths, modules and tests are there."""

from __future__ import annotations

import importlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.design import CRITERIA
from edpbrl_gym.likelihood import FORMATS
from edpbrl_gym.study.arms import ARM_KINDS
from tests.helpers.command_lines import commands_of, refusal

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")])
TUTORIAL = "tutorial.md"  # its blocks need what its commands write
EXAMPLES = sorted((ROOT / "examples").iterdir())
SOURCES = [
    *(path for folder in ("edpbrl_gym", "agents", "envs", "benchmarks", "examples", "docs/_ext", "release")
      for path in sorted((ROOT / folder).rglob("*.py"))),
    ROOT / "setup.cfg",
]  # fmt: skip


CLAIMS = "where-these-numbers-come-from"  # the site ends every page with it


# what pages show, in a length that shows as much here
SHORTER = {
    "--out mine --questions 10": "--out mine --questions 5",
    "run(session, user, questions=30)": "run(session, user, questions=12)",
    "assert again.answered == 31": "assert again.answered == 13",
}


def shorter(text: str) -> str:
    for shown, here in SHORTER.items():
        text = text.replace(shown, here)
    return text


def headings(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.fixture
def tables():
    """What pages add to the tables of names goes again."""
    kept = [(table, dict(table)) for table in (CRITERIA, FORMATS, ARM_KINDS)]
    yield
    for table, entries in kept:
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("tables")
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
        exec(compile(shorter(block), f"{page.name}, block {number}", "exec", dont_inherit=True), namespace)
    if page.name == "README.md":  # the gain that it prints is outside its own error
        fewer = namespace["fewer"]
        assert len(fewer) == 5 and fewer.mean() > 2 * fewer.std(ddof=1) / 5**0.5


def test_the_commands_and_the_blocks_of_the_tutorial_run(tmp_path, monkeypatch):
    """As a newcomer types them, one after the other in one folder, with any answers to the questions.

    Commands of edpbrl run in this process, so that what they import and load is loaded once.
    """
    monkeypatch.chdir(tmp_path)
    answers = "3\n1\ns\n4\n2\n4\n1\n2\n3\n2\n1\n"
    namespace: dict[str, object] = {"__name__": "__docs__"}
    text = shorter((ROOT / "docs" / TUTORIAL).read_text(encoding="utf-8"))
    for language, block in re.findall(r"^```(python|bash)\n(.*?)^```$", text, flags=re.M | re.S):
        if language == "python":
            exec(compile(block, TUTORIAL, "exec", dont_inherit=True), namespace)
            continue
        for line in block.splitlines() if "pip install" not in block else ():
            if line.startswith("edpbrl "):
                monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
                assert main(shlex.split(line)[1:]) == 0, line
            else:
                subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True)
    written = {file.name for file in Path("my-dinner").iterdir()}
    assert written >= {"answers.parquet", "taste.safetensors", "session"}


def test_what_is_shortened_is_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(text.count(shown) == 1 for shown in SHORTER)


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "examples" / "README.md"], ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_command_lines_run_as_written(page):
    """The parser of the command takes them; a command named in a sentence may leave out what it needs."""
    for words, complete in dict.fromkeys(commands_of(page.read_text(encoding="utf-8"), is_page=True)):
        assert refusal(words, complete=complete) is None, " ".join(words)


def test_command_lines_of_docstrings_and_messages_run_as_written():
    found = {command for path in SOURCES for command in commands_of(path.read_text(encoding="utf-8"), is_page=False)}
    assert len(found) > 20
    for words, complete in found:
        if not any("{" in word for word in words):  # filled in when it is shown
            assert refusal(words, complete=complete) is None, " ".join(words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    edpbrl study delete FOLDER", "Missing"),
        ("    edpbrl study delete FOLDER --participant X", "Missing"),
        ("```bash\nA=$(b c) edpbrl ask --nothing 3 | tee x  # y\n```", "--nothing"),
        ("see `edpbrl nothing`", "nothing"),
        ("see `edpbrl study replay FOLDER --nothing PARTICIPANT`", "participant"),
        ("see `edpbrl ask\n--nothing 3`", "--nothing"),
        ("    pip install x && python -m benchmarks.scaling --nothing", "ends with 2"),
        ("    python -m benchmarks.nothing", "no module"),
        ("    python examples/ask_tell.py --nothing", "ends with 2"),
        ("    python -m pytest tests/nothing.py", "there is no"),
    ],
)
def test_command_lines_that_do_not_run_are_found(text, said):
    """The two tests above can fail."""
    [(words, complete)] = commands_of(text, is_page=True)
    assert said in str(refusal(words, complete=complete))


def installs(text: str) -> list[str]:
    """The arguments of each installation of this package that a page shows."""
    found = re.findall(r"\bpip3? install ((?:[^&|;#`\n\"]|\"[^\"\n]*\")*)", text)
    return [one.strip() for one in found if re.search(r"edpbrl|-e |(^| )\"?\.", one)]


@pytest.mark.parametrize(
    "page", [*PAGES, *(path for path in EXAMPLES if path.suffix in (".md", ".ipynb"))], ids=lambda page: page.name
)
def test_every_page_installs_by_the_name_of_the_package(page):
    """As from an index; the README's commands, CONTRIBUTING.md and the page of all ways also say it for a clone."""
    text = page.read_text(encoding="utf-8").replace('\\"', '"').replace("\\n", "\n")  # a notebook is JSON
    if page.name in ("README.md", "CONTRIBUTING.md", "install.md"):
        text = re.sub(r'pip install (-q )?-c constraints\.txt -e "?\.(\[[a-zA-Z,]+\])?"?', "", text)
        text = text.replace("pip install .`", "").replace('pip install "edpbrl_gym-', "")
    for arguments in installs(text):
        package = r'("edpbrl-gym\[[a-zA-Z,-]+\]"|edpbrl-gym)( [\w-]+)*'
        assert re.fullmatch(f"(--no-index --find-links wheels )?{package}", arguments), f"{page.name}: {arguments}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install optuna", []),
        ('pip install -q -c constraints.txt -e ".[text]" && edpbrl demo', ['-q -c constraints.txt -e ".[text]"']),
        ('(`pip install "edpbrl-gym[rl]"`)', ['"edpbrl-gym[rl]"']),
        ("pip install edpbrl-gym[rl]  # why", ["edpbrl-gym[rl]"]),
    ],
)
def test_installations_are_found(text, found):
    """The test above can fail."""
    assert installs(text) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    for target, heading in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        aim = page.parent / target if target else page
        assert aim.exists(), f"{page.name} links to {target}, which is not there"
        if heading and aim.suffix == ".md" and heading != CLAIMS:
            assert heading in headings(aim), f"{page.name} links to {target}#{heading}, which is not there"


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
