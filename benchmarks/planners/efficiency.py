"""How many questions will do: questions needed, who is better than Random, what each piece buys; with intervals.

A run is a (seed, user) of a regime. All arms of a run see the same user with the same draws, so they are compared on
the runs that both have, and every bootstrap resamples whole runs. A series is an arm with one of its estimators:
"adaptive" with the planner's own estimate, "random/ridge100" with another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.kit.series import Curves, Estimated, episodes_to_reach
from benchmarks.kit.tables import cell, drawn
from benchmarks.planners.arms import get_arm
from benchmarks.planners.regimes import REGIMES
from benchmarks.planners.scoring import METRICS
from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.figures import PALETTE, Level, Look, Panel, curves_figure
from edpbrl_gym.reporting.report import Picture, Section
from edpbrl_gym.reporting.tables import TextTable

PAPER, BASELINE, ADAPTIVE = "random/ridge100", "random/vocabulary", "adaptive"

# what is added, the series without it, the series with it
PIECES: tuple[tuple[str, str, str], ...] = (
    ("lambda from the answers instead of 1, Random asks", "random/ridge1", "random/ridge-fit"),
    ("embedding prior instead of the ridge, Random asks", "random/ridge-fit", "random/global"),
    ("prior's scale from the answers, Random asks", "random/fixed", "random/global"),
    ("prior around the estimate, Random asks", "random/global", BASELINE),
    ("ED-PBRL (V, lambda 100) instead of Random, ridge 100", PAPER, "ed-pbrl/ridge100"),
    ("V-design (lambda 1) instead of Random", BASELINE, "v-design/vocabulary"),
    ("D-design (lambda 1) instead of Random", BASELINE, "d-design/vocabulary"),
    ("exact objective, K different policies", "d-design/vocabulary", "exact-design/vocabulary"),
    ("adaptive instead of Random", BASELINE, ADAPTIVE),
    ("posterior draws instead of the estimate alone, adaptive", "adaptive-theta-hat", ADAPTIVE),
    ("expected information instead of mutual information, adaptive", "adaptive-mutual", ADAPTIVE),
    ("prior around the estimate, adaptive", "adaptive,prior=global", ADAPTIVE),
    ("prior's scale from the answers, adaptive", "adaptive,prior=fixed", "adaptive,prior=global"),
    ("best and worst instead of the best, Random asks", BASELINE, "random+best-worst/vocabulary"),
    ("full rankings instead of the best, Random asks", BASELINE, "random+ranking/vocabulary"),
    ("full rankings instead of the best, adaptive", ADAPTIVE, "adaptive+ranking"),
)

# what the adaptive planner was to reach: share of the questions of mark (a) by regime, and of mark (b) everywhere
TARGETS_A: dict[str, float] = {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
TARGET_B = 0.6
_COMPARED_AT = (10, 30, 60)  # episodes
_NO_TIME = 1e-3  # episodes
_CAP = 1e6  # times fewer questions
_STARTS = {"cosine_error": 1.0, "preference_error": 0.5}  # known before the first question

_LOOKS: dict[str, Look] = {
    ADAPTIVE: Look(PALETTE[0], "-", "o"),
    BASELINE: Look(PALETTE[1], "--", "s"),
    PAPER: Look("#777777", ":", "X"),
    "d-design/vocabulary": Look(PALETTE[2], "-.", "^"),
}


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
        present = set(self.rows["series"])
        self.series = [name for name in dict.fromkeys((*_LOOKS, *sorted(present))) if name in present]
        self.regimes = [name for name in REGIMES if (self.rows["regime"] == name).any()]

    def share(self, regime: str, series: str, reference: str, metric: str) -> Estimated | None:
        """Share of the reference's episodes that a series needs for the error that the reference has after all."""
        both = self.curves.shared([(regime, series), (regime, reference)], metric)
        if both is None:
            return None
        last, start = both.counts[-1], _STARTS.get(metric, float("nan"))
        found = self.curves.needed((regime, series), (regime, reference), metric, last, start=start)
        return found and Estimated(*(end / last for end in (found.value, found.low, found.high)))

    def factor(self, regime: str, without: str, added: str) -> Estimated | None:
        """How many times fewer questions a series needs with a piece than without, for the same cosine error.

        Both series reach the larger of their two last errors: the better one after fewer episodes, the other at the
        last T. Below 1 the piece costs questions.
        """
        both = self.curves.shared([(regime, without), (regime, added)], "cosine_error")
        if both is None:
            return None

        def factor(means: Floats) -> Floats:
            slow, fast = np.split(means, 2, axis=-1)
            level = np.maximum(slow[..., -1], fast[..., -1])
            needed = [episodes_to_reach(one, both.counts, level, _STARTS["cosine_error"]) for one in (slow, fast)]
            # an error worse than knowing nothing needs no question: neither 0 nor a ratio with it means anything
            least = [np.maximum(one, _NO_TIME) for one in needed]
            return np.clip(least[0] / least[1], 1.0 / _CAP, _CAP)

        return both.estimated(np.concatenate(both.values, axis=1), factor)


def sections(found: Efficiency, setting: str) -> list[Section]:
    """All that a run says of query efficiency; ``setting``: vocabulary, encoder and seeds in words."""
    if not found.regimes:
        return []
    return [marks_table(found), *_picture(found, setting), pieces_table(found), comparison_table(found)]


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


def pieces_table(found: Efficiency) -> TextTable:
    """What each piece buys in each headline regime."""
    regimes = [name for name in found.regimes if REGIMES[name].headline]
    rows = []
    for title, without, added in PIECES:
        cells = [cell(found.factor(regime, without, added), ".2f") for regime in regimes]
        if any(cells):
            rows.append((title, f"{without} -> {added}", *cells))
    return TextTable(
        "What each piece buys",
        ("piece", "series", *(REGIMES[name].title for name in regimes)),
        rows,
        "How many times fewer questions for the same cosine error (the larger of the two errors after all questions), "
        "with 95% bootstrap intervals; below 1 the piece costs questions.",
    )


def comparison_table(found: Efficiency) -> TextTable:
    """Win, tie or loss of each series against Random with the vocabulary prior, by regime and T."""
    last = found.curves.counts[-1]
    places = [*(at for at in _COMPARED_AT if at < last), last]
    rows = []
    for name in found.series:
        for regime in found.regimes if name != BASELINE else ():
            pair = (regime, name), (regime, BASELINE)
            gaps = [found.curves.difference([pair], "cosine_error", at) for at in places]
            cells = [gap and f"{('tie', 'loss', 'win')[gap.sign]} {cell(gap, '+.3f')}" or "" for gap in gaps]
            if any(cells):
                rows.append((name, REGIMES[regime].title, *cells))
    return TextTable(
        f"Win, tie or loss against {BASELINE}",
        ("series", "regime", *(f"T = {at}" for at in places)),
        rows,
        "Mean paired difference of the cosine error (below 0: the series is better) with its 95% bootstrap interval; a "
        "win or a loss is an interval that excludes 0. About one comparison in 20 does so by chance alone.",
    )


def _picture(found: Efficiency, setting: str) -> list[Picture]:
    """The cosine error against the episodes, a panel for each headline regime, with the two marks as lines."""
    panels = []
    for regime in found.regimes:
        if not REGIMES[regime].headline:
            continue
        curves, levels = [], []
        for name in found.series:
            band = found.curves.band((regime, name), "cosine_error") if name in _LOOKS else {}
            if band:
                curves.append(drawn(name, band, _LOOKS[name]))
                if name in (PAPER, BASELINE):
                    note, dotted = "(a)" if name == PAPER else "(b)", Look(_LOOKS[name].colour, (0, (1, 2)))
                    levels.append(Level(list(band.values())[-1].value, note=note, look=dotted))
        panels.append(Panel(curves, title=REGIMES[regime].title, ylabel="cosine error", levels=levels))
    if not panels:
        return []
    figure = curves_figure(
        panels,
        columns=2,
        xlabel="episodes answered, T (log)",
        title="Mean and 95% interval over runs; (a), (b): the errors to be reached",
        subtitle=setting,
        size=(4.4, 3.0),
        ticks=(1, 2, 5, 10, 20, 60),
        log=True,
    )
    return [Picture("curves", "Learning curves of the headline regimes", figure)]
