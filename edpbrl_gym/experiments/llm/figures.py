"""Curves, bars and per-style panels; colours of Okabe and Ito, markers and hatches for readers without colour."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.figures import PALETTE, STYLE
from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS, estimator_names
from edpbrl_gym.experiments.llm.styles import PAPER_AVERAGE, PAPER_RESULTS
from edpbrl_gym.experiments.llm.summary import by_style, curves, headline
from edpbrl_gym.experiments.plus_minus import mean_over
from edpbrl_gym.experiments.summary import agent_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars_figure", "curves_figure", "styles_figure"]

_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
_GREY = "#777777"


def curves_figure(table: Any, config: Mapping[str, Any], *, subtitle: str) -> Figure:
    """Accuracy against training episodes: the headline ridge and our estimate, on own and on the same questions.

    Args:
        table: The results.
        config: The settings.
        subtitle: The setting in one line.
    """
    import matplotlib
    from matplotlib.figure import Figure

    means, arms = curves(table), agent_labels(config)
    estimators = list(dict.fromkeys([headline(config), WORDS]))
    tests: list[str | None] = [None] if len(arms) == 1 else [None, arms[-1]]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.1 * len(tests) + 0.7), layout="constrained")
        axes = figure.subplots(len(tests), len(estimators), sharex=True, sharey="row", squeeze=False)
        for row, tested in enumerate(tests):
            for column, name in enumerate(estimators):
                axis = axes[row, column]
                for place, arm in enumerate(arms):
                    _line(axis, _cell(means, name, arm, tested), place, arm, band=True)
                _references(axis, means, config, tested)
                where = "each on its own held-out questions" if tested is None else f"all on {tested}'s questions"
                axis.set_title(f"{_estimator_title(name)}\n{where}", fontsize=9)
            axes[row, 0].set_ylabel("held-out accuracy (%)")
        for axis in axes[-1]:
            axis.set_xlabel("training episodes")
        _legend(figure, list(axes.ravel()), arms)
        styles = len(config["styles"])
        _title(figure, f"Predicting the judge's choices; {mean_over(styles, 'style')}", subtitle)
    return figure


def _estimator_title(name: str) -> str:
    return "default estimate (words)" if name == WORDS else name


def _cell(means: Any, estimator: str, arm: str, tested: str | None) -> Any:
    rows = means[(means["estimator"] == estimator) & (means["arm"] == arm)]
    return rows[rows["tested_on"] == (arm if tested is None else tested)].sort_values("episodes")


def _line(axis: Any, rows: Any, place: int, label: str, *, band: bool, value: str = "mean") -> None:
    x, mean = rows["episodes"].to_numpy(), rows[value].to_numpy(dtype=float)
    colour = PALETTE[place % len(PALETTE)]
    if band:
        error = rows["sem"].to_numpy(dtype=float)
        axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
    axis.plot(
        x, mean, color=colour, linestyle=_LINES[place % len(_LINES)], marker=_MARKERS[place % len(_MARKERS)],
        markersize=4.5, linewidth=1.6, label=label,
    )  # fmt: skip
    axis.set_xticks(x)


def _references(axis: Any, means: Any, config: Mapping[str, Any], tested: str | None) -> None:
    """Guessing, and what the guidance text alone predicts (on the tested questions, where they are the same)."""
    chance = 100.0 / config["num_options"]
    axis.axhline(chance, color=_GREY, linewidth=0.9, linestyle=(0, (1, 2)), label="guessing")
    if tested is not None:
        rows = means[(means["estimator"] == GUIDANCE) & (means["tested_on"] == tested)]
        axis.axhline(
            float(rows["mean"].mean()), color="#000000", linewidth=0.9, linestyle=(0, (4, 2, 1, 2)),
            label="guidance text as theta (asks nothing)",
        )  # fmt: skip


def _legend(figure: Any, axes: Sequence[Any], arms: list[str]) -> None:
    """One for all panels, the arms first."""
    drawn = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    names = sorted(drawn, key=lambda name: name not in arms)
    width = sum(len(name) + 7 for name in names) / 13.5  # about, in inches
    rows = math.ceil(width / figure.get_size_inches()[0])
    columns = math.ceil(len(names) / rows)
    figure.legend([drawn[name] for name in names], names, loc="outside lower center", ncols=columns)


def _title(figure: Any, title: str, subtitle: str) -> None:
    """Both above the figure, the setting wrapped to its width."""
    width = int(15.2 * figure.get_size_inches()[0])
    figure.suptitle("\n".join([title, *textwrap.wrap(subtitle, width)]), fontsize=9)


def bars_figure(table: Any, config: Mapping[str, Any], *, subtitle: str) -> Figure:
    """Accuracy at the largest train size for every estimator, on own and on the same questions."""
    import matplotlib
    from matplotlib.figure import Figure

    means, arms = curves(table), agent_labels(config)
    last = int(means["episodes"].max())
    means = means[means["episodes"] == last]
    names = list(estimator_names(config["lambdas"]))
    tests: list[str | None] = [None] if len(arms) == 1 else [None, arms[-1]]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.0 * len(tests) + 0.9), layout="constrained")
        axes = figure.subplots(len(tests), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        width = 0.8 / len(arms)
        for axis, tested in zip(axes, tests, strict=True):
            # on the same questions the guidance text predicts the same, whatever the arm: one bar, without its colour
            shared = [] if tested is None else [GUIDANCE]
            for place, arm in enumerate(arms):
                offset = (place - (len(arms) - 1) / 2) * width
                _bars(axis, means, [name for name in names if name not in shared], arm, tested, place, offset, width)
            for name in shared:
                _bars(axis, means, [name], arms[0], tested, None, 0.0, width, start=names.index(name))
            _paper_marks(axis, config, arms, names, tested, width)
            axis.axhline(
                100.0 / config["num_options"], color=_GREY, linewidth=0.9, linestyle=(0, (1, 2)), label="guessing"
            )
            own = "each on its own held-out questions (the paper's test)"
            axis.set_title(own if tested is None else f"all on {tested}'s held-out questions", fontsize=9, loc="left")
            axis.set_ylabel("held-out accuracy (%)")
            axis.grid(visible=False, axis="x")
        axes[-1].set_xticks(np.arange(len(names)), [_tick(name) for name in names])
        _legend(figure, list(axes), arms)
        styles = len(config["styles"])
        _title(figure, f"{last} training episodes; {mean_over(styles, 'style')}", subtitle)
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
    import matplotlib
    from matplotlib.figure import Figure

    styles, arms, name = by_style(table), agent_labels(config), headline(config)
    rows = styles[(styles["estimator"] == name) & (styles["arm"] == styles["tested_on"])]
    names = list(config["styles"])
    columns = min(5, len(names))
    lines = -(-len(names) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(2.0 * columns, 5.2) + 0.6, 2.0 * lines + 1.0), layout="constrained")
        axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, style in zip(axes, names, strict=False):
            for place, arm in enumerate(arms):
                cell = rows[(rows["style"] == style) & (rows["arm"] == arm)].sort_values("episodes")
                _line(axis, cell, place, arm, band=False, value="accuracy")
            axis.axhline(
                100.0 / config["num_options"], color=_GREY, linewidth=0.9, linestyle=(0, (1, 2)), label="guessing"
            )
            axis.set_title(style, fontsize=9)
        for axis in axes[len(names) :]:
            axis.set_visible(False)
        for axis in axes[::columns]:
            axis.set_ylabel("accuracy (%)")
        for axis in axes[max(0, len(names) - columns) : len(names)]:
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("training episodes")
        _legend(figure, list(axes[: len(names)]), arms)
        folds = config["folds"]
        told = f"{name.capitalize()}, each arm on its own held-out questions, mean of {folds} fold{'s' * (folds > 1)}"
        _title(figure, told, subtitle)
    return figure
