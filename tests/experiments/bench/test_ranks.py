"""Average ranks, critical differences and their tables against numbers computed by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pandas
import pytest
from scipy.stats import friedmanchisquare

from edpbrl_gym.experiments.bench.measuring import KNOWLEDGE
from edpbrl_gym.experiments.bench.rank_tables import (
    losses_table,
    rank_headline,
    ranking_table,
    scored_by,
    summarise_ranks,
    time_tables,
)
from edpbrl_gym.reporting.ranks import (
    Blocks,
    average_ranks,
    block_values,
    critical_difference,
    groups,
    nemenyi_quantile,
    rank_blocks,
)

REGIME, OTHER = "items-d10-K4", "items-d10-K2"


def rows(arm: str, regime: str, seed: int, curves: dict[str, list[float]], estimator: str = "vocabulary") -> list[dict]:
    """Rows of one unit: a value of each metric at 5 and 10 questions."""
    return [
        {
            "regime": regime, "seed": seed, "user": "drawn", "arm": arm, "episodes": count, "questions": count,
            "estimator": estimator, "converged": True, "code": "abc", "seconds_setup": 0.1, "seconds_first": 0.2,
            "seconds_question": 0.003, "seconds_longest": 0.004, "seconds_think": 0.002,
            **{metric: values[place] for metric, values in curves.items()},
        }
        for place, count in enumerate((5, 10))
    ]  # fmt: skip


def flat(value: float, last: float | None = None) -> dict[str, list[float]]:
    values = [value, value if last is None else last]
    return {metric: values for metric in (*KNOWLEDGE, "regret")}


def blocks_of(values: list[list[float]], regimes: list[str] | None = None, arms: str = "abcdefgh") -> Blocks:
    table = np.array(values, dtype=float)
    names = [REGIME] * len(table) if regimes is None else regimes
    keys = [(name, seed, "drawn") for seed, name in enumerate(names)]
    return Blocks(np.array(names), keys, list(arms[: table.shape[1]]), [], {"regret": table})


# -- ranks -----------------------------------------------------------------------------------------------------------


def test_ties_share_ranks():
    ranks = rank_blocks(np.array([[0.3, 0.1, 0.2], [0.5, 0.5, 0.1], [0.2, 0.2, 0.2], [0.1, 0.1 + 1e-15, 0.0]]))
    assert ranks.tolist() == [[3, 1, 2], [2.5, 2.5, 1], [2, 2, 2], [2.5, 2.5, 1]]


@pytest.mark.parametrize(
    ("arms", "quantile"),
    # Demsar (2006), table 5(a)
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_the_critical_difference_is_the_tabulated_one(arms, quantile):
    assert nemenyi_quantile(arms) == pytest.approx(quantile, abs=1.1e-3)  # the table cuts some off
    wanted = quantile * np.sqrt(arms * (arms + 1) / (6 * 30))
    assert critical_difference(arms, 30) == pytest.approx(wanted, rel=5e-4)


def test_the_critical_difference_of_demsars_example():
    """Four classifiers on 14 data sets: CD = 1.25 at 5%, 1.12 at 10% (section 3.2.2)."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, alpha=0.10) == pytest.approx(1.12, abs=0.005)


def test_groups_join_what_is_closer_than_the_critical_difference():
    assert groups([1.0, 1.5, 2.5, 4.0, 4.1], 1.0) == [(0, 1), (1, 2), (3, 4)]
    assert groups([1.0, 2.0, 3.0], 5.0) == [(0, 2)]
    assert groups([1.0, 3.0, 5.0], 1.0) == []
    assert groups([1.0, 1.2, 1.4], 0.4) == [(0, 2)]  # the pair inside is part of the larger group


def test_one_that_is_always_best_has_rank_one():
    rng = np.random.default_rng(0)
    values = rng.random((20, 4)) + 1.0
    values[:, 2] = 0.0
    found = average_ranks("all", blocks_of(values.tolist()))
    assert found.arms[0] == "c" and found.ranks[0] == found.low[0] == found.high[0] == 1.0
    assert found.tied == ["c"] and found.place("c") == 1 and found.place("nobody") is None
    assert found.ranks.sum() == pytest.approx(1 + 2 + 3 + 4)
    ranks = np.array([[sorted(row).index(value) + 1 for value in row] for row in values.tolist()])
    assert dict(zip(found.arms, found.ranks, strict=True)) == pytest.approx(
        dict(zip("abcd", ranks.mean(0), strict=True))
    )
    assert found.friedman == pytest.approx(friedmanchisquare(*ranks.T).pvalue)
    assert found.difference == pytest.approx(critical_difference(4, 20))


def test_arms_that_are_alike_are_tied_and_one_that_is_worse_is_not():
    noise = np.random.default_rng(1).random((30, 3))
    values = np.column_stack([noise[:, :2], noise[:, 2] + 0.6])
    found = average_ranks("all", blocks_of(values.tolist()))
    assert set(found.tied) == {"a", "b"} and found.arms[2] == "c" and found.behind_low[2] > 0
    assert found.behind_low[0] == found.behind_high[0] == 0.0


def test_regimes_weigh_the_same_whatever_their_blocks():
    """a is first in three blocks of one regime, last in the one of the other: 1.5 each, not 1.25 and 1.75."""
    found = average_ranks("all", blocks_of([[0, 1]] * 3 + [[1, 0]], [REGIME] * 3 + [OTHER]))
    assert found.ranks.tolist() == [1.5, 1.5] and found.blocks == 4
    assert list(found.by_regime) == [REGIME, OTHER]
    assert {name: ranks.tolist() for name, ranks in found.by_regime.items()} == {REGIME: [1, 2], OTHER: [2, 1]}
    assert np.isnan(found.low).all()
    assert not found.known and found.tied == ["a"]  # a single block says nothing of the spread: nobody is called tied
    assert found.difference == pytest.approx(critical_difference(2, 4 / (1 / 3 + 1)))


def test_intervals_resample_blocks_within_regimes():
    """Two regimes of two blocks each; b is ahead in one of four. The average over all resamples by enumeration."""
    values = [[0, 1], [1, 0], [0, 1], [0, 1]]
    found = average_ranks("all", blocks_of(values, [REGIME, REGIME, OTHER, OTHER]))
    assert found.arms == ["a", "b"] and found.ranks.tolist() == [1.25, 1.75]
    drawn = [1 + (first + second) / 4 for first, second in itertools.product((0, 1), repeat=2)]
    assert {found.low[0], found.high[0]} == {min(drawn), max(drawn)}


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_values_are_means_over_checkpoints_or_the_last_ones():
    table = pandas.DataFrame(
        [*rows("adaptive", REGIME, 0, flat(0.5, 0.1)), *rows("bald", REGIME, 0, flat(0.4, 0.3))]
        + rows("bald", REGIME, 0, flat(0.0), estimator="planner")
    )
    table.loc[(table["arm"] == "adaptive") & (table["episodes"] == 5), "regret"] = np.nan  # measured at the last only
    common = scored_by(table, "common")
    area = block_values(common, metrics=("cosine_error", "regret"))
    last = block_values(common, metrics=("cosine_error",), value="last")
    assert area is not None and last is not None
    order = [area.arms.index("adaptive"), area.arms.index("bald")]
    assert area.values["cosine_error"][0, order].tolist() == pytest.approx([0.3, 0.35])
    assert area.values["regret"][0, order].tolist() == pytest.approx([0.1, 0.35])
    assert last.values["cosine_error"][0, order].tolist() == pytest.approx([0.1, 0.3])
    assert block_values(scored_by(table, "own"), metrics=("regret",)) is None  # nobody to compare with


def test_who_lacks_a_regime_is_left_out_and_an_unfinished_seed_too():
    table = []
    for seed, regime in itertools.product(range(3), (REGIME, OTHER)):
        for arm in ("adaptive", "bald", "random"):
            table += rows(arm, regime, seed, flat(0.5))
        if regime == OTHER:
            table += rows("botorch-bald", regime, seed, flat(0.2))
    table += rows("adaptive", REGIME, 3, flat(0.5))  # the run was stopped here
    found = block_values(pandas.DataFrame(table), metrics=KNOWLEDGE)
    assert found is not None and sorted(found.arms) == ["adaptive", "bald", "random"]
    assert found.left_out == ["botorch-bald"] and len(found.keys) == 6
    pairs = block_values(pandas.DataFrame(table), metrics=KNOWLEDGE, regimes=[OTHER])
    assert pairs is not None and len(pairs.arms) == 4 and not pairs.left_out


def test_an_arm_that_estimates_no_taste_is_ranked_by_regret_only():
    silent = {metric: [np.nan, np.nan] for metric in KNOWLEDGE} | {"regret": [0.0, 0.0]}
    table = [row for seed in range(2) for arm in ("adaptive", "bald") for row in rows(arm, OTHER, seed, flat(0.5))]
    table += [row for seed in range(2) for row in rows("optuna", OTHER, seed, silent)]
    knowledge = block_values(pandas.DataFrame(table), metrics=KNOWLEDGE)
    regret = block_values(pandas.DataFrame(table), metrics=("regret",))
    assert knowledge is not None and knowledge.left_out == ["optuna"]
    assert regret is not None and average_ranks("", regret).arms[0] == "optuna"


# -- tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table() -> pandas.DataFrame:
    """adaptive knows more than bald in one regime and less in the other; adaptive-best has the least regret."""
    rng = np.random.default_rng(3)
    found = []
    for seed, regime, estimator in itertools.product(range(6), (REGIME, OTHER), ("vocabulary", "own")):
        bald = 0.2 if regime == OTHER else 0.4
        for arm, error, regret in (
            ("adaptive", 0.3, 0.2),
            ("adaptive-best", 0.6, 0.0),
            ("bald", bald, 0.3),
            ("random", 0.9, 1),
        ):
            curves = {metric: [error + 0.01 * rng.random()] * 2 for metric in KNOWLEDGE} | {"regret": [regret] * 2}
            own = "ridge1" if arm == "random" else "planner"
            found += rows(arm, regime, seed, curves, own if estimator == "own" else estimator)
    return pandas.DataFrame(found)


def test_where_others_are_better_is_computed(table):
    summary = summarise_ranks(table)
    assert [(loss.regime, loss.what, loss.arm, loss.difference.mean, loss.sure) for loss in summary.losses] == [
        (OTHER, "knowledge", "bald", 1.0, True)
    ]
    assert losses_table(summary).rows == (
        ("100 items, d = 10, K = 2", "knowledge", "adaptive", "bald 1.0 [1.00, 1.00]", "-"),
    )
    first = summary.rankings["knowledge", "common", "area"]
    assert first.arms == ["adaptive", "bald", "adaptive-best", "random"] or first.arms[:2] == ["bald", "adaptive"]
    assert first.ranks.tolist() == [1.5, 1.5, 3, 4] and set(first.tied) == {"adaptive", "bald"}
    assert summary.rankings["regret", "common", "area"].arms == ["adaptive-best", "adaptive", "bald", "random"]
    assert summary.single["knowledge", "common", OTHER].arms[0] == "bald"
    assert not summary.pairs  # no other package ran


def test_tables_name_everybody(table):
    summary = summarise_ranks(table)
    knowledge, regret = rank_headline(summary)
    assert [row[0] for row in regret.rows] == ["adaptive-best", "adaptive", "bald", "random"]
    assert regret.rows[0][2].startswith("1.00") and regret.rows[0][3] == "first" and "(tied)" in knowledge.rows[1][3]
    whole = ranking_table(summary.rankings["knowledge", "common", "area"], "knowledge")
    assert whole.header[-2:] == (REGIME, OTHER) and "Friedman" in whole.note and "12 blocks" in whole.note
    times, first, looking = time_tables(summary, table)
    assert times.rows[0] == ("adaptive", "3.0 (4.0)", "3.0 (4.0)") and first.rows[0] == ("adaptive", "300", "300")
    assert looking.rows[0] == ("adaptive", "2.0", "2.0")
    assert "All stay under a second" in times.note
    table.loc[(table["arm"] == "bald") & (table["regime"] == OTHER), "seconds_question"] = 1.5
    assert f"Not under a second: bald in {OTHER} (1.5 s)" in time_tables(summary, table)[0].note
