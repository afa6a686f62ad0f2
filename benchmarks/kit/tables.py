"""Cells, tables and figures of curves: what several reports share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.kit.series import Curves, Estimated, Key
from edpbrl_gym.reporting.figures import Curve, Look, Panel, look
from edpbrl_gym.reporting.statistics import bracket
from edpbrl_gym.reporting.tables import TextTable

BY_PERSON = "In brackets: 95% bootstrap intervals over people."
_LINES = {"random": "-", "adaptive": "--"}  # of who asks


def drawn(label: str, band: dict[int, Estimated], look: Look, *, shaded: bool = True) -> Curve:
    """A curve of a figure, with its intervals where it is shaded."""
    mean, low, high = np.array([(one.value, one.low, one.high) for one in band.values()]).T
    return Curve(label, list(band), mean, look, low if shaded else None, high if shaded else None)


def cell(found: Estimated | None, form: str = ".3f", *, star: bool = False) -> str:
    """The number and its interval, "" for None; with a star where the interval excludes 0."""
    if found is None:
        return ""
    return f"{found.value:{form}} {bracket(found.low, found.high, form)}{'*' if star and found.sign else ''}"


def needed_cell(found: Estimated | None, most: float) -> str:
    """Answers needed and their interval; "> most" where there are not so many."""
    if found is None:
        return ""
    value, *ends = (
        f"{one:.1f}" if math.isfinite(one) else f"> {most:g}" for one in (found.value, found.low, found.high)
    )
    return value if math.isnan(found.low) else f"{value} [{', '.join(ends)}]"


# -- estimators asked by several rules -------------------------------------------------------------------------------


def curve_table(title: str, curves: Curves, keys: Mapping[tuple[str, str], Key], metric: str) -> TextTable:
    """A metric at every number of answers; ``keys``: estimator and rule -> their series."""
    rows = [
        [*shown, *(cell(curves.mean(key, metric, count)) for count in curves.counts)] for shown, key in keys.items()
    ]
    return TextTable(title, ["estimator", "questions", *map(str, curves.counts)], rows, BY_PERSON)


def learning_panel(
    curves: Curves,
    keys: Mapping[tuple[str, str], Key],
    metric: str,
    estimators: Sequence[str],
    *,
    shaded: str,
    title: str,
    ylabel: str,
) -> Panel:
    """A metric against answers: colour and marker of the estimator, line of the rule, intervals of one rule."""
    shown = []
    for (estimator, rule), key in keys.items():
        colour, _, marker = look(list(estimators).index(estimator))
        style = Look(colour, _LINES[rule], marker)
        shown.append(drawn(f"{estimator}, {rule}", curves.band(key, metric), style, shaded=rule == shaded))
    return Panel(shown, title, ylabel)
