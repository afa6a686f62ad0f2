"""Options of one question that differ as texts and not as features."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.answer_files import read_person
from edpbrl_gym.comparisons.question_files import check_same_options
from edpbrl_gym.estimation import estimate
from edpbrl_gym.features.notices import same_options
from edpbrl_gym.likelihood import Response


def answers(features, texts):
    rows = np.asarray(features, dtype=np.float32)
    return Comparisons(
        features=rows,
        responses=tuple(Response.best(0) for _ in rows),
        episode=np.arange(len(rows)),
        step=np.zeros(len(rows), np.int64),
        texts=texts,
        metadata={"encoder": "mine"},
    )


ROWS = np.eye(4)


@given(st.integers(1, 5), st.integers(2, 5), st.integers(0, 10**6))
def test_rounding_does_not_tell_options_apart(count, options, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, options, 8))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    texts = [[str(number) for number in range(options)]] * count
    assert same_options(texts, rows) == []
    rows[:, -1] = rows[:, 0] + rng.uniform(-1e-6, 1e-6, size=(count, 8))
    assert same_options(texts, rows.astype(np.float32)) == [(number, 0, options - 1) for number in range(count)]


def test_answers_that_teach_nothing_are_an_error_and_some_a_warning(tmp_path, caplog):
    some = answers([ROWS[[0, 0]], ROWS[[0, 1]]], [["a fox", "a boat"], ["a fox", "a sea"]])
    none = answers([ROWS[[0, 0]], ROWS[[1, 1]]], [["a fox", "a boat"], ["a sea", "fog"]])
    check_same_options(some, "answers")
    (record,) = caplog.records
    assert record.getMessage() == (
        "1 of 2 questions of answers have different options with equal embeddings, about which nothing can be learnt: "
        "in question 1 option 1 ('a fox') and option 2 ('a boat') have equal embeddings by mine"
    )
    none.to_parquet(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="Expected options with different embeddings in .*none.parquet, got none, so"):
        read_person(tmp_path / "none.parquet", pytest.fail)
    check_same_options(answers(ROWS[None, [0, 0]], None), "without texts")
    check_same_options(answers(ROWS[None, [0, 0]], [["fog", "fog"]]), "equal texts")
    assert len(caplog.records) == 1


def test_an_estimate_from_equal_options_says_that_nothing_is_learnt(caplog):
    with caplog.at_level(logging.WARNING):
        found = estimate((np.ones((3, 2, 4)), [0, 1, 0]), regularization=1.0)
    assert not found.theta.any() and "of the 3 answers have equal features: nothing is learnt" in caplog.text
    caplog.clear()
    estimate((np.empty((0, 2, 4)), np.empty(0, np.int64)), regularization=1.0)
    estimate((np.stack([ROWS[:2]] * 2), [0, 1]), regularization=1.0)
    assert not caplog.records
