"""Estimates from questions with different numbers of options, against logits written from the formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp
from scipy.stats import norm

import edpbrl_gym as eg
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import (
    GaussianPrior,
    Posterior,
    VocabularyPrior,
    attribute_prior,
    choice_accuracy,
    estimate,
    fit_posterior,
    fit_prior,
)
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.likelihood import Ranking, Response

D = 3
SIZES = st.lists(st.integers(2, 6), min_size=1, max_size=12)


def made(sizes, seed=0, d=D, taste=None):
    """Options (float32, as Comparisons keep them) and choices of a person."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d) if taste is None else taste
    options = [rng.normal(size=(size, d)).astype(np.float32) for size in sizes]
    return options, [int(np.argmax(one @ theta + rng.gumbel(size=len(one)))) for one in options]


def record(options, choices, **fields):
    n = len(options)
    return Comparisons.of_choices(options, choices, np.arange(n), np.zeros(n, int), **fields)


def loss(theta, options, choices, regularization):
    logs = [(one.astype(np.float64) @ theta)[pick] - logsumexp(one.astype(np.float64) @ theta)
            for one, pick in zip(options, choices, strict=True)]  # fmt: skip
    return -sum(logs) + 0.5 * regularization * theta @ theta


@settings(max_examples=30)
@given(SIZES, st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]))
def test_an_independent_logit_gives_the_same(sizes, seed, regularization):
    options, choices = made(sizes, seed)
    best = minimize(loss, np.zeros(D), args=(options, choices, regularization), method="BFGS", tol=1e-10)
    data = record(options, choices)
    for found in (
        estimate(data, regularization=regularization),
        estimate(options, choices, regularization=regularization),
        estimate((options, choices), regularization=regularization),
    ):
        assert found.converged
        np.testing.assert_allclose(found.theta, best.x, atol=2e-5)
        assert -found.log_posterior == pytest.approx(loss(found.theta, options, choices, regularization), abs=1e-9)
    assert np.array_equal(estimate(data).theta, estimate(options, choices).theta)


@settings(max_examples=30)
@given(SIZES, st.integers(0, 10**6), st.booleans())
def test_score_and_information_are_derivatives(sizes, seed, ranked):
    options, choices = made(sizes, seed)
    data = record(options, choices)
    if ranked:
        rng = np.random.default_rng(seed)
        responses = [Response.ranking(rng.permutation(size).tolist()) for size in sizes]
        terms = Comparisons(options, tuple(responses), data.episode, data.step).terms(Ranking())
    else:
        terms = answer_terms(data)
    theta = np.random.default_rng(1).normal(size=D)
    slope = approx_fprime(theta, terms.log_likelihood, 1e-6)
    np.testing.assert_allclose(terms.score(theta), slope, atol=1e-3)
    curvature = np.array([approx_fprime(theta, lambda t, i=i: terms.score(t)[i], 1e-6) for i in range(D)])
    np.testing.assert_allclose(terms.information(theta), -curvature, atol=1e-3)


@pytest.mark.parametrize(
    "fit",
    [
        lambda data: fit_prior(data, base=GaussianPrior.isotropic(D, 1.0)).estimate,
        lambda data: fit_posterior(data, base=GaussianPrior.isotropic(D, 1.0)).posterior,
        lambda data: VocabularyPrior(np.random.default_rng(3).normal(size=(40, D))).fit(data).estimate,
    ],
)
def test_every_estimator_takes_them(fit):
    """Splitting the likelihood by size and joining it again is the same data."""
    options, choices = made([2, 4, 3, 2, 5] * 6, taste=np.array([1.0, -2.0, 0.5]))
    found = fit(record(options, choices))
    mean = found.theta if hasattr(found, "theta") else found.mean
    assert np.isfinite(mean).all() and mean[0] > 0 > mean[1]
    order = np.argsort([len(one) for one in options], kind="stable")
    sorted_record = record([options[i] for i in order], [choices[i] for i in order])
    again = fit(sorted_record)
    np.testing.assert_allclose(mean, again.theta if hasattr(again, "theta") else again.mean, atol=1e-4)


def test_accuracy_on_held_out_questions():
    options, choices = made([2, 4, 3, 2], seed=5)
    theta = np.array([-0.5, -1.0, 2.0])
    worse = [one - 10.0 * np.sign(theta).astype(np.float32) for one in options]  # all utilities below that of padding
    by_hand = np.mean([np.argmax(one @ theta) == pick for one, pick in zip(worse, choices, strict=True)])
    assert choice_accuracy(record(worse, choices), theta) == by_hand
    tied = record([np.zeros((2, D)), np.zeros((4, D))], [1, 2])
    assert choice_accuracy(tied, theta) == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_a_population_of_people_with_uneven_questions():
    rng = np.random.default_rng(0)
    sizes = [2, 4, 3, 2]
    people = [record(*made(sizes, seed=i, d=1, taste=np.array([1.5 + 0.5 * rng.normal()]))) for i in range(40)]
    population = fit_population(people, kind="gaussian", minimum_people=5)
    part = population.gaussian
    mean, deviation = float(part.mean[0]), float(np.sqrt(part.covariance[0, 0]))
    assert 0.7 < mean < 2.5
    person = people[0]

    def density(theta):
        value = -loss(np.array([theta]), [row.options for row in person], person.choice, 0.0)
        return np.exp(value) * norm.pdf(theta, mean, deviation)

    expected, _ = quad(density, mean - 9 * deviation, mean + 9 * deviation)
    assert population.log_evidence(person) == pytest.approx(np.log(expected), abs=0.02)


def frame(options, choices, **columns):
    import pandas

    rows = [
        {"question": i, "option": k, "price": float(one[k, 0]), "size": float(one[k, 1]), "age": float(one[k, 2])}
        for i, one in enumerate(options)
        for k in range(len(one))
    ]
    table = pandas.DataFrame(rows).assign(**columns)
    return table, [row["option"] == choices[row["question"]] for row in rows]


@pytest.mark.needs("experiments")
def test_tables_give_what_files_and_arrays_give(tmp_path):
    import pandas

    options, choices = made([2, 4, 3, 2, 5])
    table, chosen = frame(options, choices)
    long = table.assign(chosen=chosen)
    expected = estimate(options, choices)
    long.to_csv(tmp_path / "long.csv", index=False)
    indexed = table.set_index(["question", "option"])
    shuffled = pandas.Series(choices, index=range(5)).sample(frac=1, random_state=0)
    for found in (
        estimate(long),
        estimate(table, choices),
        estimate(indexed, np.array(choices)),
        estimate(indexed, chosen),
        estimate(indexed, pandas.Series(chosen, index=indexed.index)),
        estimate(indexed, shuffled),
        estimate((table, choices)),
        estimate(eg.load_comparisons(tmp_path / "long.csv")),
        estimate(table.drop(columns="option"), choices),
    ):
        np.testing.assert_array_equal(found.theta, expected.theta)
        assert found.attributes == ("price", "size", "age")
    names = table.assign(option=table.option.map({0: "a", 1: "b", 2: "c", 3: "d", 4: "e"}))
    np.testing.assert_array_equal(estimate(names, ["abcde"[k] for k in choices]).theta, expected.theta)
    assert fit_prior(long, base=GaussianPrior.isotropic(D, 1.0)).scale > 0


@pytest.mark.needs("experiments")
@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda t, y, c: estimate(t, y[:-1]), ValueError, "for each of the 3 questions, .* each of the 8 rows"),
        (lambda t, y, c: estimate(t, [0, 1, 9]), ValueError, r"name of an option \(0, 1, 2\) for question 2, got 9"),
        (lambda t, y, c: estimate(t.drop(columns="option"), [0, 1, 3]), ValueError, r"0\.\.2 of question 2, got 3"),
        (lambda t, y, c: estimate(t.drop(columns="question"), y), ValueError, "the question as a column"),
        (lambda t, y, c: estimate(t), ValueError, "lacks chosen"),
        (lambda t, y, c: estimate(t.assign(chosen=c), y), ValueError, "got the column chosen; drop it"),
        (lambda t, y, c: estimate(t.assign(chosen=c, person=list("aaaaabbb"))), ValueError, "one person .*2 people"),
        (lambda t, y, c: estimate(t, [2] * 8), ValueError, "a truth value for each of the 8 rows"),
        (lambda t, y, c: estimate(t.assign(price=["high", "low"] * 4), y), ValueError, "number in the column price"),
        (lambda t, y, c: estimate(t.assign(price=[1, "a"] * 4), y), ValueError, "one type in each column"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit(call, error, said):
    options, choices = made([2, 3, 3])
    table, chosen = frame(options, choices)
    with pytest.raises(error, match=said):
        call(table, choices, chosen)


@pytest.mark.needs("experiments")
def test_a_table_of_many_people_is_no_list_of_people():
    options, choices = made([2, 3, 3])
    table, chosen = frame(options, choices)
    with pytest.raises(TypeError, match=r"got DataFrame; give load_people\(table\)"):
        fit_population(table.assign(chosen=chosen))
    tables = [
        frame(*made([2, 3, 4, 2], seed=i))[0].assign(chosen=frame(*made([2, 3, 4, 2], seed=i))[1]) for i in range(6)
    ]
    found = fit_population(tables, kind="gaussian", minimum_people=5)
    assert found.people == 6 and found.dimension == 3


@pytest.mark.parametrize("units", [[1000.0, 0.01, 1.0], [1e-4, 1.0, 1e5], [1e6, 1e-6, 1e4]])
def test_a_prior_for_attributes_does_not_depend_on_their_units(units):
    options, choices = made([2, 4, 3] * 5)
    units = np.array(units, dtype=np.float32)
    one, other = record(options, choices), record([each * units for each in options], choices)
    first, second = (estimate(data, prior=attribute_prior([data])) for data in (one, other))
    np.testing.assert_allclose(first.theta, second.theta * units, rtol=1e-4)
    first, second = (fit_prior(data, base=attribute_prior([data])).estimate for data in (one, other))
    np.testing.assert_allclose(first.theta, second.theta * units, rtol=1e-3)
    spread = np.concatenate(options).std(axis=0)
    np.testing.assert_allclose(np.diag(attribute_prior([one]).precision), spread**2, rtol=1e-5)
    same = record([np.column_stack([each[:, :2], np.full(len(each), 7.0)]) for each in options], choices)
    assert attribute_prior([same]).precision[2, 2] == 1.0


def test_predictions_are_those_of_the_formula():
    options, choices = made([2, 4, 3])
    data = record(options, choices)
    found = estimate(data)
    by_hand = [np.exp(one @ found.theta - logsumexp(one @ found.theta)) for one in options]
    for questions in (data, data.queries, options):
        chances, values = found.predict(questions), found.predict(questions, output="utilities")
        assert chances.shape == values.shape == (3, 4)
        for row, value, one, expected in zip(chances, values, options, by_hand, strict=True):
            np.testing.assert_allclose(row[: len(one)], expected, atol=1e-6)
            np.testing.assert_allclose(value[: len(one)], one @ found.theta, atol=1e-6)
            assert not row[len(one) :].any() and np.isneginf(value[len(one) :]).all()
    np.testing.assert_allclose(found.predict(options[1]), by_hand[1], atol=1e-6)  # one question
    np.testing.assert_allclose(found.predict(options[1].tolist()), by_hand[1], atol=1e-6)
    cube = np.random.default_rng(0).normal(size=(5, 3, D))
    from edpbrl_gym.likelihood.choice import choice_probabilities

    np.testing.assert_allclose(found.predict(cube), choice_probabilities(cube, found.theta), atol=1e-12)
    assert found.predict(Comparisons.empty(3, D)).shape == (0, 3)
    averaged = Posterior.from_estimate(found).choice_probabilities(options)
    assert averaged.shape == (3, 4) and averaged[0, 2:].tolist() == [0, 0]
    np.testing.assert_allclose(averaged.sum(axis=1), 1.0)
    np.testing.assert_array_equal(averaged, Posterior.from_estimate(found).choice_probabilities(data))


def test_expected_accuracy_of_uneven_questions_is_the_mean_of_their_own():
    options, choices = made([2, 4, 3, 2], seed=2)
    worse = [one - np.float32(5.0) for one in options]
    posterior = Posterior.from_estimate(estimate(options, choices))
    together = posterior.expected_accuracy(record(worse, choices), draws=20_000)
    alone = [posterior.expected_accuracy(one[None], draws=20_000) for one in worse]
    assert together == pytest.approx(np.mean(alone), abs=0.01)


@pytest.mark.needs("experiments")
def test_predictions_for_tables():
    options, choices = made([2, 4, 3])
    table, chosen = frame(options, choices)
    found = estimate(table.assign(chosen=chosen))
    flat = np.concatenate([row[: len(one)] for row, one in zip(found.predict(options), options, strict=True)])
    table.index = [f"row {i}" for i in range(9)]
    for some in (table, table[["age", "option", "size", "question", "price"]], table.assign(chosen=chosen, extra="x")):
        predicted = found.predict(some)
        assert predicted.index.tolist() == table.index.tolist() and predicted.name == "probabilities"
        np.testing.assert_allclose(predicted.to_numpy(), flat, atol=1e-6)
    alone = found.predict(table[table.question == 1][["price", "size", "age"]])
    np.testing.assert_allclose(alone.to_numpy(), found.predict(options[1]), atol=1e-6)
    values = found.predict(table, output="utilities")
    np.testing.assert_allclose(values.to_numpy(), np.concatenate(options) @ found.theta, atol=1e-6)
    with pytest.raises(ValueError, match="3 features price, size, age as columns .*got price, age"):
        found.predict(table.drop(columns="size"))
    nameless = estimate(options, choices)
    np.testing.assert_allclose(nameless.predict(table).to_numpy(), flat, atol=1e-6)
    with pytest.raises(ValueError, match="the 3 features .*got price, size, age, more"):
        nameless.predict(table.assign(more=1.0))
