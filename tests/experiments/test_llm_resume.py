"""Runs that are killed or whose budget ends go on with the same table; answers that are none are left out."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym._log import decode
from edpbrl_gym.experiments.llm.asking import FLAGGED, LEDGER, BudgetSpent, ask_style, read_answers
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.llm.run import run_llm
from edpbrl_gym.experiments.runs import RunFolder, RunFolderError, read_results
from edpbrl_gym.oracles.judge import Judge
from edpbrl_gym.rendering.cache import RenderedImage
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


def answered_keys(out) -> list[str]:
    """Of the answers on the disk, the questions."""
    lines = [decode(line) for line in (out / LEDGER).read_bytes().splitlines()]  # None: cut off by a kill
    return [line["key"] for line in lines if line is not None and line.get("kind") == "answer"]


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
    given = Counter(answered_keys(out))
    assert len(given) == sum(asked_once.values())
    assert set(given.values()) == {1}, "a question with an answer on the disk was asked again"


def test_another_judge_or_style_in_the_same_folder_is_refused(inputs, whole):
    out, _, _ = whole
    with pytest.raises(RunFolderError, match="judge was .*another --out"):
        run_llm(small_settings(*inputs), judge_settings("http://127.0.0.1:9/v1", model="other"), out)
    with pytest.raises(RunFolderError, match="styles was"):
        run_llm(small_settings(*inputs, styles={"sunny": "dark"}), judge_settings("http://127.0.0.1:9/v1"), out)


def test_a_run_whose_replies_are_cut_goes_on_with_a_larger_limit(inputs, tmp_path, minilm):
    """As the error advises; what was answered with the smaller limit is not asked again."""
    out, settings = tmp_path / "run", small_settings(*inputs, agents=("random",))
    with LocalJudge(encoder=minilm) as server:
        answer = server.answer
        server.answer = lambda question, schema: ("<think>hm", None, "length") if short else answer(question, schema)
        short = True
        with pytest.raises(ConnectionError, match=r"last 5 were cut.*larger max_answer_tokens \(--max-answer-tokens"):
            run_llm(settings, judge_settings(server.base_url), out, jobs=1)
        assert server.requests == 5 and not list((out / "parts").glob("answers*"))
        short = False
        results = run_llm(settings, judge_settings(server.base_url, max_answer_tokens=999), out, jobs=1)
        assert (results.table.loc[results.table["part"] == "answer", "reason"] == "answered").all()
        assert results.provenance["max_answer_tokens"] == 999
        run_llm(settings, judge_settings(server.base_url), out, jobs=1)  # finished, with either limit


def test_a_finished_run_asks_nothing_and_needs_no_server(inputs, whole):
    out, expected, _ = whole
    results = run_llm(small_settings(*inputs), judge_settings("http://127.0.0.1:9/v1"), out, jobs=1)
    pandas.testing.assert_frame_equal(results.table, expected.table)


def test_a_budget_that_ends_keeps_the_answers_and_a_larger_one_goes_on(inputs, tmp_path, minilm):
    out, settings = tmp_path / "run", small_settings(*inputs, agents=("random",))
    with LocalJudge(encoder=minilm) as server:
        with pytest.raises(BudgetSpent, match="larger --max-questions"):
            run_llm(settings, judge_settings(server.base_url, max_questions=20), out, jobs=1)
        assert server.requests == len(server.asked) == 20 and not (out / "results.parquet").exists()
        results = run_llm(settings, judge_settings(server.base_url), out, jobs=1)
        kept = (out / LEDGER).read_text().count('"kind":"answer"')
        assert server.requests == len(server.asked) == kept > 20  # nothing twice
    assert (results.table.loc[results.table["part"] == "answer", "reason"] == "answered").all()


def test_bad_answers_are_missing_and_the_estimates_go_on_without_them(inputs, tmp_path, minilm):
    faults = {"429": 0.1, "truncated": 0.1, "wrong_label": 0.1, "empty": 0.1, "refused": 0.1}
    with LocalJudge(encoder=minilm, faults=faults) as server:
        run_llm(small_settings(*inputs), judge_settings(server.base_url), tmp_path / "run", jobs=1)
        assert all(server.injected[name] for name in faults)
    results = read_results(tmp_path / "run")
    answers = results.table[results.table["part"] == "answer"]
    assert len(answers) == TOTAL
    missing = answers[answers["choice"] < 0]
    assert set(missing["reason"]) == {"cut", "failed", "invalid", "refused"} and 0.2 < len(missing) / TOTAL < 0.6
    assert (answers.loc[answers["choice"] >= 0, "reason"] == "answered").all() and (answers["retries"] > 0).any()
    accuracy = results.table[results.table["part"] == "accuracy"]
    assert (accuracy["train_answered"] < accuracy["train_questions"]).mean() > 0.5
    row = accuracy[(accuracy["arm"] == "Random") & (accuracy["style"] == "night") & (accuracy["fold"] == 1)]
    row = row[(row["episodes"] == 5) & (row["tested_on"] == "Random")].iloc[0]
    mine = answers[(answers["arm"] == "Random") & (answers["style"] == "night") & (answers["choice"] >= 0)]
    tested = (mine["episode"] == 4).sum()
    assert (row["train_answered"], row["test_answered"]) == (len(mine) - tested, tested)


def test_a_judge_that_answers_nothing_is_an_error(inputs, tmp_path, minilm):
    for fault, error, said in (
        ("wrong_label", RunFolderError, "got none to 36 questions"),
        ("empty", ConnectionError, "last 5 had none"),
    ):
        with LocalJudge(encoder=minilm, faults={fault: 1.0}) as server:
            with pytest.raises(error, match=said):
                run_llm(small_settings(*inputs), judge_settings(server.base_url), tmp_path / fault, jobs=1)
        assert not list((tmp_path / fault / "parts").glob("answers*"))


def test_a_question_with_a_flagged_picture_is_not_asked(tmp_path, minilm):
    colours = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250), "grey": (9, 9, 9)}
    images = {}
    for number, (name, colour) in enumerate(colours.items()):
        path = tmp_path / f"{name}.png"
        Image.new("RGB", (8, 8), colour).save(path)
        images[name] = RenderedImage(
            key=str(number), prompt=name, seed=0, path=path, flagged=name == "grey", width=8, height=8, sha256=""
        )
    texts = [["red", "green"], ["blue", "grey"], ["green", "blue"]]
    arm = ArmQuestions("arm", texts, np.zeros((3, 2, 4), dtype=np.float32), np.arange(3), np.zeros(3, dtype=np.int64))
    folder = RunFolder.open(tmp_path / "run", kind="llm", config={})
    with LocalJudge(encoder=minilm) as server:
        settings = judge_settings(server.base_url, show="images", style="green leaves")
        with Judge(settings, ledger=tmp_path / "run" / LEDGER) as judge:
            ask_style(judge, "leaves", [arm], folder, "answers-00-leaves", images=images)
        assert len(server.asked) == 2 and {len(asked.pictures or ()) for asked in server.asked} == {2}
    table = pandas.read_parquet(folder.part_path("answers-00-leaves"))
    assert table["reason"].tolist() == ["answered", FLAGGED, "answered"] and table["choice"][1] == -1
    (read,) = read_answers(table, [arm])
    assert (read.choices >= 0).tolist() == [True, False, True]
    with pytest.raises(RunFolderError, match="do not belong together"):
        read_answers(table[:2], [arm])
