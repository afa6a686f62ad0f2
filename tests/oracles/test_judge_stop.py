"""Stopping and going on: Ctrl-C, kill -9, a server that makes us wait. Nothing that was read is paid twice."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from edpbrl_gym.oracles.judge import Judge, Ledger
from edpbrl_gym.oracles.judge.messages import most_input_tokens
from tests.helpers.judge_tools import lines, local_judge, questions, scripted, settings

ROOT = Path(__file__).resolve().parents[2]
NUMBER, AT_ONCE = 40, 4
CHILD = """
import json, sys
from types import SimpleNamespace
from tests.helpers.judge_tools import questions, settings
from edpbrl_gym.oracles.judge import Judge
url, ledger, number, options = sys.argv[1:]
with Judge(settings(SimpleNamespace(base_url=url), **json.loads(options)), ledger=ledger) as judge:
    judge.ask(questions(int(number)))
print("done")
"""


def begin(server, ledger, number=NUMBER, **options):
    """A process that asks so many questions."""
    given = [server.base_url, str(ledger), str(number), json.dumps({"concurrency": AT_ONCE, **options})]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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


def test_killed_twice_it_asks_nothing_again_that_was_answered_and_gives_the_same_verdicts(tmp_path):
    path = tmp_path / "l"
    with local_judge(delay=0.15) as server:  # so long that a kill leaves questions without their answers
        with Judge(settings(server), ledger=tmp_path / "whole") as judge:
            wanted = [verdict.choice for verdict in judge.ask(questions(NUMBER))]
        before = len(server.asked)
        for kills, kill_at in enumerate((7, 23), start=1):
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
    assert sum(again.values()) - NUMBER <= 2 * AT_ONCE and len(again) == NUMBER
    assert max(answered(path).values()) == 1 and len(answered(path)) == NUMBER


def interrupt_at(number):
    def progress(done, total):
        if done == number:
            raise KeyboardInterrupt

    return progress


def test_an_interrupt_stays_one_where_the_ledger_can_not_be_written(tmp_path, caplog, monkeypatch):
    """Also where the judge is closed then."""
    with local_judge() as server:
        judge = Judge(settings(server, concurrency=4, structured="text"), ledger=tmp_path / "l")
        ask, calls, gone = judge._asker.client.ask, itertools.count(), threading.Event()

        def paused(*arguments):
            reply = ask(*arguments)
            _ = next(calls) and gone.wait(20.0)  # all but the first
            return reply

        def progress(done, total):
            while server.requests < 2:  # another question is under way, and is answered without a ledger
                time.sleep(0.001)
            (tmp_path / "l").unlink()
            gone.set()
            raise KeyboardInterrupt

        monkeypatch.setattr(judge._asker.client, "ask", paused)
        with pytest.raises(KeyboardInterrupt), judge:
            judge.ask(questions(20), progress=progress)
        assert judge.ledger.unwritten and "kept only in this process" in caplog.text


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
        monkeypatch.undo()  # the same process goes on
        assert all(verdict.choice is not None for verdict in judge.ask(questions(30)))
        assert server.requests == 30 == judge.budget.questions


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


def in_threads(calls):
    """What the calls return, each in a thread of its own."""
    found = [None] * len(calls)

    def work(place, call):
        found[place] = call()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
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
                while server.requests - len(judge.ledger.answers) < 4:  # all that may be: no other is about to begin
                    time.sleep(0.001)
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


# -- one Idempotency-Key for one attempt, of whatever process ----------------------------------------------------------


class Honours:
    """A server that keeps to the key: it bills a request once, and repeats its first answer.

    Args:
        errors: For each new key, in this order: a status to answer; "hang" to bill, and answer the next request with
            this key only; None to answer at once.
        keeps_errors: Repeat errors, too; otherwise a key that got an error is new again.
    """

    def __init__(self, errors, keeps_errors=True):
        self.keeps_errors = keeps_errors
        self.errors, self.known, self.keys, self.billed, self.hung = list(errors), {}, [], 0, threading.Event()
        self._lock = threading.Lock()

    def __call__(self, request, handler):
        key = handler.headers["Idempotency-Key"]
        with self._lock:
            self.keys.append(key)
            if "response_format" in request:
                return 400, {"error": {"message": "no schema", "param": "response_format"}}
            if "max_tokens" in request:
                return 400, {"error": {"message": "no", "param": "max_tokens", "code": "unsupported_parameter"}}
            new = key not in self.known
            if new:
                error = self.errors.pop(0) if self.errors else None
                self.known[key] = error if isinstance(error, int) else None
                self.billed += self.known[key] is None
        status = self.known[key]
        if status is not None and not self.keeps_errors:
            del self.known[key]
        if status is not None:
            return status, {"error": {"message": "again"}}, {"Retry-After": "0.01"}
        if new and error == "hang":
            self.hung.set()
            handler.judge.stopping.wait(60)
            handler.close_connection = True
        return None


@pytest.mark.parametrize("keeps_errors", [False, True])
@pytest.mark.parametrize(
    ("errors", "options"),
    [
        (["hang"], {}),
        ([503, 429, 500, "hang"], {}),
        ([503, "hang"], {"structured": "text", "limit_parameter": "max_completion_tokens"}),
    ],
)
def test_an_attempt_that_a_kill_interrupts_is_sent_again_with_its_key(tmp_path, errors, options, keeps_errors):
    honours = Honours(errors, keeps_errors)
    options = {"max_retries": 5, "timeout": 60.0, **options}
    with scripted(honours) as server:
        child = begin(server, tmp_path / "l", 1, **options)
        wait_until(honours.hung.is_set, child)
        time.sleep(0.1)
        child.kill()
        child.communicate()
        under_way = honours.keys[-1]
        assert honours.billed == 1
        with Judge(settings(server, **options), ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "answered"
        assert honours.keys[-1] == under_way and honours.billed == 1
        assert server.tokens and len(server.asked) == 1


def test_errors_that_a_server_repeats_for_a_key_do_not_meet_the_next_run_again(tmp_path):
    """All six attempts of a run were refused, and the server keeps these errors: the next run has new keys."""
    honours = Honours([503] * 3)
    with scripted(honours) as server:
        chosen = settings(server, structured="text", limit_parameter="max_completion_tokens", max_retries=2)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "failed"
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "answered" and server.requests == 4
            assert not judge.ledger.refused
    assert len(set(honours.keys)) == 4


def test_a_lost_attempt_and_the_next_one_have_one_key_also_in_another_run(tmp_path):
    honours = Honours([503, "hang"])
    with scripted(honours) as server:
        chosen = settings(server, structured="text", limit_parameter="max_completion_tokens", timeout=0.5)
        with Judge(replace(chosen, max_retries=1), ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "failed"
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "answered"
    assert honours.billed == 1 and honours.keys[1] == honours.keys[2] != honours.keys[0]
