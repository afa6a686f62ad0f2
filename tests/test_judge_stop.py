"""Stopping and going on: Ctrl-C, kill -9, a server that makes us wait. Nothing that was read is asked twice."""

from __future__ import annotations

import json
import os
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
from tests.judge_tools import local_judge, questions, settings

pytest.importorskip("openai", reason="needs the extra judge: pip install 'edpbrl-gym[judge]'")

ROOT = Path(__file__).resolve().parent.parent
NUMBER, AT_ONCE = 60, 4
CHILD = f"""
import sys
from types import SimpleNamespace
from tests.judge_tools import questions, settings
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
    """Candidates' key -> answer lines on the disk; a torn last line is none."""
    found = Counter()
    for line in path.read_bytes().splitlines(keepends=True)[1:]:
        if line.endswith(b"\n"):
            line = json.loads(line)
            found[line["key"]] += line["kind"] == "answer"
    return +found


def test_killed_three_times_it_asks_nothing_again_that_was_answered_and_gives_the_same_verdicts(tmp_path):
    path = tmp_path / "l"
    with local_judge(delay=0.03) as server:
        with Judge(settings(server), ledger=tmp_path / "whole") as judge:
            wanted = [verdict.choice for verdict in judge.ask(questions(NUMBER))]
        before = len(server.asked)
        for kills, kill_at in enumerate((7, 23, 41), start=1):
            child = begin(server, path)
            wait_until(lambda at=kill_at: len(server.asked) - before >= at, child)
            child.kill()
            child.communicate()
            kept = answered(path)
            time.sleep(0.1)  # the server ends what it was doing
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
        assert judge.budget._held_questions == judge.budget._held_tokens == 0


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
