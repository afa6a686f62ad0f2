"""Kinds of arms: what each says of itself, and a further one, which nothing but the table knows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.planners.replay import ReplayPlanner
from edpbrl_gym.study.arms import ARM_KINDS, ArmKind, kind_of, planner_names
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config import Arm
from edpbrl_gym.study.config_reading import Mistakes, config_of, read_config, read_document
from edpbrl_gym.study.export import export
from edpbrl_gym.study.export_tables import read_tables
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import NotReadyError, Post
from edpbrl_gym.study.store import Store
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study


def test_every_planner_has_a_kind_and_what_it_says_fits():
    assert planner_names() == [*PLANNERS, "questions", "oracle"]
    said = {
        planner: (kind.learns, kind.posted, kind.is_independent(arm), kind.thinks(arm), kind.learner(arm))
        for planner in ("adaptive", "random", "questions", "oracle")
        for arm in [Arm("a", planner, weight=3)]
        for kind in [kind_of(arm)]
    }
    assert said == {
        "adaptive": (True, False, False, True, Arm("a", "adaptive", weight=3)),
        "random": (True, False, True, False, Arm("a", "random", weight=3)),
        "questions": (False, False, True, False, Arm("a", "random")),
        "oracle": (False, True, False, False, None),
    }


def test_posted_questions_are_waited_for_and_end_where_the_loop_ended():
    post = Post(0, ["a", "b"], 0, 2)
    for planner in ("adaptive", "questions"):
        kind = kind_of(Arm("a", planner))
        assert kind.post([post].__getitem__, 0) is None and kind.count(lambda: 1) is None
    oracle = kind_of(Arm("a", "oracle"))
    assert oracle.post([post].__getitem__, 0) is post and oracle.count(lambda: 1) == 1
    with pytest.raises(NotReadyError, match="that the oracle has posted"):
        oracle.post(lambda number: None, 0)


class Mirrored(ArmKind):
    """Each question of the vocabulary's first tokens, one further for every participant."""

    def check(self, arm, table, questions):
        super().check(arm, table, questions)
        if set(arm.options) != {"shift"}:
            table.note("options", "shift alone with planner = 'mirrored'")

    def title(self, arm):
        return f"mirrored by {arm.options['shift']}"

    def first_question(self, arm, materials):
        return materials.session(arm, 0).ask().texts, 0.0

    def planner(self, arm, materials, number):
        lanes = np.arange(3)[:, None] + np.zeros((1, 3), dtype=np.int64)
        episodes = [(lanes + asked + number * arm.options["shift"]) % 8 for asked in range(6)]
        return ReplayPlanner(np.array(episodes), distinct=True)


def test_a_further_kind_of_arm_is_a_class_and_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(ARM_KINDS, "mirrored", Mirrored())
    arm = '[[arms]]\nname = "mirror"\nplanner = "mirrored"\noptions = {shift = 2}\n'
    folder = write_study(tmp_path / "study", SMALL[: SMALL.index("[[arms]]")] + arm)
    document = read_document(folder / "study.toml")
    document["arms"][0] |= {"options": {}, "file": "study.toml"}
    with pytest.raises(Mistakes, match="file: expected no file with planner = 'mirrored'.*options: expected shift"):
        config_of(document, folder)

    config = read_config(folder)
    plan, materials = examine(config, encoder=CountingEncoder())
    assert plan.arms[0].texts == materials.maker.texts(np.arange(3)[:, None] + np.zeros((1, 3), dtype=np.int64))
    store = Store(config.database_url, config=config.fingerprint)
    queue = StudyQueue(config, store, materials)
    people = [queue.consent(queue.enrol({"PROLIFIC_PID": name})) for name in "ab"]
    for person in people:
        while (question := queue.next_question(person)) is not None:
            queue.answer(person, question.key, Response.best(question.expected or 0))
        record = store.record(person.id)
        asked = [one.tokens for one, _ in record.history if one.kind == "normal"]
        assert [tokens[0][0] for tokens in asked] == [(2 * person.number + number) % 8 for number in range(6)]
        assert not audit("p", record, materials).different
    export(store, materials, tmp_path / "out")
    assert read_tables(tmp_path / "out").study["arms"][0]["planner"] == "mirrored"
    assert dataclasses.asdict(config.arms[0])["options"] == {"shift": 2}
    queue.close()
    store.close()
