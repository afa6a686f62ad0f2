"""The ledger survives kills and torn lines, and the budget survives concurrency."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from edpbrl_gym._log import decode, encode
from edpbrl_gym.oracles.judge.budget import Budget, BudgetExhausted, Spending
from edpbrl_gym.oracles.judge.ledger import FORMAT, Ledger
from edpbrl_gym.oracles.judge.questions import Usage
from tests.helpers.judge_tools import lines


def answer(key, tokens=10, **more):
    usage = {"input_tokens": tokens, "output_tokens": 0, "unreported": 0}
    facts = {"order": [2, 0, 3, 1], "choice": 1, "reason": "answered", "latency": 0.5, "retries": 0, "lost": 0}
    return {"kind": "answer", "key": key, "usage": usage, **facts, **more}


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


def test_what_was_written_is_read(path):
    data = filled(path)
    assert decode(data.splitlines()[0]) == {"kind": "ledger", "format": FORMAT}
    ledger = Ledger(path)
    assert set(ledger.answers) == {"k0", "k1", "k2"} and ledger.spent == (3, 30)
    assert not any(ledger.under_way.values()) and path.read_bytes() == data
    ledger.close()


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


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(path):
    lines = filled(path).splitlines(keepends=True)
    lines[3] = lines[3][:20] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=r"Line 4 of .* is damaged"):
        Ledger(path)
    assert path.read_bytes() == b"".join(lines)


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
        ({"kind": "answer", "key": "k", "choice": 1, "lost": 0}, "'usage' with input_tokens"),
        (answer("k") | {"usage": {"input_tokens": 1}}, "'usage' with input_tokens"),
        (answer("k", tokens=-5), "'input_tokens' as a whole number"),
        (answer("k", tokens=True), "'input_tokens' as a whole number"),
        (answer("k", choice="B"), "'choice' as one of the numbers in 'order'"),
        (answer("k", choice=99), "'choice' as one of the numbers in 'order'"),
        (answer("k", choice=None), "'choice' as one of the numbers in 'order'"),
        (answer("k", reason="refused"), "no 'choice', as it is refused"),
        (answer("k", reason="nonsense", choice=None), "'reason' as answered, invalid or refused"),
        (answer("k", reason=[]), "'reason' as answered, invalid or refused"),
        (answer("k", order=None), "'order' as a list of whole"),
        (answer("k", order=[0, 1, 1]), "'order' as the numbers"),
        (answer("k", order=[0, "1"]), "'order' as a list of whole"),
        (answer("k", latency=None), "'latency' as a number"),
        (answer("k", latency=-1.0), "'latency' as a number"),
        (answer("k", retries="x"), "'retries' as a whole number"),
        (answer("k", retries=None), "'retries' as a whole number"),
        (answer("k", kind="failed"), "no 'choice' and no 'reason'"),
        (answer("k", lost=None), "'lost' as a whole number"),
        (answer(7), "'key' as a text"),
        ({"kind": "sent", "key": "k"}, "'tokens' as a whole number"),
        ({"kind": "mode", "structured": "text"}, "'model' as a text"),
        ({"kind": ["sent"], "key": "k"}, "kind is"),
        ({}, "kind is None"),
    ],
)
def test_a_malformed_line_is_one_clear_error(path, line, wrong):
    data = filled(path, 1) + encode(line) + encode(answer("later"))
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{path}, line 4 is not a valid line: .*{wrong}.*restore") as told:
        Ledger(path)
    assert "\n" not in str(told.value) and path.read_bytes() == data


def test_a_ledger_of_before_without_checksums_is_refused(path):
    path.parent.mkdir()
    old = b'{"kind":"ledger","format":"edpbrl-gym judge ledger 1"}\n{"kind":"sent","key":"a","tokens":1}\n'
    path.write_bytes(old)
    with pytest.raises(ValueError, match="of the format 'edpbrl-gym judge ledger 2'.*use the version that wrote it"):
        Ledger(path)
    assert path.read_bytes() == old


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced", "cut short"])
def test_a_file_that_goes_away_is_an_error_and_what_was_paid_for_is_kept(path, fate):
    filled(path, 1)
    ledger, elsewhere = Ledger(path), path.with_name("elsewhere")
    if fate == "cut short":
        os.truncate(path, path.stat().st_size - 10)
    else:
        path.unlink() if fate == "deleted" else path.rename(elsewhere)
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


def test_two_threads_that_write_the_rest_write_each_line_once(path, monkeypatch):
    ledger, elsewhere = Ledger(path), path.with_name("elsewhere")
    path.rename(elsewhere)
    for i in range(6):
        with pytest.raises(FileNotFoundError):
            ledger.append(answer(f"k{i}"), durable=True)
    elsewhere.rename(path)
    fsync, errors = os.fsync, []

    def slow(handle):
        time.sleep(0.01)
        fsync(handle)

    def work():
        try:
            ledger.write_pending()
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(os, "fsync", slow)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    assert not errors and [line["key"] for line in lines(path, "answer")] == [f"k{i}" for i in range(6)]


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


def test_room_for_answers_is_set_aside_when_questions_go_out(path):
    """On a file that can't grow: a question goes out only if its answer will find room, and then it does."""
    ledger = Ledger(path)
    ledger.append({"kind": "sent", "key": "a", "identity": "q", "tokens": 1}, durable=False)
    kept = path.stat().st_size
    most = {"text": "\N{SNOWMAN}" * 500, "model": "\N{SNOWMAN}" * 200, "order": list(range(26))}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kept, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"):
            for key in "bcdefgh":
                ledger.append({"kind": "sent", "key": key, "identity": "q", "tokens": 1}, durable=False)
        for key in [key for key, sent in ledger.under_way.items() if sent]:
            ledger.append(answer(key, **most), durable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 1 < len(ledger.answers) < 8 and not ledger.unwritten and path.stat().st_size <= kept
    ledger.close()
    assert not path.read_bytes().endswith(b"\0")
    again = Ledger(path)
    assert again.answers == ledger.answers and not any(again.under_way.values())
    again.close()


def test_a_question_is_claimed_by_one_thread_at_a_time(path):
    ledger, stop, order = Ledger(path), threading.Event(), []
    assert ledger.claim("a", stop) and ledger.claim("b", stop)
    other = threading.Thread(target=lambda: order.append(ledger.claim("a", stop)))
    other.start()
    order.append("first")
    ledger.release("a")
    other.join()
    assert order == ["first", True]
    stop.set()
    assert not ledger.claim("b", stop)
    ledger.close()


@pytest.mark.parametrize("data", [b"hello", b"hello\n", b'{"kind":"ledger","format":"other 2"}\n', b"\x00" * 40])
def test_a_file_that_is_no_ledger_stays_as_it_is(path, data):
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(ValueError, match="Expected a ledger of the format"):
        Ledger(path)
    assert path.read_bytes() == data


def test_two_processes_on_one_ledger_are_refused_with_a_clear_message(path):
    ledger = Ledger(path)
    code = f"from edpbrl_gym.oracles.judge.ledger import Ledger; Ledger({str(path)!r})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode and "is already open (here or in another process)" in found.stderr
    with pytest.raises(RuntimeError, match="already open"):
        Ledger(path)
    ledger.close()
    assert not subprocess.run([sys.executable, "-c", code]).returncode
    with pytest.raises(ValueError, match="has been closed"):
        ledger.append(answer("k"), durable=True)


def test_questions_under_way_at_a_kill_count_as_spent(path):
    ledger = Ledger(path)
    for key in ("a", "b", "b"):
        ledger.append({"kind": "sent", "key": key, "tokens": 100}, durable=False)
    ledger.append(answer("b", tokens=7), durable=True)
    assert ledger.spent == (3, 207)  # a, and one of the two times that b went out
    ledger.close()


def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch):
    filled(path, 1)
    ledger = Ledger(path)
    before = path.read_bytes()
    write = os.write

    def half(handle, data):
        if len(data) > 20:
            return write(handle, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        ledger.append({"kind": "sent", "key": "k" * 25, "tokens": 1}, durable=False)
    monkeypatch.undo()
    assert path.read_bytes() == before
    ledger.append(answer("k9"), durable=True)
    ledger.close()
    again = Ledger(path)
    assert set(again.answers) == {"k0", "k9"}
    again.close()


def test_many_threads_write_whole_lines(path):
    ledger = Ledger(path)

    def work(name):
        for i in range(20):
            ledger.append(answer(f"{name}-{i}"), durable=i % 5 == 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    again = Ledger(path)
    assert len(again.answers) == 160 and again.spent == (160, 1600)
    again.close()


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


def test_a_dear_answer_of_one_judge_sets_no_more_aside_for_another():
    spending = Spending()
    dear, cheap = Budget(None, None, spending), Budget(None, 12_000, spending)
    dear.reserve(10_000).settle(Usage(9_000, 100))
    assert dear.reserve(200).tokens == 200  # it had cost what it was thought to
    dear.reserve(200).settle(Usage(400, 100))
    assert dear.reserve(200).tokens == 500 and cheap.reserve(200).tokens == 200


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
