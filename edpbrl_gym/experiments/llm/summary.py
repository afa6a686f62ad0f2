"""Numbers and sentences from the results: averages over styles, paired differences, verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS, estimator_names
from edpbrl_gym.experiments.llm.styles import PAPER_AVERAGE, PAPER_RESULTS
from edpbrl_gym.experiments.settings import agent_labels
from edpbrl_gym.reporting.statistics import PairedDifference, plus_minus

__all__ = ["accounts", "by_style", "curves", "difference", "findings", "headline", "points"]


def headline(config: Mapping[str, Any]) -> str:
    """Name of the estimator of the per-style table: the ridge with the lambda of the designs, else the largest."""
    lambdas = config["lambdas"]
    value = config["regularization"] if config["regularization"] in lambdas else lambdas[-1]
    return next(name for name, regularization in estimator_names(lambdas).items() if regularization == value)


def by_style(table: Any) -> Any:
    """Accuracy in percent, averaged over the folds, of every estimator, arm, tested arm, train size and style."""
    rows = table[table["part"] == "accuracy"]
    keys = ["estimator", "arm", "tested_on", "episodes", "style"]
    return (100.0 * rows.groupby(keys, sort=False)["accuracy"].mean()).rename("accuracy").reset_index()


def curves(table: Any) -> Any:
    """Mean and standard error over the styles, in percent, of every estimator, arm, tested arm and train size."""
    grouped = by_style(table).groupby(["estimator", "arm", "tested_on", "episodes"], sort=False)["accuracy"]
    return grouped.agg(["mean", "sem", "count"]).reset_index()


def difference(
    styles: Any, estimator: str, first: str, second: str, *, episodes: int | None = None, tested_on: str | None = None
) -> PairedDifference:
    """Compare two arms under one estimator, style by style.

    Args:
        styles: Output of ``by_style``.
        estimator: Its name.
        first: Label of an arm.
        second: Label of the other.
        episodes: Train size; None for the mean over all.
        tested_on: Arm whose held-out questions both predict; None: each its own (the paper's).
    """
    rows = styles[styles["estimator"] == estimator]
    if episodes is not None:
        rows = rows[rows["episodes"] == episodes]
    values = {}
    for arm in (first, second):
        cell = rows[(rows["arm"] == arm) & (rows["tested_on"] == (arm if tested_on is None else tested_on))]
        values[arm] = cell.groupby("style", sort=False)["accuracy"].mean()
    return PairedDifference((values[first] - values[second]).dropna().to_numpy(dtype=float))


def points(gap: PairedDifference) -> str:
    """Mean and standard error in percentage points."""
    return plus_minus(gap.mean, gap.error, "+.1f")


def accounts(table: Any) -> list[dict[str, Any]]:
    """Per style: questions, answers, missing ones by reason, share of each label, consistency of second looks."""
    rows = table[table["part"] == "answer"]
    missing = sorted(set(rows["reason"]) - {"answered"})
    entries = []
    for style, cell in rows.groupby("style", sort=False):
        answered = cell[cell["choice"] >= 0]
        entry: dict[str, Any] = {"style": style, "questions": len(cell), "answered": len(answered)}
        entry |= {reason: int((cell["reason"] == reason).sum()) for reason in missing}
        entry["retried"] = int((cell["retries"] > 0).sum())
        looks = cell["consistent"].dropna().astype(float)
        entry["consistent"] = float(looks.mean()) if len(looks) else float("nan")
        entry["labels"] = [float(share) for share in _label_shares(answered["label"].to_numpy(dtype=int))]
        entry["tokens"] = int(cell["input_tokens"].sum() + cell["output_tokens"].sum())
        entries.append(entry)
    return entries


def _label_shares(labels: Any) -> Any:
    counts = np.bincount(labels) if len(labels) else np.zeros(1)
    return counts / max(1, counts.sum())


def findings(table: Any, config: Mapping[str, Any]) -> list[str]:
    """The findings in plain sentences, from the numbers alone."""
    *agents, baseline = agent_labels(config)
    styles, means = by_style(table), curves(table)
    name, last = headline(config), int(styles["episodes"].max())
    sentences = []
    for agent in agents:
        sentences.append(_headline_sentence(styles, means, name, agent, baseline, last))
        sentences.append(_estimator_sentence(styles, config, agent, baseline))
        sentences.append(_same_questions(styles, config, agent, baseline, last))
        sentences.append(_parts_of_the_difference(means, config, agent, baseline, last))
    sentences += [_best_estimate(means, arm, config, last) for arm in [*agents, baseline]]
    sentences.append(_fewest(styles, means, agents, baseline, config))
    sentences.append(_guidance_sentence(means, [*agents, baseline], last))
    return [sentence for sentence in sentences if sentence]


def _value(means: Any, estimator: str, arm: str, episodes: int, tested_on: str | None = None) -> float:
    rows = means[(means["estimator"] == estimator) & (means["arm"] == arm) & (means["episodes"] == episodes)]
    return float(rows[rows["tested_on"] == (arm if tested_on is None else tested_on)]["mean"].iloc[0])


def _verdict(gap: PairedDifference, first: str, second: str) -> str:
    if gap.clear:
        return f"{first if gap.mean > 0 else second} is clearly higher"
    return "too close to call" if np.isfinite(gap.error) else "no verdict without a standard error"


def _headline_sentence(styles: Any, means: Any, name: str, agent: str, baseline: str, last: int) -> str:
    gap = difference(styles, name, agent, baseline, episodes=last)
    text = (
        f"{name.capitalize()}, {last} training episodes, each arm on its own held-out questions: {agent} "
        f"{_value(means, name, agent, last):.1f}%, {baseline} {_value(means, name, baseline, last):.1f}% (difference "
        f"{points(gap)} points over {gap.runs} style{'' if gap.runs == 1 else 's'}, {agent} higher in {gap.above}): "
        f"{_verdict(gap, agent, baseline)}."
    )
    if set(styles["style"]) == set(PAPER_RESULTS):
        paper = PAPER_AVERAGE
        text += f" The paper has {paper.design:.1f}%, {paper.random:.1f}% and {paper.difference:+.1f} points."
    return text


def _estimator_sentence(styles: Any, config: Mapping[str, Any], agent: str, baseline: str) -> str:
    parts = []
    for name in estimator_names(config["lambdas"]):
        if name != GUIDANCE:
            gap = difference(styles, name, agent, baseline)
            parts.append(f"{name} {points(gap)} ({_verdict(gap, agent, baseline)})")
    return f"{agent} - {baseline} in the mean over all train sizes, each on its own questions: {'; '.join(parts)}."


def _same_questions(styles: Any, config: Mapping[str, Any], agent: str, baseline: str, last: int) -> str:
    parts = []
    for name in dict.fromkeys([headline(config), WORDS]):
        for tested in (baseline, agent):
            gap = difference(styles, name, agent, baseline, episodes=last, tested_on=tested)
            parts.append(f"{name}, {tested} questions: {points(gap)} ({_verdict(gap, agent, baseline)})")
    return (
        f"{agent} - {baseline} at {last} training episodes where both predict the same held-out choices: "
        f"{'; '.join(parts)}."
    )


def _parts_of_the_difference(means: Any, config: Mapping[str, Any], agent: str, baseline: str, last: int) -> str:
    """The parts of the difference on own questions that come from the questions and from the estimate."""
    parts = []
    for name in dict.fromkeys([headline(config), WORDS]):
        own = _value(means, name, agent, last), _value(means, name, baseline, last)
        moved = _value(means, name, baseline, last, tested_on=agent)
        parts.append(
            f"{name}: {own[0] - own[1]:+.1f} = {moved - own[1]:+.1f} ({agent}'s questions are "
            f"{'easier' if moved > own[1] else 'harder'} to predict: what {baseline} questions taught predicts "
            f"{moved:.1f}% of them) {own[0] - moved:+.1f} (what was learnt, on {agent}'s questions)"
        )
    return f"So the difference on own questions at {last} training episodes has two parts. {'; '.join(parts)}."


def _best_estimate(means: Any, arm: str, config: Mapping[str, Any], last: int) -> str:
    values = {name: _value(means, name, arm, last) for name in estimator_names(config["lambdas"]) if name != GUIDANCE}
    best = max((name for name in values if name != WORDS), key=lambda name: values[name])
    return (
        f"{arm} questions, {last} training episodes: the best of the paper's lambdas is {best} with "
        f"{values[best]:.1f}%; our default estimate ({WORDS}), which is told no lambda, has {values[WORDS]:.1f}%."
    )


def _fewest(styles: Any, means: Any, agents: list[str], baseline: str, config: Mapping[str, Any]) -> str:
    first = int(styles["episodes"].min())
    if first == int(styles["episodes"].max()):
        return ""
    parts = []
    for name in dict.fromkeys([headline(config), WORDS]):
        values = ", ".join(f"{arm} {_value(means, name, arm, first):.1f}%" for arm in [*agents, baseline])
        parts.append(f"{name}: {values}")
    return f"With {first} training episodes only: {'; '.join(parts)}."


def _guidance_sentence(means: Any, arms: list[str], last: int) -> str:
    values = ", ".join(f"{_value(means, GUIDANCE, arm, last):.1f}% on {arm} questions" for arm in arms)
    return f"For comparison, the embedding of the guidance text as theta, with no question asked, predicts {values}."
