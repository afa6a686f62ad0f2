"""A run that is killed three times ends with the table of one that was not, and asks no answered question again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pandas
import pytest

from edpbrl_gym._log import decode
from edpbrl_gym.experiments.llm.asking import LEDGER
from edpbrl_gym.experiments.llm.run import run_llm
from edpbrl_gym.experiments.runs import RunFolderError
from examples.local_judge import LocalJudge
from tests.helpers.tiny_llm import QUESTIONS, STYLES, judge_settings, save_embeddings, small_settings

TOTAL = 2 * QUESTIONS * len(STYLES)
CONCURRENCY = 3
PROGRAM = """
import sys
from edpbrl_gym.experiments.llm.run import run_llm
from tests.helpers.tiny_llm import judge_settings, small_settings
words, embeddings, address, out = sys.argv[1:]
run_llm(small_settings(words, embeddings), judge_settings(address), out, jobs=1)
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, minilm):
    return save_embeddings(tmp_path_factory.mktemp("inputs"), minilm)


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory, minilm):
    """An uninterrupted run, and what its server was asked."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    with LocalJudge(encoder=minilm) as server:
        results = run_llm(small_settings(*inputs), judge_settings(server.base_url), out, jobs=1)
        return out, results, Counter(asked.identity for asked in server.asked)


def comparable(results) -> pandas.DataFrame:
    """The table without what depends on the time."""
    return results.table.drop(columns=["latency"])


def answered_keys(out) -> set[str]:
    """Questions whose answers are on the disk."""
    lines = [decode(line) for line in (out / LEDGER).read_bytes().splitlines()]  # None: cut off by a kill
    return {line["key"] for line in lines if line is not None and line.get("kind") == "answer"}


def test_every_question_is_asked_once(whole):
    out, results, asked = whole
    assert sum(asked.values()) == len(answered_keys(out)) <= TOTAL  # questions that are wholly equal share an answer
    answers = results.table[results.table["part"] == "answer"]
    assert len(answers) == TOTAL and (answers["reason"] == "answered").all()
    assert results.provenance["accounts"]["sunny"]["answered"] == 2 * QUESTIONS


def run_until_killed(inputs, server, out, answers) -> bool:
    """Run in a process of its own; SIGKILL it once that many more answers are on disk. Whether it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, inputs), server.base_url, str(out)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    before = len(answered_keys(out)) if (out / LEDGER).exists() else 0
    while process.poll() is None:
        if (out / LEDGER).exists() and len(answered_keys(out)) >= before + answers:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.002)
    _, said = process.communicate()
    assert process.returncode == 0, said.decode()[-2000:]
    return False


def test_a_run_killed_three_times_gives_the_same_table_and_asks_no_answered_question_again(
    inputs, whole, tmp_path, minilm
):
    _, expected, asked_once = whole
    out = tmp_path / "killed"
    points = random.Random(1000).sample(range(3, TOTAL // 3), 3)
    with LocalJudge(encoder=minilm, delay=0.02) as server:
        for point in points:
            assert run_until_killed(inputs, server, out, point), "the run ended before it could be killed"
            assert not (out / "results.parquet").exists()
        assert 0 < len(answered_keys(out)) < TOTAL
        results = run_llm(small_settings(*inputs), judge_settings(server.base_url), out, jobs=1)
        asked = Counter(question.identity for question in server.asked)
    pandas.testing.assert_frame_equal(comparable(results), comparable(expected), rtol=0, atol=0)
    assert set(asked) == set(asked_once)
    # a question is asked again only where a kill came between the server's answer and ours receiving it
    again = sum(asked.values()) - sum(asked_once.values())
    assert 0 <= again <= 3 * CONCURRENCY and len(results.provenance["sessions"]) == 4
    lines = [line for line in map(decode, (out / LEDGER).read_bytes().splitlines()) if line is not None]
    given = Counter(line["key"] for line in lines if line["kind"] == "answer")
    assert len(given) == sum(asked_once.values())
    assert set(given.values()) == {1}, "a question with an answer on the disk was asked again"


def test_another_judge_or_style_in_the_same_folder_is_refused(inputs, whole):
    out, _, _ = whole
    with pytest.raises(RunFolderError, match="judge was .*another --out"):
        run_llm(small_settings(*inputs), judge_settings("http://127.0.0.1:9/v1", model="other"), out)
    with pytest.raises(RunFolderError, match="styles was"):
        run_llm(small_settings(*inputs, styles={"sunny": "dark"}), judge_settings("http://127.0.0.1:9/v1"), out)


def test_a_finished_run_asks_nothing_and_needs_no_server(inputs, whole):
    out, expected, _ = whole
    results = run_llm(small_settings(*inputs), judge_settings("http://127.0.0.1:9/v1"), out, jobs=1)
    pandas.testing.assert_frame_equal(results.table, expected.table)
