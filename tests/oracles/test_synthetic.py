"""The synthetic user: what it picks, how it is seeded, and what it says about itself."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.oracles import Answers, Oracle, SyntheticUser


def questions(seed=0, n=40, num_options=4, d=6):
    features = np.random.default_rng(seed).normal(size=(n, num_options, d)).astype(np.float32)
    return Queries(features, np.arange(n) // 6, np.arange(n) % 6)


def part(queries, chosen):
    return Queries(queries.features[chosen], queries.episode[chosen], queries.step[chosen])


def theta(d=6):
    return np.random.default_rng(99).normal(size=d)


def test_argmax_picks_the_best():
    queries = questions()
    answers = SyntheticUser(theta()).answer(queries)
    np.testing.assert_array_equal(answers.choices, (queries.features.astype(float) @ theta()).argmax(axis=1))


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
    one = questions(n=1).features[0]
    queries = Queries(np.broadcast_to(one, (n, 4, 6)), np.zeros(n, int), np.zeros(n, int))
    for scale in (0.0, 0.5, 2.0):
        choices = SyntheticUser(theta(), mode="sampled", scale=scale, seed=3).answer(queries).choices
        p = choice_probabilities(one[None].astype(float), scale * theta())[0]
        error = np.sqrt(p * (1 - p) / n)
        assert (np.abs(np.bincount(choices, minlength=4) / n - p) <= 5 * error + 1e-12).all()


def test_a_large_scale_is_argmax():
    queries = questions()
    sampled = SyntheticUser(theta(), mode="sampled", scale=1e6).answer(queries).choices
    np.testing.assert_array_equal(sampled, SyntheticUser(theta()).answer(queries).choices)


def test_a_scale_whose_product_overflows_is_argmax_too():
    queries = questions()
    sampled = SyntheticUser(theta(), mode="sampled", scale=1.7e308).answer(queries).choices
    np.testing.assert_array_equal(sampled, SyntheticUser(theta()).answer(queries).choices)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 40), max_size=6), st.sampled_from(["argmax", "sampled"]))
def test_the_batch_split_does_not_matter(seed, cuts, mode):
    queries = questions(seed)
    whole = SyntheticUser(theta(), mode=mode, seed=seed).answer(queries).choices
    user = SyntheticUser(theta(), mode=mode, seed=seed)
    edges = [0, *sorted(cuts), 40]
    pieces = [user.answer(part(queries, slice(a, b))).choices for a, b in zip(edges[:-1], edges[1:], strict=True)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_seeds_and_the_sequence():
    queries = questions(n=200)
    user = SyntheticUser(theta(), mode="sampled", scale=0.1, seed=1)
    first, second = user.answer(queries).choices, user.answer(queries).choices
    assert (first != second).any()  # the same questions again are answered anew
    user.reset()
    np.testing.assert_array_equal(user.answer(queries).choices, first)
    other = SyntheticUser(theta(), mode="sampled", scale=0.1, seed=2).answer(queries).choices
    assert (first != other).any()
    copy = pickle.loads(pickle.dumps(user))
    np.testing.assert_array_equal(copy.answer(queries).choices, user.answer(queries).choices)


def test_answers_say_who_and_how():
    user = SyntheticUser(theta(), mode="sampled", scale=5, seed=7, name="sunny")
    assert isinstance(user, Oracle)
    answers = user.answer(questions())
    assert answers.details == {"oracle": "sunny", "mode": "sampled", "scale": 5.0, "seed": 7}
    described = user.describe()
    assert json.loads(json.dumps(described)) == described
    assert answers.details.items() <= described.items()
    assert described["dimension"] == 6 and described["theta_norm"] == pytest.approx(np.linalg.norm(theta()))
    assert described["theta_sha256"] != SyntheticUser(-theta()).describe()["theta_sha256"]


def test_no_questions():
    empty = part(questions(), slice(0, 0))
    for mode in ("argmax", "sampled"):
        assert SyntheticUser(theta(), mode=mode).answer(empty).choices.shape == (0,)


def test_the_estimate_tends_to_scale_times_theta():
    queries = questions(n=20_000)
    user = SyntheticUser(theta(), mode="sampled", scale=0.7, seed=0)
    answers = user.answer(queries)
    data = Comparisons.of_choices(queries.features, answers.choices, queries.episode, queries.step, who=user.name)
    result = estimate(data, regularization=1e-6)
    error = (result.theta - 0.7 * theta()) / np.sqrt(np.diag(result.covariance()))
    assert np.abs(error).max() < 4


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


def test_from_text_is_the_unit_embedding(minilm):
    text = "An image with warm colors depicting bright sunshine"
    user = SyntheticUser.from_text(text, minilm, mode="sampled", scale=20.0, seed=4, name="sunny")
    expected = minilm.encode([text])[0].astype(np.float64)
    np.testing.assert_allclose(user.theta, expected / np.linalg.norm(expected), atol=1e-12)
    assert np.linalg.norm(user.theta) == pytest.approx(1.0, abs=1e-12)
    described = user.describe()
    assert described["text"] == text and described["encoder"] == minilm.name
    assert described["encoder_fingerprint"] == minilm.fingerprint
    assert described["oracle"] == "sunny" and described["scale"] == 20.0


class BrokenEncoder:
    name, dimension, fingerprint = "broken", 3, "0"

    def __init__(self, rows):
        self.rows = rows

    def encode(self, texts, *, progress=False):
        return np.array(self.rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SyntheticUser([1.0, np.nan]), ValueError, "finite theta"),
        (lambda: SyntheticUser([]), ValueError, "at least 1 feature"),
        (lambda: SyntheticUser([[1.0]]), ValueError, "theta of shape"),
        (lambda: SyntheticUser("sunny"), TypeError, "theta as an array"),
        (lambda: SyntheticUser([1.0], mode="softmax"), ValueError, "'argmax', 'sampled', got 'softmax'"),
        (lambda: SyntheticUser([1.0], scale=-1), ValueError, "scale >= 0, got -1"),
        (lambda: SyntheticUser([1.0], seed=-1), ValueError, "seed >= 0"),
        (lambda: SyntheticUser([1.0], seed=None), TypeError, "seed as an integer"),
        (lambda: SyntheticUser([1.0]).answer(questions()), ValueError, "d = 1 features .* got d = 6"),
        (lambda: SyntheticUser.from_text("  ", BrokenEncoder([[1, 2, 3]])), ValueError, "text that describes"),
        (lambda: SyntheticUser.from_text("x", BrokenEncoder([[0, 0, 0]])), ValueError, "not zero, got zeros"),
        (lambda: SyntheticUser.from_text("x", BrokenEncoder([[1, 2]])), ValueError, "embedding of shape"),
        (lambda: SyntheticUser.from_text("x", BrokenEncoder([[1, 2, np.nan]])), ValueError, "finite embedding"),
        (lambda: Answers.of_choices([0, -2]), ValueError, "choices in -1..inf, got -2"),
        (lambda: Answers.of_choices([0.5]), TypeError, "choices as integers"),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_choice_of_minus_one_is_no_answer():
    np.testing.assert_array_equal(Answers.of_choices([0, -1, 2]).choices, [0, -1, 2])
