"""Reports: an error that is not defined is said to be so, labels leave room, the demo says what its numbers say."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.demo_report import demo_figure, demo_verdict
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


def demo_results(*, adaptive: float, random: float, plain: float, scores=(0.5, 0.4)) -> Results:
    """Results of a demo with these preference errors at its end, and these scores of the best prompts."""
    ends = (("curve", "Adaptive", adaptive), ("curve", "Random", random), ("plain curve", "Random", plain))
    rows = [
        {"part": part, "agent": agent, "questions": questions, "preference_error": error}
        for part, agent, last in ends
        for questions, error in ((10, last), (5, 0.4))
    ]
    rows += [
        {"part": "best", "agent": agent, "true_score": score, "percentile": 99.0}
        for agent, score in zip(("Adaptive", "Random"), scores, strict=True)
    ]
    rows += [{"part": "population", "true_score": score} for score in (0.1, 0.3)]
    rows += [{"part": "ceiling", "true_score": 0.7}]
    return Results(pandas.DataFrame(rows), kind="demo", config={"questions": 10}, provenance={})


def test_the_demo_says_what_each_taste_gets_wrong():
    lines = demo_verdict(demo_results(adaptive=0.123, random=0.234, plain=0.345))
    assert "Adaptive questions: after 10 questions" in lines[1] and "12.3%" in lines[1]
    assert "Random questions" in lines[2] and "23.4%" in lines[2]
    assert "lambda = 100" in lines[3] and "34.5%" in lines[3]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ((0.5, 0.4), "This time Adaptive questions led to the best prompts, 0.100 above Random."),
        ((0.4, 0.4002), "This time neither Random nor Adaptive questions led to better prompts."),
    ],
)
def test_the_demo_names_a_winner_only_where_there_is_one(scores, said):
    line = demo_verdict(demo_results(adaptive=0.3, random=0.3, plain=0.4, scores=scores))[-1]
    assert line.startswith(said) and "docs/first-answers.md" in line


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (3, "the three best prompts score 0.500 on average, better than 99.0% of"),
        (10, "the ten best prompts score 0.500 on average, better than 99.0% of"),
        (12, "the 12 best prompts score 0.500 on average, better than 99.0% of"),
    ],
)
def test_the_demo_counts_the_prompts_that_there_are(count, said):
    results = demo_results(adaptive=0.3, random=0.3, plain=0.4)
    best, others = (results.table[(results.table["part"] == "best") == wanted] for wanted in (True, False))
    table = pandas.concat([*[best] * count, *[others[others["part"] == "ceiling"]] * (count - 1), others])
    lines = demo_verdict(Results(table, kind="demo", config=results.config, provenance={}))
    named = said.removeprefix("the ").split(" score")[0]
    assert said in lines[1] and named in lines[0]
    figure = demo_figure(table, text="fog", questions=10)
    title, drawn = figure.axes[1].get_title(), [text.get_text() for text in figure.legends[0].get_texts()]
    assert title == f"{named[0].upper()}{named[1:]}, from words never asked about"
    assert any(text.endswith(f"{named}, taste known") for text in drawn)
    assert ("ten best" in " ".join([title, *drawn, *lines])) == (count == 10)
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    assert figure.axes[1].get_ylim()[1] < 1.1 * max(heights)  # no empty half above the bars
