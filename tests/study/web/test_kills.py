"""The real server is killed under load: nothing acknowledged is lost, nothing doubled, everybody finishes."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest

from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.forms.pages import entries_of
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.store import Store
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_process import ServerProcess, Stubborn, free_port

PEOPLE = 6
QUESTION = 'title = "Page"\n[[pages.questions]]\nname = "said"\nkind = "short_text"\ntext = "?"\n'
PAGES = f"""
[[pages]]
name = "note"
place = "between"
every = 3
{QUESTION}
[[pages]]
name = "end"
place = "after"
{QUESTION}
"""
KILLS = int(os.environ.get("EDPBRL_TEST_KILLS", "2"))  # with each database


def study(folder, url, number):
    """A study of so many questions whose encoder needs no model."""
    words, encoder = write_embedded(folder)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    text = text.replace("number = 6", f"number = {number}").replace("seed = 3", f'seed = 3\ndatabase = "{url}"')
    return write_study(folder / "study", text + PAGES)


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
            pages = entries_of(store.events(participant.id))
            times = {f"note.{number}" for number in range(1, 1 + (len(history) - 1) // 3)}
            assert set(pages) == {"end", *times} == set(one.said)
            assert all(detail["answers"]["said"] in one.said[key] for key, detail in pages.items())
            kinds = [event["kind"] for event in store.events(participant.id)]
            assert kinds.count("page") == len(pages)
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


def begin(running, folder, *more, count=1):
    """So many servers of a study, and people who answer its questions."""
    servers = [ServerProcess(folder, free_port(), *more) for _ in range(count)]
    running.extend(servers)
    for server in servers:
        server.start()
    people = [Stubborn(f"p{number}", [server.port for server in servers], number) for number in range(PEOPLE)]
    running.extend(people)
    for one in people:
        one.start()
    return servers, people


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


@pytest.mark.parametrize("number", [1, 2], ids=["one server", "two servers"])
def test_kills_under_load_lose_and_double_nothing(url, tmp_path, running, number):
    folder = study(tmp_path, url, 4 * KILLS)
    servers, people = begin(running, folder, count=number)
    rng, kills = random.Random(20), 0
    while kills < KILLS and not all(one.finished for one in people):
        time.sleep(rng.uniform(0.05, 1.0))  # from the first request on
        server = servers[kills % len(servers)]
        server.kill()
        kills += 1
        server.start()
    finish(people)
    assert check(people, folder) == PEOPLE * (4 * KILLS + 4)
    assert kills == KILLS or number == 2  # with two of them people may have finished before
    assert sum(one.failures for one in people) > 0 and sum(one.cut for one in people) > 0
    assert not any(server.errors() for server in servers)


def test_a_database_that_vanishes_under_load_loses_and_doubles_nothing(tmp_path, running):
    """It is renamed while people answer, and put back."""
    folder = study(tmp_path, f"sqlite:///{tmp_path / 'study.db'}", 6 * KILLS)
    [server], people = begin(running, folder)
    rng, times, end = random.Random(22), 0, time.monotonic() + 300
    while times < KILLS and time.monotonic() < end:
        time.sleep(rng.uniform(0.05, 0.5))
        before = sum(one.refused for one in people)
        (tmp_path / "study.db").rename(tmp_path / "old.db")
        while sum(one.refused for one in people) < before + 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert not (tmp_path / "study.db").exists()  # no empty one is made in its place
        (tmp_path / "old.db").rename(tmp_path / "study.db")
        times += 1
    finish(people)
    assert check(people, folder) == PEOPLE * (6 * KILLS + 4)
    assert times == KILLS and not server.errors()


@pytest.mark.parametrize("vanish", [False, True], ids=["there", "renamed"])
def test_a_server_says_at_its_end_whether_everything_is_stored(tmp_path, running, vanish):
    folder = study(tmp_path, f"sqlite:///{tmp_path / 'study.db'}", 4)
    server = ServerProcess(folder, free_port())
    running.append(server)
    server.start()
    if vanish:
        (tmp_path / "study.db").rename(tmp_path / "old.db")
    os.kill(server.process.pid, signal.SIGINT)
    assert server.process.wait(60) == int(vanish)
    said = server.log.read_text(encoding="utf-8")
    assert ("Everything that was acknowledged is stored" in said) != vanish and "Traceback" not in said
    assert ("study.db was removed or renamed" in " ".join(said.split())) == vanish


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="worker processes are forked on Linux")
def test_killed_workers_lose_and_double_nothing(tmp_path, running):
    """Those that choose questions, and the one that they are forked from, while people answer."""
    folder = study(tmp_path, f"sqlite:///{tmp_path / 'study.db'}", 4 * KILLS)
    [server], people = begin(running, folder, "--workers", "2")
    rng, killed, end = random.Random(21), 0, time.monotonic() + 300
    while killed < 4 * KILLS and not all(one.finished for one in people) and time.monotonic() < end:
        time.sleep(rng.uniform(0.02, 0.3))
        workers = server.workers()  # the first one is the oldest, which forks the others
        if len(workers) > 1:
            last = killed == 4 * KILLS - 1
            os.kill(workers[0] if last else rng.choice(workers[1:]), signal.SIGKILL)
            killed += 1
    finish(people)
    assert check(people, folder) == PEOPLE * (4 * KILLS + 4)
    assert killed > 0 and not server.errors()
    assert "A worker process was lost" in server.log.read_text(encoding="utf-8")
    config = read_config(folder)
    store = Store(config.database_url, create=False)
    try:
        materials = Materials(config)
        for record in store.records():
            found = audit(record.participant.code, record, materials)
            assert found.different == 0 and len(found.questions) == 4 * KILLS + 4
    finally:
        store.close()
