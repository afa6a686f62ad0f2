"""Figures: learning curves with bands, and the demo's picture; each as PNG and PDF."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._places import write_atomically
from edpbrl_gym.experiments.plus_minus import mean_over
from edpbrl_gym.experiments.settings import UserSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PALETTE", "STYLE", "counted_best", "demo_figure", "learning_curves", "save_figure"]

# Okabe & Ito (2008), told apart by readers with any colour vision; yellow is left out, too pale on white
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LABELS = {
    "cosine_error": "cosine error\n1 - cos(estimate, truth)",
    "preference_error": "preference error\n(share of pairs)",
}
_CHANCE = {"cosine_error": 1.0, "preference_error": 0.5}
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name``.png (200 dpi) and ``name``.pdf; without dates, so the same figure is the same file."""
    paths = []
    for suffix, options in ((".png", {"dpi": 200}), (".pdf", {"metadata": {"CreationDate": None}})):
        path = folder / f"{name}{suffix}"
        write_atomically(path, functools.partial(figure.savefig, format=suffix[1:], **options))
        paths.append(path)
    return paths


def learning_curves(curves: Any, agents: list[str], answering: UserSettings, *, runs: int, subtitle: str) -> Figure:
    """Draw the errors against T for one way of answering: a row for each metric, a column for each user.

    Args:
        curves: Output of ``summary.curves``.
        agents: Labels, in the order of their colours.
        answering: Which rows to draw.
        runs: Number of runs, for the caption.
        subtitle: The setting in one line.

    Returns:
        The figure; lines are means, bands are one standard error on each side.
    """
    import matplotlib
    from matplotlib.figure import Figure

    chosen = curves[(curves["mode"] == answering.mode) & (curves["scale"] == answering.scale)]
    users = list(dict.fromkeys(chosen["user"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(2.9 * len(users), 5.2) + 0.4, 5.6), layout="constrained")
        axes = figure.subplots(2, len(users), sharex=True, sharey="row", squeeze=False)
        for row, metric in enumerate(_LABELS):
            for column, user in enumerate(users):
                cell = chosen[chosen["user"] == user]
                _panel(axes[row, column], cell, agents, metric)
                if row == 0:
                    axes[row, column].set_title(str(user))
            axes[row, 0].set_ylabel(_LABELS[metric])
            low, high = axes[row, 0].get_ylim()  # shared by the row, so known only when all its panels are drawn
            if low <= _CHANCE[metric] <= high:
                for axis in axes[row]:
                    axis.axhline(
                        _CHANCE[metric], color="#777777", linewidth=0.9, linestyle=(0, (1, 2)), label="guessing"
                    )
        for axis in axes[-1]:
            axis.set_xlabel("episodes T")
        drawn = {
            label: handle
            for axis in axes[:, 0]
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=min(len(drawn), 4))
        figure.suptitle(
            f"Simulated user: {answering.label}; {mean_over(runs, 'run')}\n{subtitle}",
            fontsize=9,
        )
    return figure


def _panel(axis: Any, cell: Any, agents: list[str], metric: str) -> None:
    for agent, number in zip(agents, _positions(len(agents)), strict=True):
        rows = cell[cell["agent"] == agent].sort_values("episodes")
        x = rows["episodes"].to_numpy()
        mean = rows[f"{metric}_mean"].to_numpy()
        error = rows[f"{metric}_sem"].to_numpy(dtype=float)  # NaN, of one run, draws no band
        colour = PALETTE[number % len(PALETTE)]
        axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axis.plot(
            x, mean, color=colour, linestyle=_LINES[number % len(_LINES)], marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.5, linewidth=1.6, label=agent,
        )  # fmt: skip
        axis.set_xticks(x)


def _positions(agents: int) -> list[int]:
    """Places in the palette: the baseline, the last agent, looks the same in every figure."""
    return [number if number == 0 else number + 1 for number in range(agents - 1)] + [1]


_NUMBERS = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted_best(count: int) -> str:
    """Say as many as there are, where a vocabulary allows no more: ten best prompts, two best prompts, best prompt."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} best prompts" if count != 1 else "best prompt"


def demo_figure(table: Any, *, text: str, episodes: int) -> Figure:
    """Draw the demo: how fast the taste was learnt, and where the best prompts lie among random ones.

    Args:
        table: Rows with ``part`` "curve", "plain curve", "population", "best" and "ceiling".
        text: The taste in words.
        episodes: T.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
        agents = list(dict.fromkeys(table[table["part"] == "best"]["agent"]))
        _demo_curves(left, table, agents)
        _demo_scores(right, table, agents)
        drawn = {
            label: handle
            for axis in (left, right)
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }  # the agents are in both panels, in the same colours
        figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=3)
        figure.suptitle(f'Simulated user: "{text}", {episodes} episodes', fontsize=10)
    return figure


def _demo_curves(axis: Any, table: Any, agents: list[str]) -> None:
    for number, agent in enumerate(agents):
        rows = table[(table["part"] == "curve") & (table["agent"] == agent)].sort_values("episodes")
        axis.plot(
            rows["episodes"], rows["cosine_error"], color=PALETTE[number], linestyle=_LINES[number],
            marker=_MARKERS[number], markersize=4.5, label=f"{agent} questions",
        )  # fmt: skip
    plain = table[(table["part"] == "plain curve") & (table["agent"] == agents[-1])].sort_values("episodes")
    axis.plot(
        plain["episodes"], plain["cosine_error"], color="#777777", linestyle=":", marker="x", markersize=4.5,
        label=f"{agents[-1]} questions, the paper's estimate (ridge, lambda = 100)",
    )  # fmt: skip
    axis.set(xlabel="episodes answered", ylabel="cosine error of the learnt taste", title="Learning the taste")
    axis.set_ylim(bottom=0)


def _demo_scores(axis: Any, table: Any, agents: list[str]) -> None:
    population = table[table["part"] == "population"]["true_score"].to_numpy(dtype=float)
    counts, _, _ = axis.hist(population, bins=30, color="#c8c8c8", label=f"{len(population)} random prompts")
    most = 0
    for number, agent in enumerate(agents):
        scores = table[(table["part"] == "best") & (table["agent"] == agent)]["true_score"].to_numpy(dtype=float)
        most = max(most, len(scores))
        height = counts.max() * (0.2 + 0.2 * number)
        axis.plot(
            scores, np.full(len(scores), height), linestyle="none", marker=_MARKERS[number], color=PALETTE[number],
            markersize=6, alpha=0.8,
        )  # fmt: skip
    ceiling = table[table["part"] == "ceiling"]["true_score"]
    label = f"{'mean of the ' if len(ceiling) > 1 else ''}{counted_best(len(ceiling))}, taste known"
    axis.axvline(ceiling.mean(), color="#000000", linestyle=":", linewidth=1.2, label=label)
    best = counted_best(most)
    axis.set(
        xlabel="true score (cosine to the taste)",
        ylabel="random prompts",
        title=f"{best[0].upper()}{best[1:]}, from words never asked about",
    )
