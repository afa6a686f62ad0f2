"""Sessions that ask about one option at a time."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response, make_format
from edpbrl_gym.oracles import ImperfectUser
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session
from tests.helpers.session_planners import WORDS, D, encoder

TAU = (-1.0, 0.5, 2.0)


def model():
    return make_format("rating", levels=4)


def planner(name):
    more = {"distinct": True} if name == "random" else {}
    return make_planner(name, WORDS, encoder(), feedback="prompt", num_options=1, seed=1, model=model(), **more)


def answered(session, user, count):
    for _ in range(count):
        question = session.ask()
        asked = Queries(question.features[None], np.array([question.episode]), np.array([question.step]))
        session.tell(user.answer(asked).responses[0])
    return session


@pytest.mark.parametrize("name", ["adaptive", "random"])
def test_a_session_of_one_option_is_resumed_undone_and_forecast(tmp_path, name):
    theta = 2 * np.random.default_rng(0).normal(size=D)
    user = ImperfectUser(theta, mode="sampled", response=make_format("rating", levels=4, thresholds=TAU), seed=1)
    shared = {"vocabulary": WORDS, "encoder": encoder()}
    session = Session(planner(name), folder=tmp_path / "s", **shared)
    assert session.num_options == 1
    answered(session, user, 8)
    after = session.theta
    answered(session, user, 2)
    session.undo()
    session.undo()
    np.testing.assert_array_equal(session.theta, after)
    session.skip()
    with pytest.raises(ValueError, match="kind 'rating'"):
        session.ask() and session.tell(0)
    progress = session.progress()
    assert progress.answers == 8 and 0.5 <= progress.accuracy <= 1.0
    assert session.draws().shape[1] == D and len(session.recommend(2)) == 2
    question = session.ask()
    session.close()
    again = Session.resume(tmp_path / "s", planner(name), **shared)
    np.testing.assert_array_equal(again.theta, session.theta)
    assert again.ask().texts == question.texts
    assert [one.kind for one in again.comparisons.responses] == ["rating"] * 8 + ["skip"]
    again.tell(Response.rating([3]))
    again.close()


def test_the_best_of_one_is_no_session():
    with pytest.raises(ValueError, match=">= 2"):
        Session(lambda: make_planner("random", WORDS, encoder(), num_options=1), vocabulary=WORDS, encoder=encoder())
