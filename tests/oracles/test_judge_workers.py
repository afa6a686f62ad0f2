"""Questions asked by worker processes: the verdicts of one process, one budget, nothing paid twice where they die."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from contextlib import closing

import pytest

from edpbrl_gym.oracles.judge import Judge, Ledger
from edpbrl_gym.oracles.judge.ledger import parts_folder
from edpbrl_gym.workers import LocalProcesses
from tests.helpers.judge_tools import lines, local_judge, questions, settings
from tests.helpers.worker_kills import KILLS, Killer, mortal_workers


def asked_here(number, folder, **options):
    """Verdicts of one process, and its account."""
    with local_judge() as server, Judge(settings(server, **options), ledger=folder / "here.jsonl") as judge:
        return judge.ask(questions(number)), judge.account()


def facts(verdicts):
    """What does not depend on time."""
    return [(one.choice, one.reason, one.order, one.consistent, one.usage) for one in verdicts]


def test_workers_give_the_verdicts_and_the_account_of_one_process(tmp_path):
    expected, account = asked_here(100, tmp_path, second_look=True)
    path, seen = tmp_path / "ledger.jsonl", []
    with local_judge() as server:
        given = settings(server, second_look=True)
        with Judge(given, ledger=path, executor=LocalProcesses(2)) as judge:
            verdicts = judge.ask(questions(100), progress=lambda done, total: seen.append((done, total)))
            assert judge.account() == account
        assert server.requests == 200 and len({json.dumps(one.identity) for one in server.asked}) > 90
    assert facts(verdicts) == facts(expected)
    assert seen == [(done, 200) for done in range(1, 201)]
    assert len(lines(path, "answer")) == 200 and not parts_folder(path).exists()
    with Judge(given, ledger=path) as judge:  # the server is gone: all is in the ledger
        assert facts(judge.ask(questions(100))) == facts(expected)


@pytest.mark.parametrize("schema", ["refused", "ignored"])
def test_workers_find_out_that_a_server_takes_no_schema(schema, tmp_path):
    with local_judge(schema=schema) as server:
        with Judge(settings(server), ledger=tmp_path / "ledger.jsonl", executor=LocalProcesses(2)) as judge:
            verdicts = judge.ask(questions(40))
            assert judge.account()["structured"] == ("text" if schema == "refused" else "schema")
        assert server.requests == 40 + 2 * (schema == "refused")  # one for each shard
    assert all(one.choice is not None for one in verdicts)


@pytest.mark.parametrize(("limits", "answered"), [({"max_questions": 50}, 50), ({"max_tokens": 5000}, None)])
def test_the_budget_of_the_ledger_holds_for_all_workers_together(limits, answered, tmp_path):
    expected, _ = asked_here(80, tmp_path, **limits)
    path = tmp_path / "ledger.jsonl"
    with local_judge() as server:
        with Judge(settings(server, **limits), ledger=path, executor=LocalProcesses(2)) as judge:
            verdicts = judge.ask(questions(80))
            spent = judge.account()["spent"]
        assert spent["tokens"] == server.tokens and spent["questions"] == len(server.asked)
    count = sum(one.choice is not None for one in verdicts)
    assert {one.reason for one in verdicts} == {"answered", "budget"}
    assert spent["tokens"] <= limits.get("max_tokens", spent["tokens"])
    assert count == (answered or sum(one.choice is not None for one in expected))


def test_an_error_of_a_worker_is_raised_here_and_what_was_paid_is_kept(tmp_path):
    with local_judge(api_key="secret") as server:
        judge = Judge(settings(server), ledger=tmp_path / "ledger.jsonl", executor=LocalProcesses(2))
        with judge, pytest.raises(ConnectionError, match="to need no key, it answered 401"):
            judge.ask(questions(64))
    with local_judge(faults={"503": 1.0}, retry_after=0.0) as server:
        given = settings(server, max_retries=0, concurrency=1)
        judge = Judge(given, ledger=tmp_path / "ledger.jsonl", executor=LocalProcesses(2))
        with judge, pytest.raises(ConnectionError, match="the last 20 questions got none"):
            judge.ask(questions(64))
    assert len(lines(tmp_path / "ledger.jsonl", "failed")) >= 20 and not list(
        parts_folder(tmp_path / "ledger.jsonl").glob("*.jsonl")
    )


def test_ctrl_c_keeps_every_answer_under_way(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with local_judge(delay=0.05) as server:

        def stop(done, total):
            raise KeyboardInterrupt

        with Judge(settings(server, concurrency=2), ledger=path, executor=LocalProcesses(2)) as judge:
            with pytest.raises(KeyboardInterrupt):
                judge.ask(questions(200), progress=stop)
        paid = len(server.asked)
        assert len(lines(path, "answer")) == paid < 200
        with Judge(settings(server), ledger=path, executor=LocalProcesses(2)) as judge:
            judge.ask(questions(200))
        assert len(server.asked) == 200


class Twice:
    """Makes each call again when its result was taken, as a scheduler does for a worker that died with the result."""

    def map_unordered(self, function, arguments, folder):
        for values in arguments:
            yield function(*values)
            while values[0].exists():
                time.sleep(0.005)
            function(*values)


def test_a_shard_whose_answers_are_in_the_ledger_is_not_asked_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with local_judge(idempotent=False) as server:
        with Judge(settings(server), ledger=path, executor=Twice()) as judge:
            judge.ask(questions(80))
            assert judge.account()["spent"]["questions"] == 80
        assert len(server.asked) == 80 and not parts_folder(path).exists()


# -- ledgers of shards -------------------------------------------------------------------------------------------------


def part_of(path, name="a.jsonl"):
    """A part with an answer, a failed question and one under way."""
    part = parts_folder(path) / name
    usage = {"input_tokens": 7, "output_tokens": 1, "unreported": 0}
    known = {"order": [1, 0], "usage": usage, "latency": 0.1, "retries": 0, "lost": 1}
    ledger = Ledger(part)
    for key in ("answered", "failed", "open"):
        ledger.append({"kind": "sent", "key": key, "tokens": 100}, durable=False)
    ledger.append({"kind": "answer", "key": "answered", "choice": 0, "reason": "answered", **known}, durable=True)
    ledger.append({"kind": "failed", "key": "failed", **known}, durable=True)
    return part, ledger


def test_what_workers_of_a_killed_run_paid_for_is_taken_over_once(tmp_path):
    path = tmp_path / "ledger.jsonl"
    part, open_part = part_of(path)
    with pytest.raises(RuntimeError, match=r"a\.jsonl is already open"):
        Ledger(path)
    open_part.close()
    saved = part.read_bytes()
    for _ in range(3):  # as if killed right before the part is removed
        ledger = Ledger(path)
        assert not part.exists() and set(ledger.answers) == {"answered"} and set(ledger.failures) == {"failed"}
        assert ledger.spent == (3, 116) == (ledger.spending.questions, ledger.spending.tokens)
        ledger.close()
        part.write_bytes(saved)
    part.unlink()
    assert Ledger(path).spent == (3, 116)


def test_a_question_that_two_dead_workers_had_under_way_counts_twice(tmp_path):
    """The third asked it and has the answer; all three may have been billed, also where it is copied twice."""
    path = tmp_path / "ledger.jsonl"
    part, ledger = part_of(path)
    for _ in range(2):
        ledger.append({"kind": "sent", "key": "answered", "tokens": 50}, durable=False)
    ledger.close()
    saved = part.read_bytes()
    for _ in range(2):
        with closing(Ledger(path)) as taken:
            assert taken.spent == (5, 216) == (taken.spending.questions, taken.spending.tokens)
        part.write_bytes(saved)


def test_a_shard_waits_until_the_worker_that_had_it_is_gone(tmp_path):
    from edpbrl_gym.oracles.judge.shards import _when_free

    _, ledger = part_of(tmp_path / "ledger.jsonl")
    threading.Timer(0.5, ledger.close).start()
    with closing(_when_free(lambda: Ledger(ledger.path))) as taken:
        assert set(taken.answers) == {"answered"}


# -- kills -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("where", ["processes", "cluster"])
def test_workers_killed_at_random_points_lose_nothing_and_pay_nothing_twice(where, idempotent, tmp_path):
    """Twice is paid only what was under way at a kill, and only where the server does not honour Idempotency-Key."""
    number = 64 + 64 * KILLS
    expected, _ = asked_here(number, tmp_path)
    path = tmp_path / "ledger.jsonl"
    with local_judge(idempotent=idempotent, delay=0.01) as server:
        given = settings(server, concurrency=4)
        with (
            mortal_workers(where, tmp_path / "dask") as (executor, their),
            Judge(given, ledger=path, executor=executor) as judge,
            Killer(lambda: len(server.asked), number * 9 // 10, seed=KILLS, **their) as killer,
        ):
            verdicts = judge.ask(questions(number))
            spent = judge.account()["spent"]
        billed = Counter(one.identity for one in server.asked)
    twice = sum(billed.values()) - number
    print(f"{len(killer.killed)} kills at {killer.points} of {number} questions; paid twice: {twice}")
    assert len(killer.killed) == KILLS
    assert [one[:4] for one in facts(verdicts)] == [one[:4] for one in facts(expected)]
    assert len(billed) == number and twice <= (0 if idempotent else 4 * 2 * KILLS)
    assert spent["questions"] >= sum(billed.values())  # all that may have been paid counts
    answers = lines(path, "answer")
    assert len(answers) == len({one["key"] for one in answers}) == number
    shutil.rmtree(tmp_path)
