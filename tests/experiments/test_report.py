"""Reports: an error that is not defined is said to be so, labels leave room, the demo says what its numbers say."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.demo_report import demo_figure, demo_verdict, posters_figure
from edpbrl_gym.experiments.registry import write_report
from edpbrl_gym.experiments.runs import Results, RunFolderError
from edpbrl_gym.experiments.synthetic_report import METRICS, errors_table, make_report
from edpbrl_gym.reporting.figures import Curve, Look, Panel, curves_figure
from edpbrl_gym.reporting.statistics import bracket, mean_over, plus_minus, standard_error


def test_text_of_means_with_errors_and_intervals():
    assert plus_minus(-0.5, 0.0124, "+.3f") == "-0.500 ± 0.012"
    assert plus_minus(0.25, 0.0, ".1%") == "25.0% ± 0.0%"  # no deviation among several is known to be none
    assert plus_minus(1.0, math.nan, "+.1f") == "+1.0 ± undefined"
    assert bracket(-0.1, 0.2, "+.2f") == "[-0.10, +0.20]" and bracket(math.nan, math.nan, ".1f") == "[undefined]"
    assert mean_over(8, "run") == "mean ± standard error over 8 runs"
    assert mean_over(1, "run") == "1 run, no standard error"
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert math.isnan(standard_error(np.array([1.0])))


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


def test_labels_of_a_log_axis_leave_room():
    """12, 15 and 18 are so close on a log axis that the labels of 15 and 18 would touch."""
    answers = [3, 6, 9, 12, 15, 18, 24, 36, 60, 120]
    panel = Panel([Curve("a curve", answers, [1.0] * len(answers), Look("#000000", "-", "o"))])
    (axis,) = curves_figure([panel], columns=1, xlabel="answers", title="a title", log=True).axes
    assert axis.get_xticks().tolist() == answers
    shown = [label.get_text() for label in axis.get_xticklabels()]
    assert shown == ["3", "6", "9", "12", "", "18", "24", "36", "60", "120"]


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match=r"synthetic, .*llm, got 'thesis'; use a newer"):
        write_report(Results(None, kind="thesis", config={}, provenance={}), tmp_path)


def demo_results(paper: list[float], ours: list[float], *, percentiles: tuple[float, float] = (90.0, 99.0)) -> Results:
    """Results of a demo: the errors of its users at the end, and how good its prompts are."""
    rows: list[dict[str, object]] = []
    for number, errors in enumerate(zip(paper, ours, strict=True)):
        for way, wrong, percentile in zip(("paper", "ours"), errors, percentiles, strict=True):
            shared = {"user": f"user {number}", "way": way}
            rows += [{"part": "curve", **shared, "answers": n, "wrong": w} for n, w in ((10, wrong), (5, 0.4))]
            rows.append({"part": "best", **shared, "prompt": "a fox", "percentile": percentile - number})
        rows.append(
            {"part": "best", "user": f"user {number}", "way": "known", "prompt": "a red fox", "percentile": 100.0}
        )
    return Results(pandas.DataFrame(rows), kind="demo", config={"questions": 10, "num_options": 9}, provenance={})


def test_the_demo_says_a_difference_only_where_there_is_one():
    clear = demo_verdict(demo_results([0.30, 0.32, 0.34], [0.20, 0.22, 0.25]))
    assert "in 32.0% of the cases" in clear[0] and "in 22.3% after as many" in clear[0]
    assert "9.7 percentage points fewer (standard error 0.3)" in clear[0]
    assert "better for them than 89.0% of random prompts (paper) and 98.0% (ours)" in clear[1]
    assert "9.0 percentage points better" in clear[1]
    noisy = demo_verdict(demo_results([0.30, 0.20, 0.34], [0.20, 0.32, 0.25], percentiles=(99.0, 99.0)))
    assert "about the same" in noisy[0] and "about the same" in noisy[1]
    worse = demo_verdict(demo_results([0.20, 0.22, 0.25], [0.30, 0.32, 0.34]))
    assert "9.7 percentage points more" in worse[0]
    assert "One user is luck" in demo_verdict(demo_results([0.3], [0.2]))[-1]


def test_the_demo_draws_what_each_way_would_write():
    results = demo_results([0.30, 0.32, 0.34, 0.3], [0.20, 0.22, 0.25, 0.2])
    figure = posters_figure(results)
    assert len(figure.axes) == 9  # three users, the paper's way, ours, and the taste known
    below = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert "a red fox\nbetter than all random prompts" in below and "a fox\nbetter than 90% of random prompts" in below
    curves = demo_figure(results).axes[0]
    assert [line.get_ydata()[-1] for line in curves.lines] == pytest.approx([31.5, 21.75])
    assert "4 simulated users" in demo_figure(results)._suptitle.get_text()
