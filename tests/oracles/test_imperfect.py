"""The imperfect user: each failing as defined, at its rate, and none of them when it is off."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare, kstest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.oracles import ImperfectUser, Oracle, SyntheticUser

D = 6
THETA = np.random.default_rng(99).normal(size=D)


def questions(seed=0, n=60, num_options=4, horizon=6):
    features = np.random.default_rng(seed).normal(size=(n, num_options, D)).astype(np.float32)
    return Queries(features, np.arange(n) // horizon, np.arange(n) % horizon)


def part(queries, chosen):
    return Queries(queries.features[chosen], queries.episode[chosen], queries.step[chosen])


def responses(user, queries):
    return list(user.answer(queries).responses)


def plausible(hits, n, rate):
    """Whether a count is one that the binomial gives in all but one of a million cases."""
    return binomtest(int(hits), n, rate).pvalue > 1e-6


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(2, 6),
    st.sampled_from(["argmax", "sampled"]),
    st.sampled_from([0.0, 0.3, 5.0, 1e6, 1.7e308]),
    st.sampled_from(["best", "best_worst", "ranking"]),
)
def test_with_every_option_off_it_is_the_synthetic_user(seed, num_options, mode, scale, response):
    """Best answers are the same to the last draw; of the richer formats, an argmax user's best one is the same."""
    queries = questions(seed, num_options=num_options)
    expected = SyntheticUser(THETA, mode=mode, scale=scale, seed=seed).answer(queries).choices
    user = ImperfectUser(THETA, mode=mode, scale=scale, seed=seed, response=response)
    if mode == "argmax" or response == "best":
        np.testing.assert_array_equal(user.answer(queries).choices, expected)
    if response == "best":
        user.reset()
        assert responses(user, queries) == [Response.best(int(choice)) for choice in expected]


ALL = {
    "mode": "sampled",
    "scale": (0.5, 2.0),
    "mistake_rate": 0.3,
    "skip_threshold": -1.0,
    "equal_threshold": 0.3,
    "myopia": 0.6,
    "drift": 0.1,
}


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from(["best", "best_worst", "ranking", "partial", "ties"]),
)
def test_the_batch_split_does_not_matter(seed, cuts, response):
    queries = questions(seed)
    whole = responses(ImperfectUser(THETA, seed=seed, response=response, **ALL), queries)
    user = ImperfectUser(THETA, seed=seed, response=response, **ALL)
    edges = [0, *sorted(cuts), 60]
    pieces = [responses(user, part(queries, slice(a, b))) for a, b in itertools.pairwise(edges)]
    assert [answer for piece in pieces for answer in piece] == whole
    user.reset()
    assert responses(user, queries) == whole


@pytest.mark.parametrize(
    ("response", "num_options"), [("best", 2), ("best", 5), ("best_worst", 4), ("ranking", 4), ("partial", 5)]
)
def test_mistakes_are_other_answers_drawn_uniformly(response, num_options):
    n, rate = 20_000, 0.2
    one = questions(n=1, num_options=num_options).features[0]
    queries = Queries(np.broadcast_to(one, (n, num_options, D)), np.zeros(n, int), np.zeros(n, int))
    right = responses(ImperfectUser(THETA, response=response, taps=2), part(queries, slice(0, 1)))[0]
    answers = responses(ImperfectUser(THETA, response=response, taps=2, mistake_rate=rate, seed=3), queries)
    wrong = [answer for answer in answers if answer != right]
    assert plausible(len(wrong), n, rate)
    kinds = sorted(set(wrong), key=str)
    others = {
        "best": num_options,
        "best_worst": num_options * (num_options - 1),
        "ranking": math.factorial(num_options),
        "partial": num_options * (num_options - 1),
    }
    assert len(kinds) == others[response] - 1
    assert all(answer.kind == response for answer in kinds)
    if len(kinds) > 1:
        assert chisquare([wrong.count(kind) for kind in kinds]).pvalue > 1e-6


def test_mistakes_of_a_noisy_user_flip_what_it_would_have_said():
    n, rate = 20_000, 0.25
    queries = questions(n=n, num_options=2)
    noisy = responses(ImperfectUser(THETA, mode="sampled", scale=0.7, seed=5), queries)
    wrong = responses(ImperfectUser(THETA, mode="sampled", scale=0.7, seed=5, mistake_rate=rate), queries)
    assert plausible(sum(a != b for a, b in zip(noisy, wrong, strict=True)), n, rate)
    assert responses(ImperfectUser(THETA, mistake_rate=1.0), queries) == [
        Response.best(int(choice)) for choice in (queries.features.astype(float) @ THETA).argmin(axis=1)
    ]


def test_skips_and_ties_are_those_of_the_thresholds():
    queries = questions(n=400)
    values = np.sort(queries.features.astype(float) @ THETA, axis=1)
    skipped, equal = values[:, -1] < 1.2, values[:, -1] - values[:, -2] < 0.4
    assert 0 < (skipped & equal).sum() < skipped.sum() < 400 and 0 < equal.sum() < 400
    answers = responses(
        ImperfectUser(THETA, skip_threshold=1.2, equal_threshold=0.4, mistake_rate=0.5, seed=1), queries
    )
    np.testing.assert_array_equal([answer.kind == "skip" for answer in answers], skipped)
    np.testing.assert_array_equal([answer.kind == "tie" for answer in answers], equal & ~skipped)
    # the draws of the other questions stay where they were
    without = responses(ImperfectUser(THETA, mistake_rate=0.5, seed=1), queries)
    assert all(a == b for a, b in zip(answers, without, strict=True) if a.kind == "best")


def test_equal_options_tie_and_a_threshold_of_zero_never_does():
    row = np.random.default_rng(0).normal(size=(1, 1, D))
    same = Queries(np.repeat(row, 3, axis=1).astype(np.float32), np.zeros(1, int), np.zeros(1, int))
    assert responses(ImperfectUser(THETA, equal_threshold=1e-9), same) == [Response.tie()]
    assert responses(ImperfectUser(THETA, equal_threshold=0.0), same) == [Response.best(0)]


def test_myopia_discounts_what_earlier_words_added():
    """Against the definition, summed word by word from the utilities of the prefixes."""
    horizon, num_options, gamma = 5, 4, 0.6
    queries = questions(n=12 * horizon, num_options=num_options, horizon=horizon)
    prefixes = (queries.features.astype(float) @ THETA).reshape(12, horizon, num_options)
    expected = []
    for episode in range(12):
        for h in range(horizon):
            total = np.zeros(num_options)
            for j in range(h + 1):
                added = prefixes[episode, j] - (prefixes[episode, j - 1] if j else 0.0)
                total += gamma ** (h - j) * added
            expected.append(int(total.argmax()))
    found = ImperfectUser(THETA, myopia=gamma).answer(queries).choices
    np.testing.assert_array_equal(found, expected)
    assert (found != SyntheticUser(THETA).answer(queries).choices).any()
    # episodes interleaved, as vector environments ask them, change nothing
    order = np.argsort(queries.step, kind="stable")
    np.testing.assert_array_equal(ImperfectUser(THETA, myopia=gamma).answer(part(queries, order)).choices, found[order])


def test_a_question_asked_again_is_remembered_once():
    queries = questions(n=6)
    user = ImperfectUser(THETA, myopia=0.5)
    first = responses(user, queries)
    user.reset()
    again = [responses(user, part(queries, slice(i, i + 1)))[0] for i in (0, 1, 2, 2, 1, 2, 3, 4, 5)]
    assert [again[i] for i in (0, 1, 5, 6, 7, 8)] == first and again[3] == again[2] == first[2]


def test_drift_walks_on_the_sphere_by_its_angle():
    n, angle = 300, 0.05
    user = ImperfectUser(THETA, drift=angle, seed=2)
    path = [user.theta]
    for index in range(n):
        responses(user, part(questions(n=n), slice(index, index + 1)))
        path.append(user.theta)
    unit = np.array(path) / np.linalg.norm(THETA)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.arccos((unit[1:] * unit[:-1]).sum(axis=1)), angle, rtol=1e-6)
    user.reset()
    np.testing.assert_array_equal(user.theta, THETA)


def test_the_walk_has_no_preferred_direction():
    """E[t_i . t_0] = cos(angle)^i for steps in uniformly random tangent directions."""
    angle, steps, repeats = 0.2, 5, 3000
    queries = questions(n=steps)
    ends = []
    for seed in range(repeats):
        user = ImperfectUser(THETA, drift=angle, seed=seed)
        responses(user, queries)
        ends.append(user.theta @ THETA / (THETA @ THETA))
    error = np.std(ends) / math.sqrt(repeats)
    assert abs(np.mean(ends) - math.cos(angle) ** steps) < 5 * error


def test_drifting_answers_are_those_of_the_taste_of_the_moment():
    queries = questions(n=50)
    user = ImperfectUser(THETA, drift=0.3, seed=4)
    for index in range(50):
        now = user.theta
        answer = responses(user, part(queries, slice(index, index + 1)))[0]
        assert answer.order[0] == int((queries.features[index].astype(float) @ now).argmax())


def test_an_unknown_scale_is_uniform_in_its_logarithm():
    scales = [ImperfectUser(THETA, mode="sampled", scale=(5.0, 50.0), seed=seed).scale for seed in range(500)]
    assert kstest(np.log(scales), "uniform", args=(np.log(5), np.log(10))).pvalue > 1e-6
    user = ImperfectUser(THETA, mode="sampled", scale=(5.0, 50.0), seed=7)
    known = ImperfectUser(THETA, mode="sampled", scale=user.scale, seed=7)
    assert responses(user, questions()) == responses(known, questions())
    assert user.describe()["scale"] == user.scale and user.describe()["scale_range"] == [5.0, 50.0]


def test_ties_are_called_as_davidson_says():
    n, nu = 20_000, 0.8
    one = questions(n=1, num_options=3).features[0]
    queries = Queries(np.broadcast_to(one, (n, 3, D)), np.zeros(n, int), np.zeros(n, int))
    answers = responses(ImperfectUser(THETA, mode="sampled", scale=0.5, response="ties", nu=nu, seed=1), queries)
    values = 0.5 * one.astype(float) @ THETA
    weights = np.append(np.exp(values), nu * np.exp(values.mean()))
    tie = weights[-1] / weights.sum()
    assert plausible(sum(answer.kind == "tie" for answer in answers), n, tie)
    assert plausible(sum(answer == Response.best(1) for answer in answers), n, weights[1] / weights.sum())


def test_a_sampled_ranking_is_plackett_luce():
    n = 20_000
    one = questions(n=1, num_options=3).features[0]
    queries = Queries(np.broadcast_to(one, (n, 3, D)), np.zeros(n, int), np.zeros(n, int))
    answers = responses(ImperfectUser(THETA, mode="sampled", scale=0.5, response="ranking", seed=1), queries)
    p = choice_probabilities(one[None].astype(float), 0.5 * THETA)[0]
    for order in itertools.permutations(range(3)):
        expected = p[order[0]] * p[order[1]] / (1 - p[order[0]])
        assert plausible(sum(answer.order == order for answer in answers), n, expected)


def test_it_says_who_it_is():
    user = ImperfectUser(THETA, seed=2, name="tired", **ALL)
    assert isinstance(user, Oracle)
    described = user.describe()
    assert json.loads(json.dumps(described)) == described
    for key in ("mistake_rate", "skip_threshold", "equal_threshold", "myopia", "drift"):
        assert described[key] == ALL[key]
    responses(user, questions())
    assert user.describe() == described  # a drifting taste is known by where it begins
    plain = ImperfectUser(THETA).describe()
    assert not {"mistake_rate", "skip_threshold", "drift", "myopia", "nu", "scale_range"} & set(plain)
    assert plain["theta_sha256"] == SyntheticUser(THETA).describe()["theta_sha256"]


def test_from_text_takes_the_options(minilm):
    user = ImperfectUser.from_text("a cosy winter cabin", minilm, mistake_rate=0.1)
    assert isinstance(user, ImperfectUser) and user.mistake_rate == 0.1
    assert user.describe()["text"] == "a cosy winter cabin"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mistake_rate": 1.5}, ValueError, r"mistake_rate in \[0, 1\], got 1.5"),
        ({"mistake_rate": -0.1}, ValueError, "mistake_rate >= 0"),
        ({"myopia": 2}, ValueError, r"myopia in \[0, 1\]"),
        ({"drift": 4.0}, ValueError, "drift in"),
        ({"equal_threshold": -1.0}, ValueError, "equal_threshold >= 0"),
        ({"skip_threshold": math.nan}, ValueError, "finite skip_threshold"),
        ({"response": "worst"}, ValueError, "'best', 'best_worst', 'ranking', 'partial', 'ties', got 'worst'"),
        ({"scale": (5.0, 1.0)}, ValueError, "low <= high"),
        ({"scale": (0.0, 1.0)}, ValueError, r"scale \(low\) > 0"),
        ({"scale": (1.0, 2.0, 3.0)}, ValueError, "a number or"),
        ({"nu": 0.0}, ValueError, "nu > 0"),
    ],
)
def test_bad_options_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ImperfectUser(THETA, **arguments)


def test_choices_are_minus_one_where_no_option_is_named():
    queries = questions(n=400)
    answers = ImperfectUser(THETA, skip_threshold=0.5, equal_threshold=0.4).answer(queries)
    wanted = [response.order[0] if response.kind == "best" else -1 for response in answers.responses]
    np.testing.assert_array_equal(answers.choices, wanted)
    assert {response.kind for response in answers.responses} == {"best", "skip", "tie"}
    assert answers.details["skip_threshold"] == 0.5 and answers.details["equal_threshold"] == 0.4


def test_bad_use_is_named():
    with pytest.raises(ValueError, match="at least 2 features for drift"):
        ImperfectUser([1.0], drift=0.1)
    with pytest.raises(ValueError, match="d = 2 features"):
        responses(ImperfectUser([1.0, 2.0]), questions())
    user = ImperfectUser(THETA, myopia=0.5)
    responses(user, part(questions(num_options=4), slice(0, 1)))
    with pytest.raises(ValueError, match="Expected 4 options in every question of episode 0, got 3"):
        responses(user, part(questions(num_options=3), slice(1, 2)))
