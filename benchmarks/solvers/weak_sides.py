"""The tables of what depends on the features, and of the problems on which `newton` was slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.solvers.cells import describe_source, in_seconds, make_table, matching, ran, time_to, units, verdict
from benchmarks.solvers.results import Line
from benchmarks.solvers.suites import CLASSICAL, DEGENERATE, GENERAL, SPREAD, SPREAD_SIZE

__all__ = ["spread", "weak"]


def spread(lines: Sequence[Line]) -> str:
    """`newton` on features of every kind: from the fastest to the slowest of the draws, in Phi G."""
    tokens, dimension = SPREAD_SIZE
    rows = []
    for source in SPREAD:
        cells = [describe_source(source)]
        for regularization in (100.0, 1.0):
            for criterion in ("D", "A", "V16"):
                case = {"source": source, "tokens": tokens, "dimension": dimension, "split": 1}
                found = matching(lines, solver="newton", criterion=criterion, regularization=regularization, **case)
                cells.append(_range(found))
        rows.append(cells)
    head = [f"{criterion}, lambda = {value:g}" for value in (100.0, 1.0) for criterion in ("D", "A", "V16")]
    return make_table(["features", *head], rows)


def weak(lines: Sequence[Line]) -> str:
    """What was asked where `newton` was slow, and what it shows on every draw."""
    rows = [
        *_products(lines, "decaying", 5_000, 384, ("D", "A", "V"), 20.0),
        *_products(lines, "isotropic", 5_000, 768, ("D", "A"), 15.0),
    ]
    for criterion in ("D", "A"):
        found = _runs(lines, source="isotropic", tokens=60_000, dimension=256, criterion=criterion)
        text = f"isotropic 60,000 x 256, {criterion}, lambda = 1: gap 1e-6 within 20 s"
        rows += _row(text, found, lambda line: line["seconds"], 20.0, lambda value: f"{value:.0f} s")
    rows += _degenerate(lines) + _classical(lines) + _general(lines)
    return make_table(["asked", "measured", ""], rows)


def _products(
    lines: Sequence[Line], source: str, tokens: int, dimension: int, criteria: Sequence[str], limit: float
) -> list[list[str]]:
    rows = []
    for criterion in criteria:
        found = _runs(lines, source=source, tokens=tokens, dimension=dimension, criterion=criterion, regularization=1.0)
        text = f"{describe_source(source)} {tokens:,} x {dimension}, {criterion}, lambda = 1: at most {limit:g} Phi G"
        rows += _row(text, found, lambda line: units(line, line["seconds"]), limit, lambda value: f"{value:.0f}")
    return rows


def _degenerate(lines: Sequence[Line]) -> list[list[str]]:
    rows = []
    for tokens, dimension, regularization in DEGENERATE:
        case = {"tokens": tokens, "dimension": dimension, "regularization": regularization, "criterion": "D"}
        for change in ("+float16", "+offset"):
            text = (
                f"{describe_source('isotropic' + change)} {tokens:,} x {dimension}, D, lambda = {regularization:g}: at "
                "most twice the time of the same rows unchanged"
            )
            rows += _compared(
                text, _runs(lines, source=f"isotropic{change}", **case), _runs(lines, source="isotropic", **case), 2.0
            )
    return rows


def _classical(lines: Sequence[Line]) -> list[list[str]]:
    rows = []
    for dimension in CLASSICAL:
        case = {"source": "gauss", "tokens": 5_000, "dimension": dimension, "criterion": "D"}
        text = f"Gaussian 5,000 x {dimension}, D, lambda = 0: at most the time of lambda = 1e-9"
        one, other = (_runs(lines, regularization=value, **case) for value in (0.0, 1e-9))
        rows += _compared(text, one, other, 1.0)
    return rows


def _general(lines: Sequence[Line]) -> list[list[str]]:
    rows = []
    for source, states, dimension, regularization in GENERAL:
        for criterion in ("D", "A"):
            case = {"source": source, "criterion": criterion, "regularization": regularization}
            found = _runs(lines, **case)
            text = f"{describe_source(source)} {states:,} x {dimension}, {criterion}, lambda = {regularization:g}"
            if source == "graph":
                asked = f"{text}: gap 1e-6 within 8.6 s"
                rows += _row(asked, found, lambda line: line["seconds"], 8.6, in_seconds)
            else:
                rows += _against_plain(text, found, matching(lines, solver="frank_wolfe", **case))
    return rows


def _against_plain(text: str, found: Sequence[Line], plain: Sequence[Line]) -> list[list[str]]:
    """Rows of a problem on which plain Frank-Wolfe ran too: the time to 1e-4 against its, and from there to 1e-6."""
    cells: list[tuple[str, bool]] = []
    for line in found:
        slow = next((one for one in plain if one["case"] == line["case"]), None)
        own = time_to(line, 1e-4)
        if slow is None or own is None:
            continue
        theirs = time_to(slow, 1e-4)
        ratio = (theirs or slow["seconds"]) / own
        cells.append((f"{ratio:.0f}{'' if theirs else ' at least'}", ratio >= 10))
    rows = []
    if cells:
        both = " and ".join(cell for cell, _ in cells)
        rows.append(
            [f"{text}: gap 1e-4 10 times faster than plain Frank-Wolfe", both, verdict(all(m for _, m in cells))]
        )
    steps = [(line["seconds"], time_to(line, 1e-4)) for line in found if line["status"] == "reached"]
    ratios = [whole / part for whole, part in steps if part]
    if ratios:
        rows.append(
            [
                f"{text}: gap 1e-6 in at most twice the time to 1e-4",
                " and ".join(f"{value:.1f}" for value in ratios),
                verdict(max(ratios) <= 2.0 and len(ratios) == len(found)),
            ]
        )
    return rows


def _runs(lines: Sequence[Line], **wanted: Any) -> list[Line]:
    found = [line for line in matching(lines, solver="newton", **wanted) if ran(line)]
    return sorted(found, key=lambda line: line["case"]["seed"])


def _row(
    text: str, found: Sequence[Line], measure: Callable[[Line], float], limit: float, show: Callable[[float], str]
) -> list[list[str]]:
    """One row for all draws of a problem; none without a run."""
    if not found:
        return []
    values = [measure(line) for line in found]
    reached = all(line["status"] == "reached" for line in found)
    return [[text, " and ".join(show(value) for value in values), verdict(reached and max(values) <= limit)]]


def _compared(text: str, found: Sequence[Line], others: Sequence[Line], limit: float) -> list[list[str]]:
    """One row for the times of runs over those of other runs with the same seeds."""
    base = {line["case"]["seed"]: line["seconds"] for line in others}
    found = [line for line in found if line["case"]["seed"] in base]
    return _row(text, found, lambda line: line["seconds"] / base[line["case"]["seed"]], limit, lambda v: f"{v:.2f}")


def _range(found: Sequence[Line]) -> str:
    """From the least to the largest of some times in Phi G, "or more" if a run stopped before the gap."""
    values = sorted(units(line, line["seconds"]) for line in found if ran(line))
    if not values:
        return ""
    open_end = "" if all(line["status"] == "reached" for line in found) else " or more"
    low, high = (f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in (values[0], values[-1]))
    return (low if low == high else f"{low} to {high}") + open_end
