"""Questions chosen in worker processes: the same as in this one, also when the processes are killed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import zlib
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from tests.helpers.extras import reason

if why := reason(["study"]):
    pytest.skip(why, allow_module_level=True)
if sys.platform != "linux":
    pytest.skip("worker processes are forked on Linux", allow_module_level=True)

from edpbrl_gym._threads import give_back
from edpbrl_gym.features.loading import CachedEncoder
from edpbrl_gym.features.store import text_key
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study import planning
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.planning import Planning, WorkerPlanning, make_planning
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import NotReadyError
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.watching import used_memory
from edpbrl_gym.workers.forked import Nursery, WorkerDiedError
from tests.helpers.encoders import CountingEncoder
from tests.helpers.oracle_studies import liked
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_pools import People, write_pool

SURE = SMALL.replace("number = 6", "number = 14").replace(
    "[practice]", "[questions.stop_when_sure]\naccuracy = 0.8\nminimum = 6\n[practice]"
)
STOP = signal.SIGKILL


class Study:
    """A study whose questions are chosen in so many processes."""

    def __init__(self, folder, workers, encoder=None):
        self.config = read_config(folder)
        self.store = Store(self.config.database_url, config=self.config.fingerprint)
        materials = Materials(self.config, encoder=encoder or CountingEncoder())
        self.planning = make_planning(materials, workers)
        self.queue = StudyQueue(self.config, self.store, materials, planning=self.planning)

    def play(self, name, answer, *, meanwhile=lambda: None):
        """A person from the first question to the last page; returns what was asked."""
        person = self.queue.consent(self.queue.enrol({"PROLIFIC_PID": name}))
        asked = []
        while question := self.queue.next_question(person):
            asked.append((question.kind, question.tokens))
            meanwhile()
            self.queue.answer(person, question.key, answer(question))
            if len(asked) == 4:  # taken back once
                again = self.queue.undo(person, question.key)
                self.queue.answer(person, again.key, answer(again))
        return asked, self.style(person)

    def style(self, person):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                return self.queue.style(person)
            except NotReadyError:
                time.sleep(0.05)
        raise AssertionError("no learnt taste was made")

    def close(self):
        self.queue.close()
        self.planning.close()
        self.store.close()


@pytest.fixture
def study():
    opened = []

    def start(folder, workers, encoder=None):
        opened.append(Study(folder, workers, encoder))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def both(study, tmp_path, text):
    folders = [write_study(tmp_path / name, text) for name in ("here", "there")]
    return study(folders[0], 0), study(folders[1], 2)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("text", [SMALL, SURE], ids=["all questions", "until sure"])
def test_workers_ask_what_this_process_asks(study, tmp_path, text):
    here, there = both(study, tmp_path, text.replace("weight = 2", ""))
    assert type(here.planning) is Planning and type(there.planning) is WorkerPlanning
    for name in ("one", "two"):  # one of each arm
        own = [one.play(name, lambda question, one=one: liked(one.queue, question)) for one in (here, there)]
        assert own[0] == own[1] and own[0][1] is not None
    assert there.planning.deaths == 0 and len(there.planning.pids()) >= 2


def test_workers_start_people_from_those_who_finished(study, tmp_path):
    folders = [write_pool(tmp_path / name) for name in ("here", "there")]
    asked = []
    for folder, workers in zip(folders, (0, 2), strict=True):
        one, people = study(folder, workers), People(3)
        asked.append([])
        for number in range(8):
            tastes = people.draw()
            asked[-1].append(one.play(f"p{number}", lambda question, t=tastes, p=people: p.answer(t, question)))
    assert asked[0] == asked[1]
    assert one.planning.deaths == 0


def test_killed_workers_lose_nothing_and_without_any_the_server_goes_on(study, tmp_path):
    here, there = both(study, tmp_path, SMALL.replace("weight = 2", ""))

    def kill_workers():
        nursery, *workers = there.planning.pids()
        for pid in workers:
            with suppress(ProcessLookupError):  # killed before, and not asked since
                os.kill(pid, STOP)

    def kill_all():
        for pid in there.planning.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, STOP)

    for name, kill in (("one", kill_workers), ("two", kill_workers), ("three", kill_all), ("four", kill_all)):
        plain = here.play(name, lambda question: liked(here.queue, question))
        killed = there.play(name, lambda question: liked(there.queue, question), meanwhile=kill)
        assert plain == killed
    assert there.planning.deaths > 2


def test_while_every_worker_dies_people_wait_and_then_it_goes_on(study, tmp_path, monkeypatch, caplog):
    sign, made = tmp_path / "die", planning._Handler.__call__

    def die(handler, request):
        if sign.exists():
            os._exit(1)
        return made(handler, request)

    monkeypatch.setattr(planning._Handler, "__call__", die)
    here, there = both(study, tmp_path, SMALL.partition('[[arms]]\nname = "random"')[0])
    asked, style = here.play("one", lambda question: liked(here.queue, question))
    person = there.queue.consent(there.queue.enrol({"PROLIFIC_PID": "one"}))
    for kind, tokens in asked:
        if kind == "normal":
            sign.touch()
            with pytest.raises(NotReadyError, match="worker process that answers, 3 died"):
                there.queue.next_question(person)
            sign.unlink()
        question = there.queue.next_question(person)
        assert (question.kind, question.tokens) == (kind, tokens)
        sign.touch()
        there.queue.answer(person, question.key, liked(there.queue, question))
    assert there.queue.next_question(person) is None
    end = time.monotonic() + 60
    while "A learnt taste could not be made; it is tried again" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.02)
    with pytest.raises(NotReadyError):
        there.queue.style(person)
    sign.unlink()
    assert there.style(person) == style
    assert not any(one.exc_info for one in caplog.records)


def test_processes_end_with_the_one_that_made_them(study, tmp_path):
    [_, there] = both(study, tmp_path, SMALL.replace("weight = 2", ""))
    there.play("one", lambda question: liked(there.queue, question))
    pids = there.planning.pids()
    assert all(map(is_alive, pids))
    there.close()
    end = time.monotonic() + 30
    while any(map(is_alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.02)


def _double(request):
    if request == "fail":
        raise ValueError("Expected a number, got a word")
    if request == "wait":
        time.sleep(60)
    return 2 * request


def test_a_worker_raises_what_the_handler_raises_and_one_that_hangs_is_killed():
    nursery = Nursery(lambda: _double)
    try:
        worker = nursery.worker()
        assert worker.call(3, patience=60) == 6
        with pytest.raises(ValueError, match="got a word"):
            worker.call("fail", patience=60)
        assert worker.call(4, patience=60) == 8
        with pytest.raises(WorkerDiedError, match=r"within 0\.2 s"):
            worker.call("wait", patience=0.2)
        end = time.monotonic() + 30
        while is_alive(worker.pid):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert nursery.worker(nice=True).call(5, patience=60) == 10
    finally:
        nursery.close()


class _Noting:
    """An encoder that writes to a file what it embeds, in which process, and how nice that process is."""

    def __init__(self, path):
        self._path, self._encoder = path, CountingEncoder()
        self.name, self.dimension, self.fingerprint = "noting", self._encoder.dimension, self._encoder.fingerprint

    def encode(self, texts, *, progress=False):
        with open(self._path, "a") as file:
            file.writelines(f"{os.getpid()}\t{os.nice(0)}\t{text}\n" for text in texts)
        return self._encoder.encode(texts)

    def noted(self):
        """Process, priority and text of each that was embedded."""
        rows = [line.split("\t") for line in self._path.read_text().splitlines()]
        return [(int(pid), int(nice), text) for pid, nice, text in rows]


def test_options_that_are_read_are_embedded_where_nobody_waits_for_it(study, tmp_path):
    encoder = _Noting(tmp_path / "noted")
    text = SMALL.partition('[[arms]]\nname = "random"')[0]
    one = study(write_study(tmp_path / "study", text), 1, CachedEncoder(encoder, tmp_path / "cache"))
    reader = CachedEncoder(encoder, tmp_path / "cache")
    person = one.queue.consent(one.queue.enrol({"PROLIFIC_PID": "one"}))
    known, asked = {text for _, _, text in encoder.noted()}, set()  # what a prior is fitted to, before workers begin
    while question := one.queue.next_question(person):
        if question.kind == "normal":
            asked |= {*question.texts} - known
            keys, end = {text: text_key(text) for text in asked}, time.monotonic() + 60
            while reader.missing([*keys.values()], [*keys]):  # written, not only noted: a fast answer embeds again
                assert time.monotonic() < end
                time.sleep(0.01)
        one.queue.answer(person, question.key, Response.best(question.expected or 0))
    one.style(person)
    embedded = [(pid, nice, text) for pid, nice, text in encoder.noted() if text in asked]
    assert len(asked) > 6 and len(embedded) == len(asked)  # each once, as processes share the cache
    assert all(pid != os.getpid() and nice > 0 for pid, nice, _ in embedded)


class _Wide:
    """An encoder of so many features that what a session remembers is seen in the memory of its process."""

    name, dimension, fingerprint = "wide", 256, "wide"

    def encode(self, texts, *, progress=False):
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dimension) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, self.dimension) / 16


@pytest.mark.parametrize("workers", [0, 1], ids=["this process", "a worker"])
def test_memory_does_not_grow_with_the_number_of_people(study, tmp_path, workers):
    text = SMALL.replace("weight = 2", "").partition('[[arms]]\nname = "random"')[0] + "[thanks]\nstyle = 0\n"
    one = study(write_study(tmp_path / "study", text), workers, _Wide())

    def answer(number, question):
        return Response.best(number % 3 if question.expected is None else 0)

    def used(people):
        for number in people:
            one.play(f"p{number}", partial(answer, number))
        gc.collect()
        give_back()
        return used_memory(*one.planning.pids()) / 1e6

    used(range(4))
    before = used(range(4, 6))
    assert used(range(6, 16)) - before < 25.0  # megabytes; a session has five
    assert one.planning.deaths == 0
