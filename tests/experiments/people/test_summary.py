"""The numbers of the report against computations by hand."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.people.summary import Replays, Series
from edpbrl_gym.experiments.people.tables import (
    anchor_table,
    calibration_table,
    curve_table,
    estimators_table,
    ratio_table,
)


def rows(estimator, rule, values, *, people=4, answers=(0, 2, 4)):
    """Rows with two held-out questions; ``values[person, answers]`` is the mean log-likelihood of the two."""
    made = []
    for person in range(people):
        for place, count in enumerate(answers):
            for question in range(2):
                value = values[person][place]
                if np.isnan(value):
                    continue
                made.append(
                    {
                        "data": "d", "estimator": estimator, "rule": rule, "fold": person % 2, "person": person,
                        "answers": count, "question": question, "hit": float(question == 0), "confidence": 0.7,
                        "log_probability": value + (0.1 if question else -0.1),
                        "log_probability_at_estimate": value, "seconds_fit": 0.5, "seconds_question": 0.25,
                        "seconds_population": 3.0,
                    }
                )  # fmt: skip
    return made


RIDGE, RANDOM, ADAPTIVE = (
    Series("ridge1", "random"),
    Series("population-em6", "random"),
    Series("population-em6", "adaptive"),
)


@pytest.fixture
def replays():
    nan = float("nan")
    ridge = [[-2.0, -1.6, -1.4]] * 3 + [[-2.0, -1.6, nan]]
    random = [[-1.5, -1.2, -1.0], [-1.7, -1.4, -1.2], [-1.6, -1.3, -1.1], [-1.0, -1.0, nan]]
    adaptive = [[-1.5, -1.0, -1.0], [-1.7, -1.2, -1.2], [-1.6, -1.1, -1.1], [-1.0, -0.8, nan]]
    made = rows(*RIDGE, ridge) + rows(*RANDOM, random) + rows(*ADAPTIVE, adaptive)
    return Replays(pandas.DataFrame(made))


def test_curves_are_means_over_people_of_means_over_their_answers(replays):
    assert replays.series("d") == [RIDGE, RANDOM, ADAPTIVE]
    assert replays.values("d", RANDOM, "log_probability", 0).tolist() == pytest.approx([-1.5, -1.7, -1.6, -1.0])
    assert len(replays.values("d", RANDOM, "log_probability", 4)) == 3  # one person has fewer questions
    table = curve_table(replays, "d", "log_probability", intervals=False)
    assert table.rows[1] == ["population-em6", "random", "-1.450", "-1.225", "-1.100"]
    assert table.rows[-1][2:] == ["4", "4", "3"]


def test_answers_needed_are_read_from_the_people_with_all_answers(replays):
    # of the three with all answers: -1.6, -1.3, -1.1 at random and -1.6, -1.1, -1.1 adaptively
    assert replays.needed("d", RANDOM, "log_probability", -1.2)[0] == pytest.approx(3.0)
    assert replays.needed("d", ADAPTIVE, "log_probability", -1.2)[0] == pytest.approx(1.6)
    assert replays.needed("d", RIDGE, "log_probability", -1.2)[0] == float("inf")
    assert replays.needed("d", RANDOM, "log_probability", -1.8)[0] == 0.0
    low, high = replays.needed("d", RANDOM, "log_probability", -1.2)[1]
    assert 2.0 <= low <= 3.0 <= high
    table = ratio_table(replays, "d", "log_probability")
    assert [cell.split()[0] for cell in table.rows[0][2:]] == ["1.2", "2.0"]


def test_differences_are_paired(replays):
    pairs = replays.difference("d", "log_probability", 2, ADAPTIVE, RANDOM)
    assert pairs.values.tolist() == pytest.approx([0.2] * 4) and pairs.sign == 1
    assert replays.difference("d", "log_probability", 9, ADAPTIVE, RANDOM).runs == 0
    assert replays.best_alone("d", "log_probability") == RIDGE
    table = estimators_table(replays, "d", "log_probability")
    assert len(table.rows) == 1 and table.rows[0][2].startswith("+0.550 [")


def test_populations_are_compared_with_hierarchical_bayes(replays):
    assert not anchor_table(replays, "d", "log_probability").rows  # it was not run
    anchor = rows("hierarchical-bayes", "random", [[-1.5, -1.1, -1.0]] * 4)
    both = Replays(pandas.concat([replays.table, pandas.DataFrame(anchor)]))
    table = anchor_table(both, "d", "log_probability")
    assert [row[:2] for row in table.rows] == [["population-em6", "random"], ["population-em6", "adaptive"]]
    assert [row[3].split()[0] for row in table.rows] == ["-0.125", "+0.075"]


def test_the_calibration_error_is_that_of_the_bins(replays):
    bins = replays.bins("d", RANDOM, None)
    assert bins is not None and bins.error == pytest.approx(0.2)  # confidence 0.7, hit rate 0.5, in one bin
    shares, confidence, hits = bins.points
    assert shares == pytest.approx([1.0]) and confidence == pytest.approx([0.7]) and hits == pytest.approx([0.5])
    assert "0.200 [0.200, 0.200]" in calibration_table(replays, "d").rows[0]
    assert replays.seconds("d", RANDOM) == (0.5, 0.25, 3.0)


def test_the_calibration_error_is_that_of_sorted_answers():
    """Against a computation over answers, not people; each person has as many."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0, 1, (30, 8))
    confidence[0, 0] = 1.0
    hit = (rng.uniform(size=(30, 8)) < confidence**2).astype(float)
    made = [
        {"data": "d", "estimator": "ridge1", "rule": "random", "fold": 0, "person": p, "answers": 1, "question": q,
         "hit": hit[p, q], "confidence": confidence[p, q]}
        for p in range(30)
        for q in range(8)
    ]  # fmt: skip
    bins = Replays(pandas.DataFrame(made)).bins("d", RIDGE, 1)
    expected, number = 0.0, np.minimum((confidence * 10).astype(int), 9)
    for one in range(10):
        if (inside := number == one).any():
            expected += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
    assert bins is not None and bins.error == pytest.approx(expected, abs=1e-12)
    low, high = bins.interval
    assert low < high and high > bins.error
