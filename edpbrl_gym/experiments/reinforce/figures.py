"""The figures of the vocabulary-free experiment: objective, map of prompts, similarity, what was learnt."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.figures import PALETTE, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["map_figure", "objective_figure", "similarity_figure", "taste_figure"]

_GREY = "#777777"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PAPER_SIMILARITY = {"base": (0.185, 0.012), "trained": (0.140, 0.006)}
ARMS = {"trained": "trained policies", "base": "base model", "random": "random from the vocabulary"}


def objective_figure(table: Any, *, subtitle: str) -> Figure:
    """Draw the objective over the iterations: training batches, evaluations with a band, and the base model's line.

    Args:
        table: Rows with ``part`` "train" (iteration, objective), "evaluation" (also standard_error) and "base".
        subtitle: The setting in one line.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.subplots()
        train = table[table["part"] == "train"].sort_values("iteration")
        found = table[table["part"] == "evaluation"].sort_values("iteration")
        base = table[table["part"] == "base"].iloc[0]
        axes.plot(
            train["iteration"], train["objective"], color=PALETTE[0], linewidth=0.9, alpha=0.55,
            label="training batches",
        )  # fmt: skip
        axes.plot(
            found["iteration"], found["objective"], color=PALETTE[1], marker="o", markersize=3.5,
            label="evaluation, with two standard errors",
        )  # fmt: skip
        _band(axes, found["iteration"], found["objective"], found["standard_error"], PALETTE[1])
        axes.axhline(base["objective"], color=_GREY, linestyle=":", label="base model, never trained")
        ends = np.array([0.0, max(train["iteration"].max(), found["iteration"].max())], dtype=float)
        _band(axes, ends, np.full(2, base["objective"]), np.full(2, base["standard_error"]), _GREY)
        axes.set(xlabel="iteration", ylabel="log det of the information")
        axes.legend(loc="best")
        axes.set_title("\n".join(textwrap.wrap(subtitle, 100)), fontsize=7, color="#444444")
        figure.suptitle("The D-criterion while the policies are trained", fontsize=10)
    return figure


def _band(axes: Any, at: Any, mean: Any, error: Any, color: str) -> None:
    middle, half = np.asarray(mean, dtype=float), 2.0 * np.asarray(error, dtype=float)
    axes.fill_between(np.asarray(at, dtype=float), middle - half, middle + half, color=color, alpha=0.18, linewidth=0)


def map_figure(table: Any) -> Figure:
    """Draw one t-SNE map of the prompts of base and trained policies, a panel for each.

    Args:
        table: Rows with ``part`` "map": arm, policy, x, y.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = table[table["part"] == "map"]
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(8.4, 4.3), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, arm in zip(panels, ("base", "trained"), strict=True):
            for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True):
                number = int(policy)
                axes.scatter(
                    cell["x"], cell["y"], s=14, color=PALETTE[number % len(PALETTE)],
                    marker=_MARKERS[number % len(_MARKERS)], alpha=0.75, linewidth=0, label=f"policy {number + 1}",
                )  # fmt: skip
            axes.set(xticks=[], yticks=[], title=ARMS[arm])
        figure.legend(
            *panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=rows["policy"].nunique()
        )
        count = len(rows[rows["arm"] == "base"]) // max(rows["policy"].nunique(), 1)
        figure.suptitle(f"Embeddings of {count} prompts from each policy (one t-SNE map of both panels)", fontsize=10)
    return figure


def similarity_figure(table: Any, *, encoder: str) -> Figure:
    """Draw the mean cosine similarity between prompts of different policies, beside the paper's.

    Args:
        table: Rows with ``part`` "similarity": arm, repeat, similarity.
        encoder: Name of the text encoder.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = table[table["part"] == "similarity"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for place, arm in enumerate(("base", "trained")):
            values = rows[rows["arm"] == arm]["similarity"].to_numpy(dtype=float)
            ours = (float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)
            for offset, (mean, deviation), color, hatch, name in (
                (-0.2, ours, PALETTE[0], "", f"here ({encoder})"),
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
        figure.suptitle(
            "Prompts of different policies, mean ± deviation over repeats (lower: more diverse)", fontsize=9
        )
    return figure


def taste_figure(table: Any, *, titles: dict[str, str]) -> Figure:
    """Draw the cosine error against the number of questions: a column for each estimator, a row for each answering.

    Args:
        table: Rows with ``part`` "taste": arm, user, mode, scale, estimator, questions, cosine_error.
        titles: Title of each estimator.
    """
    import matplotlib
    from matplotlib.figure import Figure

    from edpbrl_gym.experiments.settings import UserSettings

    rows = table[table["part"] == "taste"]
    ways = list(rows[["mode", "scale"]].drop_duplicates().itertuples(index=False))
    estimators = list(dict.fromkeys(rows["estimator"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * len(estimators) + 0.6, 2.6 * len(ways) + 0.6), layout="constrained")
        panels = figure.subplots(len(ways), len(estimators), sharex=True, sharey=True, squeeze=False)
        for line, way in zip(panels, ways, strict=True):
            for axes, estimator in zip(line, estimators, strict=True):
                cell = rows[
                    (rows["mode"] == way.mode) & (rows["scale"] == way.scale) & (rows["estimator"] == estimator)
                ]
                for number, arm in enumerate(ARMS):
                    # users differ more than arms: average over them, so that the band is that of the sets of questions
                    own = cell[cell["arm"] == arm].groupby(["questions", "set"])["cosine_error"].mean()
                    mean, error = own.groupby("questions").mean(), own.groupby("questions").sem()
                    axes.plot(
                        mean.index, mean, color=PALETTE[number], marker=_MARKERS[number], markersize=4, label=ARMS[arm]
                    )
                    axes.fill_between(
                        mean.index, mean - error, mean + error, color=PALETTE[number], alpha=0.15, linewidth=0
                    )
                answering = UserSettings(str(way.mode), float(way.scale)).label
                axes.set_title(f"{answering}: {titles[estimator]}", fontsize=8)
            line[0].set_ylabel("cosine error of the taste")
        for axes in panels[-1]:
            axes.set_xlabel("questions answered")
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ARMS))
        figure.suptitle(
            "What the questions teach: mean over users ± standard error over sets of questions", fontsize=10
        )
    return figure
