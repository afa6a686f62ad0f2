"""How many questions will do, beside Random ones and the paper's estimate; with intervals.

A run is a (seed, user) of a regime. All arms of a run see the same user with the same draws, so they are compared on
the runs that both have, and every bootstrap resamples whole runs. A series is an arm with one of its estimators:
"adaptive" with the planner's own estimate, "random/ridge100" with another one.
"""

from __future__ import annotations

from typing import Any

from benchmarks.kit.series import Curves, Estimated
from benchmarks.kit.tables import cell
from benchmarks.planners.arms import get_arm
from benchmarks.planners.regimes import REGIMES
from benchmarks.planners.scoring import METRICS
from edpbrl_gym.reporting.tables import TextTable

PAPER, BASELINE, ADAPTIVE = "random/ridge100", "random/vocabulary", "adaptive"

# what the adaptive planner was to reach: share of the questions of mark (a) by regime, and of mark (b) everywhere
TARGETS_A: dict[str, float] = {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
TARGET_B = 0.6
_STARTS = {"cosine_error": 1.0, "preference_error": 0.5}  # known before the first question


class Efficiency:
    """The rows about prompt MDPs by regime and series; of a planner, its own estimate only."""

    def __init__(self, table: Any) -> None:
        arms = {name: get_arm(name) for name in table["arm"].unique()}
        prompts = table["regime"].map(lambda name: not (REGIMES[name].items or REGIMES[name].first))
        own = table["estimator"] == "planner"
        designs = table["arm"].map(lambda name: arms[name].design is not None)
        rows = table[prompts & (own | designs)]
        series = rows["arm"].where(rows["estimator"] == "planner", rows["arm"] + "/" + rows["estimator"])
        self.rows = rows.assign(series=series)
        self.curves = Curves(self.rows, ["regime", "series"], ["seed", "user"], None, "episodes")
        self.regimes = [name for name in REGIMES if (self.rows["regime"] == name).any()]

    def share(self, regime: str, series: str, reference: str, metric: str) -> Estimated | None:
        """Share of the reference's episodes that a series needs for the error that the reference has after all."""
        both = self.curves.shared([(regime, series), (regime, reference)], metric)
        if both is None:
            return None
        last, start = both.counts[-1], _STARTS.get(metric, float("nan"))
        found = self.curves.needed((regime, series), (regime, reference), metric, last, start=start)
        return found and Estimated(*(end / last for end in (found.value, found.low, found.high)))


def marks_table(found: Efficiency) -> TextTable:
    """What the adaptive planner was to show, and what it showed."""
    rows = []
    for regime in found.regimes:
        for metric in ("cosine_error", "regret"):
            cells = []
            for reference, aim in ((PAPER, TARGETS_A.get(regime)), (BASELINE, TARGET_B)):
                share = found.share(regime, ADAPTIVE, reference, metric)
                verdict = "" if share is None or aim is None or metric == "regret" else _verdict(share.value, aim)
                cells += [cell(share), verdict]
            if any(cells):
                rows.append((REGIMES[regime].title, METRICS[metric], *cells))
    return TextTable(
        "The adaptive planner against its marks",
        ("regime", "metric", "share for (a)", "aim", "share for (b)", "aim"),
        rows,
        "Shares of the questions that the reference asks: (a) is the error of Random questions with the paper's ridge "
        f"({PAPER}), (b) that of Random questions with the vocabulary prior ({BASELINE}), both after all their "
        "questions; inf: not reached. In brackets: 95% bootstrap intervals over runs. The regret is measured at a few "
        "T only, so its shares are coarse.",
    )


def _verdict(share: float, aim: float) -> str:
    return f"{aim:.3g}: {'reached' if share <= aim else 'missed'}"
