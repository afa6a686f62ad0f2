"""The D-criterion of truncated prompts against dense determinants, loops and brute force."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.language.objective import TruncatedObjective, d_objective
from edpbrl_gym.likelihood.choice import fisher_information

SHAPES = [(2, 1, 2, 1, 2), (3, 2, 2, 3, 40), (2, 2, 5, 3, 31)]


def embeddings(shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def plain(features, regularization, skip=None):
    """The equation, question by question; ``skip(t, q, h)`` puts the mean of the other prompts in a prompt's place."""
    episodes, policies, words, dimension = features.shape
    information = regularization * np.eye(dimension)
    for t in range(episodes):
        for h in range(words):
            rows = features[t, :, h].copy()
            for q in range(policies):
                if skip is not None and skip(t, q, h):
                    rows[q] = np.delete(features[t, :, h], q, axis=0).mean(axis=0)
            mean = rows.mean(axis=0)
            information += sum(np.outer(row, row) for row in rows) / policies - np.outer(mean, mean)
    return np.linalg.slogdet(information)[1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("regularization", [1.0, 1e-3, 50.0])
def test_the_objective_is_the_dense_determinant(shape, regularization):
    features = embeddings(shape)
    expected = [plain(sample, regularization) for sample in features]
    np.testing.assert_allclose(d_objective(features, regularization), expected, rtol=1e-10, atol=1e-10)


def test_the_information_is_that_of_the_choice_model():
    """The paper's I_h is the Fisher information of a question at theta = 0."""
    features = embeddings((1, 3, 4, 2, 6), 1)
    questions = np.moveaxis(features[0], 2, 1).reshape(6, 4, 6)
    expected = np.linalg.slogdet(fisher_information(questions) + 0.5 * np.eye(6))[1]
    assert d_objective(features, 0.5)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_taking_later_words_out_is_brute_force(shape):
    features = embeddings(shape, 3)
    objective = TruncatedObjective(features, 0.3)
    assert objective.contributions.shape == (*shape[:4][:3], shape[3] + 1)
    for m, t, q, w in np.ndindex(*shape[:3], shape[3] + 1):
        expected = plain(features[m], 0.3, lambda a, b, h, t=t, q=q, w=w: (a, b) == (t, q) and h >= w)
        found = objective.values[m] - objective.contributions[m, t, q, w]
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(2, 4), st.integers(1, 3), st.integers(1, 30)),
    regularization=st.floats(1e-3, 10.0),
    seed=st.integers(0, 1000),
)
def test_properties(shape, regularization, seed):
    features = embeddings(shape, seed)
    objective = TruncatedObjective(features, regularization)
    assert (objective.values >= shape[-1] * np.log(regularization) - 1e-9).all()
    assert (np.diff(objective.contributions, axis=-1) <= 1e-9).all()  # removing more words removes more
    order = np.random.default_rng(seed).permutation(shape[2])
    np.testing.assert_allclose(d_objective(features[:, :, order], regularization), objective.values, atol=1e-9)
    shifted = features + np.random.default_rng(seed).normal(size=(1, shape[1], 1, shape[3], shape[4]))
    np.testing.assert_allclose(d_objective(shifted, regularization), objective.values, atol=1e-8)


@pytest.mark.parametrize(
    ("features", "regularization", "error", "message"),
    [
        (np.zeros((2, 3, 2, 4)), 1.0, ValueError, r"shape \(M, T, K, H, d\), got shape \(2, 3, 2, 4\)"),
        (np.zeros((1, 1, 1, 2, 3)), 1.0, ValueError, "at least K = 2"),
        (np.full((1, 1, 2, 2, 3), np.nan), 1.0, ValueError, "finite features"),
        (np.zeros((1, 1, 2, 2, 3)), 0.0, ValueError, "lambda.* > 0"),
        ([["a"]], 1.0, TypeError, "real numbers"),
    ],
)
def test_wrong_input(features, regularization, error, message):
    with pytest.raises(error, match=message):
        d_objective(features, regularization)


@pytest.mark.parametrize("shape", [(2, 8, 4, 8, 384), (1, 2, 3, 2, 30)])
def test_a_lambda_that_is_too_small_for_rounding_says_so(shape):
    """As embeddings are: float32 rows of length 1, many of them nearly equal. Finite values are right, or refused."""
    rows = embeddings(shape, 5)
    rows = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    message = r"regularization \(lambda\) large enough .* got 1e-\d+; raise it"
    refused = 0
    for regularization in (1e-10, 1e-17):
        objective = TruncatedObjective(rows, regularization)
        for part in ("values", "contributions"):
            try:
                assert np.isfinite(getattr(objective, part)).all()
            except ValueError as error:
                assert re.search(message, str(error))
                refused += 1
    assert refused
