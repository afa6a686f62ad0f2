"""Budgets that end, and answers that are none: what the experiment keeps, leaves out and refuses."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.experiments.llm.asking import FLAGGED, LEDGER, BudgetSpent, ask_style, read_answers
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.llm.run import run_llm
from edpbrl_gym.experiments.runs import RunFolder, RunFolderError, read_results
from edpbrl_gym.oracles.judge import Judge
from edpbrl_gym.rendering.cache import RenderedImage
from examples.local_judge import LocalJudge
from tests.helpers.tiny_llm import QUESTIONS, STYLES, judge_settings, save_embeddings, small_settings

TOTAL = 2 * QUESTIONS * len(STYLES)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, minilm):
    return save_embeddings(tmp_path_factory.mktemp("inputs"), minilm)


def test_a_budget_that_ends_keeps_the_answers_and_a_larger_one_goes_on(inputs, tmp_path, minilm):
    out = tmp_path / "run"
    with LocalJudge(encoder=minilm) as server:
        with pytest.raises(BudgetSpent, match="larger --max-questions"):
            run_llm(small_settings(*inputs), judge_settings(server.base_url, max_questions=40), out, jobs=1)
        assert server.requests == len(server.asked) == 40 and not (out / "results.parquet").exists()
        results = run_llm(small_settings(*inputs), judge_settings(server.base_url), out, jobs=1)
        kept = (out / LEDGER).read_text().count('"kind":"answer"')
        assert server.requests == len(server.asked) == kept > 40  # nothing twice
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
    assert set(missing["reason"]) == {"invalid", "refused"} and 0.2 < len(missing) / TOTAL < 0.6
    assert (answers.loc[answers["choice"] >= 0, "reason"] == "answered").all() and (answers["retries"] > 0).any()
    accuracy = results.table[results.table["part"] == "accuracy"]
    assert (accuracy["train_answered"] < accuracy["train_questions"]).mean() > 0.5
    row = accuracy[(accuracy["arm"] == "Random") & (accuracy["style"] == "night") & (accuracy["fold"] == 1)]
    row = row[(row["episodes"] == 5) & (row["tested_on"] == "Random")].iloc[0]
    mine = answers[(answers["arm"] == "Random") & (answers["style"] == "night") & (answers["choice"] >= 0)]
    assert (
        row["train_answered"] == (mine["episode"] != 4).sum() and row["test_answered"] == (mine["episode"] == 4).sum()
    )


def test_a_judge_that_answers_nothing_is_an_error(inputs, tmp_path, minilm):
    with LocalJudge(encoder=minilm, faults={"empty": 1.0}) as server:
        with pytest.raises(RunFolderError, match="got none to 36 questions"):
            run_llm(small_settings(*inputs), judge_settings(server.base_url), tmp_path / "run", jobs=1)
    assert not list((tmp_path / "run" / "parts").glob("answers*"))


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
