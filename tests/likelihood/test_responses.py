"""Answer formats: probabilities, likelihood, Fisher information and draws, each against an independent computation."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import chisquare

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import (
    KINDS,
    BestOf,
    BestWorst,
    PartialRanking,
    Ranking,
    Response,
    ResponseModel,
    Terms,
    WithTies,
    make_response_model,
)
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information
from edpbrl_gym.oracles import SyntheticUser

MODELS = [BestOf(), BestWorst(), Ranking(), PartialRanking(2), WithTies(0.7)]
model_of_each_kind = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def problem(seed, n=4, num_options=4, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)


def slow_probability(model, features, theta, response):
    """The definition of each model, one answer at a time, in plain Python."""
    v = [float(theta @ x) for x in features]
    options = range(len(v))

    def share(chosen, among, sign=1.0):
        return float(np.exp(sign * v[chosen]) / sum(np.exp(sign * v[j]) for j in among))

    if isinstance(model, WithTies):
        tie = model.nu * np.prod(np.exp(v)) ** (1 / len(v))
        total = sum(np.exp(v)) + tie
        return tie / total if response.kind == "tie" else float(np.exp(v[response.order[0]]) / total)
    if response.kind == "best":
        return share(response.order[0], options)
    if response.kind == "best_worst":
        best, worst = response.order
        return share(best, options) * share(worst, [j for j in options if j != best], -1.0)
    left, probability = list(options), 1.0
    for option in response.order:
        probability *= share(option, left)
        left.remove(option)
    return probability


def enumerated_information(model, options, theta):
    """Covariance of the score over all outcomes; each score by central differences of the log probability."""
    step, d = 1e-5, len(theta)
    at = model.probabilities(options, theta)
    slopes = np.stack(
        [
            (np.log(model.probabilities(options, theta + e)) - np.log(model.probabilities(options, theta - e)))
            / (2 * step)
            for e in step * np.eye(d)
        ],
        axis=-1,
    )
    return np.einsum("no,noi,noj->ij", at, slopes, slopes)


# ---------------------------------------------------------------- Response


def test_constructors_and_what_they_name():
    assert Response.best(2) == Response("best", (2,))
    assert Response.best_worst(2, 0) == Response("best_worst", (2, 0))
    assert Response.ranking([1, 0, 2]) == Response("ranking", (1, 0, 2))
    assert Response.tie() == Response("tie") and Response.skip() == Response("skip")
    assert Response.partial([3, 1]) == Response("partial", (3, 1))
    firsts = [Response.best(2), Response.best_worst(1, 0), Response.ranking([1, 0]), Response.tie(), Response.skip()]
    assert [response.first for response in firsts] == [2, 1, 1, None, None]
    firsts.append(Response.partial([4]))
    assert firsts[-1].first == 4
    assert len({Response.best(np.int64(1)), Response.best(1)}) == 1
    assert {response.kind for response in firsts} == set(KINDS)


@given(st.sampled_from(KINDS), st.permutations(range(4)))
def test_json_round_trip(kind, order):
    length = {"best": 1, "best_worst": 2, "ranking": 4, "partial": 3}.get(kind, 0)
    response = Response(kind, tuple(order[:length]))
    assert Response.from_json(json.loads(json.dumps(response.as_json()))) == response


@pytest.mark.parametrize(
    ("kind", "order", "message"),
    [
        ("worst", (1,), "Expected kind as one of 'best'"),
        ("best", (), r"'best' with order \(the best option,\), got \(\)"),
        ("best", (1, 2), "got"),
        ("best", (-1,), ">= 0"),
        ("best_worst", (1, 1), r"\(best, worst\)"),
        ("ranking", (0, 2, 1, 4), "all K options"),
        ("ranking", (0, 0, 1), "all K options"),
        ("ranking", (0,), "all K options"),
        ("partial", (), "one or more options, best first"),
        ("partial", (1, 3, 1), "one or more options"),
        ("tie", (1,), "'tie'"),
        ("skip", (0,), "'skip'"),
    ],
)
def test_responses_that_make_no_sense(kind, order, message):
    with pytest.raises(ValueError, match=message):
        Response(kind, order)


@pytest.mark.parametrize("order", ["0", (0.0,), (True,), 3, None])
def test_options_are_integers(order):
    with pytest.raises(TypeError):
        Response("best", order)


@pytest.mark.parametrize(
    "value", [{"kind": "best"}, {"kind": "best", "order": [9], "more": 1}, {"kind": [], "order": []}]
)
def test_json_that_is_no_response(value):
    with pytest.raises(ValueError, match="Expected"):
        Response.from_json(value)


@pytest.mark.parametrize("value", [None, "best", {"kind": "best", "order": "0"}, {"kind": "best", "order": None}])
def test_json_of_another_kind(value):
    with pytest.raises(TypeError, match="Expected"):
        Response.from_json(value)


def test_responses_about_other_options():
    assert Response.best(3).checked(4) == Response.best(3)
    assert Response.partial([3, 0]).checked(4).order == (3, 0)
    with pytest.raises(ValueError, match=r"0\.\.3 \(K = 4\)"):
        Response.partial([0, 4]).checked(4)
    with pytest.raises(ValueError, match=r"0\.\.3 \(K = 4\)"):
        Response.best(4).checked(4)
    with pytest.raises(ValueError, match="a ranking of all 4 options, got one of 3"):
        Response.ranking([0, 1, 2]).checked(4)


# ---------------------------------------------------------------- probabilities


@model_of_each_kind
@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(0.01, 300.0))
def test_probabilities_sum_to_one(model, seed, num_options, spread):
    options, theta = problem(seed, num_options=num_options, spread=spread)
    p = model.probabilities(options, theta)
    outcomes = model.outcomes(num_options)
    assert p.shape == (4, len(outcomes)) and len(set(outcomes)) == len(outcomes)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-11)


@model_of_each_kind
@pytest.mark.parametrize("num_options", [2, 3, 4, 5])
def test_probabilities_are_the_definition_and_the_terms_their_logarithms(model, num_options):
    options, theta = problem(1, n=2, num_options=num_options)
    p = model.probabilities(options, theta)
    for place, outcome in enumerate(model.outcomes(num_options)):
        for question in range(2):
            expected = slow_probability(model, options[question], theta, outcome)
            assert p[question, place] == pytest.approx(expected, rel=1e-11)
        terms = model.terms(options, [outcome, outcome])
        assert terms.log_likelihood(theta) == pytest.approx(np.log(p[:, place]).sum(), abs=1e-11)


@model_of_each_kind
def test_the_models_follow_the_protocol(model):
    assert isinstance(model, ResponseModel)
    assert make_response_model(model.name, nu=0.7, taps=2) == model
    assert {outcome.kind for outcome in model.outcomes(4)} <= set(model.kinds)
    with pytest.raises(ValueError, match="'best', 'best_worst', 'ranking', 'partial', 'ties'"):
        make_response_model("worst")


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(0.1, 10))
def test_the_first_choice_is_best_of_k(seed, num_options, spread):
    options, theta = problem(seed, num_options=num_options, spread=spread)
    best = choice_probabilities(options, theta)
    for model in (Ranking(), BestWorst()):
        first = np.array([outcome.first for outcome in model.outcomes(num_options)])
        p = model.probabilities(options, theta)
        marginal = np.stack([p[:, first == option].sum(axis=1) for option in range(num_options)], axis=1)
        np.testing.assert_allclose(marginal, best, atol=1e-12)


def test_two_and_three_options():
    """K = 2: best, best-worst and ranking are one model; K = 3: best-worst is the ranking."""
    options, theta = problem(5, num_options=2)
    for model in (BestWorst(), Ranking()):
        np.testing.assert_allclose(model.probabilities(options, theta), choice_probabilities(options, theta))
        np.testing.assert_allclose(model.information(options, theta), fisher_information(options, theta), atol=1e-13)
    options, theta = problem(6, num_options=3)
    best_worst = {
        outcome.order: p
        for outcome, p in zip(BestWorst().outcomes(3), BestWorst().probabilities(options, theta).T, strict=True)
    }
    for outcome, p in zip(Ranking().outcomes(3), Ranking().probabilities(options, theta).T, strict=True):
        np.testing.assert_allclose(best_worst[outcome.order[0], outcome.order[2]], p, rtol=1e-12)
    np.testing.assert_allclose(
        BestWorst().information(options, theta), Ranking().information(options, theta), atol=1e-13
    )


def test_davidson():
    """K = 2: pi_1, pi_2 and nu sqrt(pi_1 pi_2); nu -> 0 is the plain logit; without a taste nu / (K + nu) ties."""
    options, theta = problem(7, n=1, num_options=2)
    first, second = np.exp(options[0] @ theta)
    weights = np.array([first, second, 0.7 * np.sqrt(first * second)])
    np.testing.assert_allclose(WithTies(0.7).probabilities(options, theta)[0], weights / weights.sum(), rtol=1e-12)
    options, theta = problem(8)
    small = WithTies(1e-12)
    np.testing.assert_allclose(
        small.probabilities(options, theta)[:, :4], choice_probabilities(options, theta), atol=1e-11
    )
    assert small.probabilities(options, theta)[:, 4].max() < 1e-11
    np.testing.assert_allclose(small.information(options, theta), fisher_information(options, theta), atol=1e-10)
    np.testing.assert_allclose(WithTies(2.0).probabilities(options, 0 * theta)[:, 4], 2.0 / 6.0)


# ---------------------------------------------------------------- derivatives and information


@model_of_each_kind
def test_score_and_observed_information_by_finite_differences(model):
    options, theta = problem(9, n=30)
    responses = model.sample(options, theta, np.random.default_rng(0).random(30))
    terms = model.terms(options, responses)
    step = 1e-5
    moves = step * np.eye(3)
    slope = [(terms.log_likelihood(theta + e) - terms.log_likelihood(theta - e)) / (2 * step) for e in moves]
    np.testing.assert_allclose(terms.score(theta), slope, atol=1e-7)
    bend = [(terms.score(theta + e) - terms.score(theta - e)) / (2 * step) for e in moves]
    np.testing.assert_allclose(terms.information(theta), -np.array(bend), atol=1e-6)


@model_of_each_kind
@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_information_is_the_covariance_of_the_score(model, seed, num_options):
    options, theta = problem(seed, n=3, num_options=num_options)
    information = model.information(options, theta)
    np.testing.assert_allclose(information, enumerated_information(model, options, theta), atol=1e-6)
    # and the mean of the observed information over the outcomes
    outcomes = model.outcomes(num_options)
    p = model.probabilities(options, theta)
    observed = sum(
        p[question, place] * model.terms(options[question, None], [outcome]).information(theta)
        for question in range(3)
        for place, outcome in enumerate(outcomes)
    )
    np.testing.assert_allclose(information, observed, atol=1e-11)


@model_of_each_kind
@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0.01, 300.0))
def test_weights(model, seed, num_options, spread):
    """Symmetric, zero row sums, positive semidefinite, and what the information is made of; at any scale."""
    options, theta = problem(seed, num_options=num_options, spread=spread)
    weights = model.weights(options @ theta)
    np.testing.assert_allclose(weights, weights.transpose(0, 2, 1), atol=1e-14)
    np.testing.assert_allclose(weights.sum(axis=2), 0.0, atol=1e-13)
    assert np.linalg.eigvalsh(weights).min() > -1e-13
    information = model.information(options, theta)
    expected = np.einsum("nki,nkl,nlj->ij", options, weights, options)
    np.testing.assert_allclose(information, expected, atol=1e-11 * np.square(options).sum())
    np.testing.assert_array_equal(information, information.T)
    moved = options + np.random.default_rng(seed).normal(size=(4, 1, 3))
    np.testing.assert_allclose(
        model.information(moved, theta), information, atol=1e-9 * np.square(options).sum() + 1e-12
    )


@model_of_each_kind
def test_no_taste_is_theta_zero(model):
    options, theta = problem(11)
    np.testing.assert_allclose(model.information(options), model.information(options, 0 * theta), atol=1e-13)


def test_the_information_of_a_ranking_without_a_taste():
    """At theta = 0 the sets left are uniform: sum over sizes m of (m - 1) / m units of the options' scatter."""
    num_options = 6
    weights = Ranking().weights(np.zeros((1, num_options)))[0]
    scatter = num_options * np.eye(num_options) - np.ones((num_options, num_options))
    expected = scatter * sum((m - 1) / m for m in range(2, num_options + 1)) / (num_options * (num_options - 1))
    np.testing.assert_allclose(weights, expected, atol=1e-13)


# ---------------------------------------------------------------- what carries more


def least(matrix):
    return float(np.linalg.eigvalsh(matrix)[0])


def of_the_ranking(values):
    """Weights of the best and the last of a Plackett-Luce ranking, by enumeration of all rankings."""
    count = len(values)
    joint, slopes = {}, {}
    for order in itertools.permutations(range(count)):
        p, slope = 1.0, np.zeros(count)
        for stage in range(count - 1):
            left = list(order[stage:])
            shares = softmax(values[left])
            p *= shares[0]
            slope[order[stage]] += 1.0
            slope[left] -= shares
        key = order[0], order[-1]
        joint[key] = joint.get(key, 0.0) + p
        slopes[key] = slopes.get(key, 0.0) + p * slope
    return sum(np.outer(slopes[key], slopes[key]) / joint[key] for key in joint)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(0.05, 8.0))
def test_richer_answers_carry_at_least_as_much(seed, num_options, spread):
    """In the Loewner order: what an answer is a function of carries no less than the answer."""
    values = spread * np.random.default_rng(seed).normal(size=num_options)
    best, best_worst, ranking = (model.weights(values[None])[0] for model in (BestOf(), BestWorst(), Ranking()))
    assert least(ranking - best) > -1e-12
    assert least(best_worst - best) > -1e-12
    ends = of_the_ranking(values)
    assert least(ranking - ends) > -1e-9
    assert least(ends - best) > -1e-9
    # theta = 0
    zero = np.zeros((1, num_options))
    assert least(Ranking().weights(zero)[0] - BestWorst().weights(zero)[0]) > -1e-12


def test_the_sequential_best_worst_logit_is_no_function_of_the_ranking():
    """For K = 4 there are tastes where it says more about one direction than a Plackett-Luce ranking."""
    values = np.array([[-1.61, -4.22, 5.05, -1.65]])
    gap = Ranking().weights(values)[0] - BestWorst().weights(values)[0]
    assert least(gap) < -0.01
    # in total it does not, in a wide search
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, 4)) * rng.choice([0.1, 1.0, 3.0, 9.0], size=(20_000, 1))
    gaps = Ranking().weights(values) - BestWorst().weights(values)
    assert np.trace(gaps, axis1=1, axis2=2).min() > 0


# ---------------------------------------------------------------- draws


@model_of_each_kind
@pytest.mark.parametrize("num_options", [2, 3, 4])
def test_draws_have_the_probabilities(model, num_options):
    options, theta = problem(13, n=1, num_options=num_options)
    count = 20_000
    draws = np.random.default_rng(num_options).random(count)
    responses = model.sample(np.repeat(options, count, axis=0), theta, draws)
    outcomes = model.outcomes(num_options)
    seen = np.array([responses.count(outcome) for outcome in outcomes])
    assert seen.sum() == count
    assert chisquare(seen, count * model.probabilities(options, theta)[0]).pvalue > 1e-4


@model_of_each_kind
def test_one_draw_decides_the_whole_answer(model):
    """An even grid of draws gives each outcome its share to the width of the grid: no draw is used twice."""
    options, theta = problem(14, n=1, num_options=3)
    count = 2_000
    responses = model.sample(np.repeat(options, count, axis=0), theta, (np.arange(count) + 0.5) / count)
    shares = np.array([responses.count(outcome) for outcome in model.outcomes(3)]) / count
    np.testing.assert_allclose(shares, model.probabilities(options, theta)[0], atol=1.01 / count)


def test_best_of_draws_as_the_synthetic_user():
    options, theta = problem(15, n=500)
    options = options.astype(np.float32)
    user = SyntheticUser(theta, mode="sampled", scale=3.0, seed=4)
    place = np.zeros(500, dtype=int)
    choices = user.answer(Queries(options, place, place)).choices
    responses = BestOf().sample(options, 3.0 * theta, np.random.default_rng(4).random(500))
    np.testing.assert_array_equal([response.first for response in responses], choices)


def test_the_most_probable_answers():
    """By utility, equal ones by index, whatever the scale of theta."""
    options = np.array([[[1.0], [3.0], [3.0], [0.0]], [[2.0], [2.0], [2.0], [2.0]]])
    for scale in (1e-3, 1.0, 1e6):
        theta = [scale]
        assert BestOf().sample(options, theta, None) == [Response.best(1), Response.best(0)]
        assert BestWorst().sample(options, theta, None) == [Response.best_worst(1, 3), Response.best_worst(0, 1)]
        expected = [Response.ranking([1, 2, 0, 3]), Response.ranking([0, 1, 2, 3])]
        assert Ranking().sample(options, theta, None) == expected
        assert WithTies(0.5).sample(options, theta, None) == [Response.best(1), Response.best(0)]
    assert WithTies(2.0).sample(options, [1.0], None) == [Response.best(1), Response.tie()]
    assert WithTies(2.0).sample(options, [1e-3], None) == [Response.tie(), Response.tie()]


@model_of_each_kind
def test_an_argmax_user_is_a_taste_of_large_scale(model):
    options, theta = problem(16, n=50)
    draws = np.random.default_rng(1).random(50)
    assert model.sample(options, 1e9 * theta, draws) == model.sample(options, 1e9 * theta, None)


@pytest.mark.parametrize("uniforms", [[0.1, 1.0], [-0.1, 0.5], [0.5], [np.nan, 0.5]])
def test_draws_outside_the_unit_interval(uniforms):
    options, theta = problem(0, n=2)
    with pytest.raises(ValueError, match="Expected"):
        BestOf().sample(options, theta, uniforms)


# ---------------------------------------------------------------- terms


def test_skips_add_no_term_and_a_best_fits_the_rankings():
    options, theta = problem(17, n=4)
    assert len(BestOf().terms(options, [Response.skip()] * 4)) == 0
    mixed = [Response.ranking([3, 1, 0, 2]), Response.skip(), Response.best(2), Response.skip()]
    terms = Ranking().terms(options, mixed)
    assert len(terms) == 4
    expected = sum(np.log(slow_probability(Ranking(), options[place], theta, mixed[place])) for place in (0, 2))
    assert terms.log_likelihood(theta) == pytest.approx(expected, abs=1e-12)
    mixed[0] = Response.best_worst(3, 2)
    terms = BestWorst().terms(options, mixed)
    assert len(terms) == 3
    expected = sum(np.log(slow_probability(BestWorst(), options[place], theta, mixed[place])) for place in (0, 2))
    assert terms.log_likelihood(theta) == pytest.approx(expected, abs=1e-12)
    assert len(WithTies().terms(options, [Response.tie(), *mixed[1:]])) == 2


@pytest.mark.parametrize(
    ("model", "response"),
    [
        (BestOf(), Response.tie()),
        (BestOf(), Response.ranking([0, 1, 2, 3])),
        (WithTies(), Response.best_worst(0, 1)),
        (Ranking(), Response.best_worst(0, 1)),
        (BestWorst(), Response.ranking([0, 1, 2, 3])),
    ],
)
def test_responses_that_a_model_does_not_know(model, response):
    options, _ = problem(0, n=2)
    message = f"model '{model.name}' takes only .* or 'skip', got '{response.kind}' at question 1"
    with pytest.raises(ValueError, match=message):
        model.terms(options, [Response.best(0), response])


@model_of_each_kind
def test_wrong_arguments(model):
    options, theta = problem(0, n=2)
    with pytest.raises(ValueError, match="one response for each of the 2 questions, got 1"):
        model.terms(options, [Response.best(0)])
    with pytest.raises(ValueError, match=r"0\.\.3"):
        model.terms(options, [Response.best(0), Response.best(4)])
    with pytest.raises(TypeError, match="at question 1"):
        model.terms(options, [Response.best(0), 1])
    with pytest.raises(ValueError, match="theta"):
        model.probabilities(options, theta[:2])
    with pytest.raises(ValueError, match="theta"):
        model.information(options, theta[:2])
    with pytest.raises(ValueError, match="at least 2 options"):
        model.information(options[:, :1], theta)
    with pytest.raises(ValueError, match="at least 2 options"):
        model.weights(np.zeros((3, 1)))


def test_limits():
    with pytest.raises(ValueError, match="at most 8 options to list all rankings, got K = 9"):
        Ranking().outcomes(9)
    with pytest.raises(ValueError, match="at most 12 options"):
        Ranking().weights(np.zeros((1, 13)))
    for nu in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="nu"):
            WithTies(nu)


def test_terms_are_padded_when_they_meet():
    options, theta = problem(18, n=5)
    few, _ = problem(19, n=3, num_options=2)
    first = BestOf().terms(options, [Response.best(i % 4) for i in range(5)])
    second = BestOf().terms(few, [Response.best(1)] * 3)
    both = Terms.concatenate([first, second])
    assert both.rows.shape == (8, 4, 3) and both.dimension == 3
    assert np.isneginf(both.offsets[5:, 2:]).all() and (both.offsets[:5] == 0).all()
    for name in ("log_likelihood", "score", "information"):
        parts = getattr(first, name)(theta) + getattr(second, name)(theta)
        np.testing.assert_allclose(getattr(both, name)(theta), parts, atol=1e-12)
    np.testing.assert_allclose(both.select(np.arange(8) > 4).score(theta), second.score(theta), atol=1e-13)
    np.testing.assert_allclose(both.select([0, 2]).log_likelihood(theta), first.select([0, 2]).log_likelihood(theta))
    with pytest.raises(ValueError, match="at least one Terms"):
        Terms.concatenate([])
    with pytest.raises(ValueError, match="same number of features"):
        Terms.concatenate([first, Terms(np.zeros((0, 2, 2)), np.zeros((0, 2)), np.zeros(0, dtype=int))])
    with pytest.raises(ValueError, match="mask of shape"):
        both.select(np.ones(3, dtype=bool))


def test_what_stands_in_an_absent_place_does_not_matter():
    options, theta = problem(20, n=6)
    terms = Ranking().terms(options, [Response.ranking(order) for order in np.argsort(options[..., 0], axis=1)])
    rows = terms.rows.copy()
    rows[np.isneginf(terms.offsets)] = 1e6
    changed = Terms(rows, terms.offsets, terms.chosen)
    for name in ("log_likelihood", "score", "information"):
        np.testing.assert_array_equal(getattr(changed, name)(theta), getattr(terms, name)(theta))


def test_one_alternative_says_nothing():
    terms = Terms(np.ones((2, 1, 3)), np.zeros((2, 1)), np.zeros(2, dtype=int))
    assert terms.log_likelihood(np.ones(3)) == 0.0
    assert not terms.score(np.ones(3)).any() and not terms.information(np.ones(3)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.zeros((2, 0, 3))}, "at least 1 alternative"),
        ({"rows": np.full((2, 2, 3), np.nan)}, "NaN"),
        ({"offsets": np.zeros((2, 3))}, "offsets of shape"),
        ({"offsets": np.array([[0, np.inf], [0, 0]])}, "NaN or"),
        ({"offsets": np.array([[0, np.nan], [0, 0]])}, "NaN or"),
        ({"offsets": np.array([[0, 0], [-np.inf, 0]])}, "absent one in term 1"),
        ({"chosen": np.array([0, 2])}, "chosen"),
        ({"chosen": np.array([0])}, "one for each of the 2 terms"),
    ],
)
def test_terms_that_make_no_sense(changes, message):
    fields = {"rows": np.zeros((2, 2, 3)), "offsets": np.zeros((2, 2)), "chosen": np.array([1, 0])}
    with pytest.raises(ValueError, match=message):
        Terms(**(fields | changes))


def test_terms_are_read_only():
    terms = Terms(np.zeros((2, 2, 3)), np.zeros((2, 2)), np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match="read-only"):
        terms.rows[0, 0, 0] = 1.0
