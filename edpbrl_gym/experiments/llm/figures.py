"""Curves, bars and per-style panels; colours of Okabe and Ito, markers and hatches for readers without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS, estimator_names
from edpbrl_gym.experiments.llm.styles import PAPER_AVERAGE, PAPER_RESULTS
from edpbrl_gym.experiments.llm.summary import by_style, curves, headline
from edpbrl_gym.experiments.settings import agent_labels
from edpbrl_gym.reporting.figures import (
    GREY,
    PALETTE,
    Curve,
    Level,
    Look,
    Panel,
    curves_figure,
    legend,
    look,
    new_figure,
    set_title,
)
from edpbrl_gym.reporting.statistics import mean_over

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["accuracy_figure", "bars_figure", "styles_figure"]

_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")


def accuracy_figure(table: Any, config: Mapping[str, Any], *, subtitle: str) -> Figure:
    """Accuracy against training episodes: the headline ridge and our estimate, on own and on the same questions.

    Args:
        table: The results.
        config: The settings.
        subtitle: The setting in one line.
    """
    means, arms = curves(table), agent_labels(config)
    estimators = list(dict.fromkeys([headline(config), WORDS]))
    tests: list[str | None] = [None] if len(arms) == 1 else [None, arms[-1]]
    panels = []
    for tested in tests:
        where = "each on its own held-out questions" if tested is None else f"all on {tested}'s questions"
        for name in estimators:
            lines = []
            for index, arm in enumerate(arms):
                rows = _cell(means, name, arm, tested)
                mean, error = (rows[statistic].to_numpy(dtype=float) for statistic in ("mean", "sem"))
                lines.append(Curve(arm, rows["episodes"], mean, look(index), mean - error, mean + error))
            title = f"{'default estimate (words)' if name == WORDS else name}\n{where}"
            panels.append(Panel(lines, title, "held-out accuracy (%)", _references(means, config, tested)))
    return curves_figure(
        panels,
        columns=len(estimators),
        xlabel="training episodes",
        title=f"Predicting the judge's choices; {mean_over(len(config['styles']), 'style')}",
        subtitle=subtitle,
        size=(3.6, 3.1),
        share="row",
        zero=False,
    )


def _references(means: Any, config: Mapping[str, Any], tested: str | None) -> list[Level]:
    """Guessing, and the accuracy of the guidance text alone (if all arms are tested on the same questions)."""
    levels = [Level(100.0 / config["num_options"], "guessing")]
    if tested is not None:
        rows = means[(means["estimator"] == GUIDANCE) & (means["tested_on"] == tested)]
        black = Look("#000000", (0, (4, 2, 1, 2)))
        levels.append(Level(float(rows["mean"].mean()), "guidance text as theta (asks nothing)", look=black))
    return levels


def _cell(means: Any, estimator: str, arm: str, tested: str | None) -> Any:
    rows = means[(means["estimator"] == estimator) & (means["arm"] == arm)]
    return rows[rows["tested_on"] == (arm if tested is None else tested)].sort_values("episodes")


def bars_figure(table: Any, config: Mapping[str, Any], *, subtitle: str) -> Figure:
    """Accuracy at the largest train size for every estimator, on own and on the same questions."""
    means, arms = curves(table), agent_labels(config)
    last = int(means["episodes"].max())
    means = means[means["episodes"] == last]
    names = list(estimator_names(config["lambdas"]))
    tests: list[str | None] = [None] if len(arms) == 1 else [None, arms[-1]]
    with new_figure(8.4, 3.0 * len(tests) + 0.9) as figure:
        axes = figure.subplots(len(tests), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        width = 0.8 / len(arms)
        for axis, tested in zip(axes, tests, strict=True):
            # on the same questions the guidance text predicts the same for all arms: one bar, without a colour
            shared = [] if tested is None else [GUIDANCE]
            for place, arm in enumerate(arms):
                offset = (place - (len(arms) - 1) / 2) * width
                _bars(axis, means, [name for name in names if name not in shared], arm, tested, place, offset, width)
            for name in shared:
                _bars(axis, means, [name], arms[0], tested, None, 0.0, width, start=names.index(name))
            _paper_marks(axis, config, arms, names, tested, width)
            axis.axhline(
                100.0 / config["num_options"], color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), label="guessing"
            )
            own_title = "each on its own held-out questions (the paper's test)"
            axis.set_title(
                own_title if tested is None else f"all on {tested}'s held-out questions", fontsize=9, loc="left"
            )
            axis.set_ylabel("held-out accuracy (%)")
            axis.grid(visible=False, axis="x")
        axes[-1].set_xticks(np.arange(len(names)), [_tick(name) for name in names])
        legend(figure)
        styles = len(config["styles"])
        set_title(figure, f"{last} training episodes; {mean_over(styles, 'style')}", subtitle)
    return figure


def _bars(
    axis: Any,
    means: Any,
    names: Sequence[str],
    arm: str,
    tested: str | None,
    place: int | None,
    offset: float,
    width: float,
    start: int = 0,
) -> None:
    """A bar with its whisker and value for each estimator; ``place`` of the arm in the palette, None is grey."""
    cells = [_cell(means, name, arm, tested).iloc[0] for name in names]
    values = np.array([float(cell["mean"]) for cell in cells])
    errors = np.array([float(cell["sem"]) for cell in cells])  # NaN, of one style, draws no whisker
    x = start + np.arange(len(names)) + offset
    axis.bar(
        x, values, width * 0.94, yerr=errors, capsize=2.5, alpha=0.85, edgecolor="white", linewidth=0.0,
        color="#b0b0b0" if place is None else PALETTE[place % len(PALETTE)],
        hatch="" if place is None else _HATCHES[place % len(_HATCHES)],
        label=None if place is None else arm, error_kw={"linewidth": 1.0},
    )  # fmt: skip
    for position, value, error in zip(x, values, errors, strict=True):
        axis.text(position, value + np.nan_to_num(error) + 0.8, f"{value:.0f}", ha="center", va="bottom", fontsize=7.5)


def _tick(name: str) -> str:
    return {WORDS: "default estimate\n(words)", GUIDANCE: "guidance text\n(asks nothing)"}.get(
        name, name.replace("ridge (", "ridge\n").removesuffix(")")
    )


def _paper_marks(
    axis: Any, config: Mapping[str, Any], arms: list[str], names: list[str], tested: str | None, width: float
) -> None:
    """The paper's two averages beside the bars of its setting."""
    name = f"ridge (lambda = {100.0:g})"
    known = {"ED-PBRL": PAPER_AVERAGE.design, "Random": PAPER_AVERAGE.random}
    if tested is not None or name not in names or set(config["styles"]) != set(PAPER_RESULTS):
        return
    places = [(place, known[arm]) for place, arm in enumerate(arms) if arm in known]
    if places:
        x = [names.index(name) + (place - (len(arms) - 1) / 2) * width + 0.3 * width for place, _ in places]
        axis.plot(
            x, [value for _, value in places], linestyle="none", marker="D", markersize=5, color="#000000",
            markerfacecolor="white", label="paper (GPT-4.1-mini, images)",
        )  # fmt: skip


def styles_figure(table: Any, config: Mapping[str, Any], *, subtitle: str) -> Figure:
    """A panel for each style: accuracy against training episodes with the headline ridge, own questions."""
    styles, arms, name = by_style(table), agent_labels(config), headline(config)
    rows = styles[(styles["estimator"] == name) & (styles["arm"] == styles["tested_on"])]
    panels = []
    for style in config["styles"]:
        lines = []
        for index, arm in enumerate(arms):
            cell = rows[(rows["style"] == style) & (rows["arm"] == arm)].sort_values("episodes")
            lines.append(Curve(arm, cell["episodes"], cell["accuracy"], look(index)))
        panels.append(Panel(lines, style, "accuracy (%)", [Level(100.0 / config["num_options"], "guessing")]))
    folds = config["folds"]
    return curves_figure(
        panels,
        columns=5,
        xlabel="training episodes",
        title=f"{name.capitalize()}, each arm on its own held-out questions, mean of {folds} fold{'s' * (folds > 1)}",
        subtitle=subtitle,
        size=(2.0, 2.0),
        zero=False,
    )
