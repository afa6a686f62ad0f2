"""Figures and REPORT.md of the vocabulary-free experiment, from its results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.experiments.figures import save_figure
from edpbrl_gym.experiments.reinforce.figures import (
    ARMS,
    PAPER_SIMILARITY,
    map_figure,
    objective_figure,
    similarity_figure,
    taste_figure,
)
from edpbrl_gym.experiments.reinforce.tastes import ESTIMATORS
from edpbrl_gym.experiments.runs import Results, write_atomically
from edpbrl_gym.experiments.settings import UserSettings

__all__ = ["findings", "write_report"]


def write_report(results: Results, target: Path) -> list[Path]:
    """Write the four figures (PNG and PDF) and REPORT.md; return the files."""
    table, config, known = results.table, results.config, results.provenance
    figures = {
        "objective": objective_figure(table, subtitle=_setting(results)),
        "prompts-map": map_figure(table),
        "similarity": similarity_figure(table, encoder=known["encoder"]),
        "tastes": taste_figure(table, titles=ESTIMATORS),
    }
    files = [path for name, figure in figures.items() for path in save_figure(figure, target / "figures", name)]
    pictures = {name: f"![{name}](figures/{name}.png)" for name in figures}
    text = [
        "# Vocabulary-free design: language models as query policies",
        "",
        _setting(results),
        "",
        "## What came out",
        "",
        *[f"- {line}" for line in findings(results)],
        "",
        pictures["objective"],
        "",
        "## Diversity of the policies",
        "",
        *_similarity_table(table),
        "",
        f"The paper's are CLIP embeddings of prompts by MagicPrompt, ours {known['encoder']} embeddings of prompts by "
        f"{known['model']}: compare the ratio, not the level.",
        "",
        pictures["similarity"],
        "",
        pictures["prompts-map"],
        "",
        "## What the questions teach",
        "",
        *_taste_table(table),
        "",
        f"Mean ± standard error of the cosine error (in brackets the preference error) over {len(config['users'])} "
        f"users and {config['taste_seeds']} sets of questions. All arms ask the same number of questions with "
        f"{config['num_policies']} options.",
        "",
        pictures["tastes"],
        "",
        "## Prompts",
        "",
        *_prompts(table, int(config["shown_prompts"])),
        "## How it was done",
        "",
        *_how(results),
    ]
    path = target / "REPORT.md"
    write_atomically(path, lambda name: name.write_text("\n".join(text) + "\n", encoding="utf-8"))
    return [*files, path]


def findings(results: Results) -> list[str]:
    """What the numbers say, one sentence each."""
    table = results.table
    last = table[table["part"] == "evaluation"].sort_values("iteration").iloc[-1]
    base = table[table["part"] == "base"].iloc[0]
    # the same random streams evaluate both, so the difference is taken meta-sample by meta-sample
    differences = np.asarray(last["values"], dtype=float) - np.asarray(base["values"], dtype=float)
    error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
    rise = float(differences.mean())
    lines = [
        f"After {int(last['iteration'])} iterations the objective is {last['objective']:.2f} in evaluation, the base "
        f"model's {base['objective']:.2f}: a difference of {rise:+.2f} ± {error:.2f} ({_times(rise, error)})."
    ]
    means = _means(table, "similarity")
    change = means["trained"] / means["base"] - 1.0
    lines.append(
        f"Between-policy similarity: {means['base']:.3f} for the base model, {means['trained']:.3f} after training, "
        f"{change:+.0%} relative (the paper: 0.185 and 0.140, -24%)."
    )
    likely = _means(table, "perplexity")
    lines.append(
        f"Perplexity under the base model: {likely['base']:.1f} for its own prompts, {likely['trained']:.1f} for those "
        f"of the trained policies, {likely['trained'] / likely['base']:.2f} times as high."
    )
    tastes = table[table["part"] == "taste"]
    most = tastes[tastes["questions"] == tastes["questions"].max()]
    for estimator, cell in most.groupby("estimator", sort=False):
        errors = cell.groupby("arm")["cosine_error"].mean()
        told = ", ".join(f"{errors[arm]:.3f} ({title})" for arm, title in ARMS.items())
        lines.append(
            f"Cosine error of the taste after {int(most['questions'].iloc[0])} questions, "
            f"{ESTIMATORS[str(estimator)]}: {told}."
        )
    failed = int((~tastes["converged"].astype(bool)).sum())
    if failed:
        lines.append(f"Estimates that did not converge: {failed} of {len(tastes)}.")
    return lines


def _times(value: float, error: float) -> str:
    return f"{value / error:.1f} standard errors" if error > 0 else "no deviation between meta-samples"


def _means(table: Any, part: str) -> dict[str, float]:
    means = table[table["part"] == part].groupby("arm")[part].mean()
    return {str(arm): float(value) for arm, value in means.items()}


def _setting(results: Results) -> str:
    config, known = results.config, results.provenance
    own = config["training"]
    policies = f"LoRA adapters of rank {config['rank']}" if config["kind"] == "adapters" else "full copies"
    return (
        f"K = {config['num_policies']} policies ({policies} of {Path(known['model']).name}, "
        f"{known['parameters'] / 1e6:.1f} M parameters), H = {own['words']} words, T = {own['episodes']}, "
        f"M = {own['meta_samples']}, lambda = {own['regularization']:g}, {own['optimiser']} {own['learning_rate']:g}, "
        f"credit {own['credit']}, KL weight {own['kl_weight']:g}, encoder {known['encoder']}, seed {own['seed']}"
    )


def _similarity_table(table: Any) -> list[str]:
    lines = ["| | here, mean ± deviation | paper |", "|---|---|---|"]
    rows = table[table["part"] == "similarity"]
    for arm, (mean, deviation) in PAPER_SIMILARITY.items():
        own = rows[rows["arm"] == arm]["similarity"]
        spread = float(np.nan_to_num(own.std(ddof=1)))
        lines.append(f"| {ARMS[arm]} | {own.mean():.3f} ± {spread:.3f} | {mean:.3f} ± {deviation:.3f} |")
    means = _means(table, "similarity")
    paper = PAPER_SIMILARITY["trained"][0] / PAPER_SIMILARITY["base"][0] - 1.0
    lines.append(f"| change | {means['trained'] / means['base'] - 1.0:+.0%} | {paper:+.0%} |")
    return lines


def _taste_table(table: Any) -> list[str]:
    rows = table[table["part"] == "taste"]
    lines = [
        f"| answers | estimator | questions | {' | '.join(ARMS.values())} |",
        f"|---|---|---|{'---|' * len(ARMS)}",
    ]
    for (mode, scale, estimator, count), cell in rows.groupby(["mode", "scale", "estimator", "questions"], sort=False):
        cells = []
        for arm in ARMS:
            own = cell[cell["arm"] == arm]
            spread = float(np.nan_to_num(own["cosine_error"].sem()))
            cells.append(f"{own['cosine_error'].mean():.3f} ± {spread:.3f} ({own['preference_error'].mean():.3f})")
        answering = UserSettings(str(mode), float(scale)).label
        lines.append(f"| {answering} | {ESTIMATORS[str(estimator)]} | {count} | {' | '.join(cells)} |")
    return lines


def _prompts(table: Any, count: int) -> list[str]:
    lines = []
    rows = table[table["part"] == "map"]
    for arm in ("base", "trained"):
        lines += [f"### {ARMS[arm]}", ""]
        for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True):
            lines += [f"- policy {int(policy) + 1}: " + "; ".join(f'"{text}"' for text in cell["prompt"].head(count))]
        lines.append("")
    return lines


def _how(results: Results) -> list[str]:
    config, known = results.config, results.provenance
    session = known["sessions"][-1]
    software = ", ".join(f"{name} {version}" for name, version in session["versions"].items())
    return [
        "- Information of truncated prompts and REINFORCE as in the paper's Appendix (vocabulary-free variant); the "
        "policies know nothing of the user.",
        f"- Evaluation: {config['training']['evaluation_samples']} meta-samples on random streams that training never "
        "uses, the same for the policies and the base model.",
        f"- Similarity: {config['repeats']} repeats of {config['repeat_prompts']} complete prompts from each policy.",
        "- Random from the vocabulary: uniform tokens of the train split, one partial prompt for each step.",
        "- theta* is the unit-norm embedding of the user's sentence: "
        + "; ".join(f'{name}: "{text}"' for name, text in config["users"].items())
        + ".",
        f"- model sha256 {config['model_fingerprint'][:16]}, encoder sha256 {config['encoder_fingerprint'][:16]}, "
        f"vocabulary sha256 {config['vocabulary_fingerprint'][:16]}",
        f"- begun {known['sessions'][0]['begun']}, finished {known['finished']}, sessions: {len(known['sessions'])}",
        f"- {software}",
    ]
