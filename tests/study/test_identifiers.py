"""Identifiers in links: those of platforms are taken whatever their case, placeholders and nonsense never."""

from __future__ import annotations

import itertools
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.study.identifiers import MAX_IDENTIFIER, identity_of, read_link
from edpbrl_gym.study.platforms import NO_PLATFORM, PLATFORMS

PROLIFIC = {"PROLIFIC_PID": "5f3", "STUDY_ID": "60a", "SESSION_ID": "61b"}
WORKER = {"workerId": "A2QGBPPNCV7", "assignmentId": "3TVRFO09GKF", "hitId": "37SQU136V7P"}


def link(query):
    return read_link(parse_qsl(query, keep_blank_values=True))


@pytest.mark.parametrize(
    ("query", "external"),
    [
        ("", {}),
        ("PROLIFIC_PID=5f3&STUDY_ID=60a&SESSION_ID=61b", PROLIFIC),
        ("prolific_pid=5f3&Study_Id=60a&sessionid=61b", PROLIFIC),
        ("PROLIFIC_PID=5f3&amp;STUDY_ID=60a&amp%3BSESSION_ID=61b", PROLIFIC),
        (urlencode({**WORKER, "turkSubmitTo": "https://www.mturk.com"}), WORKER),
        (urlencode({name.lower(): value for name, value in WORKER.items()}), WORKER),
        ("participant_id=C1", {"participantId": "C1"}),
        ("survey_code=1234", {"survey_code": "1234"}),
        ("participant=0", {"participant": "0"}),
        ("participant=anna.b%40example.org", {"participant": "anna.b@example.org"}),
        ("participant=+x+", {"participant": "x"}),
        ("PROLIFIC_PID=5f3&prolific_pid=5f3", {"PROLIFIC_PID": "5f3"}),
        ("PROLIFIC_PID=5f3&workerId=A2&x=%7B%7Bid%7D%7D", {"PROLIFIC_PID": "5f3", "workerId": "A2"}),
        ("lang=de&utm_source=%7Bx%7D&fbclid=q", {}),
        ("participant=" + "y" * MAX_IDENTIFIER, {"participant": "y" * MAX_IDENTIFIER}),
    ],
)  # fmt: skip
def test_identifiers_of_platforms_are_taken(query, external):
    found = link(query)
    assert found.external == external and found.problem is None and not found.is_preview


PLACEHOLDERS = [
    "{{%PROLIFIC_PID%}}", "{{PROLIFIC_PID}}", "{PROLIFIC_PID}", "${e://Field/PROLIFIC_PID}", "${workerId}",
    "%SURVEY_CODE%", "%%ID%%", "[[ID]]", "[ID]", "<ID>", "<%= id %>", "#{id}", "#ID#", "*|UNIQID|*", "__ID__", "@@ID@@",
    "{{", "undefined", "null", "NULL", "None", "nan", "N/A", "test", "Test", "[object Object]", "", " ", "...", "-",
    "XXXX", "xxx", "PROLIFIC_PID", "prolific-pid", "workerId", "participant_id", "ID", "ASSIGNMENT_ID_NOT_AVAILABLE",
    "WORKER_ID_NOT_AVAILABLE", "YOUR_ID", "???", "$ID", "#N/A", "false",
]  # fmt: skip


def escapes(value):
    """The value as an address, or a page that was copied, may carry it."""
    html = "".join(f"&#{ord(letter)};" if not letter.isalnum() else letter for letter in value)
    return [value, quote(value, safe=""), quote(quote(value, safe=""), safe=""), html]


@pytest.mark.parametrize("name", ["PROLIFIC_PID", "SESSION_ID", "participant", "workerid", "survey_code"])
def test_placeholders_that_nobody_filled_in_are_found(name):
    for value, others in itertools.product(PLACEHOLDERS, ([], [("PROLIFIC_PID", "5f3"), ("participant", "7")])):
        for written in escapes(value):
            found = read_link([*others, (name, written)])
            assert found.problem is not None and found.problem.kind == "unfilled", written
            assert "{" not in str(found.problem)


def test_a_template_under_a_name_that_no_platform_uses_is_found_if_there_is_no_identifier():
    for written in itertools.chain(*map(escapes, PLACEHOLDERS[:17])):
        assert read_link([("c", written)]).problem is not None
        assert read_link([("c", written), ("id", "1234")]).problem is None
    assert read_link([("mode", "test"), ("q", "-"), ("lang", "{x}")]).problem is None


@pytest.mark.parametrize(
    ("query", "name", "kind"),
    [
        ("PROLIFIC_PID=J%C3%BCrgen", "PROLIFIC_PID", "characters"),
        ("participant=%ff", "participant", "characters"),
        ("participant=a%00b", "participant", "characters"),
        ("workerid=" + "A" * 129, "workerId", "long"),
        ("PROLIFIC_PID=a&prolific_pid=b", "PROLIFIC_PID", "twice"),
        ("participantId=a&participant_id=b", "participantId", "twice"),
    ],
)
def test_what_can_not_be_taken_is_named_and_not_said(query, name, kind):
    problem = link(query).problem
    assert problem is not None and (problem.name, problem.kind, problem.value) == (name, kind, "")
    assert "A" * 20 not in str(problem) and "Expected an identifier as" in str(problem)


def test_a_task_that_nobody_has_accepted_is_a_preview():
    for query in (
        "hitId=h&ASSIGNMENTID=assignment_id_not_available",
        "workerId=A1&assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=%7Bx%7D",
    ):
        assert link(query).is_preview and link(query).external == {}


@pytest.mark.parametrize("platform", sorted(set(PLATFORMS) - {NO_PLATFORM}))
def test_a_platform_knows_its_own_parameters_and_wants_to_know_who_it_is(platform):
    preset = PLATFORMS[platform]
    full = {name: f"v{number}" for number, name in enumerate(preset.parameters)}
    found = read_link([*full.items(), ("rid", "7"), ("lang", "de")], platform)
    assert found.external == full and found.problem is None and found.unknown == ("rid",)
    for others in ({}, {"rid": "7"}, {name: value for name, value in full.items() if name != preset.people[0]}):
        problem = read_link(others.items(), platform).problem
        assert problem is not None and (problem.name, problem.kind) == (preset.people[0], "unfilled")
    assert {name for name, _ in identity_of(full)} == set(preset.people)


def test_whoever_comes_again_is_known_by_what_stays():
    assert identity_of(WORKER) == [("workerId", "A2QGBPPNCV7")]
    both = [("PROLIFIC_PID", "p"), ("STUDY_ID", "s")]
    assert identity_of({"SESSION_ID": "t", "PROLIFIC_PID": "p", "STUDY_ID": "s"}) == both
    assert identity_of({"SESSION_ID": "t"}) == [("SESSION_ID", "t")] and identity_of({}) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["PROLIFIC_PID", "workerID", "id", "c", "lang", ""]) | st.text(max_size=9), st.text())
    )
)
def test_any_link_is_read_and_what_is_taken_is_an_identifier(parameters):
    found = read_link(parameters)
    for value in found.external.values():
        assert value == value.strip() and value.isascii() and value.isprintable() and 0 < len(value) <= MAX_IDENTIFIER
        assert not set(value) & set("{}[]<>")
    named = [text for name, text in parameters if name == "PROLIFIC_PID"]
    if named and found.problem is None and not found.is_preview:  # nobody is anonymous by mistake
        assert found.external["PROLIFIC_PID"] == named[0].strip()
