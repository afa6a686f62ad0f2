"""What an oracle may return: anything else is refused where it is taken, with what was expected."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from edpbrl_gym.collection.collect import answer_again
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Answers
from edpbrl_gym.session import Session, run
from tests.helpers.lane_environments import ChainEnv
from tests.helpers.session_planners import WORDS, encoder, random_planner


class Returns:
    """An oracle whose ``answer`` returns what it is given."""

    name = "mine"

    def __init__(self, answers):
        self.answers = answers

    def answer(self, queries):
        return self.answers(len(queries)) if callable(self.answers) else self.answers


def by_preference_query(oracle):
    query = PreferenceQuery(SyncVectorEnv([ChainEnv] * 4), lanes=2, oracle=oracle, feedback="state")
    query.reset(seed=0)
    query.step(np.zeros(4, int))


def by_answer_again(oracle):
    numbers = np.arange(2)
    asked = Comparisons.of_choices(features=np.ones((2, 2, 3)), choice=np.zeros(2, int), episode=numbers, step=numbers)
    answer_again(asked, oracle)


def session():
    return Session(random_planner(), vocabulary=WORDS, encoder=encoder(), num_options=3)


def by_session(oracle):
    run(session(), oracle, 2)


TAKEN = [by_preference_query, by_answer_again, by_session]


@pytest.mark.parametrize("take", TAKEN)
@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        (lambda n: [0] * n, TypeError, r"answer\(queries\) of Returns \('mine'\) to return .*Answers, got list;"),
        (lambda n: np.zeros(n, int), TypeError, "got ndarray"),
        (None, TypeError, "got NoneType"),
        (lambda n: SimpleNamespace(choices=np.zeros(n)), TypeError, "got SimpleNamespace"),
        (lambda n: Answers.of_choices(np.zeros(n, int), ["by me"]), TypeError, r"details of Returns .* as a dict"),
        (lambda n: Answers([]), ValueError, r"to answer . question\(s\), got 0 answer\(s\)"),
        (lambda n: Answers([Response.best(0)] * (n + 1)), ValueError, r"Returns \('mine'\) to answer .*got . answer"),
        (lambda n: Answers.of_choices(np.full(n, 3)), ValueError, r"options in 0\.\.[12] .*got .*3.*of Returns"),
        (lambda n: Answers([Response.ranking(range(7))] * n), ValueError, r"options in 0\.\.[12]"),
    ],
)
def test_what_is_no_answers(take, answers, error, said):
    with pytest.raises(error, match=said):
        take(Returns(answers))


@pytest.mark.parametrize("take", TAKEN)
def test_what_is_no_oracle(take):
    with pytest.raises(TypeError, match=r"an oracle with answer\(queries\) -> Answers, got int"):
        take(3)
    nameless = SimpleNamespace(answer=lambda queries: Answers.of_choices(np.zeros(len(queries), int)))
    with pytest.raises(TypeError, match="an oracle with a name.*SimpleNamespace without"):
        take(nameless)


def test_a_wrong_answer_leaves_the_question_of_a_session():
    one = session()
    with pytest.raises(ValueError, match=r"options in 0\.\.2"):
        run(one, Returns(Answers([Response.best(5)])), 1)
    assert one.answered == 0 and one.pending is not None
    assert run(one, Returns(Answers([Response.best(1)])), 1) == 1
