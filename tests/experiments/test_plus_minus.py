"""An error or interval that is not defined, as of one run, is said to be so wherever it would be printed."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.figures import learning_curves
from edpbrl_gym.experiments.llm.summary import by_style, difference
from edpbrl_gym.experiments.plus_minus import bracket, mean_over, plus_minus, standard_error
from edpbrl_gym.experiments.query_bench.summary import Duel, Needed, Piece
from edpbrl_gym.experiments.query_bench.tables import _factor, _fight, _share
from edpbrl_gym.experiments.reinforce.report import _change, _paired, _similarity_table, _times
from edpbrl_gym.experiments.report import _markdown
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.experiments.summary import METRICS, curves


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
    assert str(found) == "-50.0 ± undefined" and not found.clear


def synthetic(runs):
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {"user": "u", "mode": "argmax", "scale": 1.0, "agent": agent, "episodes": episodes, "run": run}
        | {metric: rng.random() for metric in METRICS}
        for agent in ("newton", "random")
        for episodes in (2, 4)
        for run in range(runs)
    )


@pytest.mark.parametrize("runs", [1, 2])
def test_one_run_of_the_synthetic_users(runs):
    found = curves(synthetic(runs))
    text = "\n".join(_markdown(found, ["newton", "random"]))
    assert ("± undefined" in text) == (runs == 1) and "± 0.000" not in text and "nan" not in text
    figure = learning_curves(found, ["newton", "random"], UserSettings("argmax", 1.0), runs=runs, subtitle="")
    assert ("no standard error" in figure.get_suptitle()) == (runs == 1)


def test_one_repeat_or_sample_of_reinforce():
    one = pandas.DataFrame({"part": "similarity", "repeat": 0, "arm": ["base", "trained"], "similarity": [0.4, 0.3]})
    assert math.isnan(_change(one)[2])
    lines = _similarity_table(one)
    assert lines[-1].startswith("| change | -25.0% ± undefined |") and "0.400 ± undefined" in lines[2]
    sets = pandas.DataFrame({"set": 0, "arm": ["base", "trained"], "cosine_error": [0.4, 0.3]})
    assert _paired(sets, "base") == "-0.100 ± undefined"
    assert _times(0.5, math.nan) == "one meta-sample"


def test_one_run_of_a_benchmark():
    nan = math.nan
    assert _fight(Duel("r", "arm", "random", "cosine_error", 5, -0.1, nan, nan, 1)) == "tie -0.100 [undefined]"
    assert _factor(Piece("t", "a", "b", "r", 2.0, nan, nan, 1)) == "2.00 [undefined]"
    needed = Needed("r", "arm", "random", "cosine_error", 0.1, 12.0, nan, nan, 60, 1)
    assert _share(needed) == "0.200 [undefined]"
