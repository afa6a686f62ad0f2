"""Comparisons with responses of every format: appending, undoing, terms, and the questions with a best option."""

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood import KINDS, BestOf, BestWorst, Ranking, Response, WithTies
from tests.helpers.answered import assert_equal, comparisons


def question(whole, index):
    return dict(
        features=whole.features[index],
        response=whole.responses[index],
        episode=int(whole.episode[index]),
        step=int(whole.step[index]),
        texts=whole.texts[index],
        answered_at=whole.answered_at[index],
    )


# ---------------------------------------------------------------- building


def test_questions_appended_one_by_one_are_the_whole():
    whole = comparisons()
    built = Comparisons.empty(3, 4, who="a user", metadata=whole.metadata)
    for index in range(len(whole)):
        before = built
        built = built.appended(**question(whole, index))
        assert len(before) == index and len(built) == index + 1
    assert_equal(built, whole)


def test_undo():
    whole = comparisons()
    assert_equal(whole.undone().appended(**question(whole, 5)), whole)
    assert_equal(whole.undone(4), comparisons().undone().undone().undone().undone())
    assert len(whole.undone(6)) == 0 and whole.undone(6).who == "a user" and len(whole) == 6
    again = whole.undone(6).appended(whole.features[0], Response.skip(), episode=0, step=0)
    assert again.texts is None and again.responses == (Response.skip(),)
    with pytest.raises(ValueError, match=r"at least 7 question\(s\) to undo, got 6"):
        whole.undone(7)
    with pytest.raises(ValueError, match="undo"):
        Comparisons.empty(2, 2).undone()
    with pytest.raises(ValueError, match="count"):
        whole.undone(0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"features": np.zeros((3, 5))}, ValueError, r"features of shape \(K, 4\), got shape \(3, 5\)"),
        ({"features": np.full((3, 4), np.nan)}, ValueError, "NaN"),
        ({"response": Response.best(3)}, ValueError, r"0\.\.2"),
        ({"response": Response.ranking([0, 1])}, ValueError, "a ranking of all 3 options"),
        ({"response": 1}, TypeError, "as Response, got int"),
        ({"texts": ["one"]}, ValueError, "Expected 3 texts"),
        ({"texts": None}, ValueError, "for all questions or for none"),
        ({"episode": -1}, ValueError, "episode"),
        ({"step": 0.5}, TypeError, "step"),
        ({"answered_at": "today"}, TypeError, "datetime64"),
    ],
)
def test_questions_that_do_not_fit(changes, error, message):
    whole = comparisons()
    with pytest.raises(error, match=message):
        whole.appended(**(question(whole, 0) | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"responses": (Response.skip(),)}, ValueError, "each of the 6 questions, got 1"),
        ({"responses": (Response.best(3),) * 6}, ValueError, r"0\.\.2"),
        ({"responses": ("best",) * 6}, TypeError, "at question 0"),
    ],
)
def test_responses_that_do_not_fit_the_questions(changes, error, message):
    with pytest.raises(error, match=message):
        comparisons(**changes)


# ---------------------------------------------------------------- what the estimate sees


def test_terms():
    """The sum over the questions; skips say nothing, wherever they stand."""
    whole = comparisons(n=40, kinds=("best", "tie", "skip"))
    theta = np.random.default_rng(1).normal(size=4)
    model = WithTies(0.5)
    terms = whole.terms(model)
    answered = [index for index, response in enumerate(whole.responses) if response.kind != "skip"]
    assert len(terms) == len(answered) < 40
    logs = [np.log(model.probabilities(whole.features[index, None], theta))[0] for index in answered]
    places = [model.outcomes(3).index(whole.responses[index]) for index in answered]
    expected = sum(row[place] for row, place in zip(logs, places, strict=True))
    assert terms.log_likelihood(theta) == pytest.approx(expected, abs=1e-10)
    skipped = whole.appended(**(question(whole, 0) | {"response": Response.skip()}))
    assert len(skipped.terms(model)) == len(terms)
    assert len(comparisons(n=5, kinds=("ranking",)).terms(Ranking())) == 10
    assert len(comparisons(n=5, kinds=("best_worst",)).terms(BestWorst())) == 10
    with pytest.raises(ValueError, match="The response model 'best' takes only 'best' or 'skip', got"):
        whole.terms(BestOf())


def test_questions_with_a_best_option():
    whole = comparisons(n=30)
    named = [index for index, response in enumerate(whole.responses) if response.kind not in ("tie", "skip")]
    assert 0 < len(named) < 30
    assert whole.decided == whole.select(named)
    np.testing.assert_array_equal(whole.decided.choice, [whole.responses[index].order[0] for index in named])
    assert len(comparisons(kinds=("skip",)).decided) == 0
    assert {response.kind for response in whole.answered.responses} == set(KINDS) - {"skip", "rating"}
    assert len(whole.answered) == sum(response.kind != "skip" for response in whole.responses) < 30


@pytest.mark.parametrize("kind", ["tie", "skip"])
def test_there_is_no_choice_where_an_answer_names_none(kind):
    whole = comparisons(kinds=("best",)).appended(
        np.ones((3, 4)), Response(kind), episode=9, step=0, texts=["", "", ""]
    )
    with pytest.raises(ValueError, match=rf"got a {kind} at question 6; take .decided"):
        _ = whole.choice
    with pytest.raises(ValueError, match=kind):
        estimate(whole)
    np.testing.assert_array_equal(estimate(whole.decided).theta, estimate(whole.undone()).theta)
