"""Figures and REPORT.md of the experiment, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.experiments.llm.figures import accuracy_figure, bars_figure, styles_figure
from edpbrl_gym.experiments.llm.measuring import GUIDANCE, estimator_names
from edpbrl_gym.experiments.llm.styles import PAPER_AVERAGE, PAPER_RESULTS, PaperResult
from edpbrl_gym.experiments.llm.summary import accounts, by_style, curves, difference, findings, headline, points
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import convergence_line, designs_section, provenance_section
from edpbrl_gym.experiments.settings import agent_labels
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import mean_over, plus_minus
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["account_line", "make_report", "setting_line", "styles_table"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce llm`."""
    table, config = results.table, results.config
    setting, last = setting_line(results), max(config["train_sizes"])
    return Report(
        "A language model as the user: designed against random questions",
        [
            Text([setting]),
            Text(
                [
                    '"Clearly" means a difference, paired by style, of more than two standard errors over the styles. '
                    "All styles share one draw of questions for each arm, so these errors don't hold the luck of that "
                    "draw: other seeds tell.",
                    "",
                    *bullets(findings(table, config)),
                ],
                "What came out",
            ),
            styles_table(results, f"Per style: {headline(config)}, {last} training episodes"),
            Picture("accuracy-styles", "Accuracy by style", styles_figure(table, config, subtitle=setting)),
            Text(title="All estimates"),
            *_average_sections(results),
            Picture("accuracy-curves", "Accuracy curves", accuracy_figure(table, config, subtitle=setting)),
            Picture("accuracy-bars", "Accuracy of all estimates", bars_figure(table, config, subtitle=setting)),
            Text([account_line(results) + _cost(results)], "The judge's answers"),
            _account_table(results),
            designs_section(results),
            _how(results),
            provenance_section(results),
        ],
    )


def setting_line(results: Results) -> str:
    """The setting in one line."""
    config, known = results.config, results.provenance
    medium = "partial prompts as text" if config["rendering"] is None else f"images by {_model_name(config)}"
    return (
        f"judge {config['judge']['model']}, shown {medium}; T = {config['episodes']}, K = {config['num_options']}, "
        f"H = {len(known['steps'])}, {_design_kinds(results)}features {known['encoder']}, seed {config['seed']}"
    )


def _design_kinds(results: Results) -> str:
    """Criterion and lambda of the designs, "" without one; an agent may have its own."""
    kinds = []
    for design in results.provenance.get("designs", []):
        regularization = design["regularization"]
        prior = "a prior of its own" if regularization is None else f"lambda = {regularization:g}"
        kinds.append(f"{design['criterion']}-design with {prior}")
    return "".join(f"{kind}, " for kind in dict.fromkeys(kinds))


def _model_name(config: Mapping[str, Any]) -> str:
    return Path(str(config["rendering"]["model"])).name


def styles_table(results: Results, title: str) -> TextTable:
    """Accuracy of every style, with the paper's Table 2 if the styles are the paper's."""
    config = results.config
    *agents, baseline = agent_labels(config)
    name, last = headline(config), max(config["train_sizes"])
    styles = by_style(results.table)
    rows = styles[(styles["estimator"] == name) & (styles["episodes"] == last) & (styles["arm"] == styles["tested_on"])]
    wide = rows.pivot(index="style", columns="arm", values="accuracy")
    paper = any(style in PAPER_RESULTS for style in config["styles"])
    header = ["style", *agents, baseline, *(f"{agent} - {baseline}" for agent in agents)]
    lines = []
    for style in config["styles"]:
        values = wide.loc[style]
        line = [style, *(f"{values[arm]:.1f}" for arm in [*agents, baseline])]
        line += [f"{round(values[agent] - values[baseline], 1) + 0.0:+.1f}" for agent in agents]  # never -0.0
        lines.append(line + (_paper_cells(PAPER_RESULTS.get(style)) if paper else []))
    line = ["average", *(f"{wide[arm].mean():.1f}" for arm in [*agents, baseline])]
    line += [points(difference(styles, name, agent, baseline, episodes=last)) for agent in agents]
    if paper:
        line += _paper_cells(PAPER_AVERAGE if set(config["styles"]) == set(PAPER_RESULTS) else None)
        header += ["paper: ED-PBRL", "paper: Random", "paper: difference"]
    return TextTable(
        title,
        header,
        [*lines, line],
        f"Share of held-out choices that the estimate predicts, in percent, mean of {config['folds']} folds of "
        f"{config['test_episodes']} test episodes, each arm on its own questions; guessing is "
        f"{100 / config['num_options']:.0f}%. The paper's figures are those of GPT-4.1-mini looking at images of "
        "Stable Diffusion 1.4, with CLIP ViT-L/14 features and another vocabulary: another judge, so compare the "
        "differences and not the levels. After ± in the last row: standard error over the styles.",
        words=1,
    )


def _paper_cells(known: PaperResult | None) -> list[str]:
    if known is None:
        return ["", "", ""]
    return [f"{known.design:.1f}", f"{known.random:.1f}", f"{known.difference:+.1f}"]


def _average_sections(results: Results) -> list[Section]:
    """Averages over the styles of every estimate, arm and train size; a table for each set of questions."""
    config = results.config
    means, arms = curves(results.table), agent_labels(results.config)
    sizes = config["train_sizes"]
    tests: list[str | None] = [None, *(arms[::-1] if len(arms) > 1 else [])]
    sections: list[Section] = []
    for tested in tests:
        where = "Each arm on its own held-out questions (the paper's test):" if tested is None else (
            f"All arms on the held-out questions of {tested}, so that all predict the same choices:"
        )  # fmt: skip
        rows = []
        for name in estimator_names(config["lambdas"]):
            for arm in arms if tested is None or name != GUIDANCE else arms[:1]:
                cell = means[(means["estimator"] == name) & (means["arm"] == arm)]
                cell = cell[cell["tested_on"] == (arm if tested is None else tested)].set_index("episodes")
                values = [plus_minus(cell.loc[size, "mean"], cell.loc[size, "sem"], ".1f") for size in sizes]
                rows.append([name, arm if tested is None or name != GUIDANCE else "none", *values])
        header = ["estimate", "questions", *(f"{size} episodes" for size in sizes)]
        sections += [Text([where]), TextTable("", header, rows)]
    note = (
        f'Percent, {mean_over(len(config["styles"]), "style")}. "words" is the library\'s default estimate '
        '(`VocabularyPrior`, docs/priors.md); "guidance text" takes the embedding of the style\'s guidance as theta '
        "and learns nothing."
    )
    return [*sections, Text([note])]


def account_line(results: Results) -> str:
    """How many questions were answered, in one line."""
    rows = accounts(results.table)
    total, answered = sum(entry["questions"] for entry in rows), sum(entry["answered"] for entry in rows)
    return (
        f"{answered} of {total} questions answered, {total - answered} missing, "
        f"{sum(entry['retried'] for entry in rows)} after retries; {sum(entry['tokens'] for entry in rows)} tokens."
    )


def _account_table(results: Results) -> TextTable:
    entries = accounts(results.table)
    fixed = {"style", "questions", "answered", "retried", "consistent", "labels", "tokens"}
    reasons = [name for name in entries[0] if name not in fixed]
    header = ["style", "questions", "answered", *reasons, "retried", "same in both looks", "labels chosen", "tokens"]
    rows = []
    for entry in entries:
        consistency = "" if np.isnan(entry["consistent"]) else f"{100 * entry['consistent']:.1f}%"
        labels = " ".join(f"{chr(65 + place)} {100 * share:.0f}%" for place, share in enumerate(entry["labels"]))
        counts = [str(entry[reason]) for reason in ("questions", "answered", *reasons, "retried")]
        rows.append([entry["style"], *counts, consistency, labels, str(entry["tokens"])])
    equal = results.provenance["equal_options"]
    return TextTable(
        "",
        header,
        rows,
        "A missing answer is left out of training and of the test. Labels are put on the options in an order drawn for "
        "each question, so a judge without a favourite label chooses all about equally often. Questions with equal "
        f"options among the {results.config['num_options']} (either then counts as predicted, and as the same in both "
        "looks): "
        + ", ".join(f"{arm} {count}" for arm, count in equal.items())
        + f" of {results.provenance['questions'] // len(equal)} each.",
        words=1,
    )


def _cost(results: Results) -> str:
    input_price, output_price = results.provenance["prices"]
    if input_price is None or output_price is None:
        return ""
    rows = results.table[results.table["part"] == "answer"]
    cost = (rows["input_tokens"].sum() * input_price + rows["output_tokens"].sum() * output_price) / 1e6
    return f" Cost at the given prices: {cost:.4f}."


def _how(results: Results) -> Text:
    config = results.config
    judge = config["judge"]
    lines = [
        f"{config['episodes']} episodes of {len(results.provenance['steps'])} questions for each arm, drawn once: "
        "all styles answer the same ones. The questions use the 75% train part of the vocabulary.",
        f"Fold i tests on the i-th last {config['test_episodes']} episodes; it trains on the episodes after its test "
        "window in cyclic order, so a smaller training set is the beginning of a larger one (the paper does not say "
        "which episodes train at smaller sizes; at the largest size they are the same).",
        f"The judge {judge['model']} at {results.provenance['judge_address']} is told the guidance text and answers "
        f"with one label; temperature {judge['temperature']}, structured output: {judge['structured']}, second look: "
        f"{'yes' if judge['second_look'] else 'no'}, seed of the label orders {judge['seed']}.",
        *_rendering(config),
        "Guidance texts: " + "; ".join(f'{name}: "{text}"' for name, text in config["styles"].items()) + ".",
        convergence_line(results.table.loc[results.table["part"] == "accuracy", "converged"]),
        "What all answers to an arm's questions taught together is in tastes/, for `edpbrl personalize`.",
    ]
    return Text(bullets(lines), "How it was done")


def _rendering(config: Mapping[str, Any]) -> list[str]:
    rendering = config["rendering"]
    if rendering is None:
        return []
    return [
        f"Images: {_model_name(config)} (sha256 {rendering['fingerprint'][:16]}), {rendering['steps']} steps, guidance "
        f"{rendering['guidance']:g}, all from seed {config['image_seed']}."
    ]
