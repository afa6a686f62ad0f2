"""The reports' numbers against numbers computed by hand: answers needed, differences, ranks, and their intervals."""

from __future__ import annotations

import itertools

import numpy as np
import pandas
import pytest
from scipy.stats import friedmanchisquare

from benchmarks.kit.series import Curves, episodes_to_reach, nested_interval, nested_mean
from benchmarks.planners.efficiency import Efficiency, marks_table
from benchmarks.planners.first_answers import FirstRuns, differences_table, needed_table, shapes_table, taps_of
from benchmarks.planners.race import losses_table, ranking_table, scored_by
from benchmarks.planners.ranks import Blocks, average_ranks, block_values, critical_difference, rank_blocks
from benchmarks.planners.scoring import FIRST_METRICS, KNOWLEDGE

REGIME, OTHER = "items-d10-K4", "items-d10-K2"


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
    assert episodes_to_reach([curve] * 2, [1, 2, 4], [level] * 2, start).tolist() == pytest.approx([wanted] * 2)


def test_nested_intervals_are_those_of_the_groups_where_seeds_agree():
    """Three equal seeds of a group tell no more than one: resampling runs would make the interval too narrow."""
    assert nested_mean([[0.0], [2.0], [10.0]], ["a", "a", "b"])[0] == 5.5
    assert all(np.isnan(nested_interval([[0.0], [2.0]], ["a", "a"])))
    rng = np.random.default_rng(0)
    means = rng.normal(size=12)
    low, high = nested_interval(np.repeat(means, 3), np.repeat(np.arange(12), 3).tolist())
    assert high - low == pytest.approx(2 * 1.96 * means.std() / np.sqrt(12), rel=0.1)
    noise = rng.normal(size=(12, 3))
    noise -= noise.mean(axis=1, keepdims=True)  # groups that do not differ: only their seeds do
    low, high = nested_interval(noise.ravel(), np.repeat(np.arange(12), 3).tolist())
    assert high - low == pytest.approx(2 * 1.96 * noise.std() / np.sqrt(36), rel=0.1)


def table(**series: list[list[float]]) -> pandas.DataFrame:
    """Results of the regime argmax: cosine errors of each run (rows) at T = 1, 2, 4, by series ("__" for "/")."""
    rows = [
        {
            **{"regime": "argmax", "arm": name.partition("__")[0].replace("_", "-"), "seed": run, "user": "sunny"},
            **{"estimator": name.partition("__")[2] or "planner", "episodes": episodes, "cosine_error": value},
            "regret": np.nan if episodes == 1 else value / 10,
        }
        for name, runs in series.items()
        for run, values in enumerate(runs)
        for episodes, value in zip((1, 2, 4), values, strict=True)
    ]
    return pandas.DataFrame(rows)


def test_series_are_compared_on_the_runs_that_both_have():
    curves = Curves(
        table(a=[[0.9, 0.7, 0.5], [0.9, 0.7, 0.3]], b=[[0.8, 0.6, 0.4]]), ["arm"], ["seed"], None, "episodes"
    )
    both = curves.shared([("a",), ("b",)], "cosine_error")
    assert both is not None and [rows.tolist() for rows in both.values] == [[[0.9, 0.7, 0.5]], [[0.8, 0.6, 0.4]]]
    gap = curves.difference([(("b",), ("a",))], "cosine_error", 2)
    assert gap is not None and gap.value == pytest.approx(-0.1) and np.isnan(gap.low) and gap.sign == 0
    assert curves.difference([(("b",), ("a",))], "cosine_error", 3) is None
    assert curves.shared([("a",), ("c",)], "cosine_error") is None
    assert curves.shared([("a",)], "regret").counts == [2, 4]


def test_shares_by_hand_with_intervals_over_runs():
    """Means 0.6, 0.4, 0.2 for the arm; the reference ends at a mean of 0.5: half way between T = 1 and T = 2."""
    found = Efficiency(
        table(random__ridge100=[[0.9, 0.7, 0.6], [0.9, 0.7, 0.4]], adaptive=[[0.7, 0.4, 0.2], [0.5, 0.4, 0.2]])
    )
    share = found.share("argmax", "adaptive", "random/ridge100", "cosine_error")
    # resampled runs: only run 0 (0.6 from 0.7: T = 4/3), only run 1 (0.4: T = 2), or both (1.5), of 4
    assert (share.value, share.low, share.high) == pytest.approx((1.5 / 4, 1 / 3, 1 / 2))
    back = found.share("argmax", "random/ridge100", "adaptive", "cosine_error")
    assert back.value == back.low == back.high == float("inf")
    assert found.share("argmax", "adaptive", "random/vocabulary", "cosine_error") is None
    regret = found.share("argmax", "adaptive", "random/ridge100", "regret")
    assert regret.value == pytest.approx(0.5)  # measured at T = 2 and 4 only


def test_the_marks_are_judged_against_the_aims():
    falling, quick = [[0.9, 0.7, 0.5]] * 2, [[0.2, 0.1, 0.1]] * 2
    rows = table(
        random__ridge100=falling, random__vocabulary=[[0.8, 0.5, 0.2]] * 2, adaptive=quick, adaptive__vocabulary=quick
    )
    pool = table(adaptive=[[0.2, 0.2, 0.2]]).assign(regime=REGIME)
    found = Efficiency(pandas.concat([rows, pool]))  # of a planner its own estimate counts, and only in prompt MDPs
    assert set(found.rows["series"]) == {"adaptive", "random/vocabulary", "random/ridge100"}
    assert found.regimes == ["argmax"]
    marks = marks_table(found)
    # (a) 0.5 is reached at T = 0.625 (from 1 at T = 0), a share of 0.156 > 1/8; (b) 0.2 at T = 1, a share of 0.25
    assert marks.rows[0][2].startswith("0.156") and marks.rows[0][3] == "0.125: missed"
    assert marks.rows[0][4].startswith("0.250") and marks.rows[0][5] == "0.6: reached"


CELLS = {
    ("images-argmax-partial", "random", "vocabulary"): [[0.4, 0.3, 0.2], [0.4, 0.3, 0.2]],
    ("images-argmax", "random", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-argmax", "random", "ridge-fit"): [[0.4, 0.4, 0.2], [0.4, 0.3, 0.2]],
    ("images-argmax", "adaptive", "vocabulary"): [[0.3, 0.2, 0.1], [0.2, 0.1, 0.1]],
    ("images-scale-20", "random", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-scale-20", "adaptive", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-argmax-K6", "random+ranking", "vocabulary"): [[0.3, 0.1, 0.0], [0.3, 0.1, 0.0]],
}


def first_runs(answers=(6, 12, 36)) -> FirstRuns:
    rows = [
        {"regime": regime, "arm": arm, "estimator": estimator, "seed": 0, "user": f"user {user}", "questions": count}
        | dict.fromkeys(FIRST_METRICS, value)
        for (regime, arm, estimator), runs in CELLS.items()
        for user, values in enumerate(runs)
        for count, value in zip(answers, values, strict=True)
    ]
    return FirstRuns(pandas.DataFrame(rows))


def test_tables_of_first_answers_by_hand():
    rows = {row[:4]: row[4:] for row in needed_table(first_runs(), "preference_error").rows}
    # the mean curve is 0.25, 0.15, 0.1: half way between 6 and 12; user 0 alone needs 12, user 1 alone 6
    assert rows["images", "argmax", "K = 4, best", "adaptive"] == ("1", "9.0 [6.0, 12.0]")
    assert rows["images", "argmax", "K = 6, ranking", "random"] == ("5", "9.0 [9.0, 9.0]")
    assert rows["images", "argmax", "partial prompts, K = 4, best", "random"] == ("1", "36: 0.200")
    assert taps_of("random+best-worst", 6) == 2 and taps_of("random+partial", 9) == 3 == taps_of("random+ranking", 4)
    cells = {row[1]: row[4] for row in differences_table(first_runs(), "preference_error").rows}
    assert cells["argmax"] == "-0.100 [-0.100, -0.100]*" and cells["scale 20"].startswith("+0.000")
    assert cells["mean of 2"] == "-0.050 [-0.050, -0.050]*"  # paired, and averaged over the modes
    (shape,) = shapes_table(first_runs((6, 24, 36))).rows
    assert shape[:5] == ("images", "argmax", "a sentence", "0.350", "-0.100 [-0.100, -0.100]*")


def rows(arm: str, regime: str, seed: int, value: float, last: float | None = None, estimator: str = "vocabulary"):
    """Rows of one unit: the same value of each metric, or another one after the last question."""
    unit = {"regime": regime, "seed": seed, "user": "drawn", "arm": arm, "estimator": estimator}
    values = (value, value if last is None else last)
    return [
        unit | {"episodes": n, **dict.fromkeys((*KNOWLEDGE, "regret"), v)} for n, v in zip((5, 10), values, strict=True)
    ]


def blocks_of(values: list[list[float]], regimes: list[str] | None = None) -> Blocks:
    found = np.array(values, dtype=float)
    return Blocks(np.array(regimes or [REGIME] * len(found)), list("abcd"[: found.shape[1]]), [], {"regret": found})


def test_ties_share_ranks_and_the_critical_difference_is_the_tabulated_one():
    ranks = rank_blocks(np.array([[0.3, 0.1, 0.2], [0.5, 0.5, 0.1], [0.2, 0.2, 0.2], [0.1, 0.1 + 1e-15, 0.0]]))
    assert ranks.tolist() == [[3, 1, 2], [2.5, 2.5, 1], [2, 2, 2], [2.5, 2.5, 1]]
    for arms, quantile in ((2, 1.960), (5, 2.728), (10, 3.164)):  # Demsar (2006), table 5(a)
        wanted = quantile * np.sqrt(arms * (arms + 1) / (6 * 30))
        assert critical_difference(arms, 30) == pytest.approx(wanted, rel=5e-4)
    assert critical_difference(4, 14, alpha=0.10) == pytest.approx(1.12, abs=0.005)  # section 3.2.2


def test_one_that_is_always_best_has_rank_one():
    values = np.random.default_rng(0).random((20, 4)) + 1.0
    values[:, 2] = 0.0
    found = average_ranks(blocks_of(values.tolist()))
    assert found.arms[0] == "c" and found.ranks[0] == found.low[0] == found.high[0] == 1.0 and found.tied == ["c"]
    ranks = np.array([[sorted(row).index(value) + 1 for value in row] for row in values.tolist()])
    wanted = dict(zip("abcd", ranks.mean(0), strict=True))
    assert dict(zip(found.arms, found.ranks, strict=True)) == pytest.approx(wanted)
    assert found.friedman == pytest.approx(friedmanchisquare(*ranks.T).pvalue)


def test_regimes_weigh_the_same_and_intervals_resample_blocks_within_them():
    """a is first in three blocks of one regime, last in the one of the other: 1.5 each, not 1.25 and 1.75."""
    found = average_ranks(blocks_of([[0, 1]] * 3 + [[1, 0]], [REGIME] * 3 + [OTHER]))
    assert found.ranks.tolist() == [1.5, 1.5] and found.blocks == 4
    assert not found.known and found.tied == ["a"]  # a single block says nothing of the spread: nobody is called tied
    assert found.difference == pytest.approx(critical_difference(2, 4 / (1 / 3 + 1)))
    found = average_ranks(blocks_of([[0, 1], [1, 0], [0, 1], [0, 1]], [REGIME, REGIME, OTHER, OTHER]))
    drawn = [1 + (first + second) / 4 for first, second in itertools.product((0, 1), repeat=2)]
    assert found.ranks.tolist() == [1.25, 1.75] and {found.low[0], found.high[0]} == {min(drawn), max(drawn)}


def test_values_are_means_over_checkpoints_or_the_last_ones():
    given_ = [*rows("adaptive", REGIME, 0, 0.5, 0.1), *rows("bald", REGIME, 0, 0.4, 0.3)]
    given_ += rows("bald", REGIME, 0, 0.0, estimator="planner")
    found = pandas.DataFrame(given_)
    found.loc[(found["arm"] == "adaptive") & (found["episodes"] == 5), "regret"] = np.nan  # measured at the last only
    common = scored_by(found, "common")
    area = block_values(common, metrics=("cosine_error", "regret"), regimes=[REGIME])
    last = block_values(common, metrics=("cosine_error",), regimes=[REGIME], value="last")
    order = [area.arms.index("adaptive"), area.arms.index("bald")]
    assert area.values["cosine_error"][0, order].tolist() == pytest.approx([0.3, 0.35])
    assert area.values["regret"][0, order].tolist() == pytest.approx([0.1, 0.35])
    assert last.values["cosine_error"][0, order].tolist() == pytest.approx([0.1, 0.3])
    assert block_values(scored_by(found, "own"), metrics=("regret",), regimes=[REGIME]) is None  # nobody to compare


def test_who_lacks_a_regime_is_left_out_and_an_unfinished_seed_too():
    given_ = []
    for seed, regime in itertools.product(range(3), (REGIME, OTHER)):
        for arm in ("adaptive", "bald", "random", *(["qeubo"] if regime == OTHER else [])):
            given_ += rows(arm, regime, seed, 0.5)
    found = pandas.DataFrame(given_ + rows("adaptive", REGIME, 3, 0.5))  # the run was stopped here
    ranked = block_values(found, metrics=KNOWLEDGE, regimes=[REGIME, OTHER])
    assert sorted(ranked.arms) == ["adaptive", "bald", "random"] and ranked.left_out == ["qeubo"]
    assert len(ranked.regimes) == 6 and not block_values(found, metrics=KNOWLEDGE, regimes=[OTHER]).left_out


def test_where_others_are_better_and_ranks_are_tables():
    """adaptive knows more than bald in one regime and less in the other; adaptive-best has the least regret."""
    rng, given_ = np.random.default_rng(3), []
    for seed, regime in itertools.product(range(6), (REGIME, OTHER)):
        for arm, error in (("adaptive", 0.3), ("adaptive-best", 0.6), ("bald", 0.2 if regime == OTHER else 0.4)):
            given_ += rows(arm, regime, seed, error + 0.01 * rng.random())
    found = pandas.DataFrame(given_)
    found["regret"] = found["arm"].map({"adaptive": 0.2, "adaptive-best": 0.0, "bald": 0.3})
    assert losses_table(found, [REGIME, OTHER]).rows == [
        ("100 items, d = 10, K = 2", "knowledge", "adaptive", "bald 1.0 [1.00, 1.00]", "-")
    ]
    regret = ranking_table(found, [REGIME, OTHER], "regret", "common")
    assert [row[0] for row in regret.rows] == ["adaptive-best", "adaptive", "bald"]
    assert regret.rows[0][2].startswith("1.00") and regret.rows[0][3] == "first" and "12 blocks" in regret.note
    knowledge = ranking_table(found, [REGIME, OTHER], "knowledge", "common")
    assert "(tied)" in knowledge.rows[1][3] and "Friedman" in knowledge.note
