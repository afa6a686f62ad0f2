"""First answers: answers needed, differences to Random, curves, shapes of tastes, and the figure.

A run is a (user, seed) of a regime, a series an arm with one of its estimators. Means are over users of the means over
their seeds, and every interval is a bootstrap of the users, then of the seeds of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.kit.series import Curves
from benchmarks.kit.tables import cell, drawn, needed_cell
from benchmarks.planners.arms import get_arm
from benchmarks.planners.regimes import REGIMES, Regime
from benchmarks.planners.scoring import FIRST_METRICS
from benchmarks.planners.tastes import TASTES
from edpbrl_gym.reporting.figures import PALETTE, Look, Panel, curves_figure
from edpbrl_gym.reporting.report import Picture, Section, Text
from edpbrl_gym.reporting.tables import TextTable

LEVEL = 36  # answers about partial prompts that set the level
_SHAPES_AT = (24, 120)  # answers
_START = {"preference_error": 0.5, "regret_ten": 1.0}  # before the first answer
_INTERVALS = "In brackets: 95% intervals, a bootstrap of the users, then of the seeds of each."

# label, suffix of the regime, arm, look
_DRAWN: tuple[tuple[str, str, str, Look], ...] = (
    ("Random, 4 partial prompts", "-partial", "random", Look("#777777", (0, (1, 1)), "X")),
    ("Random, 4 complete prompts", "", "random", Look("#000000", (0, (1, 1)), "o")),
    ("Adaptive, 4 complete prompts", "", "adaptive", Look(PALETTE[0], "-", "o")),
    ("Random, best of 9", "-K9", "random", Look(PALETTE[4], (0, (1, 1)), "s")),
    ("Adaptive, best of 9", "-K9", "adaptive", Look(PALETTE[2], "-", "s")),
    ("Adaptive, best and worst of 6", "-K6", "adaptive+best-worst", Look(PALETTE[3], "--", "^")),
    ("Adaptive, ranking of 6", "-K6", "adaptive+ranking", Look(PALETTE[1], "-.", "D")),
)

Key = tuple[str, ...]  # regime, arm, estimator


class FirstRuns:
    """The rows of a results table about first answers."""

    def __init__(self, table: Any) -> None:
        names = [name for name in table["regime"].unique() if REGIMES[name].first]
        self.regimes = [REGIMES[name] for name in REGIMES if name in names]
        self.rows = table[table["regime"].isin(names)]
        self.curves = Curves(self.rows, ["regime", "arm", "estimator"], ["user", "seed"], 1, "questions")
        self.words = list(dict.fromkeys(regime.vocabulary for regime in self.regimes))

    def of(self, words: str, taste: str = "sentence") -> list[Regime]:
        """The regimes of a vocabulary with tastes of a shape: by mode, complete prompts by K before partial ones."""
        found = [one for one in self.regimes if (one.vocabulary, one.taste) == (words, taste)]
        modes = list(dict.fromkeys(one.answering for one in found))
        return sorted(found, key=lambda one: (modes.index(one.answering), one.feedback != "prompt", one.num_options))

    def series(self, regime: Regime) -> list[Key]:
        """The series of a regime: Random first, then in the order of names."""
        found = [key for key in self.curves.series if key[0] == regime.name]
        return sorted(found, key=lambda key: (not key[1].startswith("random"), key))


def taps_of(arm: str, num_options: int) -> int:
    """How often a person taps for one answer: once for the best, and so on."""
    most = num_options - 1
    return {"best": 1, "best-worst": min(2, most), "partial": min(3, most), "ranking": most}[get_arm(arm).answers]


def sections(found: FirstRuns) -> list[Section]:
    """All that a run says about first answers; nothing where it has none."""
    if not found.regimes:
        return []
    return [
        Text(["Held-out prompts consist of head words that no question shows."], "The first answers", level=1),
        *_figure(found),
        *(needed_table(found, metric) for metric in FIRST_METRICS),
        *(differences_table(found, metric) for metric in FIRST_METRICS),
        *(curves_table(found, metric) for metric in FIRST_METRICS),
        shapes_table(found),
        *(estimators_table(found, metric, *pair) for metric in FIRST_METRICS for pair in _COMPARED),
    ]


def _plain(regime: Regime) -> bool:
    return regime.num_options == 4 and regime.feedback == "prompt"


def _question(regime: Regime, arm: str) -> str:
    """What a question shows and how it is answered."""
    partial = "" if regime.feedback == "prompt" else "partial prompts, "
    return f"{partial}K = {regime.num_options}, {get_arm(arm).answers}"


def _rows(found: FirstRuns) -> Iterator[tuple[Regime, Key, tuple[str, str, str, str]]]:
    """Every series with sentences as tastes, and how its row begins: vocabulary, user, question, who asks."""
    for words in found.words:
        for regime in found.of(words):
            for key in found.series(regime):
                asker = key[1].partition("+")[0]
                yield regime, key, (words, regime.answering, _question(regime, key[1]), asker)


_HEADER = ("vocabulary", "user", "question", "asked by")


def needed_table(found: FirstRuns, metric: str) -> TextTable:
    """Answers that each format needs for what 36 answers of Random about partial prompts, best of 4, teach."""
    rows = []
    for regime, key, first in _rows(found):
        reference = (f"{regime.vocabulary}-{regime.answering.replace(' ', '-')}-partial", "random", "vocabulary")
        level = found.curves.curve(reference, metric).get(LEVEL)
        if key[2] != "vocabulary" or level is None:
            continue
        needed = found.curves.needed(key, reference, metric, LEVEL, start=_START[metric])
        most = max(found.curves.curve(key, metric), default=0)
        text = f"{LEVEL}: {level:.3f}" if key == reference else needed_cell(needed, most)
        rows.append((*first, str(taps_of(key[1], regime.num_options)), text))
    note = (
        f"The level is the mean error after {LEVEL} best-of-4 answers about partial prompts, asked at random and "
        "estimated by the vocabulary prior as everything here; from which number of answers on the mean curve stays at "
        f"or below it, linear between the numbers measured. {_INTERVALS}"
    )
    title = f"Answers needed for the {FIRST_METRICS[metric]} of {LEVEL} partial ones"
    return TextTable(title, (*_HEADER, "taps each", "answers"), rows, note, words=4)


def differences_table(found: FirstRuns, metric: str) -> TextTable:
    """Each planner minus Random in the same format, both by the vocabulary prior; and averaged over the modes."""
    planned = found.rows[~found.rows["arm"].str.startswith("random")]
    most = int(planned["questions"].max()) if len(planned) else 0
    counts = [count for count in found.curves.counts if count <= most]
    groups: dict[tuple[str, str, str], list[tuple[str, tuple[Key, Key]]]] = {}
    for regime, key, (words, user, question, asker) in _rows(found):
        arm = get_arm(key[1])
        baseline = (regime.name, "random" if arm.answers == "best" else f"random+{arm.answers}", "vocabulary")
        if key[2] == "vocabulary" and arm.asker != "random" and found.curves.curve(baseline, metric):
            groups.setdefault((words, question, asker), []).append((user, (key, baseline)))
    rows = []
    for (words, question, asker), members in groups.items():
        together = [(f"mean of {len(members)}", [pair for _, pair in members])] if len(members) > 1 else []
        for user, pairs in [*((user, [pair]) for user, pair in members), *together]:
            gaps = [found.curves.difference(pairs, metric, count) for count in counts]
            rows.append((words, user, question, asker, *(cell(gap, "+.3f", star=True) for gap in gaps)))
    note = f"Below 0 the planner is better; both estimate by the vocabulary prior. * excludes 0. {_INTERVALS}"
    title = f"{FIRST_METRICS[metric].capitalize()}, planner minus Random"
    return TextTable(title, (*_HEADER, *(f"{count} answers" for count in counts)), rows, note, words=4)


def curves_table(found: FirstRuns, metric: str) -> TextTable:
    """The mean of a metric after each number of answers."""
    rows = []
    for regime, key, first in _rows(found):
        curve = found.curves.curve(key, metric)
        if curve and (key[2] == "vocabulary" or _plain(regime)):
            rows.append((*first, key[2], *_cells(curve, found.curves.counts)))
    header = (*_HEADER, "estimator", *(f"{count} answers" for count in found.curves.counts))
    note = "Means over users of the means over their seeds. Complete prompts, unless partial ones are named."
    return TextTable(FIRST_METRICS[metric].capitalize(), header, rows, note, words=5)


def _cells(curve: dict[int, float], counts: list[int]) -> list[str]:
    return [f"{curve[count]:.3f}" if count in curve else "" for count in counts]


def _shapes(found: FirstRuns) -> list[Regime]:
    """The regimes with best-of-4 questions about complete prompts, by vocabulary and shape of taste."""
    return [one for words in found.words for taste in TASTES for one in filter(_plain, found.of(words, taste))]


def shapes_table(found: FirstRuns, metric: str = "preference_error") -> TextTable:
    """The vocabulary prior against the ridge that the answers choose, by shape of taste: Random asks, best of 4."""
    counts = [count for count in _SHAPES_AT if count in found.curves.counts]
    rows = []
    for regime in _shapes(found):
        ours, ridge = ((regime.name, "random", name) for name in ("vocabulary", "ridge-fit"))
        level = found.curves.curve(ridge, metric)
        cells: list[str] = []
        for count in counts if level else ():
            gap = found.curves.difference([(ours, ridge)], metric, count)
            cells += [*_cells(level, [count]), cell(gap, "+.3f", star=True)]
        if cells:
            rows.append((regime.vocabulary, regime.answering, TASTES[regime.taste], *cells))
    names = [name for count in counts for name in (f"ridge-fit, {count} answers", "vocabulary minus ridge-fit")]
    note = f"Random asks for the best of 4; below 0 the vocabulary prior is better; * excludes 0. {_INTERVALS}"
    title = f"Estimators by shape of taste: {FIRST_METRICS[metric]}"
    return TextTable(title, ("vocabulary", "user", "taste", *names), rows, note, words=3)


_COMPARED = (("vocabulary", "alone"), ("vocabulary", "ridge-fit"), ("ideal", "vocabulary"))


def estimators_table(found: FirstRuns, metric: str, one: str, other: str) -> TextTable:
    """One estimator minus another from the same answers about nine complete prompts."""
    regimes = [
        regime
        for words in found.words
        for taste in TASTES
        for regime in found.of(words, taste)
        if regime.num_options == 9
    ]
    rows = []
    for regime in regimes:
        for arm in dict.fromkeys(key[1] for key in found.series(regime)):
            ours, base = ((regime.name, arm, name) for name in (one, other))
            level = found.curves.curve(base, metric)
            if found.curves.curve(ours, metric) and level:
                gaps = [found.curves.difference([(ours, base)], metric, count) for count in level]
                cells = [
                    f"{level[count]:.3f} {cell(gap, '+.3f', star=True)}" for count, gap in zip(level, gaps, strict=True)
                ]
                rows.append((regime.vocabulary, regime.answering, TASTES[regime.taste], arm.partition("+")[0], *cells))
    header = ("vocabulary", "user", "taste", "asked by", *(f"{count} answers" for count in found.curves.counts))
    note = f"{other}, and {one} minus it: below 0 {one} is better; * excludes 0. Nine complete prompts. {_INTERVALS}"
    return TextTable(f"{FIRST_METRICS[metric].capitalize()}: {one} minus {other}", header, rows, note, words=4)


def _figure(found: FirstRuns) -> list[Picture]:
    """Preference error and regret against answers; a column for each vocabulary and mode of best-of-4 questions."""
    columns = [
        regime
        for words in found.words
        for regime in filter(_plain, found.of(words))
        if regime.answering in ("argmax", "scale 20")
    ]
    if not columns:
        return []
    panels = []
    for metric, name in FIRST_METRICS.items():
        for regime in columns:
            curves = []
            for label, suffix, arm, look in _DRAWN:
                band = found.curves.band((regime.name + suffix, arm, "vocabulary"), metric)
                if band:
                    curves.append(drawn(label, band, look))
            panels.append(Panel(curves, title=regime.title, ylabel=name))
    figure = curves_figure(
        panels,
        columns=len(columns),
        xlabel="answers (log)",
        title="What the first answers teach, estimated by the vocabulary prior",
        subtitle="means over users of the means over their seeds; bands: 95% bootstrap intervals over users, then "
        "seeds",
        share="row",
        log=True,
        zero=False,
    )
    return [Picture("first-answers", "Preference error and regret against the number of answers", figure)]
