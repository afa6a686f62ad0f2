"""Stopping and going on: Ctrl-C, kill -9, a server that makes us wait. Nothing that was read is asked twice."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from edpbrl_gym.oracles.judge import Judge, Ledger
from edpbrl_gym.oracles.judge.messages import most_input_tokens
from tests.helpers.judge_tools import lines, local_judge, questions, settings

ROOT = Path(__file__).resolve().parents[2]
NUMBER, AT_ONCE = 60, 4
CHILD = f"""
import sys
from types import SimpleNamespace
from tests.helpers.judge_tools import questions, settings
from edpbrl_gym.oracles.judge import Judge
url, ledger = sys.argv[1:]
with Judge(settings(SimpleNamespace(base_url=url), concurrency={AT_ONCE}), ledger=ledger) as judge:
    judge.ask(questions({NUMBER}))
print("done")
"""


def begin(server, ledger):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, server.base_url, str(ledger)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, child):
    until = time.monotonic() + 120
    while not condition():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.002)


def answered(path):
    """Candidates' key -> answer lines on the disk."""
    return Counter(line["key"] for line in lines(path, "answer"))


def test_killed_three_times_it_asks_nothing_again_that_was_answered_and_gives_the_same_verdicts(tmp_path):
    path = tmp_path / "l"
    with local_judge(delay=0.15) as server:  # so long that a kill leaves questions without their answers
        with Judge(settings(server), ledger=tmp_path / "whole") as judge:
            wanted = [verdict.choice for verdict in judge.ask(questions(NUMBER))]
        before = len(server.asked)
        for kills, kill_at in enumerate((7, 23, 41), start=1):
            child = begin(server, path)
            wait_until(lambda at=kill_at: len(server.asked) - before >= at, child)
            child.kill()
            child.communicate()
            kept = answered(path)
            time.sleep(0.3)  # the server ends what it was doing
            seen = len(server.asked)
            assert max(kept.values()) == 1 and kill_at - kills * AT_ONCE <= len(kept)
            before_this = seen
        with Judge(settings(server), ledger=path) as judge:
            under_way = sum(len(sent) for sent in judge.ledger.under_way.values())
            assert judge.budget.questions == len(kept) + under_way  # they may have been billed
            assert len(kept) < len(server.asked) - before <= judge.budget.questions
            verdicts = judge.ask(questions(NUMBER))
            assert [verdict.choice for verdict in verdicts] == wanted
            assert [verdict.cached for verdict in verdicts].count(True) == len(kept)
        asked_now = len(server.asked) - before_this
        assert asked_now == NUMBER - len(kept)
        again = Counter(question.identity for question in server.asked[before:])
    # asked a second time: at most those whose answer was on its way when the process was killed
    assert sum(again.values()) - NUMBER <= 3 * AT_ONCE and len(again) == NUMBER
    assert max(answered(path).values()) == 1 and len(answered(path)) == NUMBER


def test_ctrl_c_keeps_every_answer_under_way(tmp_path):
    path = tmp_path / "l"
    with local_judge(delay=0.3) as server:
        child = begin(server, path)
        wait_until(lambda: len(server.asked) >= 9, child)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=60)
        assert child.returncode != 0 and "KeyboardInterrupt" in errors and "done" not in out
        assert len(answered(path)) == len(server.asked) == server.requests < NUMBER
        with Judge(settings(server), ledger=path) as judge:
            assert not any(judge.ledger.under_way.values())
            judge.ask(questions(NUMBER))
        assert server.requests == NUMBER


def interrupt_at(number):
    def progress(done, total):
        if done == number:
            raise KeyboardInterrupt

    return progress


class AllButTheFirst(threading.Event):
    """In place of the server's pause before an answer: all requests but the first wait until ``opened``."""

    def __init__(self):
        super().__init__()
        self.waiting, self.opened = threading.Event(), threading.Event()
        self._requests = itertools.count()

    def wait(self, timeout=None):
        if next(self._requests) == 0:
            return True
        self.waiting.set()
        return self.opened.wait(20.0)


@pytest.mark.parametrize("close", [False, True])
def test_an_interrupt_stays_one_where_the_ledger_can_not_be_written(tmp_path, caplog, close):
    """Also where it is raised in the block of a judge, which is closed then."""
    with local_judge(delay=1.0) as server:
        server.stopping = gate = AllButTheFirst()
        judge = Judge(settings(server, concurrency=4), ledger=tmp_path / "l")

        def progress(done, total):
            assert gate.waiting.wait(20.0)  # another question is under way, and is answered without a ledger
            (tmp_path / "l").unlink()
            gate.opened.set()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            if close:
                with judge:
                    judge.ask(questions(20), progress=progress)
            else:
                judge.ask(questions(20), progress=progress)
        assert judge.ledger.unwritten and "kept only in this process" in caplog.text
        if not close:
            with pytest.raises(FileNotFoundError):
                judge.close()
        judge.close()


def test_an_interrupted_call_does_not_wait_for_the_first_question_of_another(tmp_path):
    with local_judge() as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        asker, stop = judge._asker, threading.Event()
        (look,) = judge._plan(questions(1)[0], 0)
        thread = threading.Thread(target=asker._claim_and_ask, args=(look, stop))
        with asker._probing:  # as another call does until the server has answered
            thread.start()
            stop.set()
            thread.join(10)
            assert not thread.is_alive() and look.outcome == "stopped"
        assert not server.requests
        assert judge.ask(questions(1))[0].reason == "answered"


def test_an_interrupted_call_goes_on_in_the_same_process(tmp_path):
    with local_judge(delay=0.05) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        with pytest.raises(KeyboardInterrupt):
            judge.ask(questions(40), progress=interrupt_at(10))
        assert server.requests == len(answered(tmp_path / "l")) < 40
        verdicts = judge.ask(questions(40))
        assert server.requests == 40 and all(verdict.choice is not None for verdict in verdicts)
        assert judge.budget.questions == 40 and judge.budget.tokens == server.tokens


def test_an_interrupt_does_not_wait_for_retries(tmp_path):
    """Every other question is told to come back in 100 s; these are given up, unpaid, and asked by the next run."""
    with local_judge(faults={"429": 0.5}, retry_after=100.0, seed=1) as server:
        with Judge(settings(server, concurrency=8), ledger=tmp_path / "l") as judge:
            with pytest.raises(KeyboardInterrupt):
                judge.ask(questions(12), progress=interrupt_at(4))
            assert judge.budget.tokens == server.tokens and judge.budget.questions == len(answered(tmp_path / "l"))
            assert not any(judge.ledger.under_way.values()) and judge.ledger.failures
    with local_judge() as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        kept = len(judge.ledger.answers)
        assert all(verdict.reason == "answered" for verdict in judge.ask(questions(12)))
        assert server.requests == 12 - kept


def test_a_ledger_that_can_not_be_written_stops_the_run(tmp_path, monkeypatch):
    with local_judge(delay=0.02) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        append = judge.ledger.append

        def full(line, *, durable):
            if line["kind"] == "answer" and len(judge.ledger.answers) >= 5:
                raise OSError(28, "No space left on device")
            append(line, durable=durable)

        monkeypatch.setattr(judge.ledger, "append", full)
        with pytest.raises(OSError, match="No space"):
            judge.ask(questions(40))
        assert server.requests <= 5 + 2 * 8
        monkeypatch.undo()
        assert all(verdict.choice is not None for verdict in judge.ask(questions(40)))


@pytest.mark.parametrize("slow", ["before it is sent", "before it is kept"])
def test_an_interrupt_loses_no_answer_where_threads_are_slow(tmp_path, monkeypatch, slow):
    """On a busy machine a thread may pause anywhere: also between its last look at the stop and the sending."""
    with local_judge() as server, Judge(settings(server, concurrency=6), ledger=tmp_path / "l") as judge:
        ask = judge._asker.client.ask

        def paused(*arguments):
            if slow == "before it is sent":
                time.sleep(0.2)
            reply = ask(*arguments)
            if slow == "before it is kept":
                time.sleep(0.2)
            return reply

        monkeypatch.setattr(judge._asker.client, "ask", paused)
        with pytest.raises(KeyboardInterrupt):
            judge.ask(questions(30), progress=interrupt_at(3))
        for thread in [thread for thread in threading.enumerate() if thread.name.startswith("judge-")]:
            thread.join()
        assert server.requests == len(answered(tmp_path / "l")) == judge.budget.questions < 30
        assert not any(judge.ledger.under_way.values()) and judge.budget.tokens == server.tokens
        assert judge.ledger.spending.held_questions == judge.ledger.spending.held_tokens == 0


def test_lost_attempts_of_a_question_count_as_spent_after_a_kill(tmp_path):
    """The ledger as a kill leaves it in the middle of the third attempt: three attempts may have been billed."""
    path, copy = tmp_path / "l", tmp_path / "copy"
    with local_judge(faults={"timeout": 1.0}, hang=60.0) as server:
        chosen = settings(server, timeout=0.5, max_retries=2, structured="text")
        (question,) = questions(1)
        bound = most_input_tokens(chosen, question) + chosen.max_answer_tokens
        with Judge(chosen, ledger=path) as judge:
            asking = threading.Thread(target=judge.ask, args=([question],))
            asking.start()
            while server.requests < 3:
                assert asking.is_alive()
                time.sleep(0.002)
            shutil.copy(path, copy)
            asking.join()
            assert judge.ledger.spent == (1, 3 * bound)
    ledger = Ledger(copy)
    assert ledger.spent == (1, 3 * bound) and not ledger.failures
    ledger.close()


def test_kills_at_startup_book_what_was_sent_and_nothing_more(tmp_path):
    """The first question finds out about schemas and the others wait for it: one request, whatever the concurrency."""
    with local_judge(delay=60.0) as server:
        for kills in (1, 2):
            child = begin(server, tmp_path / "l")
            wait_until(lambda wanted=kills: server.requests == wanted, child)
            time.sleep(0.3)
            child.kill()
            child.communicate()
        ledger = Ledger(tmp_path / "l")
        asked = settings(server)
        most = max(most_input_tokens(asked, question) for question in questions(NUMBER)) + asked.max_answer_tokens
        assert ledger.spent[0] == server.requests == 2 and ledger.spent[1] <= 2 * most
        ledger.close()


def test_what_could_not_be_sent_is_not_booked(tmp_path):
    with local_judge() as server:
        chosen = settings(server, max_retries=1)
    with Judge(chosen, ledger=tmp_path / "l") as judge:  # nobody listens there any more
        verdicts = judge.ask(questions(3))
        assert [(v.reason, v.retries, v.usage.total) for v in verdicts] == [("failed", 1, 0)] * 3
        assert judge.ledger.spent == (judge.budget.questions, judge.budget.tokens) == (0, 0)
    assert not lines(tmp_path / "l", "sent") and len(lines(tmp_path / "l", "failed")) == 3


@pytest.mark.parametrize("at_once", [False, True])
def test_two_judges_on_one_ledger_have_one_budget(tmp_path, at_once):
    with local_judge(delay=0.02) as server:
        ledger = Ledger(tmp_path / "l")
        judges = [Judge(settings(server, max_questions=10, style=style), ledger=ledger) for style in ("noir", "sunny")]
        found = in_threads([lambda judge=judge: judge.ask(questions(10)) for judge in judges], at_once=at_once)
        answered = sum(verdict.reason == "answered" for verdicts in found for verdict in verdicts)
        assert server.requests == 10 == answered == ledger.spent[0] == judges[0].budget.questions
        tokens = [Judge(settings(server, max_tokens=ledger.tokens, style="odd"), ledger=ledger) for _ in range(2)]
        assert {v.reason for judge in tokens for v in judge.ask(questions(2, start=90))} == {"budget"}
        for judge in [*judges, *tokens]:
            judge.close()
        ledger.close()


def in_threads(calls, *, at_once=True):
    """What the calls return, each in a thread of its own."""
    found = [None] * len(calls)

    def work(place, call):
        found[place] = call()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("judges", [1, 2])
def test_threads_pay_for_a_question_once(tmp_path, judges):
    with local_judge(delay=0.05) as server:
        ledger = Ledger(tmp_path / "l")
        asking = [Judge(settings(server, concurrency=3), ledger=ledger) for _ in range(judges)]
        calls = [
            lambda place=place: asking[place % judges].ask(questions(8)[:: 1 - 2 * (place % 2)]) for place in range(4)
        ]
        found = in_threads(calls)
        assert server.requests == 8 and len(lines(tmp_path / "l", "answer")) == len(lines(tmp_path / "l", "sent")) == 8
        choices = [
            [verdict.choice for verdict in verdicts][:: 1 - 2 * (place % 2)] for place, verdicts in enumerate(found)
        ]
        assert None not in choices[0] and choices.count(choices[0]) == 4
        assert asking[0].usage.total == server.tokens == ledger.tokens == asking[0].budget.tokens
        for judge in asking:
            judge.close()
        ledger.close()


def test_a_thread_goes_on_with_a_question_that_another_gave_up(tmp_path):
    with local_judge(delay=0.2) as server, Judge(settings(server, concurrency=2), ledger=tmp_path / "l") as judge:

        def interrupted():
            with pytest.raises(KeyboardInterrupt):
                judge.ask(questions(6), progress=interrupt_at(1))

        _, verdicts = in_threads([interrupted, lambda: judge.ask(questions(6))])
        assert all(verdict.choice is not None for verdict in verdicts) and server.requests == 6


def test_a_full_disk_takes_no_more_questions_and_loses_no_answer(tmp_path):
    """A real limit on the size of files: what was asked has its answer on the disk, and the rest is asked later."""
    path = tmp_path / "l"
    with local_judge(delay=0.02) as server, Judge(settings(server), ledger=path) as judge:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (140_000, limits[1]))
        try:
            with pytest.raises(OSError, match=f"File too large: '{path}'"):
                judge.ask(questions(200))
            assert 5 < server.requests == len(answered(path)) < 200
            assert not judge.ledger.unwritten and path.stat().st_size <= 140_000
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        verdicts = judge.ask(questions(200))
        assert server.requests == 200 and all(verdict.choice is not None for verdict in verdicts)
        assert judge.budget.tokens == server.tokens


def test_answers_that_the_disk_did_not_take_are_kept_and_written_before_anything_is_asked(tmp_path):
    """The ledger is moved away while questions are under way; the answers come, and wait in memory until it is back."""
    path, elsewhere = tmp_path / "l", tmp_path / "elsewhere"
    with local_judge(delay=0.1) as server, Judge(settings(server, concurrency=4), ledger=path) as judge:

        def move(done, total):
            if done == 5:
                path.rename(elsewhere)

        with pytest.raises(
            OSError, match=f"Expected to write to {path}, could not.*the results of [1-4] questions are kept"
        ):
            judge.ask(questions(40), progress=move)
        asked, kept = server.requests, len(judge.ledger.unwritten)
        assert asked == len(judge.ledger.answers) == len(answered(elsewhere)) + kept < 40
        with pytest.raises(OSError, match="cut short.; the results of .*written: if it was moved, move it back"):
            judge.ask(questions(40))
        assert server.requests == asked  # nothing more is paid for
        known = [q for q in questions(40) if any(q.identity == a["identity"] for a in judge.ledger.answers.values())]
        assert all(verdict.cached for verdict in judge.ask(known))  # what is known is told all the same
        elsewhere.rename(path)
        assert all(verdict.choice is not None for verdict in judge.ask(questions(40)))
        assert server.requests == 40 == len(answered(path)) and judge.budget.tokens == server.tokens
