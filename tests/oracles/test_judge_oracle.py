"""The judge as an oracle: environments, sessions, pictures."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle, answers_of
from edpbrl_gym.oracles.judge import Judge, JudgeOracle
from edpbrl_gym.oracles.pictures import OptionPictures
from edpbrl_gym.rendering import Drawn, NotDrawn, Renderer, RenderingError, load_renderer
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
            oracle = JudgeOracle(judge, None if show == "texts" else load_renderer(Painter(), cache_folder=tmp_path))
            answers = answers_of(oracle, asked)
            alone = [int(oracle.answer(asked[[i]]).choices[0]) for i in range(4)]
        assert answers.choices.tolist() == alone
        assert all(0 <= choice < size for choice, size in zip(alone, sizes, strict=True))


class Painter(Renderer):
    """Draws every text in a colour of its own, flags what it is told to, and does not draw what it is told not to."""

    name, batch_size = "painter", 8

    def __init__(self, flag=None, refuse=None):
        self.flag, self.refuse = flag, refuse

    def describe(self):
        return {"model": "painter"}

    def draw(self, texts, seeds):
        colours = [np.random.default_rng(list(text.encode())).integers(0, 256, 3).tolist() for text in texts]
        return [
            NotDrawn("no answer") if self.refuse is not None and self.refuse in text
            else Drawn(png(tuple(colour)), flagged=self.flag is not None and self.flag in text)
            for text, colour in zip(texts, colours, strict=True)
        ]  # fmt: skip


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
@pytest.mark.parametrize("why", ["flagged", "undrawn"])
def test_questions_whose_pictures_cannot_be_shown_are_not_asked(tmp_path, why, caplog):
    with local_judge() as server:
        shown = settings(server, show="images")
        with Judge(shown, ledger=tmp_path / "l") as judge:
            asked = queries(12)
            bad = np.array([any("castle" in text for text in texts) for texts in asked.texts])
            painter = load_renderer(Painter(**{why.replace("undrawn", "refuse").replace("flagged", "flag"): "castle"}),
                                    cache_folder=tmp_path / "some")  # fmt: skip
            answers = JudgeOracle(judge, painter).answer(asked)
            assert bad.any() and not bad.all()
            np.testing.assert_array_equal(answers.choices < 0, bad)
            assert server.requests == (~bad).sum() and answers.details["renderer"] == painter.fingerprint
            assert answers.details[f"{why}_questions"] == bad.sum()
            assert sum(answers.details[f"{one}_questions"] for one in ("flagged", "undrawn")) == bad.sum()
            assert ("a picture of each option are left out: Expected" in caplog.text) == (why == "undrawn")
            whole = JudgeOracle(judge, load_renderer(Painter(), cache_folder=tmp_path / "all")).answer(asked)
            assert (whole.choices >= 0).all() and server.requests == 12
            np.testing.assert_array_equal(whole.choices[~bad], answers.choices[~bad])


def drawing(refuse, place):
    return OptionPictures(load_renderer(Painter(refuse=refuse), cache_folder=place))


def test_where_nothing_is_drawn_nothing_is_asked_for_long(tmp_path):
    asked = queries(12)
    with pytest.raises(RenderingError, match="painter, got none of .*no answer"):  # nothing has been drawn yet
        drawing("", tmp_path / "none").of(asked[[0]])
    texts = [[f"{option} bad {number}" for option in "ab"] for number in range(20)]
    refused = Queries(np.ones((20, 2, 3)), np.arange(20), np.zeros(20, dtype=int), texts)
    pictures = drawing("bad", tmp_path / "some")
    assert not pictures.of(asked[[0]]).hidden.any()
    for number in range(19):
        assert pictures.of(refused[[number]]).counts() == {"flagged_questions": 0, "undrawn_questions": 1}
    with pytest.raises(RenderingError):
        pictures.of(refused[[19]])
    assert not pictures.of(asked[[0]]).hidden.any() and pictures.of(refused[:19]).undrawn.all()
