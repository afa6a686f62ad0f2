"""The figures of the vocabulary-free experiment: objective, map of prompts, similarity, tastes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.reporting.figures import (
    GREY,
    MARKERS,
    PALETTE,
    Curve,
    Panel,
    curves_figure,
    legend,
    look,
    new_figure,
    set_title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["map_figure", "objective_figure", "similarity_figure", "taste_figure"]

PAPER_SIMILARITY = {"base": (0.185, 0.012), "trained": (0.140, 0.006)}
ARMS = {"trained": "trained policies", "base": "base model", "random": "random from the vocabulary"}


def objective_figure(table: Any, *, subtitle: str) -> Figure:
    """Draw the objective over the iterations: training batches, evaluations with a band, and the base model's line.

    Args:
        table: Rows with ``part`` "train" (iteration, objective), "evaluation" (also standard_error) and "base".
        subtitle: The setting in one line.
    """
    with new_figure(6.4, 3.8) as figure:
        axes = figure.subplots()
        train = table[table["part"] == "train"].sort_values("iteration")
        evaluations = table[table["part"] == "evaluation"].sort_values("iteration")
        base = table[table["part"] == "base"].iloc[0]
        axes.plot(
            train["iteration"], train["objective"], color=PALETTE[0], linewidth=0.9, alpha=0.55,
            label="training batches",
        )  # fmt: skip
        axes.plot(
            evaluations["iteration"], evaluations["objective"], color=PALETTE[1], marker="o", markersize=3.5,
            label="evaluation, with two standard errors",
        )  # fmt: skip
        _band(axes, evaluations["iteration"], evaluations["objective"], evaluations["standard_error"], PALETTE[1])
        axes.axhline(base["objective"], color=GREY, linestyle=":", label="base model, never trained")
        ends = np.array([0.0, max(train["iteration"].max(), evaluations["iteration"].max())], dtype=float)
        _band(axes, ends, np.full(2, base["objective"]), np.full(2, base["standard_error"]), GREY)
        axes.set(xlabel="iteration", ylabel="log det of the information")
        axes.legend(loc="best")
        set_title(figure, "The D-criterion while the policies are trained", subtitle)
    return figure


def _band(axes: Any, at: Any, mean: Any, error: Any, color: str) -> None:
    middle, half = np.asarray(mean, dtype=float), 2.0 * np.asarray(error, dtype=float)
    axes.fill_between(np.asarray(at, dtype=float), middle - half, middle + half, color=color, alpha=0.18, linewidth=0)


def map_figure(table: Any) -> Figure:
    """Draw one t-SNE map of the prompts of base and trained policies, a panel for each.

    Args:
        table: Rows with ``part`` "map": arm, policy, x, y.
    """
    rows = table[table["part"] == "map"]
    with new_figure(8.4, 4.3, grid=False) as figure:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, arm in zip(panels, ("base", "trained"), strict=True):
            for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True):
                number = int(policy)
                axes.scatter(
                    cell["x"], cell["y"], s=14, color=PALETTE[number % len(PALETTE)],
                    marker=MARKERS[number % len(MARKERS)], alpha=0.75, linewidth=0, label=f"policy {number + 1}",
                )  # fmt: skip
            axes.set(xticks=[], yticks=[], title=ARMS[arm])
        legend(figure)
        count = len(rows[rows["arm"] == "base"]) // max(rows["policy"].nunique(), 1)
        set_title(figure, f"Embeddings of {count} prompts from each policy (one t-SNE map of both panels)")
    return figure


def similarity_figure(table: Any, *, encoder: str) -> Figure:
    """Draw the mean cosine similarity between prompts of different policies, against the paper's.

    Args:
        table: Rows with ``part`` "similarity": arm, repeat, similarity.
        encoder: Name of the text encoder.
    """
    rows = table[table["part"] == "similarity"]
    with new_figure(5.4, 3.6) as figure:
        axes = figure.subplots()
        for place, arm in enumerate(("base", "trained")):
            values = rows[rows["arm"] == arm]["similarity"].to_numpy(dtype=float)
            here = (float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)
            for offset, (mean, deviation), color, hatch, name in (
                (-0.2, here, PALETTE[0], "", f"here ({encoder})"),
                (0.2, PAPER_SIMILARITY[arm], "#cccccc", "//", "paper (CLIP, MagicPrompt)"),
            ):
                axes.bar(
                    place + offset, mean, width=0.36, yerr=deviation, capsize=3, color=color, hatch=hatch,
                    edgecolor="#444444", linewidth=0.6, label=name if place == 0 else None,
                )  # fmt: skip
                axes.annotate(
                    f"{mean:.3f}", (place + offset, mean + deviation), xytext=(0, 3), ha="center", fontsize=8,
                    textcoords="offset points",
                )  # fmt: skip
        axes.set_xticks([0, 1], [ARMS["base"], ARMS["trained"]])
        axes.set_ylabel("mean cosine similarity")
        axes.set_ylim(top=axes.get_ylim()[1] * 1.3)  # room for the legend
        axes.legend(loc="upper right")
        axes.grid(axis="x", visible=False)
        set_title(figure, "Prompts of different policies, mean ± deviation over repeats (lower: more diverse)")
    return figure


def taste_figure(table: Any, *, titles: dict[str, str]) -> Figure:
    """Draw the cosine error against the number of questions: a column for each estimator, a row for each answering.

    Args:
        table: Rows with ``part`` "taste": arm, user, mode, scale, estimator, questions, cosine_error.
        titles: Title of each estimator.
    """
    rows = table[table["part"] == "taste"]
    estimators = list(dict.fromkeys(rows["estimator"]))
    panels = []
    for (mode, scale, estimator), cell in rows.groupby(["mode", "scale", "estimator"], sort=False):
        lines = []
        for place, (arm, name) in enumerate(ARMS.items()):
            # users differ more than arms: average over them, so that the band is that of the sets of questions
            by_count = (
                cell[cell["arm"] == arm].groupby(["questions", "set"])["cosine_error"].mean().groupby("questions")
            )
            mean, error = by_count.mean(), by_count.sem()
            lines.append(Curve(name, mean.index, mean, look(place), mean - error, mean + error))
        title = f"{UserSettings(str(mode), float(scale)).label}: {titles[estimator]}"
        panels.append(Panel(lines, title, "cosine error of the taste"))
    return curves_figure(
        panels,
        columns=len(estimators),
        xlabel="questions answered",
        title="What the questions teach: mean over users ± standard error over sets of questions",
        size=(3.6, 2.6),
        zero=False,
    )
