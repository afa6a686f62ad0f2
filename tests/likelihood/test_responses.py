"""Answer formats: probabilities, likelihood, Fisher information and draws, each against an independent computation."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.likelihood import (
    KINDS,
    AnswerFormat,
    BestOf,
    BestWorst,
    PartialRanking,
    Ranking,
    Response,
    Terms,
    WithTies,
    make_format,
)
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information

MODELS = [BestOf(), BestWorst(), Ranking(), PartialRanking(2), WithTies(0.7)]
model_of_each_kind = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def problem(seed, n=4, num_options=4, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)


def slow_probability(model, features, theta, response):
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


def test_constructors_and_what_they_name():
    assert Response.best(2) == Response("best", (2,))
    assert Response.best_worst(2, 0) == Response("best_worst", (2, 0))
    assert Response.ranking([1, 0, 2]) == Response("ranking", (1, 0, 2))
    assert Response.tie() == Response("tie") and Response.skip() == Response("skip")
    assert Response.partial([3, 1]) == Response("partial", (3, 1))
    firsts = [Response.best(2), Response.best_worst(1, 0), Response.ranking([1, 0]), Response.partial([4])]
    firsts += [Response.tie(), Response.skip()]
    assert [response.first for response in firsts] == [2, 1, 1, 4, None, None]
    assert len({Response.best(np.int64(1)), Response.best(1)}) == 1
    firsts.append(Response.rating([2]))
    assert firsts[-1].first is None and firsts[-1].numbers == (3,)
    assert {response.kind for response in firsts} == set(KINDS)


@given(st.sampled_from(KINDS), st.permutations(range(4)))
def test_json_round_trip(kind, order):
    length = {"best": 1, "best_worst": 2, "ranking": 4, "partial": 3}.get(kind, 0)
    response = Response.rating(order) if kind == "rating" else Response(kind, tuple(order[:length]))
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
    "value",
    [
        *({"kind": "best"}, {"kind": "best", "order": [9], "more": 1}, {"kind": [], "order": []}),
        *(None, "best", {"kind": "best", "order": "0"}, {"kind": "best", "order": None}),
    ],
)
def test_json_that_is_no_response(value):
    with pytest.raises((ValueError, TypeError), match="Expected"):
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
    assert isinstance(model, AnswerFormat)
    assert make_format(model.name, nu=0.7, taps=2) == model
    assert {outcome.kind for outcome in model.outcomes(4)} <= set(model.kinds)
    with pytest.raises(ValueError, match="'best', 'best_worst', 'ranking', 'partial', 'ties'"):
        make_format("worst")


def test_davidson():
    """nu -> 0 is the plain logit; without a taste nu / (K + nu) ties."""
    options, theta = problem(8)
    small = WithTies(1e-12)
    np.testing.assert_allclose(
        small.probabilities(options, theta)[:, :4], choice_probabilities(options, theta), atol=1e-11
    )
    assert small.probabilities(options, theta)[:, 4].max() < 1e-11
    np.testing.assert_allclose(small.information(options, theta), fisher_information(options, theta), atol=1e-10)
    np.testing.assert_allclose(WithTies(2.0).probabilities(options, 0 * theta)[:, 4], 2.0 / 6.0)


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


def least(matrix):
    return float(np.linalg.eigvalsh(matrix)[0])


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(0.05, 8.0))
def test_richer_answers_carry_at_least_as_much(seed, num_options, spread):
    values = spread * np.random.default_rng(seed).normal(size=num_options)
    best, best_worst, ranking = (model.weights(values[None])[0] for model in (BestOf(), BestWorst(), Ranking()))
    assert least(ranking - best) > -1e-12 and least(best_worst - best) > -1e-12
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


@model_of_each_kind
@pytest.mark.parametrize("num_options", [2, 3, 4])
def test_one_draw_decides_the_whole_answer(model, num_options):
    """An even grid of draws gives each outcome its share to the width of the grid: no draw is used twice."""
    options, theta = problem(14, n=1, num_options=num_options)
    count = 2_000
    responses = model.sample(np.repeat(options, count, axis=0), theta, (np.arange(count) + 0.5) / count)
    shares = np.array([responses.count(outcome) for outcome in model.outcomes(num_options)]) / count
    np.testing.assert_allclose(shares, model.probabilities(options, theta)[0], atol=1.01 / count)


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
        (BestWorst(), Response.partial([0])),
        (Ranking(), Response.partial([0, 1, 2, 3])),
        (PartialRanking(), Response.tie()),
        (PartialRanking(), Response.best_worst(0, 1)),
    ],
)
def test_responses_that_a_model_does_not_know(model, response):
    options, _ = problem(0, n=2)
    message = f"model '{model.name}' takes only .* or 'skip', got '{response.kind}' at question 1"
    with pytest.raises(ValueError, match=message):
        model.terms(options, [Response.best(0), response])


BEST, OPTIONS, THETA = BestOf(), *problem(0, n=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda nu=nu: WithTies(nu), "nu") for nu in (0.0, -1.0, np.nan)),
        *(
            (lambda draws=draws: BEST.sample(OPTIONS, THETA, draws), "Expected")
            for draws in ([0.1, 1.0], [-0.1, 0.5], [0.5], [np.nan, 0.5])
        ),
        (lambda: Ranking().outcomes(9), "at most 8 options to list all rankings, got K = 9"),
        (lambda: Ranking().weights(np.zeros((1, 13))), "at most 12 options"),
        (lambda: BEST.terms(OPTIONS, [Response.best(0)]), "one response for each of the 2 questions, got 1"),
        (lambda: BEST.terms(OPTIONS, [Response.best(0), Response.best(4)]), r"0\.\.3"),
        (lambda: BEST.terms(OPTIONS, [Response.best(0), 1]), "at question 1"),
        (lambda: BEST.probabilities(OPTIONS, THETA[:2]), "theta"),
        (lambda: BEST.information(OPTIONS, THETA[:2]), "theta"),
        (lambda: BEST.information(OPTIONS[:, :1], THETA), "at least 2 options"),
        (lambda: BEST.weights(np.zeros((3, 1))), "at least 2 options"),
        (lambda: Terms.concatenate([]), "at least one Terms"),
        (lambda: PartialRanking(0), "taps"),
        (lambda: PartialRanking(1.5), "taps"),
        (lambda: PartialRanking(True), "taps"),
        (lambda: PartialRanking(5).outcomes(12), "at most 40,320 orders to list, got 95,040 of 5 taps among K = 12"),
        (lambda: PartialRanking(20).weights(np.zeros((1, 13))), "at most 4,096 sets .* got 8,178 before 12 taps among"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


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
    with pytest.raises(ValueError, match="read-only"):
        changed.rows[0, 0, 0] = 1.0
    for name in ("log_likelihood", "score", "information"):
        np.testing.assert_array_equal(getattr(changed, name)(theta), getattr(terms, name)(theta))


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
