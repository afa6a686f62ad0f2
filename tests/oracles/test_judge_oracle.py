"""The judge as an oracle: environments, sessions, pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from edpbrl_gym.collection.collect import answer_again, collect, make_prompt_lanes
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle
from edpbrl_gym.oracles.judge import Judge, JudgeOracle
from tests.helpers.judge_tools import local_judge, png, questions, settings
from tests.helpers.lane_environments import write_vocabulary


def queries(number=12):
    texts = [list(question.texts) for question in questions(number)]
    place = np.arange(number)
    return Queries(np.random.default_rng(0).normal(size=(number, 4, 5)), place // 6, place % 6, texts)


@dataclass
class Picture:
    png: bytes
    flagged: bool


class Painter:
    """Draws every text in a colour of its own and flags what it is told to."""

    fingerprint = "painter"

    def __init__(self, flag=""):
        self.flag = flag

    def render(self, prompts, *, seed=0):
        colour = [np.random.default_rng(list(text.encode())).integers(0, 256, 3) for text in prompts]
        return [
            Picture(png(tuple(map(int, one))), bool(self.flag) and self.flag in text)
            for one, text in zip(colour, prompts, strict=True)
        ]


def test_choices_are_the_verdicts_and_minus_one_where_there_is_none(tmp_path):
    with local_judge(faults={"empty": 0.3}) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        oracle = JudgeOracle(judge)
        assert isinstance(oracle, Oracle)
        asked = queries(24)
        answers = oracle.answer(asked)
        reasons = [line["reason"] for line in judge.ledger.answers.values()]
        assert 0 < reasons.count("invalid") == (answers.choices < 0).sum() < 24
        by_name = {line["identity"]: line["choice"] for line in judge.ledger.answers.values()}
        for i, choice in enumerate(answers.choices):
            wanted = by_name[f"{asked.episode[i]}/{asked.step[i]}"]
            assert choice == (-1 if wanted is None else wanted)
        told = oracle.answer(asked).responses
        wanted = [Response.skip() if c < 0 else Response.best(c) for c in answers.choices.tolist()]
        assert list(told) == wanted and server.requests == 24
        assert answers.details == oracle.describe() and answers.details["model"] == "local"


def test_estimation_goes_on_without_the_missing_answers(tmp_path, minilm):
    folder = write_vocabulary(tmp_path / "words")
    arguments = {"vocabulary": folder, "order": ["bases", "lighting", "style"]}
    from edpbrl_gym.agents.registry import make_agent
    from edpbrl_gym.estimation import estimate

    with local_judge(faults={"truncated": 0.2, "refused": 0.2}, encoder=minilm, scale=100.0) as server:
        chosen = settings(server, style="neon glow, pixel art")
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            env = make_prompt_lanes(24, **arguments)
            agent = make_agent("random", env, num_options=4, episodes=6, seed=0)
            found = collect(env, agent, JudgeOracle(judge), episodes=6)
            missing = sum(judge.account()["missing"].values())
            assert 0 < missing and len(found) == 18 - missing
            assert found.metadata["oracle"]["style"] == "neon glow, pixel art"
            fit = estimate(found, regularization=0.1)
            predicted = (found.features @ fit.theta).argmax(axis=1)
            assert fit.converged and (predicted == found.choice).mean() > 0.6
            again = answer_again(found, JudgeOracle(judge))  # nothing is asked twice
            np.testing.assert_array_equal(again.choice, found.choice)
            assert server.requests == 18


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


def test_what_is_missing_is_explained(tmp_path):
    with local_judge() as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        with pytest.raises(ValueError, match="questions with texts"):
            JudgeOracle(judge).answer(Queries(np.zeros((1, 2, 3)), np.array([0]), np.array([0])))
    with local_judge() as server, Judge(settings(server, show="images"), ledger=tmp_path / "i") as judge:
        with pytest.raises(ValueError, match="a renderer for a judge that is shown images"):
            JudgeOracle(judge)


def test_a_session_skips_what_the_judge_does_not_answer(tmp_path, minilm):
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.planners import RandomPlanner
    from edpbrl_gym.session import Session, run
    from edpbrl_gym.vocabulary import load_vocabulary

    words = load_vocabulary(write_vocabulary(tmp_path / "words"), order=["bases", "lighting", "style"])
    prior = VocabularyPrior(minilm.encode(words.all_tokens))
    planner = RandomPlanner(words.sizes, prior=prior, num_options=2, seed=0)
    with local_judge(faults={"empty": 0.4}, seed=2) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        session = Session(planner, vocabulary=words, encoder=minilm, num_options=2)
        assert run(session, JudgeOracle(judge), 9) == 9
        missing = sum(line["choice"] is None for line in judge.ledger.answers.values())
        assert 0 < missing < 9 and session.answered == 9 and len(session.comparisons.decided) == 9 - missing
