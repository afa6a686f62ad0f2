"""Queries and Comparisons: validation, selection, concatenation."""

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons


def comparisons(n=6, who="a user", seed=0, **changes):
    rng = np.random.default_rng(seed)
    values = dict(
        features=rng.normal(size=(n, 3, 4)),
        choice=rng.integers(3, size=n),
        episode=np.arange(n) // 2,
        step=np.arange(n) % 2,
        texts=[[f"prompt {i}{k}" for k in "abc"] for i in range(n)],
        who=who,
        answered_at=np.datetime64("2026-01-01T00:00:00") + np.arange(n),
        metadata={"encoder": "minilm", "oracle": {"mode": "argmax", "scale": 1.0}},
    )
    return Comparisons.of_choices(**(values | changes))


def test_frozen():
    features = np.zeros((2, 2, 2), dtype=np.float32)
    data = Comparisons.of_choices(features, [0, 1], [0, 0], [0, 1])
    with pytest.raises(AttributeError):
        data.who = "someone else"
    for name in ("features", "choice", "episode", "step"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 1
    features[:] = 1.0  # the caller's own array stays writable


def test_concatenate_keeps_what_differs():
    first = comparisons(metadata={"encoder": "minilm", "seed": 1, "only": True})
    second = comparisons(metadata={"encoder": "minilm", "seed": 2}, texts=None, answered_at=None)
    both = Comparisons.concatenate([first, second])
    assert both.metadata == {"encoder": "minilm", "parts": [{"seed": 1, "only": True}, {"seed": 2}]}
    assert both.texts is None
    np.testing.assert_array_equal(both.answered_at[:6], first.answered_at)
    assert np.isnat(both.answered_at[6:]).all()
    assert Comparisons.concatenate([second, second]).answered_at is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one"),
        ([comparisons(), comparisons(who="another")], "one user, got .'a user', 'another'."),
        ([comparisons(), comparisons(features=np.zeros((6, 3, 5)))], r"same number of features d .* got \[4, 5\]"),
        ([comparisons(), comparisons(metadata={"encoder": "clip"})], "same features .* got encoder .*clip.*minilm"),
    ],
)
def test_what_cannot_be_concatenated(parts, message):
    with pytest.raises(ValueError, match=message):
        Comparisons.concatenate(parts)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(features=np.zeros((6, 1, 4))), ValueError, r"at least 2 options .* \(K = 1\)"),
        (dict(features=np.zeros((6, 3, 0))), ValueError, "at least 1 feature"),
        (dict(features=np.zeros((6, 3))), ValueError, r"features of shape \(n, K, d\), got shape \(6, 3\)"),
        (dict(features=np.where(np.arange(4) == 2, np.nan, np.zeros((6, 3, 4)))), ValueError, r"18 NaN .*\(0, 0, 2\)"),
        (dict(features="text"), TypeError, "features as an array of real numbers"),
        (dict(choice=[0, 1, 2, 3, 0, 0]), ValueError, r"choices in 0\.\.2, got 3 at index \(3,\)"),
        (dict(choice=[0, 1]), ValueError, "one choice for each of the 6 questions"),
        (dict(choice=np.zeros(6)), TypeError, "choices as integers, got dtype float64"),
        (dict(episode=[0]), ValueError, "episode of shape .* one for each of the 6 questions"),
        (dict(step=np.full(6, -1)), ValueError, "got -1"),
        (dict(texts=[["a", "b", "c"]]), ValueError, "texts for 6 questions, got 1"),
        (dict(texts=[["a", "b"]] * 6), ValueError, "3 texts in question 0, one for each option, got 2"),
        (dict(texts=[["a", "b", 3]] * 6), TypeError, "texts as strings, got int"),
        (dict(who=None), TypeError, "who as a string"),
        (dict(answered_at=np.arange(6)), TypeError, "datetime64"),
        (dict(answered_at=np.datetime64("2026-01-01") + np.arange(5)), ValueError, "answered_at of shape"),
        (dict(metadata={"theta": np.zeros(3)}), TypeError, "JSON"),
        (dict(metadata={"x": float("nan")}), TypeError, "JSON"),
        (dict(metadata={1: 2}), TypeError, "JSON"),
        (dict(metadata=[1]), TypeError, "JSON"),
    ],
)
def test_bad_input_is_named(change, error, message):
    with pytest.raises(error, match=message):
        comparisons(**change)
