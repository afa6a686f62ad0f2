"""What people who finished say about the pool of a study: where others start from, and what the report shows."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import select

from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.features import JoinedEncoder
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config_reading import Mistakes, read_config
from edpbrl_gym.study.export import Predictor, comparisons_of, export
from edpbrl_gym.study.export_tables import pseudonym, read_tables
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.rows import CROWD, START
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import events
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import write_study
from tests.helpers.study_pools import ARMS, ITEMS, LEAST, POOL, People, write_pool


class Study:
    """A server of the study in a folder, without pages."""

    def __init__(self, folder):
        self.config = read_config(folder)
        self.store = Store(self.config.database_url, config=self.config.fingerprint)
        self.materials = Materials(self.config, encoder=CountingEncoder())
        self.queue = StudyQueue(self.config, self.store, self.materials)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.queue.close()
        self.store.close()

    def take_part(self, people, name, most=1000):
        """The questions that a person was asked; at most so many are answered."""
        person, utilities, asked = self.queue.consent(self.queue.enrol({"id": name})), people.draw(), []
        while len(asked) < most and (question := self.queue.next_question(person)) is not None:
            self.queue.answer(person, question.key, people.answer(utilities, question))
            asked.append(question)
        return person, asked

    def crowds(self):
        query = select(events.c.detail).where(events.c.kind == CROWD).order_by(events.c.id)
        with self.store.database.reading() as connection:
            return [len(detail["people"]) for detail in connection.execute(query).scalars()]

    def start(self, person):
        return [one["detail"]["people"] for one in self.store.events(person.id) if one["kind"] == START]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """The folder of a study with random questions that 30 people answered, and these people."""
    text = (POOL + ARMS).replace('planner = "adaptive"', 'planner = "random"').replace("number = 5", "number = 10")
    text = text.replace("attention = 1", "attention = 0").replace("questions = 1", "questions = 0")
    folder, people = write_pool(tmp_path_factory.mktemp("pool") / "study", text), People()
    with Study(folder) as study:
        study.queue._note = study.materials.crowds.note  # random questions wait for no fit
        for number in range(30):
            study.take_part(people, f"p{number}")
    return folder, people


@pytest.fixture(scope="module")
def tables(answered, tmp_path_factory):
    """Those of its export."""
    out = tmp_path_factory.mktemp("exported") / "out"
    with Study(answered[0]) as study:
        export(study.store, study.materials, out)
    return read_tables(out)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("minimum_people = 4", "minimum_people = 1", "crowd.minimum_people: expected a whole number of at least 2"),
        ("minimum_people = 4", 'minimum_people = "ten"', "crowd.minimum_people"),
        ("minimum_people = 4", "minimum = 4", "crowd.minimum"),
        ('prior = "study"', 'prior = "studies"', "arms[2].prior: expected a file"),
    ],
)
def test_mistakes_are_explained(tmp_path, before, after, said):
    with pytest.raises(Mistakes) as error:
        read_config(write_pool(tmp_path, POOL + ARMS.replace(before, after)))
    assert any(said in one for one in error.value.mistakes)


def test_prompts_of_several_steps_are_refused_in_one_line(tmp_path):
    config = read_config(write_study(tmp_path, POOL + ARMS.replace('prior = "items"', 'prior = "words"')))
    with pytest.raises(Mistakes) as error:
        examine(config, encoder=CountingEncoder())
    assert error.value.mistakes == (
        "arms[2] (others): Expected a pool, a vocabulary of one step, with prior = 'study', got 3 steps; "
        "take another prior",
    )


def test_a_pool_in_blocks_has_the_prior_of_items_by_default(tmp_path):
    """As in `edpbrl ask`; rules of the literature keep theirs, and fixed questions are learnt from in the same way."""
    fixed = '[[arms]]\nname = "fixed"\nplanner = "questions"\nfile = "q.csv"\nprior = "study"\n'
    rule = '[[arms]]\nname = "rule"\nplanner = "bald"\n[[arms]]\nname = "random"\nplanner = "random"\n'
    folder = write_pool(tmp_path, POOL + ARMS.replace('prior = "items"\n', "") + fixed + rule)
    write_questions(folder / "q.csv", [(place, 0, ITEMS[4 * place : 4 * place + 4]) for place in range(5)])
    encoder = JoinedEncoder([CountingEncoder(8), CountingEncoder(6, "b0" * 32)])
    plan, materials = examine(read_config(folder), encoder=encoder)
    assert plan.arms[2].texts == ITEMS[:4]
    found = {one.arm.name: materials.session(one.arm, 0) for one in plan.arms}
    assert {name for name, one in found.items() if isinstance(one.outlook.prior, ItemsPrior)} == {
        "alone", "others", "random"
    }  # fmt: skip
    assert isinstance(found["alone"].planner.prior, ItemsPrior) and not found["rule"].planner.prior.space
    for arm in (plan.arms[0].arm, plan.arms[3].arm):
        assert isinstance(materials.prior(arm, materials.estimate_prior), ItemsPrior)


def test_a_study_that_runs_keeps_its_least_number_of_people(tmp_path):
    write_pool(tmp_path)
    with Study(tmp_path):
        pass
    text = (tmp_path / "study.toml").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(text.replace("minimum_people = 4", "minimum_people = 5"), encoding="utf-8")
    with pytest.raises(ValueError, match="Expected the questions, arms, seed"):
        Study(tmp_path)


def test_nobody_starts_from_fewer_than_the_least_number(answered):
    folder, _ = answered
    with Study(folder) as study:
        assert study.crowds() == [*range(4, 20), 20, 22, 24, 26, 28, 30]
        starts = [study.start(one) for one in study.store.participants()]
        arms = [one.arm for one in study.store.participants()]
        for number, (start, arm) in enumerate(zip(starts, arms, strict=True)):
            last = max((size for size in study.crowds() if size <= number), default=0)
            assert start == ([last] if arm == "others" else [])
        crowd = study.materials.crowds.prior(None).crowd
        assert crowd is None
        person = next(one for one in study.store.participants() if one.arm == "others" and one.number > LEAST)
        made = study.materials.crowds.arm(study.config.arms[1], person).prior
        assert made.crowd.people == study.start(person)[0]
        assert study.materials.session(dataclasses.replace(study.config.arms[1], prior=made), 0).planner.prior is made


def others(study, people, most):
    """Somebody who starts from others, and left after some answers."""
    for name in ("late", "later"):
        person, _ = study.take_part(people, name, most)
        if person.arm == "others":
            return person
    raise AssertionError("a block of two has both arms")


def test_everybody_is_asked_the_same_again_also_after_others_change_their_answers(tmp_path, url):
    """Undo after the end, further people and another server change no question of who has started."""
    text = POOL.replace("attention = 1", "attention = 0").replace("test = 2", "test = 0") + ARMS
    folder, people = write_pool(tmp_path, f'database = "{url}"\n{text}'), People(1)
    with Study(folder) as study:
        done = [study.take_part(people, f"p{number}") for number in range(4)]
        person = others(study, people, 3)
        assert study.start(person) == [4] and study.crowds() == [4]
        known = study.materials.crowds.arm(study.config.arms[1], person).prior
        before, asked = done[0]
        answer = study.store.history(before.id)[-1][1].response.first
        back = study.queue.undo(before, asked[-1].key)
        study.queue.answer(before, back.key, Response.best((answer + 1) % 4))
        assert study.queue.next_question(before) is None and study.crowds() == [4]
    with Study(folder) as study:
        again = study.materials.crowds.arm(study.config.arms[1], person).prior
        assert again is not known and again.fingerprint == known.fingerprint
        utilities = people.draw()
        while (question := study.queue.next_question(person)) is not None:
            study.queue.answer(person, question.key, people.answer(utilities, question))
        assert study.crowds() == [4, 5]
        for record in study.store.records():
            assert audit("p", record, study.materials).different == 0
        with Study(folder) as other, ThreadPoolExecutor(2) as pool:  # two servers note the same people
            study.queue._note = lambda: None
            study.take_part(people, "last")
            list(pool.map(lambda one: one.materials.crowds.note(), [study, other] * 4))
        assert study.crowds() == [4, 5, 6]
        plain = dataclasses.replace(study.config.arms[1], prior=study.config.arms[0].prior)
        study.materials.config = dataclasses.replace(study.config, arms=(study.config.arms[0], plain))
        assert audit("p", study.store.record(person.id), study.materials).different  # without the others


def test_deleted_people_leave_their_crowds(tmp_path):
    folder, people = write_pool(tmp_path), People(3)
    with Study(folder) as study:
        done = [study.take_part(people, f"p{number}") for number in range(5)]
        person = others(study, people, 4)
        arm = study.config.arms[1]
        assert study.start(person) == [5]
        assert study.materials.crowds.arm(arm, person).prior.crowd.people == 5
        study.store.delete(done[0][0].id)
        assert study.materials.crowds.arm(arm, person).prior.crowd.people == 4
        study.store.delete(done[1][0].id)
        assert study.materials.crowds.arm(arm, person).prior.crowd is None  # three are too few
        assert study.crowds() == [2, 3]
    with Study(folder) as study:  # and who is asked is asked on
        assert study.queue.next_question(person) is not None


def test_others_predict_better(answered, tables):
    """Test answers of people who started from others, predicted from them and from their own answers alone."""
    logs = {"alone": {2: [], 10: []}, "others": {2: [], 10: []}}
    with Study(answered[0]) as study:
        for record in study.store.records():
            person, name = record.participant, pseudonym(study.store.secret, record.participant)
            if person.arm != "others" or study.start(person) < [15]:
                continue
            told = {place: answer.response.first for place, (_, answer) in enumerate(record.history)}
            moved = dataclasses.replace(record, participant=dataclasses.replace(person, arm="alone"))
            rows = Predictor(study.materials).rows(name, moved, comparisons_of(name, moved, study.materials))
            theirs = [row for row in tables.predictions if row["participant"] == name]
            for arm, row in [("alone", row) for row in rows] + [("others", row) for row in theirs]:
                if row["after"] in logs[arm]:
                    logs[arm][row["after"]].append(np.log(row["probabilities"][told[row["asked"]]]))
    for after in (2, 10):
        assert len(logs["others"][after]) == len(logs["alone"][after]) >= 14
        assert np.mean(logs["others"][after]) > np.mean(logs["alone"][after]) + 0.05


def test_the_report_says_what_the_crowd_likes_with_intervals_that_hold(answered, tables):
    _, people = answered
    facts, rows = tables.study["crowd"], tables.crowd
    assert facts["people"] == 30 and facts["shared"] + facts["taste"] + facts["own"] == pytest.approx(1.0, abs=1e-3)
    shown = {text for row in tables.answers if row["counts"] for text in row["options"]}
    assert all(row["people"] >= LEAST and row["item"] in shown for row in rows) and len(rows) > 20
    truth = people.shared - people.shared.mean()
    spread = np.sqrt(people.shared.var() + 0.7**2 + 0.5**2)
    wanted = {item: truth[place] / spread for item, place in people.items.items()}
    inside = [row["low"] <= wanted[row["item"]] <= row["high"] for row in rows]
    assert np.mean(inside) > 0.75
    assert np.corrcoef([row["mean"] for row in rows], [wanted[row["item"]] for row in rows])[0, 1] > 0.8
    assert [row["mean"] for row in rows] == sorted((row["mean"] for row in rows), reverse=True)
    pytest.importorskip("matplotlib", reason="the report has figures")
    page = make_report(tables).markdown()
    assert "## What the crowd likes" in page and rows[0]["item"] in page and "30 people who finished" in page
    few = dataclasses.replace(tables, study={**tables.study, "crowd": {**facts, "people": 0, "finished": 7}}, crowd=[])
    assert "at least 4 people together, and of items that so many saw: 7 participants finished." in (
        make_report(few).markdown()
    )


def test_items_that_few_saw_are_not_shown(answered):
    folder, _ = answered
    with Study(folder) as study:
        records = study.store.records()
        rows, facts = study.materials.crowds.table(records)
        seen = {row["item"]: row["people"] for row in rows}
        counted = {item: 0 for item in ITEMS}
        for record in records:
            asked = [question for question, answer in record.live if question.kind == "normal" and answer]
            for item in {text for question in asked for text in question.texts}:
                counted[item] += 1
        assert seen == {item: count for item, count in counted.items() if count >= LEAST}
        study.materials.config = dataclasses.replace(study.config, minimum_people=20)
        rows, facts = study.materials.crowds.table(records)
        assert {row["item"] for row in rows} == {item for item, count in counted.items() if count >= 20}
        assert 0 < len(rows) < len(ITEMS) == facts["items"]
        study.materials.config = dataclasses.replace(study.config, minimum_people=31)
        assert study.materials.crowds.table(records) == ([], {"minimum_people": 31, "finished": 30, "people": 0})


@pytest.mark.parametrize("format", ["rating", "best_worst"])
def test_every_format_makes_a_crowd(tmp_path, format):
    text = POOL.replace("number = 5", f'number = 5\nformat = "{format}"').replace("attention = 1", "attention = 0")
    folder, people = write_pool(tmp_path, text + ARMS.replace('planner = "adaptive"', 'planner = "random"')), People(4)
    with Study(folder) as study:
        for number in range(5):
            person, utilities = study.queue.consent(study.queue.enrol({"id": str(number)})), people.draw()
            while (question := study.queue.next_question(person)) is not None:
                values = np.array([utilities[text] for text in question.texts])
                order = np.argsort(-values).tolist()
                levels = np.clip(np.rint(values + 2), 0, 4).astype(int).tolist()
                response = (
                    Response.best_worst(order[0], order[-1]) if format == "best_worst" else Response.rating(levels)
                )
                study.queue.answer(person, question.key, response)
        assert study.crowds() == [4, 5]
        rows, facts = study.materials.crowds.table(study.store.records())
    assert facts["people"] == 5 and len(rows) > 1
