"""Exports, reports and audits of studies that simulated people answered."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import closing

import numpy as np
import pytest
from sqlalchemy import update

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.export import gather
from edpbrl_gym.study.exported import read_tables
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.people import Predictor, comparisons_of
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.reporting.statistics import count_statistics
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import questions
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_people import take_part

PEOPLE = 15


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study with test questions and a comprehension check, answered by people who also fail, leave and withdraw."""
    place = tmp_path_factory.mktemp("answered")
    words, encoder = write_embedded(place)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    text = text.replace("repeated = 2", "repeated = 2\ntest = 2")
    text = text.replace(
        "[checks]", '[[practice.comprehension]]\ntext = "?"\nchoices = ["a", "b"]\ncorrect = 2\n[checks]'
    )
    folder = write_study(place / "study", text)
    take_part(folder, PEOPLE)
    return folder


@pytest.fixture(scope="module")
def study(folder):
    """Configuration, materials and the store of the study."""
    config = read_config(folder)
    store = Store(config.database_url)
    with closing(store):
        yield config, Materials(config), store


@pytest.mark.needs("experiments")
def test_a_report_from_the_database_is_that_from_its_export(folder, tmp_path, capsys):
    assert main(["study", "report", str(folder), "--out", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert "The arms compared" in printed and "test answers predicted" in printed
    out = tmp_path / "export"
    assert main(["study", "export", str(folder), "--out", str(out)]) == 0
    assert "edpbrl report" in capsys.readouterr().out
    assert main(["report", str(out)]) == 0
    pages = [(place / "REPORT.md").read_text(encoding="utf-8") for place in (tmp_path / "report", out)]
    assert pages[0] == pages[1]
    for name in ("funnel", "times", "arms", "learning"):
        pictures = [(place / "figures" / f"{name}.png").read_bytes() for place in (tmp_path / "report", out)]
        assert pictures[0] == pictures[1] and f"figures/{name}.png" in pages[0]
    facts = json.loads((out / "study.json").read_text(encoding="utf-8"))
    assert facts["kind"] == "study" and facts["test"] == 2
    assert "person-" not in "".join(path.read_text("utf-8") for path in out.glob("*.*") if path.suffix != ".parquet")


def test_what_is_read_from_an_export_is_what_was_gathered(folder, study, tmp_path):
    _, materials, store = study
    tables, people = gather(store, materials)
    assert main(["study", "export", str(folder), "--out", str(tmp_path / "export")]) == 0
    assert read_tables(tmp_path / "export") == tables
    assert {path.stem for path in (tmp_path / "export" / "comparisons").glob("*.parquet")} == set(people)
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


@pytest.fixture
def tampered(folder, tmp_path):
    """A copy of the study whose database may be changed."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    config = read_config(copy)
    with closing(Store(config.database_url)) as store:
        yield config, Materials(config), store


def test_what_was_changed_afterwards_is_named(tampered):
    """A prompt, a kind, the order of the options: each change of a stored question is found, at its place."""
    _, materials, store = tampered
    record = next(one for one in store.records() if one.participant.status == "finished")
    normal = [question for question, _ in record.history if question.kind == "normal" and not question.struck]
    attention = next(question for question, _ in record.history if question.kind == "attention")
    changes = {
        normal[0].id: ({"positions": normal[0].positions[::-1]}, "expected the positions"),
        normal[-1].id: ({"texts": [*normal[-1].texts[:-1], "another prompt"]}, "expected the options"),
        attention.id: ({"kind": "practice"}, "expected a question of the kind attention, this one is practice"),
    }
    with store.database.writing() as connection:
        for row, (change, _) in changes.items():
            connection.execute(update(questions).where(questions.c.id == row).values(**change))
    found = audit("p", store.record(record.participant.id), materials)
    order = {question.id: place for place, (question, _) in enumerate(record.history)}
    named = {step.row["asked"]: step.differences for step in found.questions if step.differences}
    assert set(named) == {order[row] for row in changes}
    for row, (_, said) in changes.items():
        assert named[order[row]][0].startswith(said)


def test_a_changed_answer_shows_in_what_the_planner_asks_next(tampered):
    """The audit finds an answer that was exchanged, by the adaptive questions after it."""
    _, materials, store = tampered
    found = 0
    for record in store.records():
        if record.participant.arm != "adaptive" or record.participant.status != "finished":
            continue
        first = next(
            place for place, (question, answer) in enumerate(record.history)
            if question.kind == "normal" and not question.struck and answer is not None and answer.response.order
        )  # fmt: skip
        question, answer = record.history[first]
        changed = dataclasses.replace(answer, response=Response.best((answer.response.order[0] + 1) % 3))
        history = [*record.history[:first], (question, changed), *record.history[first + 1 :]]
        differing = [
            step.row["asked"] for step in audit("p", dataclasses.replace(record, history=history), materials).questions
            if step.differences
        ]  # fmt: skip
        assert all(place > first for place in differing)
        found += bool(differing)
    assert found


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
def test_an_export_that_was_damaged_is_refused(folder, tmp_path, capsys):
    out = tmp_path / "export"
    assert main(["study", "export", str(folder), "--out", str(out)]) == 0
    table = out / "answers.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("asked", "Asked", 1), encoding="utf-8")
    capsys.readouterr()
    refused(capsys, ["report", out], 1, "no column asked", "export again")


@pytest.mark.needs("experiments")
def test_a_report_of_an_empty_study(folder, tmp_path, capsys):
    copy = tmp_path / "new"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("study.db*"))
    refused(capsys, ["study", "report", copy, "--out", tmp_path / "out"], 2, "found none yet")
    config = read_config(copy)
    Store(config.database_url).close()
    assert main(["study", "report", str(copy), "--out", str(tmp_path / "out")]) == 0
    assert "Nobody has finished yet" in (tmp_path / "out" / "REPORT.md").read_text(encoding="utf-8")
    assert make_report(gather(Store(config.database_url), Materials(config))[0]).headline


def test_questions_of_an_oracle_are_audited_against_what_was_posted(tmp_path):
    """They are exported with the episodes and steps of the environment; a changed post is named."""
    from edpbrl_gym.study.posts import Posts
    from edpbrl_gym.study.queue import StudyQueue
    from edpbrl_gym.study.records import Post
    from tests.helpers.encoders import CountingEncoder

    arm = '[[arms]]\nname = "loop"\nplanner = "oracle"\n'
    folder = write_study(tmp_path / "loop", SMALL.partition("[[arms]]")[0] + arm)
    config = read_config(folder)
    materials = Materials(config, encoder=CountingEncoder())
    with closing(Store(config.database_url, config=config.fingerprint)) as store:
        queue = StudyQueue(config, store, materials)
        with closing(queue):
            person = queue.consent(queue.enrol({"id": "x"}))
            posts = [
                Post(number, [f"{number}{option}" for option in "abc"], number // 2, number % 2) for number in range(6)
            ]
            Posts(store.database).post(person.id, posts)
            while (question := queue.next_question(person)) is not None:
                queue.answer(person, question.key, Response.best(question.expected or 0))
        record = store.record(person.id)
        assert record.posts == tuple(posts) and audit("p", record, materials).different == 0
        comparisons = comparisons_of("p", record, materials)
        assert comparisons.episode.tolist() == [0, 0, 1, 1, 2, 2] and comparisons.step.tolist() == [0, 1] * 3
        posts[3] = dataclasses.replace(posts[3], texts=["3a", "3b", "3z"])
        [named] = [
            step for step in audit("p", dataclasses.replace(record, posts=tuple(posts)), materials).questions
            if step.differences
        ]  # fmt: skip
        assert named.row["options"] == ["3a", "3b", "3c"] and named.differences == ("expected the options 3a; 3b; 3z",)
