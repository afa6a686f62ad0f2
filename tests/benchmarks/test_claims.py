"""The claims: numbers are found, changes are noticed, cheap numbers are computed once more, dear ones can be."""

import datetime
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.claims import __main__ as command
from benchmarks.claims import cheap, checks, registry
from benchmarks.claims.pages import Section, read_sections
from benchmarks.claims.registry import Claim

PAGE = "docs/some.md"
TEXT = """# Some page

    python -m benchmarks.findings

Errors fall from 0.31 to 0.25 (lambda = 0.5), after 1,200 answers of 12 people; `step=0.1` and [figure 2.5](a-2.5.png).

| user | error |
|---|---|
| noisy | 0.40 |

```
0.99
```
"""
COMMAND = "python -m benchmarks.findings"


def pages_of(text=TEXT, name=PAGE):
    return {name: read_sections(name, text)}


def a_claim(text=TEXT, **changes):
    seals = {PAGE: {heading: section.seal() for heading, section in read_sections(PAGE, text).items()}}
    made = {"id": "some", "command": COMMAND, "minutes": 1.0, "measured": datetime.date(2026, 1, 2), "sections": seals}
    return Claim(**{**made, **changes})


def places(claims, pages):
    return [*checks._places(claims, pages), *checks._unclaimed(claims, pages)]


def test_the_cheap_numbers_of_the_pages_are_computed_once_more():
    assert list(cheap.differences(registry.read(), checks.all_pages())) == []


def test_numbers_are_found_and_code_is_not():
    section = read_sections(PAGE, TEXT)["Some page"]
    assert section.numbers() == ["0.31", "0.25", "0.5", "1,200", "12", "2.5", "0.40"]
    claimed = [section.text[start:end] for start, end in section.claims()]
    assert claimed == ["0.31", "0.25", "1,200", "2.5", "0.40"]  # 12 people are no measurement, lambda is a setting
    strict = Section("README.md", "", section.source, section.text)
    assert [strict.text[start:end] for start, end in strict.claims()] == ["0.31", "0.25", "1,200", "12", "2.5", "0.40"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.45x (2.25 to 2.65), -0.5 and 64-66%", ["2.45", "2.25", "2.65", "-0.5", "64", "66"]),
        ("+.04 [-.11, +.19], 9.8e-4, 4e-62.", ["+.04", "-.11", "+.19", "9.8e-4", "4e-62"]),
        ("1,000,000 x 768; F5, H100, v1.2.3, nu=1, MPL-2.0, best-of-4", ["1,000,000", "768"]),
        ("10, 30, and 1,5", ["10", "30", "1", "5"]),
    ],
)
def test_forms_of_numbers(text, numbers):
    assert Section(PAGE, "", text, text).numbers() == numbers


@given(width=st.integers(10, 200), indent=st.integers(0, 3))
def test_a_seal_is_of_the_numbers_not_of_the_lines(width, indent):
    words = "Errors fall from 0.31 to 0.25, by 19.4%, after 1,200 answers, in 3 of 4 cases (12 s)."
    written = textwrap.fill(
        words, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * indent
    )
    one, other = (read_sections(PAGE, f"# A\n\n{text}\n")["A"] for text in (words, written))
    assert one.seal() == other.seal()
    assert one.text == other.text


@pytest.mark.parametrize(
    "change", [("0.25", "0.26"), ("| 0.40 |", "| 0.41 |"), ("12 people", "13 people"), (" 0.31", "")]
)
def test_a_changed_number_is_noticed(change):
    claim = a_claim()
    same = TEXT.replace("Errors fall", "The errors\nfall").replace("0.99", "0.98").replace("step=0.1", "step=0.2")
    assert places([claim], pages_of()) == places([claim], pages_of(same)) == []  # words and code may change
    (problem,) = places([claim], pages_of(TEXT.replace(*change)))
    assert "seal some" in problem and PAGE in problem


def test_a_number_without_an_entry_is_named():
    text = TEXT + "\n## New\n\nIt takes 3 minutes, and 17 people like it.\n"
    (problem,) = places([a_claim()], pages_of(text))
    assert "'New'" in problem and "where 3 comes from" in problem
    quoted = a_claim(quotes={PAGE: ["takes 3 minutes"]})
    assert places([quoted], pages_of(text)) == []


def test_a_whole_page_of_a_command_needs_no_seals():
    claim = Claim(id="a", command=COMMAND, whole=("docs/some*.md",), tests=("tests/test_docs.py",))
    assert places([claim], pages_of()) == []
    assert len(places([claim], pages_of(name="docs/other.md"))) == 1


def test_in_the_readme_every_number_needs_an_entry():
    text = "# A\n\nAsk 17 people.\n"
    assert len(places([], pages_of(text, "README.md"))) == 1
    assert places([], pages_of(text)) == []
    quoted = Claim(id="a", why="an example", quotes={"README.md": ["Ask 17\n  people"]})
    assert places([quoted], pages_of(text, "README.md")) == []


def test_a_section_or_quotation_that_is_gone_is_named():
    gone = a_claim(sections={PAGE: {"Nothing": "0" * 8}}, quotes={PAGE: ["fall from 0.30"]})
    problems = " ".join(places([gone], pages_of()))
    assert "no section 'Nothing'" in problems and "does not say 'fall from 0.30'" in problems


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": "python -m benchmarks.nothing"}, "no module benchmarks.nothing"),
        ({"command": "python -m benchmarks.findings --depth 3"}, "no option --depth"),
        ({"command": "edpbrl demo --no-such-option"}, "edpbrl rejects"),
        ({"command": "edpbrl no-such-command"}, "edpbrl rejects"),
        ({"command": "python -m benchmarks.findings --seeds 2"}, "none of its pages names"),
        ({"command": "rm -rf results"}, "neither an edpbrl command nor"),
        ({"command": "python -m pytest tests/test_docs.py -k test_no_such"}, "has no test test_no_such"),
        ({"tests": ("tests/test_nothing.py",)}, "no test tests/test_nothing.py"),
        ({"tests": ("tests/test_docs.py::test_no_such",)}, "has no test test_no_such"),
        ({"results": "benchmarks/results/none.jsonl"}, "no results"),
    ],
)
def test_commands_and_tests_that_are_not_there_are_named(changes, said):
    claim = Claim(**{**{"id": "some", "command": COMMAND, "quotes": {"docs/findings.md": ["F1"]}}, **changes})
    assert said in " ".join((*checks._commands(claim), *checks._evidence(claim)))


def test_a_benchmark_behind_no_claim_is_named():
    claims = [claim for claim in registry.read() if "benchmarks.estimation" not in claim.command]
    (problem,) = checks._orphans(claims)
    assert "benchmarks/estimation.py" in problem


@pytest.mark.parametrize(
    ("written", "holds"),
    [("0.78", True), ("0.79", False), ("0.778", True), ("0.779", False), ("1", True), ("7.8e-1", True)],
)
def test_a_recomputed_number_holds_to_its_last_digit(monkeypatch, written, holds):
    monkeypatch.setitem(cheap.RECOMPUTED, "share", lambda: {"share": 0.7783})
    claim = Claim(id="a", why="an example", recompute=("share",), quotes={PAGE: ["a share of {share}."]})
    found = list(cheap.differences([claim], pages_of(f"# A\n\nIt has a share of {written}.\n")))
    assert (found == []) == holds, found


def entry(**fields):
    return "[[claim]]\n" + "".join(f"{name} = {text}\n" for name, text in {"id": '"a"', **fields}.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry(why='"x"', colour='"red"'), "unknown fields"),
        (entry(), "needs a command"),
        (entry(command='"edpbrl demo"'), "`measured`"),
        (entry(why='"x"'), "no place"),
        (entry(why='"x"', whole='["docs/x.md"]'), "name the test"),
        (2 * entry(why='"x"', quotes='{"README.md" = ["y"]}'), "Two claims"),
    ],
)
def test_entries_that_say_too_little_are_refused(tmp_path, text, said):
    (tmp_path / "claims.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        registry.read(tmp_path / "claims.toml")


def test_seals_and_days_are_renewed_in_the_file(tmp_path):
    text = registry.FILE.read_text(encoding="utf-8")
    claim = next(claim for claim in registry.read() if claim.id == "ten-best")
    ((name, seals),) = claim.sections.items()
    heading = list(seals)[-1]
    changed = registry.with_seals(text, {("ten-best", name, heading): "12345678"}, {"ten-best": "2030-01-02"})
    (tmp_path / "claims.toml").write_text(changed, encoding="utf-8")
    again = {claim.id: claim for claim in registry.read(tmp_path / "claims.toml")}
    assert again["ten-best"].sections[name] == {**seals, heading: "12345678"}
    assert again["ten-best"].measured == datetime.date(2030, 1, 2)
    others = [claim for claim in registry.read() if claim.id != "ten-best"]
    assert [again[claim.id] for claim in others] == others


def test_the_command_line(capsys):
    assert command.main(["check"]) == 0, capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["seal", "no-such-claim"])
    assert "no claim is called no-such-claim" in capsys.readouterr().err
