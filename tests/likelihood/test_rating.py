"""Ratings: the model against its definition, quadrature and simulation; files and typed text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.comparisons.question_files import read_answers
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.likelihood import FORMATS, Response, format_of, make_format
from edpbrl_gym.oracles import ImperfectUser
from edpbrl_gym.session.typed import AnswerForm, Taps, in_words
from tests.helpers.encoders import CountingEncoder

TAU = (-1.5, -0.2, 0.4, 2.0)


def rating(levels=5, thresholds=None, **more):
    return make_format("rating", levels=levels, thresholds=thresholds, **more)


def definition(v, tau):
    """P(l), l = 0..L-1, from the odds of neighbouring levels."""
    odds = [1.0]
    for threshold in tau:
        odds.append(odds[-1] * np.exp(v - threshold))
    return np.array(odds) / sum(odds)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 7), st.floats(0.01, 30.0))
def test_probabilities_are_the_definition_and_sum_to_one(seed, count, levels, spread):
    rng = np.random.default_rng(seed)
    tau = tuple(rng.normal(size=levels - 1))
    model = rating(levels, tau)
    options, theta = spread * rng.normal(size=(2, count, 3)), rng.normal(size=3)
    p = model.probabilities(options, theta)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-11)
    for place, outcome in list(enumerate(model.outcomes(count)))[:: max(1, levels**count // 20)]:
        terms = model.terms(options, [outcome, outcome])
        assert terms.dimension == 3 and len(terms) == 2 * count
        if p[:, place].min() > 1e-290:  # smaller numbers have fewer digits
            assert terms.log_likelihood(theta) == pytest.approx(np.log(p[:, place]).sum(), abs=1e-9)
        if spread < 3:
            each = [
                definition(float(x @ theta), tau)[level] for x, level in zip(options[0], outcome.levels, strict=True)
            ]
            assert p[0, place] == pytest.approx(np.prod(each), rel=1e-9)


def test_two_levels_are_a_logistic_regression():
    rng = np.random.default_rng(0)
    options, theta = rng.normal(size=(9, 1, 2)), rng.normal(size=2)
    p = make_format("like", thresholds=(0.7,)).probabilities(options, theta)
    np.testing.assert_allclose(p[:, 1], expit(options[:, 0] @ theta - 0.7), rtol=1e-12)


def test_gradient_and_information_by_differences():
    rng = np.random.default_rng(1)
    options, theta = rng.normal(size=(40, 2, 3)), rng.normal(size=3)
    model = rating(5, TAU)
    free = rating(5).terms(options, model.sample(options, theta, rng.random(40)))
    point, moves = np.concatenate([theta, TAU]), 1e-5 * np.eye(7)
    slope = [(free.log_likelihood(point + e) - free.log_likelihood(point - e)) / 2e-5 for e in moves]
    np.testing.assert_allclose(free.score(point), slope, atol=1e-6)
    bend = [(free.score(point + e) - free.score(point - e)) / 2e-5 for e in moves]
    np.testing.assert_allclose(free.information(point), -np.array(bend), atol=1e-5)
    known = free.at(TAU)
    assert known.log_likelihood(theta) == pytest.approx(free.log_likelihood(point), abs=1e-10)
    # of the adjacent-category logit the observed information is the expected one
    np.testing.assert_allclose(model.information(options, theta), known.information(theta), rtol=1e-9)
    values = options @ theta
    np.testing.assert_allclose(
        np.einsum("nki,nkl,nlj->ij", options, model.weights(values), options), model.information(options, theta)
    )


def answered(model, n, d, seed, count=1, scale=1.5):
    rng = np.random.default_rng(seed)
    theta = scale * rng.normal(size=d)
    options = rng.normal(size=(n, count, d))
    return options, theta, model.sample(options, theta, rng.random(n))


@pytest.mark.parametrize("name", ["rating", "like"])
def test_taste_and_thresholds_are_recovered_with_honest_intervals(name):
    """2,000 answers: small errors; over seeds, 95% intervals cover 95% of the parameters."""
    tau = TAU if name == "rating" else (0.8,)
    model, learnt = make_format(name, thresholds=tau), make_format(name)
    options, theta, answers = answered(model, 2000, 4, seed=0)
    found = estimate((options, answers), model=learnt, regularization=0.01)
    assert found.converged
    np.testing.assert_allclose(found.theta, theta, atol=0.35)
    np.testing.assert_allclose(found.own, tau, atol=0.45)
    hits = []
    for seed in range(60):
        options, theta, answers = answered(model, 150, 3, seed=seed)
        found = estimate((options, answers), model=learnt, regularization=0.05)
        errors = np.sqrt(np.diagonal(found.covariance()))
        hits += [*(np.abs(found.theta - theta) < 1.96 * errors), *(np.abs(found.own - tau) < 1.96 * found.own_errors)]
    assert 0.90 < np.mean(hits) < 0.99


@pytest.mark.parametrize("d", [1, 2])
def test_the_posterior_is_that_of_quadrature(d):
    """Laplace's posterior of theta, thresholds integrated out, against a grid over theta and two thresholds."""
    options, theta, answers = answered(rating(3, (-0.5, 0.6)), 200, d, seed=3, scale=0.7)
    learnt = rating(3)
    found = estimate((options, answers), model=learnt, prior=GaussianPrior.isotropic(d, 1.0))
    terms = learnt.terms(options, answers)
    errors = [*np.sqrt(np.diagonal(found.covariance())), *found.own_errors]
    axes = [m + np.linspace(-4.5, 4.5, 15) * e for m, e in zip([*found.theta, *found.own], errors, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d + 2)
    differences, offsets = terms.differences()
    values = np.einsum("mjk,pk->pmj", differences, points) + offsets
    logs = -np.log1p(np.exp(values).sum(axis=2)).sum(axis=1)
    logs -= 0.5 * (points[:, :d] ** 2).sum(axis=1) + 0.5 * (points[:, d:] ** 2).sum(axis=1) / 25.0
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = mass @ points
    deviation = np.sqrt(mass @ (points - mean) ** 2)
    assert (np.abs(mean - [*found.theta, *found.own]) < 0.3 * deviation).all()
    np.testing.assert_allclose(errors, deviation, rtol=0.1)


def test_thresholds_are_put_in_where_only_the_taste_is_estimated():
    options, theta, answers = answered(rating(5, TAU), 400, 3, seed=5)
    terms = answer_terms((options, answers), rating(5))
    assert terms.dimension == 3 and len(terms.own) == 0
    np.testing.assert_allclose(terms.known, TAU, atol=0.8)
    free = rating(5).terms(options, answers)
    assert len(free[:7].own) == 4 and len(type(free).concatenate([free[:3], free[3:9]]).own) == 4
    with pytest.raises(ValueError, match="shape"):
        free.at([1.0])


def test_users_rate_and_err():
    options = np.random.default_rng(0).normal(size=(2000, 1, 2))
    queries = Queries(options.astype(np.float32), np.arange(2000), np.zeros(2000, int))
    user = ImperfectUser([1.0, -2.0], mode="sampled", scale=1.5, response=rating(4, (-1.0, 0.0, 1.5)), seed=2)
    levels = np.array([answer.levels[0] for answer in user.answer(queries).responses])
    expected = np.stack([definition(v, (-1.0, 0.0, 1.5)) for v in 1.5 * options[:, 0] @ [1.0, -2.0]])
    np.testing.assert_allclose(np.bincount(levels, minlength=4) / 2000, expected.mean(axis=0), atol=0.04)
    assert user.describe()["levels"] == 4
    sure = ImperfectUser([1.0, -2.0], response="like").answer(queries).responses
    assert [one.levels[0] for one in sure] == (options[:, 0] @ [1.0, -2.0] > 0).astype(int).tolist()
    wrong = ImperfectUser([1.0, -2.0], response="like", mistake_rate=1.0).answer(queries).responses
    assert all(one != other for one, other in zip(sure, wrong, strict=True))


@given(st.integers(1, 4), st.integers(2, 7), st.data())
def test_levels_survive_text_json_and_keys(count, levels, data):
    given_levels = data.draw(st.lists(st.integers(0, levels - 1), min_size=count, max_size=count))
    answer = Response.rating(given_levels)
    assert Response.from_json(answer.as_json()) == answer
    form = AnswerForm(rating(levels), count)
    assert form.read(in_words(answer)) == answer
    taps = Taps(form)
    pressed = [taps.press(str(level + 1)) for level in given_levels]
    assert pressed[-1] == answer and pressed[:-1] == [None] * (count - 1)


def test_typed_levels_that_are_none():
    form = AnswerForm.named("rating", 1)
    for line in ("0", "6", "1 2", "x", ""):
        with pytest.raises(ValueError, match=r"Expected a number from 1 to 5.*u \(undo\)"):
            form.read(line)
    with pytest.raises(ValueError, match="2 numbers from 1 to 2"):
        AnswerForm.named("like", 2).read("1")


@pytest.mark.parametrize("count", [1, 3])
def test_files(tmp_path, count):
    rng = np.random.default_rng(0)
    answers = [Response.rating(rng.integers(5, size=count).tolist()) for _ in range(6)] + [Response.skip()]
    found = Comparisons(rng.normal(size=(7, count, 3)), tuple(answers), np.arange(7), np.zeros(7, int))
    found.to_parquet(tmp_path / "a.parquet")
    assert Comparisons.from_parquet(tmp_path / "a.parquet") == found
    options = [f"option_{place + 1}" for place in range(count)]
    rows = [
        ",".join([*(f"word {i}{k}" for k in range(count)), " ".join(map(str, one.numbers))])
        for i, one in enumerate(answers)
    ]
    (tmp_path / "q.csv").write_text("\n".join([",".join([*options, "rating"]), *rows]) + "\n")
    read, left = read_answers(tmp_path / "q.csv", CountingEncoder(8))
    assert list(read.responses) == answers[:6] and left == 1
    assert format_of(read.responses).name == "rating"
    (tmp_path / "q.csv").write_text("\n".join([",".join([*options, "rating"]), ",".join(["word"] * count + ["8"])]))
    with pytest.raises(ValueError, match=r"1\.\.7"):
        read_answers(tmp_path / "q.csv", CountingEncoder(8))


def test_a_data_frame_has_levels_from_one():
    pytest.importorskip("pandas", reason="data frames are of the extra experiments")
    answers = [Response.rating([0, 4]), Response.skip(), Response.rating([2, 1])]
    found = Comparisons(np.zeros((3, 2, 2)), tuple(answers), np.arange(3), np.zeros(3, int))
    assert found.to_pandas()["level"].dropna().tolist() == [1, 5, 3, 2]


def test_other_answers_are_refused():
    options = np.zeros((1, 1, 2))
    with pytest.raises(ValueError, match="takes only 'rating'"):
        rating().terms(np.zeros((1, 2, 2)), [Response.best(0)])
    with pytest.raises(ValueError, match=r"levels in 0\.\.1"):
        make_format("like").terms(options, [Response.rating([3])])
    for bad in ({"levels": 8}, {"levels": 1}, {"thresholds": (1.0,)}, {"spread": 0.0}):
        with pytest.raises(ValueError, match="Expected"):
            rating(**bad)
    with pytest.raises(ValueError, match="levels"):
        Response("rating")
    with pytest.raises(ValueError, match="levels"):
        Response("best", (1,), (1,))
    with pytest.raises(ValueError, match="2 options"):
        Comparisons(np.zeros((1, 1, 2)), (Response.best(0),), [0], [0])
    assert all(one.least == (1 if name in ("rating", "like") else 2) for name, one in FORMATS.items())
