"""An error or interval that is not defined, as of one run, is said to be so wherever it would be printed."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.bench.efficiency import Comparison, Needed, Piece
from edpbrl_gym.experiments.bench.efficiency_tables import comparison_cell, factor_cell, share_cell
from edpbrl_gym.experiments.llm.summary import by_style, difference, points
from edpbrl_gym.experiments.reinforce.report import deviations, error_difference, similarity_change, similarity_table
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.synthetic_report import METRICS, errors_table, make_report
from edpbrl_gym.reporting.statistics import PairedDifference, bracket, mean_over, plus_minus, standard_error


def test_text_of_means_with_errors_and_intervals():
    assert plus_minus(-0.5, 0.0124, "+.3f") == "-0.500 ± 0.012"
    assert plus_minus(0.25, 0.0, ".1%") == "25.0% ± 0.0%"  # no deviation among several is known to be none
    assert plus_minus(1.0, math.nan, "+.1f") == "+1.0 ± undefined"
    assert bracket(-0.1, 0.2, "+.2f") == "[-0.10, +0.20]" and bracket(math.nan, math.nan, ".1f") == "[undefined]"
    assert mean_over(8, "run") == "mean ± standard error over 8 runs"
    assert mean_over(1, "run") == "1 run, no standard error"
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert math.isnan(standard_error(np.array([1.0])))


def test_one_style_of_the_judge():
    rows = [
        {"part": "accuracy", "estimator": "words", "arm": arm, "tested_on": arm, "episodes": 5, "style": "one",
         "accuracy": accuracy} for arm, accuracy in (("a", 0.5), ("b", 1.0))
    ]  # fmt: skip
    found = difference(by_style(pandas.DataFrame(rows)), "words", "a", "b")
    assert points(found) == "-50.0 ± undefined" and not found.clear


def synthetic(runs):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {"user": "u", "mode": "argmax", "scale": 1.0, "agent": agent, "episodes": episodes, "run": run}
        | {"best_chosen": 1.0, "converged": True}
        | {metric: rng.random() for metric in METRICS}
        for agent in ("ED-PBRL", "Random")
        for episodes in (2, 4)
        for run in range(runs)
    )
    config = {
        "agents": ["newton", "random"], "criterion": "V", "num_options": 4, "regularization": 100.0, "seed": 0,
        "estimation_regularization": None, "design_for": "each", "users": {"u": "a bright day"},
    }  # fmt: skip
    sessions = [{"begun": "today", "versions": {"python": "3"}}]
    known = {"steps": ["a"], "encoder": "e", "designs": [], "train_sizes": [1], "test_sizes": [1], "pairs": 1}
    known |= {"prompts": 2, "sessions": sessions, "finished": "today"}
    return Results(table, kind="synthetic", config=config, provenance=known)


@pytest.mark.parametrize("runs", [1, 2])
def test_one_run_of_the_synthetic_users(runs):
    results = synthetic(runs)
    text = "\n".join(errors_table(results).markdown())
    assert ("± undefined" in text) == (runs == 1) and "± 0.000" not in text and "nan" not in text
    (title,) = [one.figure.get_suptitle() for one in make_report(results).sections if hasattr(one, "figure")]
    assert ("no standard error" in title) == (runs == 1)


def test_one_repeat_or_sample_of_reinforce():
    one = pandas.DataFrame({"part": "similarity", "repeat": 0, "arm": ["base", "trained"], "similarity": [0.4, 0.3]})
    assert math.isnan(similarity_change(one)[2])
    known = {"encoder": "e", "model": "m"}
    table = similarity_table(Results(one, kind="reinforce", config={}, provenance=known))
    assert table.rows[-1][:2] == ("change", "-25.0% ± undefined") and table.rows[0][1] == "0.400 ± undefined"
    sets = pandas.DataFrame({"set": 0, "arm": ["base", "trained"], "cosine_error": [0.4, 0.3]})
    assert error_difference(sets, "base") == "-0.100 ± undefined"
    assert deviations(0.5, math.nan) == "one meta-sample"


def test_one_run_of_a_benchmark():
    nan = math.nan
    single = PairedDifference(np.array([-0.1]))
    assert comparison_cell(Comparison("r", "arm", "random", "cosine_error", 5, single)) == "tie -0.100 [undefined]"
    assert factor_cell(Piece("t", "a", "b", "r", 2.0, nan, nan, 1)) == "2.00 [undefined]"
    needed = Needed("r", "arm", "random", "cosine_error", 0.1, 12.0, nan, nan, 60, 1)
    assert share_cell(needed) == "0.200 [undefined]"
