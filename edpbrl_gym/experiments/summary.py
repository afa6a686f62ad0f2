"""From results to sentences: learning curves, paired differences, and who won where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym.experiments.settings import AgentSettings, UserSettings

__all__ = ["METRICS", "Difference", "agent_labels", "curves", "differences", "verdict"]

METRICS = {"cosine_error": "cosine error", "preference_error": "preference error"}
_CELL = ["user", "mode", "scale"]


@dataclass(frozen=True)
class Difference:
    """An agent against the baseline under one user, over the runs.

    Attributes:
        user: Name of the user.
        answering: How the user answers.
        metric: "cosine_error" or "preference_error".
        agent: Label of the agent.
        baseline: Label of the baseline.
        episodes: T, or None for the mean over all T.
        mean: Mean over runs of (error of the agent - error of the baseline); below 0 the agent is better.
        error: Standard error of that mean; NaN for a single run.
        better: Runs in which the agent is better.
        runs: Number of runs.
    """

    user: str
    answering: UserSettings
    metric: str
    agent: str
    baseline: str
    episodes: int | None
    mean: float
    error: float
    better: int
    runs: int

    @property
    def winner(self) -> str | None:
        """Label of the better one where the difference is above two standard errors, else None."""
        if not np.isfinite(self.error) or abs(self.mean) <= 2 * self.error:
            return None
        return self.agent if self.mean < 0 else self.baseline


def agent_labels(config: Mapping[str, Any]) -> list[str]:
    """Labels of the agents of a stored configuration, in their order; the last is the baseline."""
    return [AgentSettings.parse(text).label for text in config["agents"]]


def curves(table: Any) -> Any:
    """Return mean and standard error over the runs for every user, mode, scale, agent and T (pandas DataFrame)."""
    grouped = table.groupby([*_CELL, "agent", "episodes"], sort=False)[list(METRICS)]
    found = grouped.agg(["mean", "sem", "count"])
    found.columns = [f"{metric}_{statistic}" for metric, statistic in found.columns]
    return found.reset_index()


def differences(table: Any, config: Mapping[str, Any]) -> list[Difference]:
    """Compare every agent with the baseline, run by run, at the largest T and in the mean over all T."""
    *agents, baseline = agent_labels(config)
    largest = int(table["episodes"].max())
    found = []
    for (user, mode, scale), cell in table.groupby(_CELL, sort=False):
        for metric in METRICS:
            by_run = cell.pivot_table(index="run", columns=["agent", "episodes"], values=metric)
            for agent in agents:
                gaps = by_run[agent] - by_run[baseline]
                for episodes, values in ((largest, gaps[largest]), (None, gaps.mean(axis=1))):
                    given = values.to_numpy(dtype=float)
                    error = float(given.std(ddof=1) / np.sqrt(len(given))) if len(given) > 1 else float("nan")
                    found.append(
                        Difference(
                            str(user), UserSettings(str(mode), float(scale)), metric, agent, baseline, episodes,
                            float(given.mean()), error, int((given < 0).sum()), len(given),
                        )
                    )  # fmt: skip
    return found


def verdict(table: Any, config: Mapping[str, Any]) -> list[str]:
    """Say in plain sentences who won where, from the numbers alone.

    "Lower" means a paired difference over the runs of more than two standard errors; the numbers in brackets are that
    mean difference and its standard error.
    """
    found = differences(table, config)
    if not found:
        return ["One agent only: there is nothing to compare."]
    runs = found[0].runs
    if runs < 2:
        return ["One run only: no standard errors, so no verdict. Use --runs 2 or more."]
    sentences = []
    largest = int(table["episodes"].max())
    for agent in dict.fromkeys(difference.agent for difference in found):
        for answering in dict.fromkeys(difference.answering for difference in found):
            for metric in METRICS:
                cells = [
                    difference
                    for difference in found
                    if (difference.agent, difference.answering, difference.metric) == (agent, answering, metric)
                ]
                sentences.append(_sentence([cell for cell in cells if cell.episodes == largest], f"at T = {largest}"))
        total = [d for d in found if d.agent == agent and d.episodes is None]
        sentences.append(_tally(total))
    return sentences


def _sentence(cells: list[Difference], where: str) -> str:
    first = cells[0]
    parts = []
    for winner in (first.agent, first.baseline, None):
        users = [cell for cell in cells if cell.winner == winner]
        if users:
            said = ", ".join(f"{cell.user} ({cell.mean:+.3f} ± {cell.error:.3f})" for cell in users)
            parts.append(f"{'too close to call' if winner is None else f'lower with {winner}'} for {said}")
    what = f"{METRICS[first.metric].capitalize()}, {first.answering.label}, {where}, {first.agent} - {first.baseline}"
    return f"{what}: {'; '.join(parts)}."


def _tally(cells: list[Difference]) -> str:
    """Name a winner only where it leads by a third of all comparisons: one in twenty is "clear" by chance alone."""
    first = cells[0]
    won = sum(cell.winner == first.agent for cell in cells)
    lost = sum(cell.winner == first.baseline for cell in cells)
    if abs(won - lost) < len(cells) / 3:
        head = f"No clear winner between {first.agent} and {first.baseline}"
    else:
        head = f"{first.agent if won > lost else first.baseline} won"
    unclear = len(cells) - won - lost
    return (
        f"{head}: in the mean over all T, {first.agent} had the clearly lower error in {won} and {first.baseline} in "
        f"{lost} of {len(cells)} comparisons (user x way of answering x metric); {unclear} were too close "
        f"to call over {first.runs} runs."
    )
