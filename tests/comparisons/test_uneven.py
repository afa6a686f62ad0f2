"""Questions with different numbers of options in one record: shape, selection, files, oracles."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.likelihood import BestWorst, Ranking, Response, WithTies
from edpbrl_gym.oracles import ImperfectUser, SyntheticUser, answers_of

D = 3
SIZES = st.lists(st.integers(2, 5), min_size=1, max_size=8)
FILES = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def uneven(options=(4, 2, 3, 2), seed=0, **changes):
    rng, sizes = np.random.default_rng(seed), options
    values = dict(
        features=[rng.normal(size=(size, D)) for size in sizes],
        choice=[int(rng.integers(size)) for size in sizes],
        episode=np.arange(len(sizes)),
        step=np.zeros(len(sizes), dtype=int),
        texts=[[f"text {i}{k}" for k in range(size)] for i, size in enumerate(sizes)],
        who="anna",
        answered_at=np.datetime64("2026-01-01T00:00:00") + np.arange(len(sizes)),
        metadata={"encoder": "minilm"},
    )
    return Comparisons.of_choices(**(values | changes))


def rows_of(data):
    return [row.options for row in data]


@given(SIZES, st.integers(0, 10**6))
def test_each_question_keeps_its_own_options(sizes, seed):
    rng = np.random.default_rng(seed)
    options = [rng.normal(size=(size, D)).astype(np.float32) for size in sizes]
    data = Comparisons.of_choices(
        options, [size - 1 for size in sizes], np.arange(len(sizes)), np.zeros(len(sizes), int)
    )
    assert data.sizes.tolist() == sizes and data.num_options == max(sizes) and data.even == (len(set(sizes)) == 1)
    assert data.present.sum(axis=1).tolist() == sizes and not data.features[~data.present].any()
    for row, one, size in zip(data, options, sizes, strict=True):
        np.testing.assert_array_equal(row.options, one)
        assert row.choice == size - 1 and row.texts is None and row.answered_at is None
    np.testing.assert_array_equal(data.choice, np.array(sizes) - 1)
    assert len(data.queries) == len(sizes) and data.queries.sizes.tolist() == sizes


@given(SIZES, SIZES, st.integers(0, 100))
def test_parts_of_any_number_of_options_are_one_record_and_come_apart_again(first, second, seed):
    one, two = uneven(first, seed), uneven(second, seed + 1)
    both = Comparisons.concatenate([one, two])
    assert both.sizes.tolist() == [*first, *second] and both.texts == [*one.texts, *two.texts]
    assert both[: len(one)] == one and both[len(one) :] == two
    assert both.select(np.arange(len(both)) >= len(one)) == two  # num_options is that of the part again
    assert one == uneven(first, seed) and (one != two or first == second == [])
    again = both.undone(len(second))
    assert again == one


@FILES
@given(
    SIZES,
    st.integers(0, 100),
    st.sets(st.sampled_from(["texts", "answered_at"])),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9) | st.text(max_size=3), max_size=3),
)
def test_parquet_files_are_read_back_equal(tmp_path, sizes, seed, absent, who, metadata):
    data = uneven(sizes, seed, who=who, metadata=metadata, **dict.fromkeys(absent))
    data.to_parquet(tmp_path / "answers.parquet")
    assert Comparisons.from_parquet(tmp_path / "answers.parquet") == data
    header = json.loads(pq.read_schema(tmp_path / "answers.parquet").metadata[b"edpbrl_gym"])
    assert header["version"] == (2 if data.even else 3)  # earlier versions of the package read what they can


def second(options):
    """Features of which those of the second question are these."""
    return dict(features=[np.zeros((4, 3)), options, np.zeros((3, 3)), np.zeros((2, 3))])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(choice=[0, 2, 0, 0]), ValueError, r"options in 0\.\.1 \(K = 2\)"),
        (dict(texts=[["a"] * 4] * 4), ValueError, "2 texts in question 1, one for each option, got 4"),
        (second(np.zeros((2, 2))), ValueError, "same number of features"),
        (second(np.zeros((1, 3))), ValueError, "1 in question 1"),
        (second(np.zeros(3)), ValueError, r"features\[1\]"),
        (second(np.full((2, 3), np.nan)), ValueError, "NaN"),
        (dict(features=np.zeros((4, 4, 3)), sizes=[4, 2, 5, 2]), ValueError, "2 to 4 options .*, got 5 in question 2"),
        (dict(features=np.zeros((4, 4, 3)), sizes=[4, 2, 3]), ValueError, "one for each of the 4 questions"),
        (dict(features=np.zeros((4, 4, 3)), sizes=[4.0, 2.0, 3.0, 2.0]), TypeError, "integers"),
        (dict(metadata={"attributes": ["price"]}), ValueError, "names of the 3 features, got"),
    ],
)  # fmt: skip
def test_bad_input_is_named(change, error, message):
    with pytest.raises(error, match=message):
        uneven(**change)


@pytest.mark.parametrize("make", [uneven, lambda: uneven().queries])
def test_slices_masks_and_indices(make):
    data = make()
    for key in (slice(1, 3), slice(None, None, -1), [3, 0, 0], np.array([True, False, True, False]), [], -np.arange(4)):
        indices = np.arange(4)[np.asarray(key, dtype=int) if isinstance(key, list) else key]
        part = data[key]
        assert type(part) is type(data) and len(part) == len(indices)
        assert part.sizes.tolist() == data.sizes[indices].tolist()
        assert part.texts == [data.texts[i] for i in indices]
        for got, index in zip(part, indices, strict=True):
            np.testing.assert_array_equal(got.options, data[int(index)].options)
    assert data[-1].texts == data.texts[-1] and data[np.int64(2)].episode == 2
    assert [row.texts for row in data] == data.texts
    for key, error, message in (
        (4, IndexError, r"-4\.\.3, got 4"),
        ([4], ValueError, "got 4 at index"),
        ([True], ValueError, r"mask of shape \(4,\)"),
        ("anna", TypeError, "integers"),
        (0.5, TypeError, "integers"),
    ):
        with pytest.raises(error, match=message):
            _ = data[key]


@pytest.mark.needs("experiments")
def test_as_a_long_table():
    data = uneven(metadata={"attributes": ["price", "size", "age"]})
    table = data.to_pandas()
    assert list(table.columns) == [
        "person", "question", "episode", "step", "option", "text", "chosen", "answered_at", "price", "size", "age",
    ]  # fmt: skip
    assert table.groupby("question").size().tolist() == [4, 2, 3, 2]
    assert table.text.tolist() == [text for texts in data.texts for text in texts]
    chosen = table[table.chosen]
    assert (chosen.option - 1).tolist() == data.choice.tolist()
    np.testing.assert_array_equal(table[["price", "size", "age"]].to_numpy(), np.concatenate(rows_of(data)))
    mixed = Comparisons(
        data.features, (Response.ranking([2, 0, 1, 3]), Response.tie(), Response.best_worst(1, 0), Response.skip()),
        data.episode, data.step, sizes=data.sizes,
    )  # fmt: skip
    table = mixed.to_pandas()
    assert table.response.tolist() == ["ranking"] * 4 + ["tie"] * 2 + ["best_worst"] * 3 + ["skip"] * 2
    assert table.place.fillna(0).tolist() == [2, 3, 1, 4, 0, 0, 3, 1, 0, 0, 0]
    assert list(table.columns[-3:]) == ["feature_1", "feature_2", "feature_3"]


@pytest.mark.parametrize("format_of_answers", ["best", "best_worst", "ranking", "ties"])
@pytest.mark.parametrize("mode", ["argmax", "sampled"])
def test_users_answer_each_question_about_its_own_options(format_of_answers, mode):
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 6, size=200)
    theta = np.ones(D)
    options = [-np.abs(rng.normal(size=(size, D))) for size in sizes]  # every real option is worse than padding
    queries = Queries(options, np.arange(200), np.zeros(200, dtype=int))
    make = lambda: ImperfectUser(theta, mode=mode, response=format_of_answers, mistake_rate=0.2, seed=1)  # noqa: E731
    together = answers_of(make(), queries).responses
    user = make()
    one_by_one = tuple(answers_of(user, queries[[i]]).responses[0] for i in range(200))
    assert together == one_by_one
    plain = answers_of(SyntheticUser(theta), queries)
    assert plain.choices.tolist() == [int(np.argmax(one.astype(np.float32) @ theta)) for one in options]


@pytest.mark.parametrize("model", [BestWorst(), Ranking(), WithTies(0.5)])
def test_terms_of_every_format_are_those_of_the_questions_alone(model):
    data = uneven((4, 2, 3, 2, 2, 5))
    responses = tuple(
        Response.tie() if model.name == "ties" and i == 3 else
        Response.best_worst(1, 0) if model.name == "best_worst" else
        Response.ranking(range(size)) if model.name == "ranking" else Response.best(1)
        for i, size in enumerate(data.sizes.tolist())
    )  # fmt: skip
    told = Comparisons(data.features, responses, data.episode, data.step, sizes=data.sizes)
    theta = np.array([0.3, -1.0, 0.7])
    alone = sum(model.terms(row.options[None], [row.response]).log_likelihood(theta) for row in told)
    assert told.terms(model).log_likelihood(theta) == pytest.approx(alone, abs=1e-12)
    assert told.terms(model)[: len(told.terms(model))].log_likelihood(theta) == pytest.approx(alone)
