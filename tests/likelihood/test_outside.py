"""The outside option: a skip that tells something, against the plain definition, enumeration and draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import BestOf, Response, ResponseModel, WithOutside
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information


def problem(seed, n=4, num_options=4, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d), rng.normal(size=d)


def by_hand(options, theta, reference, offset):
    """exp(theta . (x - r)) beside exp(c), one question after the other."""
    weights = np.exp(np.array([[theta @ (row - reference) for row in question] for question in options]))
    weights = np.concatenate([weights, np.full((len(options), 1), np.exp(offset))], axis=1)
    return weights / weights.sum(axis=1, keepdims=True)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-4, 4), st.floats(0.05, 4.0))
def test_probabilities_terms_and_information(seed, num_options, offset, spread):
    options, theta, reference = problem(seed, num_options=num_options, spread=spread)
    model = WithOutside(offset, reference)
    assert isinstance(model, ResponseModel) and set(model.kinds) == {"best", "skip"}
    outcomes, p = model.outcomes(num_options), model.probabilities(options, theta)
    assert outcomes == (*(Response.best(k) for k in range(num_options)), Response.skip())
    np.testing.assert_allclose(p, by_hand(options, theta, reference, offset), rtol=1e-9)
    information = np.zeros((3, 3))
    for question, row in enumerate(p):
        for outcome, chance in zip(outcomes, row, strict=True):
            term = model.terms(options[question, None], [outcome])
            assert term.log_likelihood(theta) == pytest.approx(np.log(chance), abs=1e-9)
            information += chance * np.outer(term.score(theta), term.score(theta))
    np.testing.assert_allclose(model.information(options, theta), information, atol=1e-9 * (1 + spread**2))
    levels = (options - reference) @ theta
    about = options - reference
    weighted = np.einsum("nki,nkl,nlj->ij", about, model.weights(levels), about)
    np.testing.assert_allclose(weighted, information, atol=1e-9 * (1 + spread**2))
    np.testing.assert_allclose(model.weights(levels).sum(axis=2), p[:, :-1] * p[:, -1:], atol=1e-12)


def test_the_gradient_by_finite_differences():
    options, theta, reference = problem(1, n=12)
    model = WithOutside(0.4, reference)
    answers = model.sample(options, theta, np.random.default_rng(0).random(12))
    assert {answer.kind for answer in answers} == {"best", "skip"}
    terms = model.terms(options, answers)
    assert len(terms) == 12  # the skips count
    moves = 1e-5 * np.eye(3)
    slope = [(terms.log_likelihood(theta + e) - terms.log_likelihood(theta - e)) / 2e-5 for e in moves]
    np.testing.assert_allclose(terms.score(theta), slope, atol=1e-7)
    bend = [(terms.score(theta + e) - terms.score(theta - e)) / 2e-5 for e in moves]
    np.testing.assert_allclose(terms.information(theta), -np.array(bend), atol=1e-6)


def test_without_an_outside_it_is_best_of_k_and_the_level_counts():
    options, theta, reference = problem(2)
    never = WithOutside(-60.0, reference)
    np.testing.assert_allclose(never.probabilities(options, theta)[:, :4], choice_probabilities(options, theta))
    np.testing.assert_allclose(never.information(options, theta), fisher_information(options, theta), atol=1e-12)
    model = WithOutside(0.5, reference)
    np.testing.assert_allclose(
        WithOutside(0.5, reference + 1.0).probabilities(options + 1.0, theta), model.probabilities(options, theta)
    )
    moved = model.probabilities(options + 0.3 * theta, theta)[:, 4]  # all options better by 0.3 |theta|^2
    assert (moved < model.probabilities(options, theta)[:, 4]).all()
    np.testing.assert_allclose(WithOutside(np.log(2.0), reference).probabilities(options, 0 * theta)[:, 4], 2 / 6)
    np.testing.assert_allclose(model.information(options), model.information(options, 0 * theta))


def test_draws_have_the_probabilities_and_the_most_probable_answer():
    options, theta, reference = problem(3, n=1)
    model, count = WithOutside(0.6, reference), 20_000
    drawn = model.sample(np.repeat(options, count, axis=0), theta, np.random.default_rng(4).random(count))
    seen = [drawn.count(outcome) for outcome in model.outcomes(4)]
    assert chisquare(seen, count * model.probabilities(options, theta)[0]).pvalue > 1e-4
    levels = (options[0] - reference) @ theta
    assert model.sample(options, theta, None) == [
        Response.best(int(levels.argmax())) if levels.max() >= 0.6 else Response.skip()
    ]
    assert WithOutside(99.0, reference).sample(options, theta, None) == [Response.skip()]


def test_wrong_arguments_and_what_files_say():
    options, theta, reference = problem(4)
    model = WithOutside(0.5, reference)
    with pytest.raises(ValueError, match="'outside' takes only 'best' or 'skip', got 'tie' at question 1"):
        model.terms(options[:2], [Response.skip(), Response.tie()])
    with pytest.raises(ValueError, match=r"reference.*4 features"):
        model.terms(np.zeros((1, 2, 4)), [Response.skip()])
    with pytest.raises(ValueError, match="offset"):
        WithOutside(np.inf, reference)
    with pytest.raises(ValueError, match="reference"):
        WithOutside(0.0, [np.nan])
    assert repr(model) == repr(WithOutside(0.5, reference.copy())) != repr(WithOutside(0.5, reference + 1e-9))
    told = Comparisons(options, (Response.skip(),) * 4, np.arange(4), np.zeros(4, dtype=int))
    assert len(told.terms(model)) == 4 and len(told.terms(BestOf())) == 0
