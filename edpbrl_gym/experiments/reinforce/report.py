"""Figures and REPORT.md of the vocabulary-free experiment, from its results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.experiments.reinforce.figures import (
    ARMS,
    PAPER_SIMILARITY,
    map_figure,
    objective_figure,
    similarity_figure,
    taste_figure,
)
from edpbrl_gym.experiments.reinforce.tastes import ESTIMATORS
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import convergence_line, provenance_section, sentences_line
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.language.divergence import collapse
from edpbrl_gym.language.training_log import Evaluation
from edpbrl_gym.reporting.report import Picture, Report, Text, bullets
from edpbrl_gym.reporting.statistics import PairedDifference, plus_minus, standard_error
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["deviations", "error_difference", "findings", "make_report", "similarity_change", "similarity_table"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce reinforce`."""
    table, config, known = results.table, results.config, results.provenance
    return Report(
        "Vocabulary-free design: language models as query policies",
        [
            Text([_setting(results)]),
            Text(bullets(findings(results)), "What came out"),
            Picture("objective", "The objective", objective_figure(table, subtitle=_setting(results))),
            similarity_table(results),
            Picture("similarity", "Similarity", similarity_figure(table, encoder=known["encoder"])),
            Picture("prompts-map", "Map of the prompts", map_figure(table)),
            _taste_table(results),
            Text(
                [
                    "The tastes themselves (estimates after most questions) are in results.parquet, column theta; "
                    "those from the first set of the trained policies' questions also in tastes/, for "
                    "`edpbrl personalize`."
                ]
            ),
            Picture("tastes", "What the questions teach", taste_figure(table, titles=ESTIMATORS)),
            Text(title="Prompts"),
            *_prompts(table, int(config["shown_prompts"])),
            _how(results),
            provenance_section(results, f"{known['device']}, torch threads: {known['torch_threads']}"),
        ],
    )


def findings(results: Results) -> list[str]:
    """The findings, one sentence each."""
    table = results.table
    last = table[table["part"] == "evaluation"].sort_values("iteration").iloc[-1]
    base = table[table["part"] == "base"].iloc[0]
    # both are evaluated on the same random streams, so the difference is paired by meta-sample
    rise = PairedDifference(np.asarray(last["values"], dtype=float) - np.asarray(base["values"], dtype=float))
    lines = [
        f"After {int(last['iteration'])} iterations the objective is {last['objective']:.2f} in evaluation, the base "
        f"model's {base['objective']:.2f}: a difference of {plus_minus(rise.mean, rise.error, '+.2f')} "
        f"({deviations(rise.mean, rise.error)})."
    ]
    base_similarity, change, change_error = similarity_change(table)
    lines.append(
        f"Between-policy similarity: {base_similarity:.3f} for the base model, {base_similarity * (1 + change):.3f} "
        f"after training, {plus_minus(change, change_error, '+.1%')} relative (the paper: 0.185 and 0.140, -24%)."
    )
    likely = _means(table, "perplexity")
    lines.append(
        f"Perplexity under the base model: {likely['base']:.1f} for its own prompts, {likely['trained']:.1f} for those "
        f"of the trained policies, {likely['trained'] / likely['base']:.2f} times as high."
    )
    tastes = table[table["part"] == "taste"]
    largest = tastes[tastes["questions"] == tastes["questions"].max()]
    for estimator, cell in largest.groupby("estimator", sort=False):
        errors = cell.groupby("arm")["cosine_error"].mean()
        errors_by_arm = ", ".join(f"{errors[arm]:.3f} ({title})" for arm, title in ARMS.items())
        differences = " and ".join(f"{error_difference(cell, arm)} ({ARMS[arm]})" for arm in ("base", "random"))
        lines.append(
            f"Cosine error of the taste after {int(largest['questions'].iloc[0])} questions, "
            f"{ESTIMATORS[str(estimator)]}: {errors_by_arm}; trained policies minus the others: {differences}."
        )
    fall = collapse(_evaluations(table))
    if fall is not None:
        lines.insert(
            0,
            f"Warning: {fall}. What follows is measured on these policies; those of the best evaluation are in "
            "training/best. Start again, in another folder, with a lower learning rate.",
        )
    failed = int((~tastes["converged"].astype(bool)).sum())
    if failed:
        lines.append(convergence_line(tastes["converged"]))
    return lines


def _evaluations(table: Any) -> list[Evaluation]:
    rows = table[table["part"] == "evaluation"].sort_values("iteration")
    return [
        Evaluation(int(iteration), tuple(float(value) for value in values))
        for iteration, values in zip(rows["iteration"], rows["values"], strict=True)
    ]


def deviations(value: float, error: float) -> str:
    """A value in units of its standard error."""
    if np.isnan(error):
        return "one meta-sample"
    return f"{value / error:.1f} standard errors" if error > 0 else "no deviation between meta-samples"


def error_difference(rows: Any, arm: str) -> str:
    """Mean difference of the trained policies' cosine error to another arm's, with its standard error over the sets.

    Users and ways of answering are the same for both arms and all sets, so their differences are averaged within a set.
    """
    means = rows.groupby(["set", "arm"])["cosine_error"].mean().unstack("arm")
    gap = PairedDifference((means["trained"] - means[arm]).to_numpy(dtype=float))
    return plus_minus(gap.mean, gap.error, "+.3f")


def similarity_change(table: Any) -> tuple[float, float, float]:
    """Base similarity, and the relative change by training with its standard error over repeats (delta method)."""
    rows = table[table["part"] == "similarity"].pivot(index="repeat", columns="arm", values="similarity")
    base, trained = rows["base"].to_numpy(dtype=float), rows["trained"].to_numpy(dtype=float)
    level = float(base.mean())
    change = float(trained.mean()) / level - 1.0
    residuals = (trained - (1.0 + change) * base) / level  # repeats share their random streams
    return level, change, standard_error(residuals)


def _means(table: Any, part: str) -> dict[str, float]:
    means = table[table["part"] == part].groupby("arm")[part].mean()
    return {str(arm): float(value) for arm, value in means.items()}


def _setting(results: Results) -> str:
    config, known = results.config, results.provenance
    options = config["training"]
    policies = f"LoRA adapters of rank {config['rank']}" if config["kind"] == "adapters" else "full copies"
    return (
        f"K = {config['num_options']} policies ({policies} of {Path(known['model']).name}, "
        f"{known['parameters'] / 1e6:.1f} M parameters), H = {options['words']} words, T = {options['episodes']}, "
        f"M = {options['meta_samples']}, lambda = {options['regularization']:g}, "
        f"{options['optimiser']} {options['learning_rate']:g}, credit {options['credit']}, "
        f"KL weight {options['kl_weight']:g}, encoder {known['encoder']}, seed {options['seed']}"
    )


def similarity_table(results: Results) -> TextTable:
    """Similarity between policies, here and in the paper."""
    table, known = results.table, results.provenance
    rows = []
    similarity = table[table["part"] == "similarity"]
    for arm, (mean, deviation) in PAPER_SIMILARITY.items():
        values = similarity[similarity["arm"] == arm]["similarity"]
        measured = plus_minus(float(values.mean()), float(values.std(ddof=1)), ".3f")
        rows.append((ARMS[arm], measured, f"{mean:.3f} ± {deviation:.3f}"))
    _, change, error = similarity_change(table)
    paper = PAPER_SIMILARITY["trained"][0] / PAPER_SIMILARITY["base"][0] - 1.0
    rows.append(("change", plus_minus(change, error, "+.1%"), f"{paper:+.0%}"))
    return TextTable(
        "Diversity of the policies",
        ("", "here, mean ± deviation", "paper"),
        rows,
        f"The paper's are CLIP embeddings of prompts by MagicPrompt, those here {known['encoder']} embeddings of "
        f"prompts by {Path(known['model']).name}: compare the ratio, not the level.",
        words=1,
    )


def _taste_table(results: Results) -> TextTable:
    config, table = results.config, results.table
    taste, rows = table[table["part"] == "taste"], []
    for (mode, scale, estimator, count), cell in taste.groupby(["mode", "scale", "estimator", "questions"], sort=False):
        means = cell.groupby("arm")[["cosine_error", "preference_error"]].mean()
        cells = [f"{means.loc[arm, 'cosine_error']:.3f} ({means.loc[arm, 'preference_error']:.3f})" for arm in ARMS]
        cells += [error_difference(cell, arm) for arm in ("base", "random")]
        answering = UserSettings(str(mode), float(scale)).label
        rows.append((answering, ESTIMATORS[str(estimator)], str(int(count)), *cells))
    return TextTable(
        "What the questions teach",
        ("answers", "estimator", "questions", *ARMS.values(), "trained minus base", "trained minus random"),
        rows,
        f"Mean cosine error (in brackets the preference error) over {len(config['users'])} users and "
        f"{config['taste_seeds']} sets of questions, and paired differences of the cosine error with their standard "
        "error over the sets (below 0: the trained policies teach more). All arms ask the same number of questions "
        f"with {config['num_options']} options; all may show any token, and estimates are judged on random prompts.",
    )


def _prompts(table: Any, count: int) -> list[Text]:
    sections = []
    rows = table[table["part"] == "map"]
    for arm in ("base", "trained"):
        lines = [
            f"policy {int(policy) + 1}: " + "; ".join(_quoted(text) for text in cell["prompt"].head(count))
            for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True)
        ]
        sections.append(Text(bullets(lines), ARMS[arm], level=3))
    return sections


def _quoted(text: str) -> str:
    """Quote a generated text as code on one line, so that it can't break the page."""
    return "`" + " ".join(text.replace("`", "'").split()) + "`"


def _how(results: Results) -> Text:
    config = results.config
    lines = [
        "Information of truncated prompts and REINFORCE as in the paper's Appendix (vocabulary-free variant); the "
        "policies know nothing of the user.",
        f"Evaluation: {config['training']['evaluation_samples']} meta-samples on random streams that training never "
        "uses, the same for the policies and the base model.",
        f"Similarity: {config['repeats']} repeats of {config['repeat_prompts']} complete prompts from each policy.",
        "Perplexity: exp of minus the mean log-probability of a choice (a token, or the stop, in which all tokens "
        "that would begin another word are one event) at the sampling temperature.",
        "Random from the vocabulary: uniform tokens, one partial prompt for each step.",
        sentences_line(config["users"]) + ".",
    ]
    return Text(bullets(lines), "How it was done")
