"""The tables of docs/performance.md, from the results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.solvers.cells import (
    describe,
    describe_source,
    gap_cell,
    in_megabytes,
    in_seconds,
    make_table,
    matching,
    ran,
    relative_to_features,
    time_cell,
    units,
    why,
)
from benchmarks.solvers.results import Line
from benchmarks.solvers.suites import SPREAD, SPREAD_SIZE
from benchmarks.solvers.vocabularies import SEED

__all__ = ["LEVELS", "NAMES", "TABLES"]

LEVELS = (1e-2, 1e-4, 1e-6)
NAMES = {
    "newton": "`newton`",
    "pairwise": "`frank_wolfe`, pairwise",
    "frank_wolfe": "`frank_wolfe`, plain",
    "paper": "the paper's Frank-Wolfe",
    "cvxpy": "cvxpy, Clarabel",
}
_MAIN = ((5_000, 768), (3_869, 384))  # sizes of the problems that stand in the text


def side_by_side(lines: Sequence[Line]) -> str:
    """All solvers on the problems that all of them got, except the scaling ones."""
    parts = []
    for case in _cases(lines):
        own = [line for line in lines if line["case"] == case and line["solver"] != "cvxpy"]
        if len(own) < 4 or (case["tokens"], case["dimension"]) not in _MAIN:
            continue
        rows = [
            [
                NAMES[line["solver"]],
                *(time_cell(line, level) for level in LEVELS),
                *(
                    [gap_cell(line), f"{line['seconds']:.1f} s", str(line["iterations"]), in_megabytes(line)]
                    if ran(line)
                    else 4 * [why(line)]
                ),
            ]
            for line in own
        ]
        head = ["solver", "to 1e-2", "to 1e-4", "to 1e-6", "gap at the end", "after", "iterations", "memory"]
        parts.append(f"**{describe(case)}**\n\n{make_table(head, rows)}")
    return "\n\n".join(parts)


def newton_everywhere(lines: Sequence[Line]) -> str:
    """`newton` on every problem of 3,000 to 5,000 tokens."""
    rows = []
    for line in matching(lines, solver="newton"):
        case = line["case"]
        if (case["tokens"], case["dimension"]) in _MAIN and case["seed"] == SEED and ran(line):
            rows.append([describe(case), *_newton_cells(line)])
    return make_table(["problem", "time", "in Phi G", "gap / gain", "iterations", "support", "memory"], rows)


def scaling(lines: Sequence[Line]) -> str:
    """`newton` on CLIP-like features of all sizes, lambda = 100."""
    rows = []
    for line in matching(lines, solver="newton", source="clip", split=1, regularization=100.0):
        case = line["case"]
        if case["dimension"] >= 384 and ran(line):
            cells = _newton_cells(line)
            cells[-1] = f"{relative_to_features(line):.2f} x" if case["tokens"] >= 50_000 else cells[-1]
            size = f"{case['tokens']:,} x {case['dimension']}"
            order = (case["dimension"], "DAV".index(case["criterion"][0]), case["tokens"])
            unit = in_seconds(line["unit"])
            rows.append((order, [size, case["criterion"], unit, *cells, in_seconds(line["preparation"])]))
    head = [
        "n x d",
        "criterion",
        "one Phi G",
        "time",
        "in Phi G",
        "gap / gain",
        "iterations",
        "support",
        "memory",
        "setup",
    ]
    return make_table(head, [cells for _, cells in sorted(rows, key=lambda row: row[0])])


def small(lines: Sequence[Line]) -> str:
    """Beside `newton`, cvxpy where it fits."""
    rows = []
    for line in matching(lines, solver="cvxpy"):
        fast = matching(lines, solver="newton", **line["case"])
        if not ran(line):
            rows.append([describe(line["case"]), why(line), "", "", "", ""])
        elif fast:
            difference = abs(line["value"] - fast[0]["value"]) / max(1.0, abs(line["value"]))
            cells = [in_seconds(line["seconds"]), gap_cell(line), in_seconds(fast[0]["seconds"]), gap_cell(fast[0])]
            rows.append([describe(line["case"]), *cells, f"{difference:.0e}"])
    return make_table(["problem", "cvxpy", "its gap", "`newton`", "its gap", "difference of the values"], rows)


def environment(lines: Sequence[Line]) -> str:
    """Where the numbers come from, in one sentence."""
    found = [line for line in lines if ran(line)]
    if not found:
        return "No results."
    last = max(found, key=lambda line: line["versions"]["date"])
    versions = ", ".join(
        f"{name} {value}" for name, value in last["versions"].items() if name not in ("commit", "date")
    )
    commits = sorted({line["versions"]["commit"] for line in found})
    dates = sorted(line["versions"]["date"] for line in found)
    machines: dict[str, list[str]] = {}
    for line in found:
        machines.setdefault(line["machine"], []).append(line["solver"])
    where = " and of ".join(f"{name} ({', '.join(dict.fromkeys(own))})" for name, own in machines.items())
    return (
        f"{len(found)} runs, {dates[0]} to {dates[-1]}, commit {', '.join(commits)}; one thread of "
        f"{where if len(machines) > 1 else last['machine']}; {versions}."
    )


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


def _range(found: Sequence[Line]) -> str:
    """From the least to the largest of some times in Phi G, "or more" if a run stopped before the gap."""
    values = sorted(units(line, line["seconds"]) for line in found if ran(line))
    if not values:
        return ""
    open_end = "" if all(line["status"] == "reached" for line in found) else " or more"
    low, high = (f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in (values[0], values[-1]))
    return (low if low == high else f"{low} to {high}") + open_end


def _newton_cells(line: Line) -> list[str]:
    ratio = units(line, line["seconds"])
    number = f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
    return [
        in_seconds(line["seconds"]),
        number,
        gap_cell(line),
        str(line["iterations"]),
        f"{line['support']:,}",
        in_megabytes(line),
    ]


def _cases(lines: Sequence[Line]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in lines:
        if line["case"] not in found:
            found.append(line["case"])
    return found


TABLES = {
    "environment": environment,
    "side-by-side": side_by_side,
    "newton": newton_everywhere,
    "scaling": scaling,
    "small": small,
    "spread": spread,
}
