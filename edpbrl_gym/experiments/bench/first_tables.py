"""The tables about first answers: curves, differences to Random, answers needed, shapes of tastes, times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.first_metrics import CALIBRATED, FIRST_METRICS, POSTERIOR_METRICS
from edpbrl_gym.experiments.bench.first_runs import Estimated, FirstRuns, Series, taps_of
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.experiments.bench.tastes import TASTES
from edpbrl_gym.reporting.tables import TextTable

__all__ = [
    "calibration_table",
    "curves_table",
    "differences_table",
    "needed_table",
    "prompts_of",
    "shapes_table",
    "times_table",
    "words_of",
]

LEVEL = 36  # answers about partial prompts that set the level
_SHAPES_AT = (24, 120)
_INTERVALS = "In brackets: 95% intervals, a bootstrap of the users, then of the seeds of each."
_OTHERS = ("vocabulary", "global", "ridge100")  # estimators compared with ridge-fit


def words_of(runs: FirstRuns) -> list[str]:
    """The vocabularies of the runs."""
    return list(dict.fromkeys(REGIMES[name].vocabulary for name in runs.regimes))


def prompts_of(runs: FirstRuns, words: str, *, taste: str = "sentence") -> list[Regime]:
    """The regimes of a vocabulary with tastes of a shape: those of complete prompts by K, then partial prompts."""
    found = [REGIMES[name] for name in runs.regimes]
    found = [regime for regime in found if (regime.vocabulary, regime.taste) == (words, taste)]
    return sorted(found, key=lambda one: (one.feedback != "prompt", one.num_options))


def mode_of(regime: Regime) -> str:
    """How its users answer, as in tables."""
    return "argmax" if regime.mode == "argmax" else f"scale {regime.scale:g}"


def format_of(regime: Regime, arm: str) -> str:
    """What a question shows and how it is answered, as in tables."""
    what = "" if regime.feedback == "prompt" else "partial prompts, "
    return f"{what}K = {regime.num_options}, {get_arm(arm).answers}"


def _asker(arm: str) -> str:
    return arm.partition("+")[0]


def curves_table(runs: FirstRuns, words: str, metric: str) -> TextTable:
    """The mean of a metric after each number of answers: a row for each mode, format, arm and estimator."""
    answers = runs.answers
    rows = []
    for mode in _modes(runs, words):
        for regime in prompts_of(runs, words):
            if mode_of(regime) != mode:
                continue
            for series in runs.series(regime.name):
                curve = runs.curve(series, metric)
                plain = regime.num_options == 4 and regime.feedback == "prompt"
                if not curve or (series.estimator != "vocabulary" and not plain):
                    continue
                cells = [_cell(curve, count) for count in answers]
                named = (mode, format_of(regime, series.arm), _asker(series.arm), series.estimator)
                rows.append((*named, *cells))
    header = ("user", "question", "asked by", "estimator", *(f"{count} answers" for count in answers))
    note = "Means over users of the means over their seeds. Complete prompts, unless partial ones are named."
    return TextTable(f"{FIRST_METRICS[metric].capitalize()}: {words}", header, rows, note, words=4)


def _modes(runs: FirstRuns, words: str) -> list[str]:
    return list(dict.fromkeys(mode_of(regime) for regime in prompts_of(runs, words)))


def differences_table(runs: FirstRuns, words: str, metric: str) -> TextTable:
    """Each planner minus Random in the same format, both by the vocabulary prior; and averaged over the modes."""
    answers = [count for count in runs.answers if count <= _most_planned(runs)]
    groups: dict[tuple[str, str], list[tuple[str, Series, Series]]] = {}
    for regime in prompts_of(runs, words):
        for series in runs.series(regime.name):
            arm = get_arm(series.arm)
            baseline = Series(regime.name, "random" if arm.answers == "best" else f"random+{arm.answers}")
            if series.estimator == "vocabulary" and arm.asker != "random" and runs.curve(baseline, metric):
                key = format_of(regime, series.arm), _asker(series.arm)
                groups.setdefault(key, []).append((mode_of(regime), series, baseline))
    rows = []
    for key, members in groups.items():
        for mode, *pair in members:
            rows.append((mode, *key, *_differences(runs, [(pair[0], pair[1])], metric, answers)))
        if len(members) > 1:
            pairs = [(series, baseline) for _, series, baseline in members]
            rows.append((f"mean of {len(members)}", *key, *_differences(runs, pairs, metric, answers)))
    header = ("user", "question", "asked by", *(f"{count} answers" for count in answers))
    note = f"Below 0 the planner is better; both estimate by the vocabulary prior. * excludes 0. {_INTERVALS}"
    return TextTable(
        f"{FIRST_METRICS[metric].capitalize()}, planner minus Random: {words}", header, rows, note, words=3
    )


def _most_planned(runs: FirstRuns) -> int:
    planned = runs.table[~runs.table["arm"].str.startswith("random")]
    return int(planned["questions"].max()) if len(planned) else 0


def _differences(
    runs: FirstRuns, pairs: Sequence[tuple[Series, Series]], metric: str, answers: Sequence[int]
) -> list[str]:
    return [_signed(runs.difference(pairs, metric, count)) for count in answers]


def _signed(found: Estimated | None) -> str:
    if found is None:
        return ""
    star = "*" if found.sign else ""
    if math.isnan(found.low):
        return f"{found.value:+.3f} [undefined]"
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]{star}"


def needed_table(runs: FirstRuns) -> TextTable:
    """Answers that each format needs for what 36 answers of Random about partial prompts, best of 4, teach."""
    metrics = ("preference_error", "regret_ten")
    columns = [
        (words, mode, metric)
        for words in words_of(runs)
        for mode in _modes(runs, words)
        for metric in metrics
        if runs.curve(Series(_reference(words, mode), "random"), metric).get(LEVEL) is not None
    ]
    cells: dict[tuple[str, str, str], dict[tuple[str, str, str], str]] = {}
    for words, mode, metric in columns:
        reference = Series(_reference(words, mode), "random")
        for regime in prompts_of(runs, words):
            for series in runs.series(regime.name):
                if mode_of(regime) != mode or series.estimator != "vocabulary":
                    continue
                key = format_of(regime, series.arm), _asker(series.arm), str(taps_of(series.arm, regime.num_options))
                text = _needed_cell(runs.needed(series, reference, metric, LEVEL))
                if series == reference:
                    text = f"{LEVEL}: {runs.curve(series, metric)[LEVEL]:.3f}"
                cells.setdefault(key, {})[words, mode, metric] = text
    short = {"preference_error": "preference", "regret_ten": "regret"}
    header = (
        "question",
        "asked by",
        "taps each",
        *(f"{words}, {mode}, {short[name]}" for words, mode, name in columns),
    )
    ordered = sorted(cells, key=lambda key: (not key[0].startswith("partial"), key))
    rows = [(*key, *(cells[key].get(column, "") for column in columns)) for key in ordered] if columns else []
    note = (
        f"The level is the mean error after {LEVEL} best-of-4 answers about partial prompts, asked at random and "
        "estimated by the vocabulary prior as everything here; from which number of answers on the mean curve stays at "
        f"or below it, linear between the numbers measured. -: not within the answers given. {_INTERVALS}"
    )
    return TextTable(f"Answers needed for the level of {LEVEL} partial ones", header, rows, note, words=2)


def _reference(words: str, mode: str) -> str:
    return f"{words}-{mode.replace(' ', '-')}-partial"


def _needed_cell(found: Estimated | None) -> str:
    if found is None:
        return ""
    ends = ["-" if math.isinf(end) else f"{end:.1f}" for end in (found.value, found.low, found.high)]
    return f"{ends[0]} [undefined]" if math.isnan(found.low) else f"{ends[0]} [{ends[1]}, {ends[2]}]"


def shapes_table(runs: FirstRuns, metric: str = "preference_error") -> TextTable:
    """Estimators against the ridge that the answers choose, by shape of taste: Random asks, best of 4."""
    counts = [count for count in _SHAPES_AT if count in runs.answers]
    rows = []
    for words in words_of(runs):
        for taste in TASTES:
            for regime in prompts_of(runs, words, taste=taste):
                ridge = Series(regime.name, "random", "ridge-fit")
                level = runs.curve(ridge, metric)
                if regime.num_options != 4 or regime.feedback != "prompt" or not level:
                    continue
                cells = []
                for count in counts:
                    cells.append(f"{level[count]:.3f}" if count in level else "")
                    pairs = [(Series(regime.name, "random", name), ridge) for name in _OTHERS]
                    cells += [_signed(runs.difference([pair], metric, count)) for pair in pairs]
                rows.append((words, mode_of(regime), TASTES[taste], *cells))
    names = [name for count in counts for name in (f"ridge-fit, {count} answers", *_OTHERS)]
    note = (
        "Random questions, best of 4 complete prompts. ridge-fit: the error itself; the others: the difference to it, "
        f"below 0 is better; * excludes 0. {_INTERVALS}"
    )
    title = f"Estimators by shape of taste: {FIRST_METRICS[metric]}"
    return TextTable(title, ("vocabulary", "user", "taste", *names), rows, note, words=3)


def calibration_table(runs: FirstRuns) -> TextTable:
    """Coverage of the 90% intervals and predicted accuracy, by the number of answers: best of 4 complete prompts."""
    counts = [count for count in runs.answers if count <= CALIBRATED]
    metrics = [name for name in POSTERIOR_METRICS if name in runs.metrics]
    rows = []
    shown = [regime for words in words_of(runs) for taste in TASTES for regime in prompts_of(runs, words, taste=taste)]
    for regime in (one for one in shown if (one.num_options, one.feedback) == (4, "prompt")):
        for series in runs.series(regime.name):
            curves = [runs.curve(series, name) for name in metrics]
            if any(curves):
                named = (regime.vocabulary, mode_of(regime), TASTES[regime.taste], _asker(series.arm))
                rows.append((*named, *(_cell(curve, count) for curve in curves for count in counts)))
    short = {"covered": "{} answers: inside", "accuracy_gap": "{} answers: accuracy"}
    header = ("vocabulary", "user", "taste", "asked by", *(short[name].format(n) for name in metrics for n in counts))
    note = (
        "Inside: share of the true leads of one held-out prompt over another that lie in their 90% intervals; none for "
        "users who answer without noise, whose leads have no unit. Accuracy: what the posterior predicts for the "
        "estimate's share of right preferences, minus the true share. Means over users of the means over their seeds."
    )
    return TextTable("Calibration of the posterior", header, rows, note, words=4)


def _cell(curve: dict[int, float], count: int) -> str:
    return f"{curve[count]:.3f}" if count in curve else ""


def times_table(runs: FirstRuns) -> TextTable:
    """CPU time of a question, of an estimate and of a whole run, by vocabulary, format and arm."""
    table = runs.table[runs.table["estimator"] == "vocabulary"]
    last = table[table["questions"] == table.groupby(["regime", "arm"])["questions"].transform("max")]
    keys = [REGIMES[name] for name in last["regime"]]
    last = last.assign(
        words=[regime.vocabulary for regime in keys],
        shown=[format_of(regime, arm) for regime, arm in zip(keys, last["arm"], strict=True)],
        asker=[_asker(arm) for arm in last["arm"]],
    )
    rows = []
    for key, cell in last.groupby(["words", "shown", "asker"], sort=True) if len(last) else ():
        times = (
            *(1e3 * float(cell[name].median()) for name in ("seconds_question", "seconds_longest")),
            *(1e3 * float(cell[name].median()) for name in ("seconds_encoder", "seconds_estimate")),
        )
        seconds = f"{float(np.median(cell['seconds_unit'])):.1f}"
        rows.append((*key, *(f"{time:.0f}" for time in times), str(int(cell["questions"].max())), seconds))
    header = (
        *("vocabulary", "question", "asked by", "question, ms", "longest, ms"),
        *("embedding, ms", "estimate, ms", "answers", "whole run, s"),
    )
    note = (
        "CPU time of one core, medians over runs. A question: choosing it and taking in the answer before; embedding "
        "its options comes on top. Random's questions and their embeddings are made before the runs, once for a seed."
    )
    return TextTable("Time", header, rows, note, words=3)
