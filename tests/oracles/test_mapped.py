"""Users of two styles, and users who judge by features of their own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features import FeatureMap, RandomFourierFeatures
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.oracles import ImperfectUser, MappedUser, Oracle, SyntheticUser, TwoStyles


def queries(n=40, k=3, d=4, seed=0):
    features = np.random.default_rng(seed).normal(size=(n, k, d)).astype(np.float32)
    return Queries(features, np.arange(n), np.zeros(n, dtype=int))


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.floats(0.0, 2.0))
def test_the_utility_is_a_linear_and_an_even_part(seed, dislike):
    rng = np.random.default_rng(seed)
    first, second, rows = rng.normal(size=4), rng.normal(size=4), rng.normal(size=(2, 5, 4))
    styles = TwoStyles(first, second, dislike)
    linear = (1 - dislike) / 2 * rows @ (first + second)
    even = (1 + dislike) / 2 * np.abs(rows @ (first - second))
    np.testing.assert_allclose(styles(rows)[..., 0], linear + even, atol=1e-9)
    np.testing.assert_allclose(styles(rows), TwoStyles(second, first, dislike)(rows))


def test_both_styles_are_liked_and_their_mixture_is_not():
    first, second = np.eye(5)[0], np.eye(5)[1]
    mixture = (first + second) / np.sqrt(2)
    liked, also, mixed = TwoStyles(first, second)(np.stack([first, second, mixture]))[:, 0]
    assert liked == also == 1.0 and mixed == pytest.approx(0.5 / np.sqrt(2))
    # no linear taste ranks the mixture below both: its utility is at least that of the lesser style, times sqrt(2)
    assert isinstance(TwoStyles(first, second), FeatureMap)


def test_argmax_users_take_the_option_of_the_highest_utility():
    rng = np.random.default_rng(1)
    styles = TwoStyles(rng.normal(size=4), rng.normal(size=4))
    user = MappedUser(SyntheticUser([1.0], name="ada"), styles)
    assert isinstance(user, Oracle) and user.name == "ada"
    asked = queries()
    answers = user.answer(asked)
    np.testing.assert_array_equal(answers.choices, styles(asked.features)[..., 0].argmax(axis=1))
    assert answers.details["utility"] == styles.name == user.describe()["utility"]


def test_sampled_users_follow_the_softmax_of_the_utility():
    rng = np.random.default_rng(2)
    styles = TwoStyles(rng.normal(size=4), rng.normal(size=4))
    one = queries(n=1)
    many = Queries(np.repeat(one.features, 20_000, axis=0), np.arange(20_000), np.zeros(20_000, dtype=int))
    user = MappedUser(ImperfectUser([1.0], mode="sampled", scale=2.0, seed=5), styles)
    shares = np.bincount(user.answer(many).choices, minlength=3) / 20_000
    np.testing.assert_allclose(shares, choice_probabilities(2.0 * styles(one.features), [1.0])[0], atol=0.015)


def test_a_taste_for_mapped_features_is_a_linear_one_there():
    z = RandomFourierFeatures(4, 6, bandwidth=1.0)
    theta, asked = np.random.default_rng(3).normal(size=6), queries()
    answers = MappedUser(SyntheticUser(theta), z).answer(asked)
    np.testing.assert_array_equal(answers.choices, (z(asked.features) @ theta).argmax(axis=1))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="one space for both styles"):
        TwoStyles(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="dislike"):
        TwoStyles(np.ones(3), np.ones(3), -0.1)
    with pytest.raises(TypeError, match="answer"):
        MappedUser(object(), TwoStyles(np.ones(3), np.ones(3)))
    with pytest.raises(ValueError, match="Expected rows of 3 features"):
        MappedUser(SyntheticUser([1.0]), TwoStyles(np.ones(3), np.ones(3))).answer(queries())
    assert TwoStyles(np.ones(3), np.ones(3)).name != TwoStyles(np.ones(3), np.zeros(3)).name
