"""What the demo says at its end follows from its numbers."""

from __future__ import annotations

import pandas
import pytest

from edpbrl_gym.experiments.demo_report import demo_figure, demo_verdict, share_below
from edpbrl_gym.experiments.runs import Results


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
        ((0.4, 0.5), "This time Random questions led to the best prompts, 0.100 above Adaptive."),
        ((0.4, 0.4002), "This time neither Random nor Adaptive questions led to better prompts."),
    ],
)
def test_the_demo_names_a_winner_only_where_there_is_one(scores, said):
    line = demo_verdict(demo_results(adaptive=0.3, random=0.3, plain=0.4, scores=scores))[-1]
    assert line.startswith(said) and "edpbrl bench first-answers" in line


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "the best prompt scores 0.500, better than 99.0% of"),
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


def test_better_than_all_is_said_only_where_it_is_true():
    assert [share_below(percentile) for percentile in (100.0, 99.99, 99.8, 0.0)] == ["all", "99.9%", "99.8%", "0.0%"]
