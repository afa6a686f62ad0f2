"""Numbers and sentences from the results: averages over styles, paired differences, verdicts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from edpbrl_gym.experiments.llm.measuring import WORDS, estimator_names
from edpbrl_gym.experiments.sections import by_arm, difference
from edpbrl_gym.experiments.settings import agent_labels
from edpbrl_gym.reporting.statistics import PairedDifference, plus_minus

__all__ = ["Summary", "accounts", "points"]

_CELL = ["estimator", "arm", "tested_on", "episodes"]


def points(gap: PairedDifference) -> str:
    """Mean and standard error in percentage points."""
    return plus_minus(gap.mean, gap.error, "+.1f")


class Summary:
    """Accuracies in percent, averaged over the folds, and what they say."""

    def __init__(self, table: Any, config: Mapping[str, Any]) -> None:
        self.arms = agent_labels(config)  # the last is the baseline
        lambdas = config["lambdas"]
        of_name = estimator_names(lambdas)
        self.names = list(of_name)  # of the estimators, in the order of tables
        # of the per-style table: the ridge with the lambda of the designs, else with the largest lambda
        wanted = config["regularization"] if config["regularization"] in lambdas else lambdas[-1]
        self.headline = next(name for name, regularization in of_name.items() if regularization == wanted)
        rows = table[table["part"] == "accuracy"].groupby([*_CELL, "style"], sort=False)["accuracy"]
        self.styles = (100.0 * rows.mean()).rename("accuracy").reset_index()
        self.last = int(self.styles["episodes"].max())  # the largest number of training episodes

    @property
    def shown(self) -> list[str]:
        """The estimators that are told about: the headline and our default."""
        return list(dict.fromkeys([self.headline, WORDS]))

    def rows(self, estimator: str, tested_on: str | None = None) -> Any:
        """Rows of an estimator; ``tested_on``: the arm whose held-out questions all predict, None: each its own."""
        rows = self.styles[self.styles["estimator"] == estimator]
        return rows[rows["tested_on"] == (rows["arm"] if tested_on is None else tested_on)]

    def cell(self, estimator: str, tested_on: str | None = None, episodes: int | None = None) -> Any:
        """Accuracies, a row for each style, a column for each arm; None: after most training episodes."""
        rows = self.rows(estimator, tested_on)
        return by_arm(rows[rows["episodes"] == (episodes or self.last)], "arm", "style", "accuracy")

    def findings(self) -> list[str]:
        """Who predicts more after most training episodes, on own and on the same held-out questions."""
        *agents, baseline = self.arms
        sentences = []
        for agent in agents:
            told = []
            for name, tested in itertools.product(self.shown, (None, baseline, agent)):
                gap = difference(self.cell(name, tested), agent, baseline)
                where = "each its own" if tested is None else tested
                told.append(f"{name}, {where} questions: {points(gap)} ({_verdict(gap, agent, baseline)})")
            sentences.append(f"{agent} - {baseline} at {self.last} training episodes: {'; '.join(told)}.")
        return sentences


def _verdict(gap: PairedDifference, first: str, second: str) -> str:
    if gap.clear:
        return f"{first if gap.mean > 0 else second} is clearly higher"
    return "too close to call" if np.isfinite(gap.error) else "no verdict without a standard error"


def accounts(table: Any) -> list[dict[str, Any]]:
    """Per style: questions, answers, missing ones by reason, share of each label, consistency of second looks."""
    rows = table[table["part"] == "answer"]
    missing = sorted(set(rows["reason"]) - {"answered"})
    entries = []
    for style, cell in rows.groupby("style", sort=False):
        labels = cell.loc[cell["choice"] >= 0, "label"].to_numpy(dtype=int)
        entry: dict[str, Any] = {"style": style, "questions": len(cell), "answered": len(labels)}
        entry |= {reason: int((cell["reason"] == reason).sum()) for reason in missing}
        entry["retried"] = int((cell["retries"] > 0).sum())
        entry["consistent"] = float(cell["consistent"].dropna().astype(float).mean())
        entry["labels"] = (np.bincount(labels) / max(1, len(labels))).tolist()
        entry["tokens"] = int(cell["input_tokens"].sum() + cell["output_tokens"].sum())
        entries.append(entry)
    return entries
