"""Asking, telling, taking back: one session is what its answers make it, however it came to them."""

import copy
import pickle

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import BestOf, BestWorst, PartialRanking, Ranking, Response, WithTies
from edpbrl_gym.oracles import ImperfectUser, SyntheticUser
from edpbrl_gym.planners import Planner, RandomPlanner
from edpbrl_gym.session import Session, StoppingRule, run
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.session_planners import (
    PLANNERS,
    THETA,
    WORDS,
    D,
    GreedyPlanner,
    RestorableGreedyPlanner,
    encoder,
    prior,
    random_planner,
    same,
    session,
)


def test_prompts_grow_token_by_token_and_begin_again():
    one = session()
    for number in range(7):
        question = one.ask()
        assert question is one.ask() and question is one.pending
        assert (question.number, question.episode, question.step) == (number, number // 3, number % 3)
        assert question.tokens.shape == (3, number % 3 + 1)
        assert question.texts == tuple(WORDS.prompt(row) for row in question.tokens)
        np.testing.assert_array_equal(question.features, encoder().encode(question.texts))
        if number % 3:
            np.testing.assert_array_equal(question.prefixes, before.tokens)  # noqa: F821
        before = question  # noqa: F841
        one.tell(number % 3)
        assert one.pending is None and one.answered == number + 1


def test_a_session_says_what_it_is_takes_k_from_its_planner_and_is_not_pickled(tmp_path):
    one = Session(random_planner(), vocabulary=WORDS, encoder=encoder(), folder=tmp_path / "one")
    assert one.num_options == one.planner.num_options
    one.ask(), one.tell(1)
    text = repr(one)
    assert "1 answered" in text and f"K = {one.num_options}" in text and "truncated" in text and "one'" in text
    assert " at 0x" not in text
    np.testing.assert_array_equal(one.theta, one.estimate.theta)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"save\(folder\).*Session.resume"):
            copied(one)


@pytest.mark.parametrize("kind", sorted(PLANNERS))
def test_going_back_to_the_beginning(kind):
    """Further than the states in memory reach."""
    one, other = session(PLANNERS[kind]), session(PLANNERS[kind])
    first = one.ask()
    for number in range(20):
        one.ask(), one.tell(number % 3)
    for number in reversed(range(20)):
        assert one.undo().number == number == one.answered
    np.testing.assert_array_equal(one.ask().tokens, first.tokens)
    with pytest.raises(RuntimeError, match="an answer to take back"):
        one.undo()
    for each in (one, other):
        run(each, SyntheticUser(THETA), 5)
    same(one, other)


def test_a_planner_that_cannot_go_back_says_so():
    one = session(GreedyPlanner())
    one.ask(), one.tell(0)
    with pytest.raises(TypeError, match="greedy has no reset.*function that makes the planner"):
        one.undo()
    assert one.answered == 1 and one.ask().number == 1  # nothing was changed
    restorable = session(RestorableGreedyPlanner())
    restorable.ask(), restorable.tell(0), restorable.undo()
    assert not GreedyPlanner().can_reset and GreedyPlanner().state() is None
    for call in (GreedyPlanner().reset, lambda: GreedyPlanner().restore({})):
        with pytest.raises(NotImplementedError, match="greedy has no"):
            call()
    with pytest.raises(TypeError, match="a planner .with ask and tell. or a function"):
        session("random")
    with pytest.raises(TypeError, match="got list; a planner of your own inherits from edpbrl_gym.planners.Planner"):
        session(lambda: [])
    with pytest.raises(TypeError, match="abstract"):
        Planner()


def test_a_skip_teaches_nothing_but_is_kept():
    one = session()
    one.ask(), one.skip()
    assert one.answered == 1 and one.comparisons.responses == (Response.skip(),)
    np.testing.assert_array_equal(one.estimate.theta, 0.0)
    one.ask(), one.tell(None), one.ask(), one.tell(1)
    assert one.ask().number == 3
    assert len(one.comparisons) == 3
    told = one.comparisons.decided
    assert len(told) == 1 and told.choice[0] == 1 and told.step[0] == 2
    assert one.progress().answers == 1 and one.progress().questions == 3


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (None, Response.best(2), Response.tie()),
        (WithTies(0.5), Response.tie(), Response.best_worst(0, 1)),
        (BestWorst(), Response.best_worst(0, 2), Response.best(0)),
        (Ranking(), Response.ranking((2, 0, 1)), Response.best_worst(0, 1)),
    ],
)
def test_answers_of_the_sessions_format(model, good, bad):
    one = session(random_planner(model=model))
    one.ask()
    with pytest.raises(ValueError, match=f"or a skip.*got '{bad.kind}'"):
        one.tell(bad)
    one.tell(good)
    assert one.comparisons.responses == (good,)
    assert one.estimate.converged and one.estimate.theta.any() == (good.kind != "tie")  # a tie is expected at 0


GRID_MODELS = [BestOf(), BestWorst(), PartialRanking(3), Ranking()]


@pytest.mark.parametrize("model", GRID_MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("count", [9, 12])
def test_grids_of_up_to_twelve_in_every_format(tmp_path, model, count):
    """Asked, answered by an oracle, predicted, saved, resumed."""
    wide = Vocabulary(("base", "light"), tuple(tuple(f"{name} {i}" for i in range(14)) for name in ("base", "light")))
    planner = [RandomPlanner(wide.sizes, prior=prior(), num_options=count, model=model, distinct=True) for _ in "ab"]
    given = {"vocabulary": wide, "encoder": encoder()}
    user = ImperfectUser(THETA, mode="sampled", scale=4.0, response=model.name, mistake_rate=0.1)
    with Session(planner[0], num_options=count, feedback="prompt", folder=tmp_path / "one", **given) as one:
        run(one, user, 10)
        assert {response.kind for response in one.comparisons.responses} == {model.outcomes(3)[0].kind}
        assert one.progress().curve[0] > 0.5
    with Session.resume(tmp_path / "one", planner[1], **given) as again:
        assert again.comparisons.responses == one.comparisons.responses
        np.testing.assert_array_equal(again.estimate.theta, one.estimate.theta)


def test_a_partial_ranking_takes_as_many_taps_as_the_person_makes():
    one = session(random_planner(model=PartialRanking()))
    told = (2, Response.partial([1, 0]), Response.ranking([2, 0, 1]), Response.partial([0]))
    for answer in told:
        one.ask(), one.tell(answer)
    assert one.comparisons.responses == (Response.best(2), *told[1:])
    expected = one.comparisons.terms(PartialRanking())
    assert len(expected) == 1 + 2 + 2 + 1
    with pytest.raises(ValueError, match="'partial' or 'best' or 'ranking' .or a skip., got 'tie'"):
        one.ask(), one.tell(Response.tie())


def test_bad_answers_are_named_and_change_nothing():
    one = session()
    with pytest.raises(RuntimeError, match="call ask"):
        one.tell(0)
    question = one.ask()
    for answer, error, message in (
        (3, ValueError, r"0\.\.2, got 3"),
        (-1, ValueError, ">= 0, got -1"),
        (True, TypeError, "integer, got True"),
        ("1", TypeError, "integer"),
        (Response.best(3), ValueError, r"0\.\.2"),
    ):
        with pytest.raises(error, match=message):
            one.tell(answer)
    assert one.answered == 0 and one.pending is question
    one.tell(np.int64(2))
    assert one.comparisons.responses == (Response.best(2),)


def test_bad_planners_are_named():
    class Wrong(GreedyPlanner):
        def ask(self, prefixes):
            return np.full(len(prefixes), 8)

    with pytest.raises(ValueError, match=r"tokens in 0\.\.7, got 8"):
        session(Wrong()).ask()
    with pytest.raises(ValueError, match="K = 4 options, got one of 3"):
        session(num_options=4)


class Fixed(RandomPlanner):
    """A planner of one's own that asks what it is given, and says nothing about different options."""

    name = "fixed"
    steps: tuple[tuple[int, ...], ...] = ()

    def __init__(self, steps):
        super().__init__((3, 3), prior=prior(), num_options=3)
        self.steps = steps
        del self.distinct

    def ask(self, prefixes):
        self.asked += 1
        return np.array(self.steps[prefixes.shape[1]])


@pytest.mark.parametrize(
    ("feedback", "steps", "said"),
    [
        ("truncated", [(2, 1, 2)], "question 0 (step 0) shows 'a hut' as options 0 and 2"),
        ("truncated", [(0, 2, 1), (1, 2, 0)], "question 1 (step 1) shows 'a fox, at night, fog' as options 0 and 2"),
        ("state", [(0, 1, 2), (0, 2, 2)], "question 1 (step 1) shows 'rain' as options 1 and 2"),
    ],
)
def test_a_question_that_shows_an_option_twice_reaches_nobody(feedback, steps, said):
    words = Vocabulary(("base", "light"), (("A fox", "a fox, at night", "a hut"), ("fog", "at night, fog", "rain")))
    planner = Fixed(steps)
    one = Session(planner, vocabulary=words, encoder=encoder(), num_options=3, feedback=feedback)
    for _ in steps[1:]:
        one.ask(), one.tell(0)
    for _ in range(2):  # the planner is not asked again
        with pytest.raises(ValueError, match="Expected 3 different options from the planner fixed") as error:
            one.ask()
        assert said in str(error.value) and "distinct" in str(error.value)
        assert one.pending is None and one.answered == len(steps) - 1 and planner.state()["asked"] == len(steps)
    planner.distinct = False  # says that no person answers
    assert one.ask() is one.pending


def test_a_failing_encoder_does_not_cost_a_question():
    class Failing(CountingEncoder):
        fails = True

        def encode(self, texts, *, progress=False):
            if self.fails:
                raise ConnectionError("no model")
            return super().encode(texts)

    failing = Failing(D)
    one, other = session(RestorableGreedyPlanner(), encoder=failing), session(RestorableGreedyPlanner())
    for _ in range(3):
        with pytest.raises(ConnectionError):
            one.ask()
    failing.fails = False
    same(one, other)


def test_oracles_answer_a_session():
    """The answers are those that the oracle gives to the same questions in one batch."""
    one = session()
    assert run(one, SyntheticUser(THETA, mode="sampled", scale=2.0, seed=1), 12) == 12
    told = one.comparisons
    batch = Queries(told.features, told.episode, told.step)
    expected = SyntheticUser(THETA, mode="sampled", scale=2.0, seed=1).answer(batch).choices
    np.testing.assert_array_equal(told.choice, expected)
    tired = session(random_planner(model=Ranking()))
    run(tired, ImperfectUser(THETA, response="ranking", skip_threshold=0.5, mistake_rate=0.1), 12)
    kinds = {response.kind for response in tired.comparisons.responses}
    assert kinds == {"ranking", "skip"}


def test_it_learns_and_recommends_what_the_person_likes():
    one = session()
    seen = []
    run(one, SyntheticUser(THETA), 60, track=lambda session: seen.append(session.answered))
    assert seen == list(range(1, 61))
    estimate = one.estimate.theta
    assert estimate @ THETA > 0.9 * np.linalg.norm(estimate) * np.linalg.norm(THETA)
    best = one.recommend(3, level=0.8)
    assert [prompt.score for prompt in best] == sorted((prompt.score for prompt in best), reverse=True)
    everything = [WORDS.prompt((i, j, k)) for i in range(8) for j in range(8) for k in range(8)]
    true = np.sort(encoder().encode(everything).astype(float) @ THETA)
    assert float(encoder().encode([best[0].text])[0] @ THETA) > true[-25]
    values = one.draws() @ encoder().encode([prompt.text for prompt in best]).astype(float).T
    low, score, high = np.array([(prompt.low, prompt.score, prompt.high) for prompt in best]).T
    np.testing.assert_allclose(((low <= values) & (values <= high)).mean(axis=0), 0.8, atol=0.01)
    np.testing.assert_allclose(score, values.mean(axis=0), rtol=1e-9)
    assert ((low < score) & (score < high)).all()
    with pytest.raises(ValueError, match=r"level in \(0, 1\), got 1.5"):
        one.recommend(level=1.5)


def test_it_says_when_to_stop():
    one = session(stopping=StoppingRule(target=0.85, gain=0.0, minimum=12))
    asked = run(one, SyntheticUser(THETA), 300, until_sure=True, check_every=3)
    progress = one.progress()
    assert asked == one.answered < 300 and asked % 3 == 0 and progress.should_stop
    assert progress.accuracy >= 0.85 and "has reached the target" in progress.reason
    assert progress.further[0] == 0 and progress.curve[0] == progress.accuracy
    assert (np.diff(progress.curve) > 0).all()
    right = np.sign(one.outlook.differences @ one.estimate.theta) == np.sign(one.outlook.differences @ THETA)
    assert abs(progress.accuracy - right.mean()) < 0.1
    early = session(stopping=StoppingRule(target=0.51, minimum=12)).progress()
    assert not early.should_stop and early.reason == "0 of at least 12 answers"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": 0.5}, r"target in \(0.5, 1\]"),
        ({"gain": -0.1}, "gain >= 0"),
        ({"lookahead": 0}, "lookahead >= 1"),
        ({"minimum": -1}, "minimum >= 0"),
    ],
)
def test_bad_stopping_rules_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        StoppingRule(**arguments)
