"""The real server is killed under load: nothing acknowledged is lost, nothing doubled, everybody finishes."""

from __future__ import annotations

import os
import random
import time

import pytest

from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.store import Store
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_process import ServerProcess, Stubborn, free_port

PEOPLE = 6
KILLS = int(os.environ.get("EDPBRL_TEST_KILLS", "3"))  # with each database


def study(folder, url, number):
    """A study of so many questions whose encoder needs no model."""
    words, encoder = write_embedded(folder)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    text = text.replace("number = 6", f"number = {number}").replace("seed = 3", f'seed = 3\ndatabase = "{url}"')
    return write_study(folder / "study", text)


def check(people, folder):
    """What was acknowledged is stored, once; return the number of answers."""
    config = read_config(folder)
    store = Store(config.database_url, create=False)
    try:
        everybody = {one.external["PROLIFIC_PID"]: one for one in store.participants()}
        assert sorted(everybody) == sorted(one.name for one in people)
        total = 0
        for one in people:
            participant = everybody[one.name]
            assert participant.status == "finished"
            history = store.history(participant.id)
            assert [question.number for question, _ in history] == list(range(len(history)))
            assert all(answer is not None for _, answer in history) and not any(
                question.struck for question, _ in history
            )
            stored = {question.key: answer.response.first for question, answer in history}
            assert len(stored) == len(history) == config.questions.number + 4
            for key, told in one.acknowledged.items():
                assert told == {stored[key]}, (one.name, key)  # each tab that was told so
            for key, first in stored.items():
                assert first in one.sent[key]
            total += len(stored)
        return total
    finally:
        store.close()


def finish(people, seconds=600):
    """Wait until everybody has finished."""
    end = time.monotonic() + seconds
    for one in people:
        one.join(max(0.1, end - time.monotonic()))
        one.stop.set()
    assert [one.error for one in people] == [None] * len(people)
    assert all(one.finished for one in people)


@pytest.fixture
def running():
    """Things that are stopped after the test, whatever happens."""
    started = []
    yield started
    for one in started:
        if isinstance(one, ServerProcess):
            one.kill()
        else:
            one.stop.set()


def test_kills_under_load_lose_and_double_nothing(url, tmp_path, running):
    folder = study(tmp_path, url, 4 * KILLS)
    server = ServerProcess(folder, free_port())
    running.append(server)
    server.start()
    people = [Stubborn(f"p{number}", [server.port], number) for number in range(PEOPLE)]
    running.extend(people)
    for one in people:
        one.start()
    rng, kills = random.Random(20), 0
    while kills < KILLS and not all(one.finished for one in people):
        time.sleep(rng.uniform(0.05, 1.0))  # from the first request on
        server.kill()
        kills += 1
        server.start()
    finish(people)
    assert check(people, folder) == PEOPLE * (4 * KILLS + 4)
    assert kills == KILLS and sum(one.failures for one in people) > 0 and sum(one.cut for one in people) > 0
    assert server.errors() == []


def test_two_servers_on_one_database_serve_the_same_people(url, tmp_path, running):
    folder = study(tmp_path, url, 8)
    servers = [ServerProcess(folder, free_port()) for _ in range(2)]
    running.extend(servers)
    for server in servers:
        server.start()
    people = [Stubborn(f"p{number}", [server.port for server in servers], 100 + number) for number in range(PEOPLE)]
    running.extend(people)
    for one in people:
        one.start()
    time.sleep(1.0)
    servers[0].kill()
    servers[0].start()
    finish(people)
    assert check(people, folder) == PEOPLE * 12
    assert [server.errors() for server in servers] == [[], []]
