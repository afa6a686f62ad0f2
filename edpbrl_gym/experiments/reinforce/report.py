"""Tables, figures and REPORT.md of the vocabulary-free experiment, from its results alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.reinforce.measuring import ESTIMATORS
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import (
    arm_curves,
    by_arm,
    compared,
    convergence_line,
    provenance_section,
    sentences_line,
)
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.language.training_log import Evaluation, collapse
from edpbrl_gym.reporting.figures import (
    Curve,
    Level,
    Panel,
    curves_figure,
    legend,
    look,
    new_figure,
    set_title,
)
from edpbrl_gym.reporting.report import Picture, Report, Text, bullets
from edpbrl_gym.reporting.statistics import PairedDifference, plus_minus, standard_error
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["findings", "make_report", "similarity_change"]

_SHOWN = 5  # prompts of each policy
PAPER_SIMILARITY = {"base": "0.185 ± 0.012", "trained": "0.140 ± 0.006"}
ARMS = {"trained": "trained policies", "base": "base model", "random": "random from the vocabulary"}


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce reinforce`."""
    table, known, setting = results.table, results.provenance, _setting(results)
    found, tastes, prompts = Text(bullets(findings(results)), "What came out"), _taste_table(results), _prompts(table)
    return Report(
        "Vocabulary-free design: language models as query policies",
        [
            Text([setting]),
            found,
            Picture("objective", "The objective", objective_figure(table, setting)),
            Picture("prompts-map", "Map of the prompts", map_figure(table)),
            tastes,
            Picture("tastes", "What the questions teach", taste_figure(table)),
            *prompts,
            _how(results),
            provenance_section(results, f"{known['device']}, torch threads: {known['torch_threads']}"),
        ],
        [found, tastes, *prompts],
    )


def findings(results: Results) -> list[str]:
    """The findings, one sentence each."""
    table = results.table
    evaluations = table[table["part"] == "evaluation"].sort_values("iteration")
    last, base = evaluations.iloc[-1], table[table["part"] == "base"].iloc[0]
    # both are evaluated on the same random streams, so the difference is paired by meta-sample
    rise = PairedDifference(np.asarray(last["values"], dtype=float) - np.asarray(base["values"], dtype=float))
    similarity = table[table["part"] == "similarity"].groupby("arm")["similarity"].agg(["mean", "std"])
    alike = {
        arm: f"{plus_minus(row['mean'], row['std'], '.3f')} (the paper: {PAPER_SIMILARITY[arm]})"
        for arm, row in similarity.iterrows()
    }
    likely = table[table["part"] == "perplexity"].groupby("arm")["perplexity"].mean()
    lines = [
        f"After {int(last['iteration'])} iterations the objective is {last['objective']:.2f} in evaluation, the base "
        f"model's {base['objective']:.2f}: a difference of {plus_minus(rise.mean, rise.error, '+.2f')}"
        + (f" ({rise.mean / rise.error:.1f} standard errors)." if rise.error > 0 else "."),
        f"Between-policy similarity, mean ± deviation over the repeats: {alike['base']} for the base model, "
        f"{alike['trained']} after training, {plus_minus(*similarity_change(table), '+.1%')} relative (the paper: "
        f"-24%). With another model: compare the ratio.",
        f"Perplexity under the base model: {likely['base']:.1f} for its own prompts, {likely['trained']:.1f} for those "
        f"of the trained policies, {likely['trained'] / likely['base']:.2f} times as high.",
        convergence_line(table.loc[table["part"] == "taste", "converged"]),
    ]
    fall = collapse([Evaluation(int(one.iteration), tuple(map(float, one.values))) for one in evaluations.itertuples()])
    if fall is not None:
        lines.insert(
            0,
            f"Warning: {fall}. What follows is measured on these policies; those of the best evaluation are in "
            "training/best. Start again, in another folder, with a lower learning rate.",
        )
    return lines


def similarity_change(table: Any) -> tuple[float, float]:
    """Relative change of the similarity by training, with its standard error over repeats (delta method)."""
    rows = table[table["part"] == "similarity"].pivot(index="repeat", columns="arm", values="similarity")
    base, trained = rows["base"].to_numpy(dtype=float), rows["trained"].to_numpy(dtype=float)
    change = float(trained.mean() / base.mean()) - 1.0
    residuals = (trained - (1.0 + change) * base) / base.mean()  # repeats share their random streams
    return change, standard_error(residuals)


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


def _taste_table(results: Results) -> TextTable:
    config, table = results.config, results.table
    rows = []
    cells = table[table["part"] == "taste"].groupby(["estimator", "questions"], sort=False)
    for (estimator, count), cell in cells:
        for metric in ("cosine_error", "preference_error"):
            told = compared(
                by_arm(cell, "arm", "set", metric), ARMS, [("trained", "base"), ("trained", "random")], ".3f"
            )
            rows.append((ESTIMATORS[estimator], metric.replace("_", " "), f"{count:.0f}", *told))
    return TextTable(
        "What the questions teach",
        ("estimator", "metric", "questions", *ARMS.values(), "trained minus base", "trained minus random"),
        rows,
        f"Mean errors over {len(config['users'])} users and their ways of answering, with standard errors over "
        f"{config['taste_seeds']} sets of questions; judged on random prompts. The tastes after most questions are in "
        "results.parquet; those from the first set of the trained policies' questions also in tastes/.",
        words=2,
    )


def _prompts(table: Any) -> list[Text]:
    """The first prompts of each policy, as code on one line, so that they can't break the page."""
    sections = []
    rows = table[table["part"] == "map"]
    for arm in ("base", "trained"):
        lines = [
            f"policy {int(policy) + 1}: "
            + "; ".join("`" + " ".join(text.replace("`", "'").split()) + "`" for text in cell["prompt"].head(_SHOWN))
            for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True)
        ]
        sections.append(Text(bullets(lines), f"Prompts of the {ARMS[arm]}"))
    return sections


def _how(results: Results) -> Text:
    config = results.config
    lines = [
        f"Evaluation: {config['training']['evaluation_samples']} meta-samples on random streams that training never "
        "uses, the same for the policies and the base model.",
        f"Similarity: {config['repeats']} repeats of 10 complete prompts from each policy.",
        "Perplexity: exp of minus the mean log-probability of a choice, a token or the stop.",
        sentences_line(config["users"]) + ".",
    ]
    return Text(bullets(lines), "How it was done")


# -- figures ----------------------------------------------------------------------------------------------------------


def objective_figure(table: Any, subtitle: str) -> Figure:
    """The objective over the iterations: training batches, evaluations with a band, and the base model's line."""
    train, evaluations = (table[table["part"] == part].sort_values("iteration") for part in ("train", "evaluation"))
    mean, error = (evaluations[name].to_numpy(dtype=float) for name in ("objective", "standard_error"))
    band = mean - 2 * error, mean + 2 * error
    base = float(table.loc[table["part"] == "base", "objective"].iloc[0])
    curves = [
        Curve("evaluation, with two standard errors", evaluations["iteration"], mean, look(1), *band),
        Curve("training batches", train["iteration"], train["objective"], None),
    ]
    return curves_figure(
        [Panel(curves, ylabel="log det of the information", levels=[Level(base, "base model, never trained")])],
        columns=1,
        xlabel="iteration",
        title="The D-criterion while the policies are trained",
        subtitle=subtitle,
        size=(6.0, 2.8),
        ticks=[int(iteration) for iteration in evaluations["iteration"]],
        zero=False,
    )


def map_figure(table: Any) -> Figure:
    """One t-SNE map of the prompts of base and trained policies, a panel for each."""
    rows = table[table["part"] == "map"]
    with new_figure(8.4, 4.3, grid=False) as figure:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, arm in zip(panels, ("base", "trained"), strict=True):
            for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True):
                colour, _, marker = look(int(policy))
                shown = {"s": 14, "color": colour, "marker": marker, "alpha": 0.75, "linewidth": 0}
                axes.scatter(cell["x"], cell["y"], label=f"policy {int(policy) + 1}", **shown)
            axes.set(xticks=[], yticks=[], title=ARMS[arm])
        legend(figure)
        count = len(rows[rows["arm"] == "base"]) // max(rows["policy"].nunique(), 1)
        set_title(figure, f"Embeddings of {count} prompts from each policy (one t-SNE map of both panels)")
    return figure


def taste_figure(table: Any) -> Figure:
    """The cosine error against the number of questions: a column for each estimator, a row for each answering."""
    rows = table[table["part"] == "taste"]
    panels = [
        Panel(
            # users differ more than arms: the mean over them, so that the band is that of the sets of questions
            arm_curves(cell, ARMS, "arm", "questions", "set", "cosine_error"),
            f"{UserSettings(mode, scale).label}: {ESTIMATORS[estimator]}",
            "cosine error of the taste",
        )
        for (mode, scale, estimator), cell in rows.groupby(["mode", "scale", "estimator"], sort=False)
    ]
    return curves_figure(
        panels,
        columns=rows["estimator"].nunique(),
        xlabel="questions answered",
        title="What the questions teach: mean over users ± standard error over sets of questions",
        size=(3.6, 2.6),
        zero=False,
    )
