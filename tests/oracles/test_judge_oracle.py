"""The judge as an oracle: environments, sessions, pictures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle, answers_of
from edpbrl_gym.oracles.judge import Judge, JudgeOracle
from tests.helpers.judge_tools import local_judge, png, questions, settings


def queries(number=12):
    texts = [list(question.texts) for question in questions(number)]
    place = np.arange(number)
    return Queries(np.random.default_rng(0).normal(size=(number, 4, 5)), place // 6, place % 6, texts)


def test_questions_with_different_numbers_of_options(tmp_path):
    sizes = [4, 2, 3, 2]
    texts = [list(question.texts)[:size] for question, size in zip(questions(4), sizes, strict=True)]
    asked = Queries([np.ones((size, 5)) for size in sizes], np.arange(4), np.zeros(4, dtype=int), texts)
    for show in ("texts", "images"):
        with local_judge() as server, Judge(settings(server, show=show), ledger=tmp_path / show) as judge:
            oracle = JudgeOracle(judge, renderer=None if show == "texts" else Painter())
            answers = answers_of(oracle, asked)
            alone = [int(oracle.answer(asked[[i]]).choices[0]) for i in range(4)]
        assert answers.choices.tolist() == alone
        assert all(0 <= choice < size for choice, size in zip(alone, sizes, strict=True))


class Painter:
    """Draws every text in a colour of its own and flags what it is told to."""

    fingerprint = "painter"

    def __init__(self, flag=""):
        self.flag = flag

    def render(self, prompts, *, seed=0):
        colour = [np.random.default_rng(list(text.encode())).integers(0, 256, 3) for text in prompts]
        return [
            SimpleNamespace(png=png(tuple(map(int, one))), flagged=bool(self.flag) and self.flag in text)
            for one, text in zip(colour, prompts, strict=True)
        ]


def test_choices_are_the_verdicts_and_minus_one_where_there_is_none(tmp_path):
    with local_judge(faults={"truncated": 0.3}) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        oracle = JudgeOracle(judge)
        assert isinstance(oracle, Oracle)
        asked = queries(24)
        answers = oracle.answer(asked)
        reasons = [line["reason"] for line in judge.ledger.answers.values()]
        assert 0 < reasons.count("cut") == (answers.choices < 0).sum() < 24
        by_name = {line["identity"]: line["choice"] for line in judge.ledger.answers.values()}
        for i, choice in enumerate(answers.choices):
            wanted = by_name[f"{asked.episode[i]}/{asked.step[i]}"]
            assert choice == (-1 if wanted is None else wanted)
        told = oracle.answer(asked).responses
        wanted = [Response.skip() if c < 0 else Response.best(c) for c in answers.choices.tolist()]
        assert list(told) == wanted and server.requests == 24
        assert answers.details == oracle.describe() and answers.details["model"] == "local"


@pytest.mark.needs("judge")
def test_pictures_that_were_flagged_are_not_shown(tmp_path):
    with local_judge() as server:
        shown = settings(server, show="images")
        with Judge(shown, ledger=tmp_path / "l") as judge:
            asked = queries(12)
            bad = np.array([any("castle" in text for text in texts) for texts in asked.texts])
            answers = JudgeOracle(judge, Painter("castle")).answer(asked)
            assert bad.any() and not bad.all()
            np.testing.assert_array_equal(answers.choices < 0, bad)
            assert server.requests == (~bad).sum() and answers.details["renderer"] == "painter"
            whole = JudgeOracle(judge, Painter()).answer(asked)
            assert (whole.choices >= 0).all() and server.requests == 12
            np.testing.assert_array_equal(whole.choices[~bad], answers.choices[~bad])
