"""The ledger survives kills and torn lines, and the budget survives concurrency."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from edpbrl_gym._log import decode, encode
from edpbrl_gym.oracles.judge.budget import Budget, BudgetExhausted
from edpbrl_gym.oracles.judge.ledger import FORMAT, Ledger
from edpbrl_gym.oracles.judge.questions import Usage
from tests.helpers.judge_tools import lines


def answer(key, tokens=10, **more):
    usage = {"input_tokens": tokens, "output_tokens": 0, "unreported": 0}
    facts = {"order": [2, 0, 3, 1], "choice": 1, "reason": "answered", "latency": 0.5, "retries": 0, "lost": 0}
    return {"kind": "answer", "key": key, "answer_key": f"{key} of any length", "usage": usage, **facts, **more}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "ledger.jsonl"


def filled(path, number=3):
    ledger = Ledger(path)
    for i in range(number):
        ledger.append({"kind": "sent", "key": f"k{i}", "tokens": 100}, durable=False)
        ledger.append(answer(f"k{i}"), durable=True)
    ledger.close()
    return path.read_bytes()


def test_a_file_cut_at_any_byte_keeps_every_whole_line_and_goes_on(path):
    """Also cut right before the end of a line: the line is whole, and paid for."""
    data = filled(path, 2)
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        whole = {f"k{i}" for i in range(2) if (f'"answer","key":"k{i}"').encode() in _lines(data[:cut])}
        ledger = Ledger(path)
        assert set(ledger.answers) == whole, cut
        ledger.append(answer("new"), durable=False)
        ledger.close()
        again = Ledger(path)
        assert set(again.answers) == {*whole, "new"}, cut
        again.close()


def _lines(data):
    """The part of the data that is whole lines, an unterminated one included if it is whole JSON."""
    head, _, tail = data.rpartition(b"\n")
    return head if decode(tail) is None else data


def test_a_flipped_bit_anywhere_is_damage_also_in_the_last_line(path):
    data = filled(path, 2)
    head = len(data.splitlines(keepends=True)[0])
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        foreign = place < head and FORMAT.encode() not in flipped[:head]
        with pytest.raises(ValueError, match="ledger of the format" if foreign else r"Line \d of .* is damaged"):
            Ledger(path)
        assert path.read_bytes() == flipped


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ({"kind": "answer", "key": "k", "answer_key": "k", "lost": 0}, "'usage' with input_tokens"),
        (answer("k", tokens=-5), "'input_tokens' as a whole number"),
        (answer("k", choice=99), "'choice' as one of the numbers in 'order'"),
        (answer("k", reason="refused"), "no 'choice', as it is refused"),
        (answer("k", reason="nonsense", choice=None), "'reason' as answered, invalid, cut or refused"),
        (answer("k", order=[0, 1, 1]), "'order' as the numbers"),
        (answer("k", latency=-1.0), "'latency' as a number"),
        (answer("k", kind="failed"), "no 'choice' and no 'reason'"),
        (answer(7), "'key' as a text"),
        ({"kind": "sent", "key": "k"}, "'tokens' as a whole number"),
        ({"kind": "mode", "structured": "text"}, "'model' as a text"),
        ({"kind": "sent", "key": "k", "tokens": 9, "refused": {"b": -1}}, "it needs 'refused"),
        ({"kind": "sent", "key": "k", "tokens": 9, "refused": []}, "it needs 'refused"),
        ({}, "kind is None"),
    ],
)
def test_a_malformed_line_is_one_clear_error(path, line, wrong):
    data = filled(path, 1) + encode(line) + encode(answer("later"))
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{path}, line 4 is not a valid line: .*{wrong}.*restore") as told:
        Ledger(path)
    assert "\n" not in str(told.value) and path.read_bytes() == data


@pytest.mark.parametrize("fate", ["moved", "replaced", "cut short"])
def test_a_file_that_goes_away_is_an_error_and_what_was_paid_for_is_kept(path, fate):
    filled(path, 1)
    ledger, elsewhere = Ledger(path), path.with_name("elsewhere")
    if fate == "cut short":
        os.truncate(path, path.stat().st_size - 10)
    else:
        path.rename(elsewhere)
    if fate == "replaced":
        path.write_bytes(elsewhere.read_bytes())
    with pytest.raises(FileNotFoundError, match="where it was opened.*if it was moved, move it back"):
        ledger.append({"kind": "sent", "key": "a", "tokens": 1}, durable=False)
    with pytest.raises(FileNotFoundError):
        ledger.append(answer("new"), durable=True)
    assert "new" in ledger.answers and ledger.unwritten == [answer("new")] and ledger.spent == (2, 20)
    if fate != "moved":
        with pytest.raises(FileNotFoundError):
            ledger.close()
        ledger.close()  # nothing is left to do
        assert not path.exists() or b"\0" not in path.read_bytes()
        return
    elsewhere.rename(path)
    ledger.close()
    again = Ledger(path)
    assert set(again.answers) == {"k0", "new"} and again.spent == (2, 20)
    again.close()


@pytest.mark.parametrize("kind", ["answer", "failed"])
def test_a_line_that_stays_where_the_disk_failed_is_counted_once(path, monkeypatch, kind):
    """Its fsync fails when another line follows, so that it can't be taken back: it is written again."""
    ledger, followed, fsync = Ledger(path), threading.Event(), os.fsync
    line = answer("a") | {"kind": kind, "lost": 1}
    if kind == "failed":
        del line["choice"], line["reason"]

    def failing(handle):
        if threading.current_thread().name == "fails":
            followed.wait(10)
            raise OSError(5, "Input/output error")
        fsync(handle)

    def work():
        with pytest.raises(OSError, match="Input/output"):
            ledger.append(line, durable=True)

    monkeypatch.setattr(os, "fsync", failing)
    thread = threading.Thread(target=work, name="fails")
    thread.start()
    while not path.read_bytes().count(b'"key":"a"'):
        time.sleep(0.001)
    ledger.append(answer("b"), durable=True)
    followed.set()
    thread.join()
    assert ledger.unwritten == [line] and ledger.spent == (2, 20)
    ledger.close()
    assert [found["key"] for found in lines(path, kind)].count("a") == 2  # now it is known to be on the disk
    again = Ledger(path)
    assert again.spent == (2, 20) and again.lost == ledger.lost
    again.close()


@pytest.mark.parametrize("data", [b"hello", b"hello\n", b'{"kind":"ledger","format":"other 2"}\n', b"\x00" * 40])
def test_a_file_that_is_no_ledger_stays_as_it_is(path, data):
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(ValueError, match="Expected a ledger of the format"):
        Ledger(path)
    assert path.read_bytes() == data


def test_an_open_ledger_is_opened_by_nobody_else_and_a_closed_one_takes_nothing(path):
    ledger = Ledger(path)
    with pytest.raises(RuntimeError, match=r"is already open \(here or in another process\)"):
        Ledger(path)
    ledger.close()
    with pytest.raises(ValueError, match="has been closed"):
        ledger.append(answer("k"), durable=True)


@pytest.mark.parametrize(("questions", "tokens"), [(50, None), (None, 2000), (37, 5000), (0, None), (None, 99)])
def test_concurrent_requests_never_exceed_the_budget(questions, tokens):
    """20 threads, each request sets aside 100 tokens and costs up to 100; what is spent is watched all the time."""
    budget = Budget(questions, tokens)
    spent = []
    lock = threading.Lock()

    def work(seed):
        rng = np.random.default_rng(seed)
        while True:
            try:
                held = budget.reserve(100)
            except BudgetExhausted:
                return
            time.sleep(float(rng.uniform(0, 0.002)))
            kind = rng.integers(4)
            try:
                if kind == 0:
                    held.renew()
                paid = (
                    held.release(lost=False)
                    if kind == 1
                    else held.settle(None if kind == 2 else Usage(int(rng.integers(1, 90)), 9))
                )
            except BudgetExhausted:
                paid = held.release(lost=False)
            with lock:
                spent.append(paid.total)
                if kind == 1 and len(spent) > 2000:
                    return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(spent) == budget.tokens
    assert questions is None or budget.questions == questions
    assert tokens is None or budget.tokens <= tokens
    assert questions is not None or tokens is None or tokens - 100 < budget.tokens or tokens < 100
    assert budget.spending.held_questions == budget.spending.held_tokens == 0


def test_a_request_waits_for_room_that_may_become_free():
    budget = Budget(None, 150)
    first = budget.reserve(100)
    threading.Timer(0.1, first.settle, [Usage(20, 5)]).start()
    second = budget.reserve(100)  # 100 + 100 > 150 until the first turns out to cost 25
    assert budget.tokens == 25
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(BudgetExhausted):
        budget.reserve(100, stop)
    second.release(lost=False)
    assert (budget.questions, budget.tokens) == (1, 25)


def test_lost_attempts_are_booked_and_a_server_that_reports_more_than_thought_is_believed():
    budget = Budget(10, 1000)
    held = budget.reserve(100)
    held.renew()
    assert held.settle(Usage(30, 10)) == Usage(130, 10, unreported=100) and budget.tokens == 140
    assert budget.reserve(100).settle(Usage(290, 10)) == Usage(290, 10)
    held = budget.reserve(100)
    assert held.tokens == 300  # the most that an answer did cost
    held.release(lost=False)
    assert budget.reserve(50).release(lost=True) == Usage(300, 0, unreported=300)
    assert (budget.questions, budget.tokens) == (3, 740)
    with pytest.raises(BudgetExhausted):
        held = Budget(None, 150).reserve(100)
        held.renew()  # 100 lost, and no room for 100 more


def test_answers_left_in_the_shards_of_an_earlier_version_are_not_asked_again_unsaid(path):
    Ledger(path).close()
    shards = path.with_name(f"{path.name}.parts")
    shards.mkdir()
    Ledger(path).close()  # an empty folder holds nothing
    (shards / "worker.jsonl").write_text("")
    for _ in range(2):  # and the refused ledger is released
        with pytest.raises(ValueError, match="some are still in the shards"):
            Ledger(path)
