"""The figures of docs/performance.md: time against size, and gap against time."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any

from benchmarks.solvers.cells import matching, time_to
from benchmarks.solvers.results import Line
from edpbrl_gym.reporting.figures import PALETTE, STYLE

__all__ = ["gap_against_time", "time_against_size"]

# colour, marker and label of each solver
LOOKS: dict[str, tuple[str, str, str]] = {
    "newton": (PALETTE[0], "o", "working-set Newton"),
    "pairwise": (PALETTE[2], "s", "Frank-Wolfe, pairwise"),
    "frank_wolfe": (PALETTE[5], "^", "Frank-Wolfe, plain"),
    "paper": (PALETTE[1], "D", "the paper's Frank-Wolfe"),
    "multiplicative": (PALETTE[3], "v", "multiplicative"),
    "copt": (PALETTE[4], "P", "copt's Frank-Wolfe"),
}
_TARGET = 1e-6
_RESOLUTION = 150


def time_against_size(lines: Sequence[Line], path: Path) -> None:
    """Time to a gap of 1e-2 and 1e-6 against n, for d = 384 and 768, D, lambda = 100.

    A filled marker is the time to the gap; a hollow one with an arrow says that the solver was stopped at that time,
    before it.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6.6), sharex=True, sharey=True)
        for row, level in zip(axes, (1e-2, _TARGET), strict=True):
            for axis, dimension in zip(row, (384, 768), strict=True):
                wanted = {
                    "source": "clip",
                    "dimension": dimension,
                    "split": 1,
                    "criterion": "D",
                    "regularization": 100.0,
                }
                _sizes(axis, matching(lines, **wanted), level)
                axis.set_title(f"gap 1e{round(log10(level))} of the gain, d = {dimension}")
        for axis in axes[1]:
            axis.set_xlabel("tokens n")
        for axis in axes[:, 0]:
            axis.set_ylabel("seconds, one thread")
        _legend(figure, axes)
        figure.savefig(path, dpi=_RESOLUTION)
        pyplot.close(figure)


def gap_against_time(lines: Sequence[Line], path: Path) -> None:
    """Gap relative to the gain against time at 5,000 x 768, lambda = 100, a panel for each criterion."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(1, 3, figsize=(9.6, 4.0), sharex=True, sharey=True)
        for axis, criterion in zip(axes, ("D", "A", "V16"), strict=True):
            wanted = {"source": "clip", "tokens": 5_000, "dimension": 768, "split": 1, "criterion": criterion}
            _trajectories(axis, matching(lines, regularization=100.0, **wanted))
            axis.set_title({"D": "D", "A": "A", "V16": "V, rank 16"}[criterion])
            axis.set_xlabel("seconds, one thread")
        axes[0].set_ylabel("certified gap / gain")
        figure.suptitle("CLIP-like features, 5,000 x 768, lambda = 100", fontsize=10)
        _legend(figure, axes[None, :])
        figure.savefig(path, dpi=_RESOLUTION)
        pyplot.close(figure)


def _sizes(axis: Any, lines: Sequence[Line], level: float) -> None:
    ran = [line for line in matching(lines, solver="newton") if "unit" in line]
    yardsticks = sorted((line["case"]["tokens"], line["unit"]) for line in ran)  # seconds of one float32 product Phi G
    if yardsticks:
        axis.plot(*zip(*yardsticks, strict=True), color="black", ls="--", linewidth=1.2, label="one Phi G in float32")
    for place, (name, (colour, marker, label)) in enumerate(LOOKS.items()):
        runs = [line for line in matching(lines, solver=name) if "points" in line]
        runs.sort(key=lambda line: line["case"]["tokens"])
        reached = [(line["case"]["tokens"], time_to(line, level)) for line in runs]
        filled = [point for point in reached if point[1] is not None]
        axis.plot(
            [point[0] for point in filled],
            [point[1] for point in filled],
            color=colour,
            marker=marker,
            markersize=5.5,
            linewidth=1.6,
            label=label,
            zorder=3,
        )
        shift = 1.22 ** (place - 3)  # solvers stopped at the same time are drawn beside each other
        for line in runs:
            if time_to(line, level) is None:
                x, y = line["case"]["tokens"] * shift, line["seconds"]
                axis.plot(x, y, color=colour, marker=marker, markerfacecolor="white", markersize=5.5, zorder=4)
                axis.annotate(
                    "",
                    xy=(x, y * 2.6),
                    xytext=(x, y * 1.25),
                    arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 0.9},
                )
    axis.set(xscale="log", yscale="log", xlim=(300, 2e6), ylim=(3e-4, 3e2))


def _trajectories(axis: Any, lines: Sequence[Line]) -> None:
    fastest_yardstick = min((line["unit"] for line in lines if "points" in line), default=None)
    if fastest_yardstick is not None:
        axis.axvline(fastest_yardstick, color="black", linestyle="--", linewidth=1.2, label="one Phi G in float32")
    for name, (colour, marker, label) in LOOKS.items():
        for line in matching(lines, solver=name):
            points = [point for point in line.get("points", ()) if point[0] > 0]
            if not points:
                continue
            least, seconds, gaps = float("inf"), [], []
            target = line["limits"]["target"]
            # of the points that reach the target only the last is confirmed
            points = [point for point in points[:-1] if point[1] > target] + points[-1:]
            for second, gap, _ in points:  # a solver may return the best design that it has seen
                least = min(least, gap)
                seconds.append(max(second, 1e-3))
                gaps.append(max(least, 1e-9))
            axis.plot(
                seconds,
                gaps,
                color=colour,
                marker=marker,
                markevery=max(1, len(seconds) // 6),
                markersize=5,
                linewidth=1.5,
                label=label,
                drawstyle="steps-post",
            )
    axis.axhline(_TARGET, color="#777777", linewidth=0.9, linestyle=":", label="gap 1e-6")
    axis.set(xscale="log", yscale="log", xlim=(0.01, 1e2), ylim=(3e-10, 10))


def _legend(figure: Any, axes: Any) -> None:
    found: dict[str, Any] = {}
    for axis in axes.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.tight_layout(rect=(0, 0.08 if axes.shape[0] > 1 else 0.12, 1, 1))
    figure.legend(found.values(), found.keys(), loc="lower center", ncols=4)
