"""The report of the synthetic experiment: learning curves, paired differences, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import (
    arm_curves,
    by_arm,
    compared,
    convergence_line,
    designs_section,
    difference,
    provenance_section,
    sentences_line,
)
from edpbrl_gym.experiments.settings import UserSettings, agent_labels
from edpbrl_gym.reporting.figures import Level, Panel, curves_figure
from edpbrl_gym.reporting.report import Picture, Report, Text, bullets
from edpbrl_gym.reporting.statistics import mean_over
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["METRICS", "errors_table", "make_report", "verdict"]

METRICS = {"cosine_error": "cosine error", "preference_error": "preference error"}
_AXES = {  # name and guess
    "cosine_error": ("cosine error\n1 - cos(estimate, truth)", 1.0),
    "preference_error": ("preference error\n(share of pairs)", 0.5),
}
_CELL = ["user", "mode", "scale"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce synthetic`."""
    table, config, known = results.table, results.config, results.provenance
    runs, options, setting = int(table["run"].nunique()), config["num_options"], _setting(results)
    errors, won = errors_table(results), Text(bullets(verdict(table, config)), "What came out")
    shares = table.groupby(["mode", "scale", "agent"], sort=False)["best_chosen"].mean()
    return Report(
        "Synthetic users: designed against random questions",
        [
            Text(
                [
                    f"{runs} runs; {setting}; {sum(known['train_sizes'])} train and {sum(known['test_sizes'])} "
                    f"test tokens; preference error on {known['pairs']} pairs of {known['prompts']} held-out prompts."
                ]
            ),
            won,
            errors,
            TextTable(
                f"Share of answers that are the truly best of the {options} options (guessing: {1 / options:.2f})",
                ("answers", "questions", "share"),
                [
                    (UserSettings(mode, scale).label, agent, f"{share:.2f}")
                    for (mode, scale, agent), share in shares.items()
                ],
            ),
            *_pictures(table, {agent: agent for agent in agent_labels(config)}, mean_over(runs, "run"), setting),
            designs_section(results),
            _how(results),
            provenance_section(results),
        ],
        [errors, Text([f"{mean_over(runs, 'run').capitalize()}; {setting}"]), won],
    )


def _setting(results: Results) -> str:
    """The setting in one line."""
    config = results.config
    estimation = config["estimation_regularization"]
    estimation = config["regularization"] if estimation is None else estimation
    return (
        f"{config['criterion']}-design, K = {config['num_options']}, H = {len(results.provenance['steps'])}, "
        f"design lambda = {config['regularization']:g}, estimate lambda = {estimation:g}, encoder "
        f"{results.provenance['encoder']}"
    )


def verdict(table: Any, config: Mapping[str, Any]) -> list[str]:
    """Say which agent has the lower error in the mean over all T, from the numbers alone.

    A winner leads by a third of all comparisons: one in twenty is "clear" by chance alone.
    """
    *agents, baseline = agent_labels(config)
    runs = int(table["run"].nunique())
    if not agents or runs < 2:
        told = "agent only: there is nothing to compare" if not agents else "run only: no verdict. Use --runs 2 or more"
        return [f"One {told}."]
    sentences = []
    for agent in agents:
        cells = [by_arm(rows, "agent", "run", metric) for _, rows in table.groupby(_CELL) for metric in METRICS]
        gaps = [difference(cell, agent, baseline) for cell in cells]
        wins, losses = (sum(gap.clear and gap.mean * sign > 0 for gap in gaps) for sign in (-1, 1))
        head = f"{agent if wins > losses else baseline} won"
        if abs(wins - losses) < len(gaps) / 3:
            head = f"No clear winner between {agent} and {baseline}"
        sentences.append(
            f"{head}: in the mean over all T, {agent} had the clearly lower error (by more than two standard "
            f"errors, paired by run) in {wins} and {baseline} in {losses} of {len(gaps)} comparisons (user "
            f"x way of answering x metric); {len(gaps) - wins - losses} were too close to call over {runs} runs."
        )
    return sentences


def errors_table(results: Results) -> TextTable:
    """Mean errors at the smallest and the largest T, and their paired differences, with standard errors."""
    table, arms = results.table, agent_labels(results.config)
    *agents, baseline = arms
    rows, pairs = [], [(agent, baseline) for agent in agents]
    for (user, mode, scale), cell in table.groupby(_CELL, sort=False):
        for metric, name in METRICS.items():
            for episodes in sorted({cell["episodes"].min(), cell["episodes"].max()}):
                errors = by_arm(cell[cell["episodes"] == episodes], "agent", "run", metric)
                told = compared(errors, arms, pairs, ".3f")
                rows.append((str(user), UserSettings(mode, scale).label, name, str(episodes), *told))
    return TextTable(
        "Errors of the estimated taste (lower is better)",
        ("user", "answers", "metric", "T", *arms, *(f"{agent} - {baseline}" for agent in agents)),
        rows,
        words=3,
    )


def _pictures(table: Any, agents: dict[str, str], over: str, setting: str) -> list[Picture]:
    """Errors against T for each way of answering: a row for each metric, a column for each user."""
    pictures = []
    for (mode, scale), rows in table.groupby(["mode", "scale"], sort=False):
        answering = UserSettings(mode, scale)
        users = list(dict.fromkeys(rows["user"]))
        figure = curves_figure(
            [
                Panel(
                    arm_curves(rows[rows["user"] == user], agents, "agent", "episodes", "run", metric),
                    title=str(user) if metric == "cosine_error" else "",
                    ylabel=label,
                    levels=[Level(guess, "guessing", stretches=False)],
                )
                for metric, (label, guess) in _AXES.items()
                for user in users
            ],
            columns=len(users),
            xlabel="episodes T",
            title=f"Simulated user: {answering.label}; {over}",
            subtitle=setting,
            share="row",
            zero=False,
        )
        name = "errors-argmax" if mode == "argmax" else f"errors-sampled-{scale:g}"
        pictures.append(Picture(name, f"Errors against T, {answering.label}", figure))
    return pictures


def _how(results: Results) -> Text:
    config = results.config
    designs = (
        "A design and new questions for every T (the objective has T in it)"
        if config["design_for"] == "each"
        else "One design for the largest T; a smaller T is the first T episodes of the same questions"
    )
    lines = [
        f"{designs}; Random plans nothing, its smaller T are the first T episodes of one sequence.",
        "The train/test split, the held-out prompts and the designs are the same in all runs; questions and sampled "
        "answers are drawn anew in each.",
        f"All users of a run answer the same questions; {sentences_line(config['users'])}.",
        convergence_line(results.table["converged"]),
    ]
    return Text(bullets(lines), "How it was done")
