"""What a report says of plan and people: preregistration, exclusions, pay, agreement by question, flow."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.exclusions import Exclusions, excluded_by
from edpbrl_gym.study.export_tables import StudyTables, facts_of
from edpbrl_gym.study.preregistration import preregistered, preregistration
from edpbrl_gym.study.reporting.comparing import compare_arms
from edpbrl_gym.study.reporting.flow import ArmFlow, flow_figure, flow_of
from edpbrl_gym.study.reporting.further import without_excluded
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.reporting.statistics import count_statistics
from tests.helpers.commands import refused
from tests.helpers.studies import SMALL, UNDERSTOOD, write_study
from tests.helpers.study_rows import STUDY, answer, participant, prediction

FULL = (
    SMALL.replace("[recruitment.codes]", '[recruitment]\npeople = 30\npay = { amount = 3.0, currency = "EUR" }\n'
                  "[recruitment.codes]").replace("repeated = 2", "repeated = 2\ntest = 2")
    + UNDERSTOOD + "\n[exclusions]\nfailed_checks = 1\nmedian_seconds = 1.5\n"
)  # fmt: skip


def person(name, arm, status="finished", excluded=None, **more):
    return participant(name, arm, status, **more) | {"excluded": excluded, "median_s": 2.0}


@pytest.fixture
def tables():
    """Three who finish in an arm, two of whom are excluded, and two in the other; others do not come so far."""
    people = [
        person("a1", "adaptive", answered=4, attention=(1, 1), minutes=5.0),
        person("a2", "adaptive", excluded="failed_checks", answered=4, attention=(0, 1), minutes=6.0),
        person("a3", "adaptive", excluded="failed_checks, median_seconds", answered=4, attention=(0, 1), minutes=2.0),
        person("a4", "adaptive", "failed"),
        person("a5", "adaptive", "timed_out"),
        person("r1", "random", answered=4, attention=(1, 1), minutes=10.0),
        person("r2", "random", answered=4, attention=(1, 1), minutes=20.0),
        person("r3", "random", "withdrawn", answered=1),
        person("r4", "random", "timed_out", answered=1),
        person("r5", "random", "asking"),
        person("r6", "random", "enrolled", consented=False),
    ]
    answers = [answer(row["participant"], row["arm"], asked) for row in people for asked in range(row["answered"])]
    answers.append(answer("r5", "random", 0, "practice", response=None))  # asked, and no answer yet
    for name, best in (("a1", 1), ("a2", 1), ("a3", 2), ("r1", 1)):
        answers.append(answer(name, "adaptive" if name[0] == "a" else "random", 8, "test", best, text="x|"))
    answers.append(answer("r2", "random", 8, "test", text="x|", response="tie"))
    predictions = [prediction(name, 8, [0.7, 0.1, 0.1, 0.1]) for name in ("a1", "a2", "a3", "r1")]
    facts = STUDY | {
        "exclusions": {"failed_checks": 1, "median_seconds": 1.5},
        "pay": {"amount": 3.0, "currency": "EUR"},
        "preregistration": None,
    }
    return StudyTables(facts, people, answers, [], predictions)


def test_the_rule_excludes_who_meets_a_part_of_it():
    rule = Exclusions(failed_checks=2, changed_repeats=1, median_seconds=1.5).as_json()
    row = {"attention_asked": 3, "attention_passed": 2, "repeats_asked": 2, "repeats_agreed": 2, "median_s": 1.5}
    assert excluded_by(rule, row) is None
    assert excluded_by(rule, row | {"attention_passed": 1}) == "failed_checks"
    assert excluded_by(rule, row | {"repeats_agreed": 1, "median_s": 1.49}) == "changed_repeats, median_seconds"
    assert excluded_by(rule, row | {"median_s": None}) is None
    assert excluded_by({}, row | {"attention_passed": 0, "repeats_agreed": 0, "median_s": 0.0}) is None


def test_everybody_flows_through_the_study_once(tables):
    flow = flow_of(tables, ["adaptive", "random"])
    assert (flow.arrived, flow.consented) == (11, 10) and flow.before == {
        "screened out": 1,
        "timed out": 1,
        "no consent": 1,
    }
    assert flow.arms["adaptive"] == ArmFlow(3, {}, 3, {"failed checks": 1, "failed checks and too fast": 1}, 1)
    assert flow.arms["random"] == ArmFlow(5, {"withdrew": 1, "timed out": 1, "not finished yet": 1}, 2, {}, 2)
    assert flow.begun + sum(flow.before.values()) == flow.arrived
    for arm in flow.arms.values():
        assert arm.begun == arm.finished + sum(arm.left.values())
        assert arm.finished == arm.analysed + sum(arm.excluded.values())


@pytest.mark.needs("experiments")
def test_the_figure_says_every_number_and_no_text_leaves_its_box(tables):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patches import Rectangle

    long = "an arm with a name of forty characters, x"
    for one in (*tables.participants, *tables.answers):
        one["arm"] = long if one["arm"] == "random" else one["arm"]
    figure = flow_figure(flow_of(tables, ["adaptive", long]))
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.canvas.draw()
    [axis] = figure.axes
    texts = [one.get_text() for one in axis.texts if one.get_text()]
    for said in ("Arrived (n = 11)", "Not asked (n = 3)", "  screened out: 1", "Excluded by the rule (n = 2)",
                 "  failed checks and too fast: 1", "Analysed (n = 2)",
                 "allocated and asked (n = 5)", "consented (n = 10)"):  # fmt: skip
        assert said in texts
    boxes = [patch.get_window_extent(renderer) for patch in axis.patches if isinstance(patch, Rectangle)]
    for one in axis.texts:
        if one.get_text():
            extent = one.get_window_extent(renderer)
            assert any(box.x0 < extent.x0 and extent.x1 < box.x1 and box.y0 < extent.y0 and extent.y1 < box.y1
                       for box in boxes), one.get_text()  # fmt: skip
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])


def test_arms_are_compared_with_and_without_those_excluded(tables):
    kept = without_excluded(tables)
    assert kept is not None and len(kept.participants) == 9
    values = [compare_arms(one, count_statistics(one)).values["minutes"]["adaptive"] for one in (tables, kept)]
    assert [(one.value, one.people) for one in values] == [(pytest.approx(13 / 3), 3), (5.0, 1)]
    nobody = [{**row, "excluded": None} for row in tables.participants]
    assert without_excluded(replace(tables, participants=nobody)) is None


@pytest.mark.needs("experiments")
def test_the_report_says_both_and_pay_and_agreement_by_question(tables):
    page = make_report(tables).markdown()
    assert "## The arms compared, without those excluded" in page
    assert "## Whether the arms differ\n" in page and "## Whether the arms differ, without those excluded" in page
    assert "| adaptive | 3 | 2 | 2 | 1 | 2 | 1 |" in page and "| all | 5 | 2 | 2 | 1 | 2 | 3 |" in page
    assert "Excluded: attention checks failed: 1 or more; median time for an answer: less than 1.5 seconds." in page
    # minutes 2, 5, 6, 10, 20: median 6, upper quartile 10
    assert "**6.0 minutes**" in page and "**30.00 EUR an hour** at the median, and 18.00 or less" in page
    # of 6 pairs of 4 people 3 agree; (1/2 - 1/4) / (3/4)
    row = re.search(r"^\| 1 \| x\\\|0 \| 4 \| 75% \| 50.0% \| (\S+) \[", page, re.M)
    assert row is not None and row[1] == "0.333"
    assert "Preregistration" not in page and "figures/flow.png" in page
    tables.study.update(exclusions={}, pay=None, preregistration={"changed": ["arms"]})
    other = make_report(replace(tables, participants=[{**row, "excluded": None} for row in tables.participants]))
    assert "without those excluded" not in other.markdown() and "No rule:" in other.markdown()
    assert "**The configuration has changed** since preregistration.md was written: arms." in other.markdown()
    assert "where study.toml has `pay`" in other.markdown()


def test_a_preregistration_says_what_the_configuration_says(tmp_path, capsys):
    folder = write_study(tmp_path / "study", FULL)
    assert preregistered(read_config(folder)) is None
    assert main(["study", "preregister", str(folder)]) == 0
    assert "before the first participant" in capsys.readouterr().out
    page = (folder / "preregistration.md").read_text(encoding="utf-8")
    for said in ("## Hypotheses", "| random | random | none | 2 |", "30 who finish", "Pay: 3.00 EUR", "6 that count",
                 "less than 1.5 seconds", "2 test questions", "'Before we start'", "seed 3",
                 "Recruitment ends when so many have finished", "test answers predicted"):  # fmt: skip
        assert said in page
    refused(capsys, ["study", "preregister", folder], 2, "found one; move it away")
    assert (folder / "preregistration.md").read_text(encoding="utf-8") == page
    refused(capsys, ["study", "preregister", tmp_path / "nothing"], 2, "edpbrl study init")
    (folder / "study.toml").write_text(FULL.replace("number = 6", "number = 0"), encoding="utf-8")
    refused(capsys, ["study", "preregister", folder], 2, "questions.number")
    bare = preregistration(read_config(write_study(tmp_path / "bare", SMALL)))
    assert "study.toml sets no number" in bare and "None: study.toml has no table [exclusions]." in bare
    assert "test answers predicted" not in bare
    assert "people and test questions as random effects" in page and "The test of arms" not in bare


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("", "", []),
        ('"A small study"', '"A study"', ["pages and texts"]),
        ("number = 6", "number = 7", ["questions"]),
        ("seed = 3", "seed = 4", ["questions"]),
        ("weight = 2", "weight = 3", ["arms"]),
        ("people = 30", "people = 31", ["people"]),
        ("median_seconds = 1.5", "median_seconds = 2", ["exclusions"]),
        ("people = 30", "people = 30\npilot = true\nplatform = 'mturk'", []),
        ("amount = 3.0", "amount = 4.0", []),
    ],
)
def test_what_changed_since_a_preregistration_is_named(tmp_path, old, new, changed):
    folder = write_study(tmp_path / "study", FULL)
    text = preregistration(read_config(folder))
    edited = text.replace("1. (Which", "1. Adaptive learns more. (Which").replace("\n", "\r\n").replace(" | ", "    | ")
    (folder / "preregistration.md").write_text(edited, encoding="utf-8", newline="")
    assert old == "" or old in FULL
    (folder / "study.toml").write_text(FULL.replace(old, new, 1) if old else FULL, encoding="utf-8")
    assert facts_of(read_config(folder), deleted=0)["preregistration"] == {"changed": changed}


def test_a_preregistration_without_digests_is_said_to_have_none(tmp_path):
    folder = write_study(tmp_path / "study", FULL)
    (folder / "preregistration.md").write_bytes(b"\xff\xfe\x00 mine")
    assert preregistered(read_config(folder)) == {"changed": None}
