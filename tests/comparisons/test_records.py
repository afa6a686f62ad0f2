"""Queries and Comparisons: validation, selection, concatenation."""

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons, Queries


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


def test_types_shapes_and_length():
    data = comparisons()
    assert len(data) == 6 and data.num_options == 3 and data.dimension == 4
    assert data.features.dtype == np.float32 and data.choice.dtype == np.int64
    assert data.answered_at.dtype == np.dtype("datetime64[us]")
    questions = data.queries
    assert len(questions) == 6 and questions.num_options == 3 and questions.dimension == 4
    np.testing.assert_array_equal(questions.features, data.features)


def test_frozen():
    features = np.zeros((2, 2, 2), dtype=np.float32)
    data = Comparisons.of_choices(features, [0, 1], [0, 0], [0, 1])
    with pytest.raises(AttributeError):
        data.who = "someone else"
    for name in ("features", "choice", "episode", "step"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 1
    features[:] = 1.0  # the caller's own array stays writable


def test_metadata_are_a_copy():
    metadata = {"oracle": {"scale": 1.0}}
    data = comparisons(metadata=metadata)
    metadata["oracle"]["scale"] = 2.0
    assert data.metadata == {"oracle": {"scale": 1.0}}


def test_select_by_mask_and_by_indices():
    data = comparisons()
    part = data.select(data.step == 1)
    np.testing.assert_array_equal(part.features, data.features[1::2])
    np.testing.assert_array_equal(part.choice, data.choice[1::2])
    assert part.texts == data.texts[1::2] and part.metadata == data.metadata and part.who == data.who
    np.testing.assert_array_equal(part.answered_at, data.answered_at[1::2])
    np.testing.assert_array_equal(data.select([5, 0, 0]).choice, data.choice[[5, 0, 0]])
    assert len(data.select([])) == 0 and len(data.select(np.zeros(6, dtype=bool))) == 0
    with pytest.raises(ValueError, match=r"mask of shape \(6,\)"):
        data.select([True, False])
    with pytest.raises(ValueError, match="got 6 at index"):
        data.select([6])
    with pytest.raises(TypeError, match="integers"):
        data.select([0.5])


def test_concatenate():
    first, second = comparisons(4), comparisons(3, seed=1)
    both = Comparisons.concatenate([first, second])
    np.testing.assert_array_equal(both.features, np.concatenate([first.features, second.features]))
    assert both.texts == first.texts + second.texts and both.metadata == first.metadata
    np.testing.assert_array_equal(both.answered_at, np.concatenate([first.answered_at, second.answered_at]))
    np.testing.assert_array_equal(both.select(np.arange(4)).choice, first.choice)


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
        ([comparisons(), comparisons(features=np.zeros((6, 3, 5)))], r"same \(K, d\)"),
        ([comparisons(), comparisons(metadata={"encoder": "clip"})], "one encoder, got encoder .*clip.*minilm"),
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
        (dict(texts=[["a", "b"]] * 6), ValueError, "3 texts in every question, got 2 in question 0"),
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


def test_bad_queries_are_named():
    with pytest.raises(ValueError, match="at least 2 options"):
        Queries(np.zeros((1, 1, 2)), [0], [0])
    with pytest.raises(ValueError, match="episode of shape"):
        Queries(np.zeros((2, 2, 2)), [0], [0, 1])
