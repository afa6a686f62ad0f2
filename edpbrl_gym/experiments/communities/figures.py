"""The figure of a study of communities: learning curves by kind of new person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edpbrl_gym.experiments.communities.settings import ESTIMATORS
from edpbrl_gym.experiments.communities.summary import METRICS, Communities
from edpbrl_gym.experiments.people.summary import Series
from edpbrl_gym.reporting.figures import Curve, Look, Panel, curves_figure, look

__all__ = ["learning_figure"]

_LINES = {"random": "-", "adaptive": "--", "own": ":"}


def _look(series: Series) -> Look:
    """Colour and marker of the estimator, line of the rule."""
    colour, _, marker = look(list(ESTIMATORS).index(series.estimator))
    return Look(colour, _LINES[series.rule], marker)


def learning_figure(found: Communities) -> Any:
    """Every metric against answers, a column of panels for each kind of new person."""
    panels = []
    for metric, title in METRICS.items():
        for kind in found.kinds:
            curves = [curve for series in found.series if (curve := _curve(found, series, kind, metric)) is not None]
            panels.append(Panel(curves, f"{kind}", title))
    return curves_figure(
        panels,
        columns=len(found.kinds),
        xlabel="answers of the new person",
        title="New people, with and without what the community has answered",
        subtitle="Means over people and regimes; bands: 95% bootstrap intervals over people, of the library's own "
        "estimators with adaptive questions.",
        share="row",
        zero=False,
        ticks=_apart(found.answers),
    )


def _apart(counts: Sequence[int]) -> list[int]:
    """Numbers of answers whose labels do not overlap."""
    kept: list[int] = []
    for count in counts:
        if not kept or count - kept[-1] >= counts[-1] / 20:
            kept.append(count)
    return kept


def _curve(found: Communities, series: Series, kind: str, metric: str) -> Curve | None:
    points = {count: found.mean(series, kind, metric, count) for count in found.answers}
    known = {count: point for count, point in points.items() if point is not None}
    if not known:
        return None
    low, high = np.array([(point.low, point.high) for point in known.values()]).T
    banded = series.rule == "adaptive"
    return Curve(
        f"{series.estimator}, {series.rule}",
        np.array(list(known)),
        np.array([point.value for point in known.values()]),
        _look(series),
        low if banded else None,
        high if banded else None,
    )
