"""The report of the synthetic experiment: learning curves, paired differences, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import convergence_line, designs_section, provenance_section, sentences_line
from edpbrl_gym.experiments.settings import UserSettings, agent_labels
from edpbrl_gym.reporting.figures import Curve, Level, Panel, curves_figure, look
from edpbrl_gym.reporting.report import Picture, Report, Text, bullets
from edpbrl_gym.reporting.statistics import PairedDifference, mean_over, plus_minus
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["METRICS", "Comparison", "comparisons", "curves", "errors_table", "make_report", "setting_line", "verdict"]

METRICS = {"cosine_error": "cosine error", "preference_error": "preference error"}
_LABELS = {
    "cosine_error": "cosine error\n1 - cos(estimate, truth)",
    "preference_error": "preference error\n(share of pairs)",
}
_CHANCE = {"cosine_error": 1.0, "preference_error": 0.5}
_CELL = ["user", "mode", "scale"]


# -- findings --------------------------------------------------------------------------------------------------------


def curves(table: Any) -> Any:
    """Return mean and standard error over the runs for every user, mode, scale, agent and T (pandas DataFrame)."""
    grouped = table.groupby([*_CELL, "agent", "episodes"], sort=False)[list(METRICS)]
    means = grouped.agg(["mean", "sem", "count"])
    means.columns = [f"{metric}_{statistic}" for metric, statistic in means.columns]
    return means.reset_index()


@dataclass(frozen=True, eq=False)
class Comparison:
    """An agent against the baseline under one user.

    Attributes:
        user: Name of the user.
        answering: How the user answers.
        metric: "cosine_error" or "preference_error".
        agent: Label of the agent.
        baseline: Label of the baseline.
        episodes: T, or None for the mean over all T.
        difference: Error of the agent minus error of the baseline, over the runs; below 0 the agent is better.
    """

    user: str
    answering: UserSettings
    metric: str
    agent: str
    baseline: str
    episodes: int | None
    difference: PairedDifference

    @property
    def winner(self) -> str | None:
        """Label of the better agent if the difference is above two standard errors, else None."""
        if not self.difference.clear:
            return None
        return self.agent if self.difference.mean < 0 else self.baseline


def comparisons(table: Any, config: Mapping[str, Any]) -> list[Comparison]:
    """Compare every agent with the baseline, run by run, at the largest T and in the mean over all T."""
    *agents, baseline = agent_labels(config)
    largest = int(table["episodes"].max())
    result = []
    for (user, mode, scale), cell in table.groupby(_CELL, sort=False):
        answering = UserSettings(str(mode), float(scale))
        for metric in METRICS:
            by_run = cell.pivot_table(index="run", columns=["agent", "episodes"], values=metric)
            for agent in agents:
                gaps = by_run[agent] - by_run[baseline]
                for episodes, values in ((largest, gaps[largest]), (None, gaps.mean(axis=1))):
                    difference = PairedDifference(values.to_numpy(dtype=float))
                    result.append(Comparison(str(user), answering, metric, agent, baseline, episodes, difference))
    return result


def verdict(table: Any, config: Mapping[str, Any]) -> list[str]:
    """Summarise in plain sentences which agent is better where, from the numbers alone.

    "Lower" means a paired difference over the runs of more than two standard errors; the numbers in brackets are that
    mean difference and its standard error.
    """
    compared = comparisons(table, config)
    if not compared:
        return ["One agent only: there is nothing to compare."]
    if compared[0].difference.runs < 2:
        return ["One run only: no standard errors, so no verdict. Use --runs 2 or more."]
    sentences = []
    for agent in dict.fromkeys(comparison.agent for comparison in compared):
        of_agent = [comparison for comparison in compared if comparison.agent == agent]
        for answering in dict.fromkeys(comparison.answering for comparison in of_agent):
            for metric in METRICS:
                cells = [
                    comparison
                    for comparison in of_agent
                    if (comparison.answering, comparison.metric) == (answering, metric)
                ]
                sentences.append(_sentence([comparison for comparison in cells if comparison.episodes is not None]))
        sentences.append(_tally([comparison for comparison in of_agent if comparison.episodes is None]))
    return sentences


def _sentence(cells: list[Comparison]) -> str:
    first = cells[0]
    parts = []
    for winner in (first.agent, first.baseline, None):
        users = [cell for cell in cells if cell.winner == winner]
        if users:
            of_users = ", ".join(
                f"{cell.user} ({plus_minus(cell.difference.mean, cell.difference.error, '+.3f')})" for cell in users
            )
            parts.append(f"{'too close to call' if winner is None else f'lower with {winner}'} for {of_users}")
    return (
        f"{METRICS[first.metric].capitalize()}, {first.answering.label}, at T = {first.episodes}, {first.agent} - "
        f"{first.baseline}: {'; '.join(parts)}."
    )


def _tally(cells: list[Comparison]) -> str:
    """Name a winner only if it leads by a third of all comparisons: one in twenty is "clear" by chance alone."""
    first = cells[0]
    wins = sum(cell.winner == first.agent for cell in cells)
    losses = sum(cell.winner == first.baseline for cell in cells)
    if abs(wins - losses) < len(cells) / 3:
        head = f"No clear winner between {first.agent} and {first.baseline}"
    else:
        head = f"{first.agent if wins > losses else first.baseline} won"
    unclear = len(cells) - wins - losses
    return (
        f"{head}: in the mean over all T, {first.agent} had the clearly lower error in {wins} and {first.baseline} in "
        f"{losses} of {len(cells)} comparisons (user x way of answering x metric); {unclear} were too close "
        f"to call over {first.difference.runs} runs."
    )


# -- the report ------------------------------------------------------------------------------------------------------


def setting_line(results: Results) -> str:
    """The setting in one line."""
    config = results.config
    estimation = config["estimation_regularization"]
    estimation = config["regularization"] if estimation is None else estimation
    return (
        f"{config['criterion']}-design, K = {config['num_options']}, H = {len(results.provenance['steps'])}, "
        f"design lambda = {config['regularization']:g}, estimate lambda = {estimation:g}, encoder "
        f"{results.provenance['encoder']}"
    )


def make_report(results: Results) -> Report:
    """The report of `edpbrl reproduce synthetic`."""
    table, config, known = results.table, results.config, results.provenance
    runs, options = int(table["run"].nunique()), config["num_options"]
    return Report(
        "Synthetic users: designed against random questions",
        [
            Text(
                [
                    f"{runs} runs; {setting_line(results)}; {sum(known['train_sizes'])} train and "
                    f"{sum(known['test_sizes'])} held-out tokens; preference error on {known['pairs']} pairs of "
                    f"{known['prompts']} held-out prompts."
                ]
            ),
            Text(
                [
                    '"Lower" means a paired difference over the runs of more than two standard errors (in brackets: '
                    "the mean of the first named minus the second, ± its standard error; below 0 favours the first).",
                    "",
                    *bullets(verdict(table, config)),
                ],
                "What came out",
            ),
            errors_table(results),
            Text(
                [
                    "`best chosen` is the share of questions in which the user's answer is the truly best of the "
                    f"{options} options: 1 for argmax, {1 / options:.2f} for a user who guesses.",
                    "",
                    *bullets(_best_chosen(table)),
                ]
            ),
            *_pictures(results, runs),
            designs_section(results),
            _how(results),
            provenance_section(results),
        ],
    )


def errors_table(results: Results) -> TextTable:
    """Mean errors at the largest T, with their standard errors."""
    means, agents = curves(results.table), agent_labels(results.config)
    last = means[means["episodes"] == means["episodes"].max()]
    rows = []
    for (user, mode, scale), cell in last.groupby(_CELL, sort=False):
        for metric, name in METRICS.items():
            values = [cell[cell["agent"] == agent].iloc[0] for agent in agents]
            cells = [plus_minus(row[f"{metric}_mean"], row[f"{metric}_sem"], ".3f") for row in values]
            rows.append((str(user), UserSettings(mode, scale).label, name, *cells))
    return TextTable("Errors at the largest T", ("user", "answers", "metric", *agents), rows, words=3)


def _best_chosen(table: Any) -> list[str]:
    shares = table.groupby(["mode", "scale", "agent"], sort=False)["best_chosen"].mean()
    return [
        f"{UserSettings(mode, scale).label}, {agent}: {share:.2f}" for (mode, scale, agent), share in shares.items()
    ]


def _pictures(results: Results, runs: int) -> list[Picture]:
    """Errors against T for each way of answering: a row for each metric, a column for each user."""
    means, agents = curves(results.table), agent_labels(results.config)
    users = list(dict.fromkeys(means["user"]))
    pictures = []
    for mode, scale in means[["mode", "scale"]].drop_duplicates().itertuples(index=False):
        answering = UserSettings(str(mode), float(scale))
        rows = means[(means["mode"] == mode) & (means["scale"] == scale)]
        figure = curves_figure(
            [
                Panel(
                    _curves_of(rows[rows["user"] == user], agents, metric),
                    title=str(user) if metric == "cosine_error" else "",
                    ylabel=_LABELS[metric],
                    levels=[Level(_CHANCE[metric], "guessing", stretches=False)],
                )
                for metric in METRICS
                for user in users
            ],
            columns=len(users),
            xlabel="episodes T",
            title=f"Simulated user: {answering.label}; {mean_over(runs, 'run')}",
            subtitle=setting_line(results),
            share="row",
            zero=False,
        )
        name = "errors-argmax" if answering.mode == "argmax" else f"errors-sampled-{answering.scale:g}"
        pictures.append(Picture(name, f"Errors against T, {answering.label}", figure))
    return pictures


def _curves_of(cell: Any, agents: list[str], metric: str) -> list[Curve]:
    """Means with bands of one standard error; the baseline, the last agent, looks the same in every figure."""
    lines = []
    for index, agent in enumerate(agents):
        rows = cell[cell["agent"] == agent].sort_values("episodes")
        mean, error = (rows[f"{metric}_{statistic}"].to_numpy(dtype=float) for statistic in ("mean", "sem"))
        number = 1 if index == len(agents) - 1 else index + (index > 0)
        lines.append(Curve(agent, rows["episodes"], mean, look(number), mean - error, mean + error))
    return lines


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
        "The paper states neither whether its users take the argmax or sample, nor at what scale: both are here.",
        convergence_line(results.table["converged"]),
    ]
    return Text(bullets(lines), "How it was done")
