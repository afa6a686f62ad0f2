"""Krippendorff's alpha and the intervals of a study, against published examples and independent formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.study.reporting.agreement import agreement, krippendorff_alpha
from edpbrl_gym.study.reporting.intervals import difference_of_means, mean_of, share_of, wilson


def read(*rows):
    return [[None if mark == "." else int(mark) for mark in row.split()] for row in rows]


def test_alpha_of_published_examples():
    """Krippendorff, Computing Krippendorff's alpha-reliability (2011): examples A (two observers) and C (four)."""
    two = read("0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0")
    assert krippendorff_alpha(two) == pytest.approx(0.095, abs=0.0005)
    four = read(
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    )
    assert krippendorff_alpha(four) == pytest.approx(0.743, abs=0.0005)


def by_pairs(values):
    """The definition, pair by pair."""
    people, questions = range(len(values)), range(len(values[0]))
    observed, kept = 0.0, []
    for question in questions:
        given = [values[person][question] for person in people if values[person][question] is not None]
        if len(given) < 2:
            continue
        kept += given
        observed += sum(a != b for a, b in itertools.permutations(given, 2)) / (len(given) - 1)
    unequal = sum(a != b for a, b in itertools.permutations(kept, 2))
    if not unequal:
        return math.nan
    return 1.0 - (observed / len(kept)) / (unequal / (len(kept) * (len(kept) - 1)))


def tables(width):
    rows = st.lists(st.none() | st.integers(0, 3), min_size=width, max_size=width)
    return st.lists(rows, min_size=1, max_size=6)


@settings(max_examples=200)
@given(st.integers(1, 6).flatmap(tables))
def test_alpha_is_the_definition_pair_by_pair(values):
    assert krippendorff_alpha(values) == pytest.approx(by_pairs(values), nan_ok=True)
    found = agreement(values)
    assert found.value == pytest.approx(by_pairs(values), nan_ok=True)
    assert math.isnan(found.low) or -1.5 <= found.low <= found.high <= 1.0


def test_copies_of_a_person_do_not_count_as_agreement():
    """People who answer at random: with pairs of copies, samples of ten people would agree by 0.1 on average."""
    rng = np.random.default_rng(1)
    middles = []
    for _ in range(40):
        found = agreement(rng.integers(4, size=(10, 8)).tolist())
        middles.append((found.low + found.high) / 2 - found.value)
    assert abs(np.mean(middles)) < 0.03


def test_the_interval_of_alpha_holds_the_truth():
    """In populations where a person gives the favourite of a question with probability 0.7: alpha is known."""
    rng = np.random.default_rng(2)
    options, people, questions, truth = 4, 30, 12, 0.6**2  # favourite with 0.6 + 0.4 / 4 = 0.7; pairs agree as 0.36
    held = 0
    for _ in range(100):
        favourites = rng.permutation(np.arange(questions) % options)  # each option equally often
        drawn = rng.integers(options, size=(people, questions))
        values = np.where(rng.random((people, questions)) < 0.6, favourites, drawn)
        found = agreement(values.tolist())
        held += found.low <= truth <= found.high
    assert 86 <= held <= 100


@pytest.mark.needs("test")
@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (15, 20, 0.5313, 0.8881), (50, 100, 0.4038, 0.5962), (1, 1, 0.2065, 1.0)],
)
def test_wilson_intervals(successes, total, low, high):
    """Checked with statsmodels' proportion_confint(method="wilson")."""
    assert wilson(successes, total) == pytest.approx((low, high), abs=5e-5)
    from statsmodels.stats.proportion import proportion_confint

    assert wilson(successes, total) == pytest.approx(proportion_confint(successes, total, method="wilson"))


def test_shares_and_means_over_people():
    found = share_of([1, 2, 0, 0], [2, 2, 1, 0])
    assert found.value == 0.6 and found.people == 3 and found.low < 0.6 < found.high
    sure = share_of([2] * 20, [2] * 20)
    assert sure.value == sure.high == 1.0 and sure.low == pytest.approx(wilson(20, 20)[0])
    assert math.isnan(share_of([0], [0]).value) and math.isnan(mean_of([]).value)
    assert math.isnan(mean_of([3.0]).low) and mean_of([3.0]).value == 3.0


def test_differences_have_the_spread_of_both_groups():
    rng = np.random.default_rng(3)
    first, second = rng.normal(1.0, 1.0, 200), rng.normal(0.0, 2.0, 100)
    found = difference_of_means(first.tolist(), second.tolist())
    error = math.sqrt(first.var(ddof=1) / 200 + second.var(ddof=1) / 100)
    assert found.value == pytest.approx(first.mean() - second.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1) and found.people == 300
    assert math.isnan(difference_of_means([1.0], [1.0, 2.0]).low)
