"""Synthetic users: what they pick and how they are seeded; each failing as defined, at its rate."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare, kstest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.oracles import ImperfectUser, Oracle, SyntheticUser

D = 6
THETA = np.random.default_rng(99).normal(size=D)


def questions(seed=0, n=60, num_options=4, horizon=6):
    features = np.random.default_rng(seed).normal(size=(n, num_options, D)).astype(np.float32)
    return Queries(features, np.arange(n) // horizon, np.arange(n) % horizon)


def one_question(n, num_options=4):
    """A question's features, and the question asked so many times."""
    one = questions(n=1, num_options=num_options).features[0]
    return one, Queries(np.broadcast_to(one, (n, num_options, D)), np.zeros(n, int), np.zeros(n, int))


def part(queries, chosen):
    return Queries(queries.features[chosen], queries.episode[chosen], queries.step[chosen])


def responses(user, queries):
    return list(user.answer(queries).responses)


def plausible(hits, n, rate):
    """Whether a count is one that the binomial gives in all but one of a million cases."""
    return binomtest(int(hits), n, rate).pvalue > 1e-6


# -- the synthetic user ------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(2, 7), st.integers(1, 400))
def test_ties_go_to_the_lowest_index_wherever_they_stand(seed, n, num_options, d):
    """Lanes often show the same text; equal rows must tie exactly, in every place of every batch."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=d).astype(np.float32)
    features = np.broadcast_to(row, (n, num_options, d)).copy()
    answers = SyntheticUser(rng.normal(size=d)).answer(Queries(features, np.zeros(n, int), np.zeros(n, int)))
    np.testing.assert_array_equal(answers.choices, 0)


def test_sampled_frequencies_are_the_softmax():
    n = 60_000
    one, queries = one_question(n)
    for scale in (0.0, 0.5, 2.0):
        choices = SyntheticUser(THETA, mode="sampled", scale=scale, seed=3).answer(queries).choices
        p = choice_probabilities(one[None].astype(float), scale * THETA)[0]
        error = np.sqrt(p * (1 - p) / n)
        assert (np.abs(np.bincount(choices, minlength=4) / n - p) <= 5 * error + 1e-12).all()


def test_seeds_and_the_sequence():
    queries = questions(n=200)
    user = SyntheticUser(THETA, mode="sampled", scale=0.1, seed=1)
    first, second = user.answer(queries).choices, user.answer(queries).choices
    assert (first != second).any()  # the same questions again are answered anew
    user.reset()
    np.testing.assert_array_equal(user.answer(queries).choices, first)
    other = SyntheticUser(THETA, mode="sampled", scale=0.1, seed=2).answer(queries).choices
    assert (first != other).any()
    copy = pickle.loads(pickle.dumps(user))
    np.testing.assert_array_equal(copy.answer(queries).choices, user.answer(queries).choices)


def test_answers_say_who_and_how(minilm):
    text = "An image with warm colors depicting bright sunshine"
    user = SyntheticUser.from_text(text, minilm, mode="sampled", scale=5, seed=7, name="sunny")
    assert isinstance(user, Oracle)
    expected = minilm.encode([text])[0].astype(np.float64)
    np.testing.assert_allclose(user.theta, expected / np.linalg.norm(expected), atol=1e-12)
    answers = user.answer(Queries(minilm.encode(["a", "b"])[None], np.zeros(1, int), np.zeros(1, int)))
    assert answers.details == {"oracle": "sunny", "mode": "sampled", "scale": 5.0, "seed": 7}
    described = user.describe()
    assert json.loads(json.dumps(described)) == described
    assert answers.details.items() <= described.items() and described["text"] == text
    assert (described["encoder"], described["encoder_fingerprint"]) == (minilm.name, minilm.fingerprint)
    assert described["dimension"] == 384 and described["theta_norm"] == pytest.approx(1.0, abs=1e-12)
    assert described["theta_sha256"] != SyntheticUser(-user.theta).describe()["theta_sha256"]


def test_f7_at_scale_one_unit_norm_answers_teach_next_to_nothing(minilm):
    """Real embeddings: 600 answers at scale 1 leave theta unknown; the same user without noise is learned."""
    words = ["sun", "fog", "castle", "robot", "river", "neon", "ink", "marble", "dust", "ice", "moss", "gold"]
    texts = [f"{a} and {b}" for a in words for b in words if a != b]
    embeddings = minilm.encode(texts).astype(np.float64)
    rng = np.random.default_rng(0)
    features = embeddings[rng.integers(len(texts), size=(600, 4))]
    queries = Queries(features, np.arange(600) // 6, np.arange(600) % 6)
    error, best = {}, {}
    for mode in ("argmax", "sampled"):
        user = SyntheticUser.from_text("a castle in the fog", minilm, mode=mode, scale=1.0)
        choices = user.answer(queries).choices
        best[mode] = (choices == (queries.features @ user.theta).argmax(axis=1)).mean()
        found = estimate((queries.features, choices), regularization=1.0).theta
        error[mode] = 1 - found @ user.theta / np.linalg.norm(found)
    assert best["argmax"] == 1.0 and best["sampled"] < 0.4
    assert error["argmax"] < 0.5 < error["sampled"]


# -- failings ----------------------------------------------------------------------------------------------------------


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


FAILINGS = {"mistake_rate": 0.3, "skip_threshold": -1.0, "equal_threshold": 0.3, "myopia": 0.6, "drift": 0.1}
ALL = {"mode": "sampled", "scale": (0.5, 2.0), **FAILINGS}


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
    _, queries = one_question(n, num_options)
    right = responses(ImperfectUser(THETA, response=response, taps=2), part(queries, slice(0, 1)))[0]
    answers = responses(ImperfectUser(THETA, response=response, taps=2, mistake_rate=rate, seed=3), queries)
    wrong = [answer for answer in answers if answer != right]
    assert plausible(len(wrong), n, rate)
    kinds = sorted(set(wrong), key=str)
    taps = {"best": 1, "ranking": num_options}.get(response, 2)
    assert len(kinds) == math.perm(num_options, taps) - 1
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


def test_an_unknown_scale_is_uniform_in_its_logarithm():
    scales = [ImperfectUser(THETA, mode="sampled", scale=(5.0, 50.0), seed=seed).scale for seed in range(500)]
    assert kstest(np.log(scales), "uniform", args=(np.log(5), np.log(10))).pvalue > 1e-6
    user = ImperfectUser(THETA, mode="sampled", scale=(5.0, 50.0), seed=7)
    known = ImperfectUser(THETA, mode="sampled", scale=user.scale, seed=7)
    assert responses(user, questions()) == responses(known, questions())
    assert user.describe()["scale"] == user.scale and user.describe()["scale_range"] == [5.0, 50.0]


def test_ties_are_called_as_davidson_says():
    n, nu = 20_000, 0.8
    one, queries = one_question(n, 3)
    answers = responses(ImperfectUser(THETA, mode="sampled", scale=0.5, response="ties", nu=nu, seed=1), queries)
    values = 0.5 * one.astype(float) @ THETA
    weights = np.append(np.exp(values), nu * np.exp(values.mean()))
    tie = weights[-1] / weights.sum()
    assert plausible(sum(answer.kind == "tie" for answer in answers), n, tie)
    assert plausible(sum(answer == Response.best(1) for answer in answers), n, weights[1] / weights.sum())


def test_a_sampled_ranking_is_plackett_luce():
    n = 20_000
    one, queries = one_question(n, 3)
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
    assert FAILINGS.items() <= described.items()
    responses(user, questions())
    assert user.describe() == described  # a drifting taste is known by where it begins
    plain = ImperfectUser(THETA).describe()
    assert not {"mistake_rate", "skip_threshold", "drift", "myopia", "nu", "scale_range"} & set(plain)
    assert plain["theta_sha256"] == SyntheticUser(THETA).describe()["theta_sha256"]
