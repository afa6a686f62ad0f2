"""Tables, figures and REPORT.md of the experiment, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS
from edpbrl_gym.experiments.llm.settings import PAPER_AVERAGE, PAPER_RESULTS
from edpbrl_gym.experiments.llm.summary import Summary, accounts, points
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import (
    arm_curves,
    compared,
    convergence_line,
    designs_section,
    difference,
    provenance_section,
)
from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.rendering.settings import sampling
from edpbrl_gym.reporting.figures import Level, Look, Panel, curves_figure
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import mean_over, plural
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["make_report"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce llm`."""
    summary, config, setting = Summary(results.table, results.config), results.config, _setting(results)
    found, styles, account = bullets(summary.findings()), _styles_table(summary, config), _account_line(results)
    return Report(
        "A language model as the user: designed against random questions",
        [
            Text([setting]),
            Text(
                [
                    '"Clearly" means a difference, paired by style, of more than two standard errors over the styles; '
                    "these share one draw of questions for each arm.",
                    "",
                    *found,
                ],
                "What came out",
            ),
            styles,
            Picture("accuracy-styles", "Accuracy by style", styles_figure(summary, config, setting)),
            Text(title="All estimates"),
            *_average_sections(summary, config),
            Picture("accuracy-curves", "Accuracy curves", accuracy_figure(summary, config, setting)),
            Text([account + _cost(results)], "The judge's answers"),
            _account_table(results),
            designs_section(results),
            _how(results),
            provenance_section(results),
        ],
        [styles, Text([setting, account]), Text(found, "What came out")],
    )


def _setting(results: Results) -> str:
    """The setting in one line."""
    config, known = results.config, results.provenance
    shown = "partial prompts as text" if config["rendering"] is None else "images"
    return (
        f"judge {config['judge']['model']}, shown {shown}; T = {config['episodes']}, K = {config['num_options']}, "
        f"H = {len(known['steps'])}, features {known['encoder']}, seed {config['seed']}"
    )


def _styles_table(summary: Summary, config: Mapping[str, Any]) -> TextTable:
    """Accuracy of every style, with the paper's Table 2 if the styles are the paper's."""
    *agents, baseline = summary.arms
    wide = summary.cell(summary.headline)
    header = ["style", *summary.arms, *(f"{agent} - {baseline}" for agent in agents)]
    lines = []
    for style in config["styles"]:
        values = wide.loc[style]
        gaps = [f"{round(values[agent] - values[baseline], 1) + 0.0:+.1f}" for agent in agents]  # never -0.0
        lines.append([style, *(f"{values[arm]:.1f}" for arm in summary.arms), *gaps])
    gaps = [points(difference(wide, agent, baseline)) for agent in agents]
    lines.append(["average", *(f"{wide[arm].mean():.1f}" for arm in summary.arms), *gaps])
    if any(style in PAPER_RESULTS for style in config["styles"]):
        header += ["paper: ED-PBRL", "paper: Random", "paper: difference"]
        average = PAPER_AVERAGE if set(config["styles"]) == set(PAPER_RESULTS) else None
        for line in lines:
            known = {**PAPER_RESULTS, "average": average}.get(line[0])
            line += [""] * 3 if known is None else [f"{known[0]:.1f}", f"{known[1]:.1f}", f"{known[2]:+.1f}"]
    return TextTable(
        f"Per style: {summary.headline}, {summary.last} training episodes",
        header,
        lines,
        f"Share of held-out choices that the estimate predicts, in percent, mean of {config['folds']} folds of "
        f"{config['test_episodes']} test episodes, each arm on its own questions; guessing is "
        f"{100 / config['num_options']:.0f}%. The paper's judge and features are others: compare the differences and "
        "not the levels. After ± in the last row: standard error over the styles.",
        words=1,
    )


def _average_sections(summary: Summary, config: Mapping[str, Any]) -> list[Section]:
    """Averages over the styles of every estimate and train size; a table for each set of questions."""
    *agents, baseline = summary.arms
    pairs = [(agent, baseline) for agent in agents]
    header = ["estimate", "episodes", *summary.arms, *(f"{agent} - {baseline}" for agent in agents)]
    sections: list[Section] = []
    for tested in [None, *(summary.arms[::-1] if agents else [])]:
        where = "Each arm on its own held-out questions (the paper's test):" if tested is None else (
            f"All arms on the held-out questions of {tested}, so that all predict the same choices:"
        )  # fmt: skip
        rows = [
            [name, str(size), *compared(summary.cell(name, tested, size), summary.arms, pairs, ".1f")]
            for name in summary.names
            for size in config["train_sizes"]
        ]
        sections += [Text([where]), TextTable("", header, rows, words=1)]
    note = (
        f'Percent, {mean_over(len(config["styles"]), "style")}. "words" is the library\'s default estimate '
        '(docs/priors.md); "guidance text" takes the embedding of the guidance as theta.'
    )
    return [*sections, Text([note])]


def _account_line(results: Results) -> str:
    """How many questions were answered, in one line."""
    sums = {name: sum(one[name] for one in accounts(results.table)) for name in ("questions", "answered", "tokens")}
    return "{answered} of {questions} questions answered; {tokens} tokens.".format_map(sums)


def _account_table(results: Results) -> TextTable:
    entries = accounts(results.table)
    fixed = {"style", "questions", "answered", "retried", "consistent", "labels", "tokens"}
    counted = ["questions", "answered", *(name for name in entries[0] if name not in fixed), "retried"]
    rows = []
    for entry in entries:
        consistency = "" if np.isnan(entry["consistent"]) else f"{100 * entry['consistent']:.1f}%"
        labels = " ".join(f"{chr(65 + number)} {100 * share:.0f}%" for number, share in enumerate(entry["labels"]))
        counts = [str(entry[name]) for name in counted]
        rows.append([entry["style"], *counts, consistency, labels, str(entry["tokens"])])
    equal = results.provenance["equal_options"]
    return TextTable(
        "",
        ["style", *counted, "same in both looks", "labels chosen", "tokens"],
        rows,
        "A missing answer is left out of training and of the test. A judge without a favourite label chooses all about "
        "equally often. Questions with equal options, of which either counts as predicted: "
        + ", ".join(f"{arm} {count}" for arm, count in equal.items())
        + f" of {results.provenance['questions'] // len(equal)} each.",
        words=1,
    )


def _cost(results: Results) -> str:
    rows = results.table[results.table["part"] == "answer"]
    cost = Usage(rows["input_tokens"].sum(), rows["output_tokens"].sum()).cost(*results.provenance["prices"])
    return "" if cost is None else f" Cost at the given prices: {cost:.4f}."


def _how(results: Results) -> Text:
    config = results.config
    judge, rendering = config["judge"], config["rendering"]
    lines = [
        f"The judge {judge['model']} at {results.provenance['judge_address']} is told the guidance text and answers "
        f"with one label; temperature {judge['temperature']}, structured output: {judge['structured']}, second look: "
        f"{'yes' if judge['second_look'] else 'no'}, seed of the label orders {judge['seed']}.",
    ]
    if rendering is not None:
        lines.append(
            f"Images: {Path(rendering['model']).name} (sha256 {rendering['fingerprint'][:16]}), {sampling(rendering)}"
            "all from one seed."
        )
    lines += [
        "Guidance texts: " + "; ".join(f'{name}: "{text}"' for name, text in config["styles"].items()) + ".",
        convergence_line(results.table.loc[results.table["part"] == "accuracy", "converged"]),
        "What all answers to an arm's questions taught together is in tastes/, for `edpbrl personalize`.",
    ]
    return Text(bullets(lines), "How it was done")


# -- figures ----------------------------------------------------------------------------------------------------------


def accuracy_figure(summary: Summary, config: Mapping[str, Any], setting: str) -> Figure:
    """Accuracy against training episodes: the headline ridge and our estimate, on own and on the same questions."""
    panels = []
    for tested in [None] if len(summary.arms) == 1 else [None, summary.arms[-1]]:
        where = "each on its own held-out questions" if tested is None else f"all on {tested}'s questions"
        for name in summary.shown:
            levels = [Level(100.0 / config["num_options"], "guessing")]
            if tested is not None:
                value = float(summary.rows(GUIDANCE, tested)["accuracy"].mean())
                black = Look("#000000", (0, (4, 2, 1, 2)))
                levels.append(Level(value, "guidance text as theta (asks nothing)", look=black))
            title = f"{'default estimate (words)' if name == WORDS else name}\n{where}"
            panels.append(_panel(summary, summary.rows(name, tested), title, levels))
    return curves_figure(
        panels,
        columns=len(summary.shown),
        xlabel="training episodes",
        title=f"Predicting the judge's choices; {mean_over(len(config['styles']), 'style')}",
        subtitle=setting,
        size=(3.6, 3.1),
        share="row",
        zero=False,
    )


def _panel(summary: Summary, rows: Any, title: str, levels: list[Level]) -> Panel:
    curves = arm_curves(rows, {arm: arm for arm in summary.arms}, "arm", "episodes", "style", "accuracy")
    return Panel(curves, title, "held-out accuracy (%)", levels)


def styles_figure(summary: Summary, config: Mapping[str, Any], setting: str) -> Figure:
    """A panel for each style: accuracy against training episodes with the headline ridge, own questions."""
    rows, guess = summary.rows(summary.headline), Level(100.0 / config["num_options"], "guessing")
    return curves_figure(
        [_panel(summary, rows[rows["style"] == style], style, [guess]) for style in config["styles"]],
        columns=5,
        xlabel="training episodes",
        title=f"{summary.headline.capitalize()}, each arm on its own held-out questions, mean of "
        f"{plural(config['folds'], 'fold')}",
        subtitle=setting,
        size=(2.0, 2.0),
        zero=False,
    )
