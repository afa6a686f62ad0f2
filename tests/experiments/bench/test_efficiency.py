"""Query efficiency: the summary of a benchmark against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.experiments.bench.efficiency import RunIndex, compare, curves_of, needed, piece, with_series
from edpbrl_gym.experiments.bench.efficiency_tables import TARGETS_A, headline_tables, summarise_efficiency
from edpbrl_gym.reporting.statistics import episodes_to_reach, interval


def table(**series: list[list[float]]) -> pandas.DataFrame:
    """Results of the regime argmax: cosine errors of each run (rows) at T = 1, 2, 4, by series ("__" for "/")."""
    rows = [
        {
            "regime": "argmax", "arm": name.partition("__")[0].replace("_", "-"),
            "estimator": name.partition("__")[2] or "planner", "seed": run, "user": "sunny",
            "episodes": episodes, "cosine_error": value, "preference_error": value / 2, "choice_error": value / 2,
            "regret": np.nan if episodes == 1 else value / 10,
        }
        for name, runs in series.items()
        for run, values in enumerate(runs)
        for episodes, value in zip((1, 2, 4), values, strict=True)
    ]  # fmt: skip
    return pandas.DataFrame(rows)


def index(**series: list[list[float]]) -> RunIndex:
    return RunIndex(with_series(table(**series)))


# -- how many episodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curve", "level", "start", "wanted"),
    [
        ([0.8, 0.5, 0.3], 0.4, 1.0, 3.0),  # half way between T = 2 and T = 4
        ([0.8, 0.5, 0.3], 0.3, 1.0, 4.0),  # exactly the last value
        ([0.8, 0.5, 0.3], 0.9, 1.0, 0.5),  # half way between T = 0 and T = 1
        ([0.8, 0.5, 0.3], 0.9, float("nan"), 1.0),  # what was before is unknown
        ([0.8, 0.5, 0.3], 0.2, 1.0, float("inf")),  # not reached
        ([0.3, 0.5, 0.3], 0.4, 1.0, 3.0),  # from which T on it stays there, not when it first was
        ([0.8, 0.3, 0.5], 0.4, 1.0, float("inf")),  # it was there, and left again
        ([0.8, 0.5, 0.3], 1.0, 1.0, 0.0),  # no question is needed
    ],
)
def test_episodes_to_reach_by_hand(curve, level, start, wanted):
    assert float(episodes_to_reach(curve, [1, 2, 4], level, start)) == pytest.approx(wanted)


@given(st.lists(st.floats(0.01, 0.2), min_size=3, max_size=8), st.floats(0.0, 1.0))
def test_on_falling_curves_it_is_the_inverse_of_the_interpolation(drops, share):
    values = 1.0 - np.cumsum(drops) / (sum(drops) + 0.1)
    places = np.cumsum(np.arange(1, len(values) + 1))
    level = values[-1] + share * (1.0 - values[-1])
    wanted = np.interp(-level, -np.concatenate([[1.0], values]), np.concatenate([[0], places]))
    assert float(episodes_to_reach(values, places, level, 1.0)) == pytest.approx(wanted, abs=1e-9)


def test_many_curves_at_once_equal_one_by_one():
    rng = np.random.default_rng(0)
    curves, levels = rng.random((20, 5)), rng.random(20)
    at_once = episodes_to_reach(curves, [1, 2, 3, 5, 8], levels, 1.0)
    single = [float(episodes_to_reach(c, [1, 2, 3, 5, 8], v, 1.0)) for c, v in zip(curves, levels, strict=True)]
    assert at_once.tolist() == single


# -- comparisons of series ---------------------------------------------------------------------------------------------


def test_needed_by_hand_with_an_interval_over_runs():
    """Means 0.6, 0.4, 0.2 for the arm; the reference ends at a mean of 0.5: half way between T = 1 and T = 2."""
    given_ = index(random__ridge100=[[0.9, 0.7, 0.6], [0.9, 0.7, 0.4]], adaptive=[[0.7, 0.4, 0.2], [0.5, 0.4, 0.2]])
    found = needed(given_, "argmax", "adaptive", "random/ridge100", "cosine_error")
    assert found is not None and found.level == pytest.approx(0.5) and found.runs == 2
    assert found.episodes == pytest.approx(1.5) and found.share == pytest.approx(1.5 / 4)
    # resampled runs: only run 0 (0.6 from 0.7: T = 4/3), only run 1 (0.4: T = 2), or both (1.5)
    assert found.low == pytest.approx(4 / 3) and found.high == pytest.approx(2.0)
    back = needed(given_, "argmax", "random/ridge100", "adaptive", "cosine_error")
    assert back is not None and back.episodes == back.high == back.low == float("inf")
    assert needed(given_, "argmax", "adaptive", "random/vocabulary", "cosine_error") is None
    regret = needed(given_, "argmax", "adaptive", "random/ridge100", "regret")
    assert regret is not None and regret.level == pytest.approx(0.05)  # measured at T = 2 and 4 only
    assert regret.episodes == 2.0


def test_series_are_compared_on_the_runs_that_both_have():
    given_ = index(random__vocabulary=[[0.9, 0.7, 0.5], [0.9, 0.7, 0.3]], adaptive=[[0.8, 0.6, 0.4]])
    found = curves_of(given_, "argmax", ("random/vocabulary", "adaptive"), "cosine_error")
    assert found is not None and found.runs == [(0, "sunny")]
    assert found.values["random/vocabulary"].tolist() == [[0.9, 0.7, 0.5]]
    compared = compare(given_, "argmax", "adaptive", "random/vocabulary", "cosine_error", 2)
    assert compared is not None and compared.difference.mean == pytest.approx(-0.1) and compared.difference.runs == 1
    assert compared.outcome == "tie" and np.isnan(compared.difference.interval[0])  # one run proves nothing
    assert compare(given_, "argmax", "adaptive", "random/vocabulary", "cosine_error", 3) is None


@pytest.mark.parametrize(("gap", "outcome"), [(-0.1, "win"), (0.1, "loss"), (0.0, "tie")])
def test_a_series_wins_where_the_interval_excludes_zero(gap, outcome):
    noise = np.random.default_rng(1).normal(scale=0.02, size=(12, 3))
    noise -= noise.mean(axis=0)
    base = np.random.default_rng(2).random((12, 3))  # runs differ far more than arms: only pairing shows the gap
    given_ = index(random__vocabulary=base.tolist(), adaptive=(base + gap + noise).tolist())
    compared = compare(given_, "argmax", "adaptive", "random/vocabulary", "cosine_error", 4)
    assert compared is not None and compared.outcome == outcome
    assert compared.difference.mean == pytest.approx(gap)
    deviation = noise[:, 2].std() / np.sqrt(12)  # of the mean under the bootstrap
    low, high = compared.difference.interval
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.15)


def test_a_piece_is_the_ratio_of_questions_and_turns_around():
    """The better arm reaches 0.4 at T = 2, the other at T = 4."""
    given_ = index(random__vocabulary=[[0.9, 0.6, 0.4]] * 3, adaptive=[[0.7, 0.4, 0.2]] * 3)
    bought = piece(given_, "argmax", "adaptive", "random/vocabulary", "adaptive")
    cost = piece(given_, "argmax", "adaptive", "adaptive", "random/vocabulary")
    assert bought is not None and cost is not None
    assert bought.factor == pytest.approx(2.0) and bought.low == bought.high == pytest.approx(2.0)
    assert cost.factor == pytest.approx(0.5)
    assert piece(given_, "argmax", "", "adaptive", "exact-design/vocabulary") is None
    lost = index(random__vocabulary=[[1.1, 1.2, 1.3]] * 3, adaptive=[[1.1, 1.2, 1.2]] * 3)  # nobody has learnt anything
    equal = piece(lost, "argmax", "", "random/vocabulary", "adaptive")
    assert equal is not None and equal.factor == equal.low == equal.high == 1.0


def test_intervals_of_one_run_are_unknown_and_of_equal_runs_a_point():
    assert all(np.isnan(interval([0.3])))
    assert interval([3.0] * 5) == (3.0, 3.0)
    assert interval([[1.0, 2.0], [3.0, 0.0]], lambda means: means.sum(axis=-1)) == (3.0, 3.0)


def test_the_marks_are_judged_against_the_aims():
    falling = [[0.9, 0.7, 0.5], [0.9, 0.7, 0.5]]
    marked = table(random__ridge100=falling, random__vocabulary=[[0.8, 0.5, 0.2]] * 2, adaptive=[[0.2, 0.1, 0.1]] * 2)
    marks, asked = headline_tables(summarise_efficiency(marked), 3)
    # (a) 0.5 is reached at T = 0.625 (from 1 at T = 0), a share of 0.156 > 1/8; (b) 0.2 at T = 1, a share of 0.25
    assert marks.rows[0][1].startswith("0.156") and marks.rows[0][2] == "0.125: missed"
    assert marks.rows[0][3].startswith("0.250") and marks.rows[0][4] == "0.6: reached" and marks.rows[0][5] == "no"
    row = next(row for row in asked.rows if row[1] == "adaptive")
    assert row[2] == "2" and row[4] == "3" and row[6] == "2"  # questions of 3 a episode, and two runs
    assert TARGETS_A == {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
    worse = table(random__vocabulary=[[0.8, 0.5, 0.2]] * 3, adaptive=[[0.9, 0.6, 0.3]] * 3)
    assert {one.outcome for one in summarise_efficiency(worse).comparisons} == {"loss"}


def test_series_are_arms_with_an_estimator_and_planners_stand_for_their_own():
    rows = table(random__ridge100=[[0.9, 0.7, 0.5]], adaptive=[[0.8, 0.6, 0.4]], adaptive__vocabulary=[[0.7, 0.5, 0.3]])
    pool = table(adaptive=[[0.2, 0.2, 0.2]]).assign(regime="items-d10-K4")
    series = with_series(pandas.concat([rows, pool]))["series"]
    assert series.value_counts().to_dict() == {"random/ridge100": 3, "adaptive": 3}
    assert summarise_efficiency(pool).regimes == []
