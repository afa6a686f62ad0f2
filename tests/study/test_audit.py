"""Exports, reports and audits of studies that simulated people answered."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import closing

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.export import Predictor, comparisons_of, gather
from edpbrl_gym.study.export_tables import read_tables
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.reporting.statistics import count_statistics
from edpbrl_gym.study.store import Store
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, UNDERSTOOD, write_study
from tests.helpers.study_people import take_part

PEOPLE = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study with test questions and a comprehension check, answered by people who also fail, leave and withdraw."""
    place = tmp_path_factory.mktemp("answered")
    words, encoder = write_embedded(place)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    text = text.replace("repeated = 2", "repeated = 2\ntest = 2")
    folder = write_study(place / "study", text + UNDERSTOOD)
    take_part(folder, PEOPLE)
    return folder


@pytest.fixture(scope="module")
def study(folder):
    """Configuration, materials and the store of the study."""
    config = read_config(folder)
    store = Store(config.database_url)
    with closing(store):
        yield config, Materials(config), store


@pytest.fixture(scope="module")
def export(folder, tmp_path_factory):
    """The export of the study."""
    out = tmp_path_factory.mktemp("exported") / "export"
    assert main(["study", "export", str(folder), "--out", str(out)]) == 0
    return out


@pytest.mark.needs("experiments")
def test_a_report_from_the_database_is_that_from_its_export(folder, export, tmp_path, capsys):
    assert main(["study", "report", str(folder), "--out", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert "The arms compared" in printed and "test answers predicted" in printed
    out = shutil.copytree(export, tmp_path / "export")
    assert main(["report", str(out)]) == 0
    pages = [(place / "REPORT.md").read_text(encoding="utf-8") for place in (tmp_path / "report", out)]
    assert pages[0] == pages[1]
    for name in ("funnel", "times", "arms", "learning"):
        pictures = [(place / "figures" / f"{name}.png").read_bytes() for place in (tmp_path / "report", out)]
        assert pictures[0] == pictures[1] and f"figures/{name}.png" in pages[0]
    facts = json.loads((out / "study.json").read_text(encoding="utf-8"))
    assert facts["kind"] == "study" and facts["test"] == 2
    assert "person-" not in "".join(path.read_text("utf-8") for path in out.glob("*.*") if path.suffix != ".parquet")


def test_what_is_read_from_an_export_is_what_was_gathered(study, export, tmp_path):
    _, materials, store = study
    tables, people = gather(store, materials)
    assert read_tables(export) == tables
    out = shutil.copytree(export, tmp_path / "export")
    for path in out.glob("*.csv"):  # saved again by a spreadsheet
        cells = pandas.read_csv(path, dtype=str, keep_default_na=False)
        cells.to_csv(path, index=False, sep=";", encoding="utf-16", lineterminator="\r\n")
    assert read_tables(out) == tables
    assert {path.stem for path in (out / "comparisons").glob("*.parquet")} == set(people)
    assert count_statistics(tables).funnel[0].total == PEOPLE
    assert {row["status"] for row in tables.participants} > {"finished", "failed"}


def test_predictions_are_those_of_the_answers_that_count_alone(study):
    """Of a person whose answers to test questions are changed nothing else changes; and the last ones by hand."""
    _, materials, store = study
    record = next(one for one in store.records() if one.participant.status == "finished")
    comparisons = comparisons_of("p", record, materials)
    assert isinstance(comparisons, Comparisons) and len(comparisons) == 6
    rows = Predictor(materials).rows("p", record, comparisons)
    assert {row["after"] for row in rows} == {2, 3, 4, 6} and sum(row["last"] for row in rows) == 2
    other = [
        (question, dataclasses.replace(answer, response=Response.best(0)) if question.kind == "test" else answer)
        for question, answer in record.history
    ]
    assert Predictor(materials).rows("p", dataclasses.replace(record, history=other), comparisons) == rows
    prior = VocabularyPrior(materials.encoder.encode(materials.vocabulary.all_tokens))
    decided = comparisons.decided
    posterior = prior.fit(decided.terms(materials.model)).posterior
    tests = [question for question, answer in record.live if question.kind == "test"]
    wanted = posterior.choice_probabilities(np.stack([materials.encoder.encode(one.texts) for one in tests]))
    np.testing.assert_allclose([row["probabilities"] for row in rows if row["last"]], wanted, rtol=1e-9)


def test_every_question_of_everybody_is_made_again(study):
    _, materials, store = study
    seen = set()
    for record in store.records():
        found = audit("p", record, materials)
        assert found.different == 0, [question.differences for question in found.questions]
        assert len(found.questions) == len(record.history)
        assert len(found.steps) == len(record.history) + len(record.events)
        assert [step.at for step in found.steps] == sorted(step.at for step in found.steps)
        for step, (question, answer) in zip(found.questions, record.history, strict=True):
            for place in step.answer:
                assert step.shown[place - 1] in question.texts
            if answer is not None and answer.response.kind == "best":
                assert step.shown[step.answer[0] - 1] == question.texts[answer.response.order[0]]
        seen |= {(question.row["kind"], question.row["taken_back"]) for question in found.questions}
    assert {("normal", False), ("normal", True), ("test", False), ("repeat", False), ("attention", False)} <= seen


def test_what_was_changed_afterwards_is_named(study):
    """A prompt, a kind, the order of the options: each change of a stored question is found, where it was made."""
    _, materials, store = study
    record = next(one for one in store.records() if one.participant.status == "finished")
    normal = [question for question, _ in record.history if question.kind == "normal" and not question.struck]
    attention = next(question for question, _ in record.history if question.kind == "attention")
    changes = {
        normal[0].id: ({"positions": normal[0].positions[::-1]}, "expected the positions"),
        normal[-1].id: ({"texts": [*normal[-1].texts[:-1], "another prompt"]}, "expected the options"),
        attention.id: ({"kind": "practice"}, "expected a question of the kind attention, this one is practice"),
    }
    history, said = [], {}
    for number, (question, answer) in enumerate(record.history):
        change, difference = changes.get(question.id, ({}, None))
        history.append((dataclasses.replace(question, **change), answer))
        if difference is not None:
            said[number] = difference
    found = audit("p", dataclasses.replace(record, history=history), materials)
    named = {step.row["asked"]: step.differences for step in found.questions if step.differences}
    assert set(named) == set(said) and all(named[number][0].startswith(said[number]) for number in said)


def test_an_exchanged_answer_is_noticed_by_the_adaptive_questions_after_it(study):
    _, materials, store = study
    adaptive = [one for one in store.records() if one.participant.arm == "adaptive" and len(one.live) > 6]
    different = 0
    for record in adaptive:
        history = [*record.history]
        first = next(place for place, (one, answer) in enumerate(history) if one.kind == "normal" and answer)
        question, answer = history[first]
        other = Response.best((answer.response.order[0] + 1 if answer.response.order else 0) % 3)
        history[first] = (question, dataclasses.replace(answer, response=other))
        found = audit("p", dataclasses.replace(record, history=history), materials)
        assert not any(step.differences for step in found.questions if step.row["asked"] <= first)
        different += found.different
    assert different


def test_another_seed_is_noticed_and_an_arm_that_is_gone(study):
    config, materials, store = study
    record = next(one for one in store.records() if one.participant.status == "finished")
    other = Materials(dataclasses.replace(config, seed=99), encoder=materials.encoder)
    assert audit("p", record, other).different > len(record.history) // 2
    fewer = dataclasses.replace(config, arms=tuple(arm for arm in config.arms if arm.name != record.participant.arm))
    found = audit("p", record, Materials(fewer, encoder=materials.encoder))
    assert found.planner is None and found.different == len(record.history)
    assert found.questions[0].differences == (f"the configuration has no arm {record.participant.arm!r} any more",)


def test_a_session_is_replayed_in_the_terminal_and_as_json(folder, study, capsys):
    _, _, store = study
    person = next(
        one for one in store.records() if one.participant.status == "finished"
        and any(question.struck for question, _ in one.history)
    )  # fmt: skip
    name = person.participant.external["PROLIFIC_PID"]
    assert main(["study", "replay", str(folder), name]) == 0
    printed = capsys.readouterr().out
    for text in ("taken back", "consented", "attention check", "(to be chosen)", "test question", "repeat of asked",
                 "took an answer back", f"all {len(person.history)} questions are asked again"):  # fmt: skip
        assert text in printed
    assert main(["study", "replay", str(folder), name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["different"] == 0 and document["questions"] == len(person.history)
    asked = [step["question"]["options"] for step in document["steps"] if "question" in step]
    assert asked == [question.texts for question, _ in person.history]
    refused(capsys, ["study", "replay", folder, "nobody"], 2, "is that of 0")


@pytest.mark.needs("experiments")
def test_a_damaged_export_is_refused(export, tmp_path, capsys):
    out = shutil.copytree(export, tmp_path / "export")
    table = out / "answers.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("asked", "Asked", 1), encoding="utf-8")
    capsys.readouterr()
    refused(capsys, ["report", out], 1, "no column asked", "export again")
