"""Simulated participants of a study: most of them finish; others fail the check, leave, or withdraw."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.forms.pages import PageForm
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Timing
from edpbrl_gym.study.store import Store

FAILED, WITHDRAWN, LEFT = 7, 11, 5  # every so many-th participant


def take_part(folder: Path, people: int, *, noise: float = 0.3, seed: int = 0) -> None:
    """Let people with tastes around a common one answer a study in its database.

    Every 7th fails the check below the instructions (where there is one), every 11th withdraws after some answers,
    every 5th leaves; some can't tell, or take an answer back; times fall with practice; who finishes states a style.
    """
    config = read_config(folder)
    materials = Materials(config)
    rng = np.random.default_rng(seed)
    common = rng.normal(size=materials.encoder.dimension)
    with closing(Store(config.database_url, config=config.fingerprint)) as store:
        queue = StudyQueue(config, store, materials)
        with closing(queue):
            for number in range(people):
                _one(queue, number, common + 0.7 * rng.normal(size=len(common)), noise, rng)


def _one(queue: StudyQueue, number: int, theta, noise: float, rng: np.random.Generator) -> None:
    config, store = queue.config, queue.store
    person = queue.enrol({"PROLIFIC_PID": f"person-{number}"})
    if number % 13 == 12:
        return
    queue.consent(person)
    for page in config.pages:
        fails = number % FAILED == FAILED - 1
        read = PageForm({}, {}, new=False, wrong=("what",) if fails else ())
        for attempt in range(page.attempts if fails else 1):
            queue.check_page(person, page.name, read, attempt, page.attempts)
        if fails:
            return
    leaves = rng.integers(3, 9) if number % LEFT == LEFT - 1 else None
    undone = number % 4 != 1
    answered = 0
    while (question := queue.next_question(person)) is not None:
        values = queue.materials.encoder.encode(question.texts) @ theta
        values = values + noise * values.std() * rng.gumbel(size=len(values))
        response = Response.best(int(values.argmax()) if question.expected is None else question.expected)
        if question.kind in ("normal", "test") and rng.random() < 0.05:
            response = Response.tie()
        seconds = (4.0 + 6.0 * np.exp(-question.number / 6)) * rng.lognormal(0.0, 0.35)
        timing = Timing(int(400 * seconds), int(1000 * seconds), 0, (390, 844) if number % 2 else (1440, 900))
        queue.answer(person, question.key, response, timing)
        answered += 1
        if not undone and answered == 4:
            queue.next_question(person)
            undone = queue.undo(person, question.key) is not None
        if answered == leaves:
            if number % WITHDRAWN == WITHDRAWN - 1 or number % 2:
                store.set_status(person.id, "withdrawn")
            return
    store.add_event(person.id, "style_choice", {"chosen": ["learnt", "learnt", "random", "tie"][number % 4]})
