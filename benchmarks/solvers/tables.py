"""The tables of docs/performance.md, from the results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.solvers.cells import (
    describe,
    gap_cell,
    in_megabytes,
    in_seconds,
    make_table,
    matching,
    ran,
    relative_to_features,
    time_cell,
    time_to,
    units,
    verdict,
    why,
)
from benchmarks.solvers.results import Line
from benchmarks.solvers.vocabularies import SEED
from benchmarks.solvers.weak_sides import spread, weak

__all__ = ["LEVELS", "NAMES", "TABLES", "smallest_speedup", "spread", "weak"]

LEVELS = (1e-2, 1e-4, 1e-6)
NAMES = {
    "newton": "`newton`",
    "pairwise": "`frank_wolfe`, pairwise",
    "frank_wolfe": "`frank_wolfe`, plain",
    "paper": "the paper's Frank-Wolfe",
    "paper-float32": "the paper's Frank-Wolfe, float32",
    "multiplicative": "multiplicative",
    "copt": "copt's Frank-Wolfe",
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


def speedups(lines: Sequence[Line]) -> str:
    """How many times faster `newton` gets to a gap than the Frank-Wolfe variants, at gaps that both reach."""
    rows = []
    for case in _cases(lines):
        fast = matching(lines, solver="newton", **case)
        for name in ("frank_wolfe", "paper", "pairwise"):
            for slow in matching(lines, solver=name, **case):
                if fast and ran(fast[0]) and ran(slow) and (case["tokens"], case["dimension"]) in _MAIN:
                    rows.append([describe(case), NAMES[name], *_ratios(fast[0], slow)])
    head = ["problem", "against", "at 1e-1", "at 1e-2", "at its last gap", "its last gap"]
    return make_table(head, rows)


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


def requirements(lines: Sequence[Line]) -> str:
    """What the solver was asked to show, and what it shows."""
    rows = []
    for criterion, limit in (("D", 10.0), ("A", 15.0), ("V16", 5.0)):
        for line in _newton_clip(lines, 5_000, criterion):
            ratio = units(line, line["seconds"])
            text = f"{criterion}, 5,000 x 768: gap 1e-6 in at most {limit:g} Phi G"
            rows.append([text, f"{ratio:.1f}", verdict(ratio <= limit and line["status"] == "reached")])
    for criterion in ("D", "A", "V16"):
        case = {"source": "clip", "tokens": 5_000, "dimension": 768, "split": 1, "criterion": criterion}
        for slow in matching(lines, solver="frank_wolfe", regularization=100.0, **case):
            for fast in _newton_clip(lines, 5_000, criterion):
                least = smallest_speedup(fast, slow)
                text = f"{criterion}, 5,000 x 768: 50 times faster than plain Frank-Wolfe to any common gap up to 0.1"
                rows.append([text, f"{least:.0f} at least", verdict(least >= 50)])
    for criterion, limit in (("D", 1.0), ("A", 1.5)):
        for line in _newton_clip(lines, 1_000_000, criterion):
            ratio = units(line, line["seconds"])
            text = f"{criterion}, 1,000,000 x 768: in less than {limit:g} Phi G"
            rows.append([text, f"{ratio:.2f}", verdict(ratio < limit and line["status"] == "reached")])
            memory = relative_to_features(line)
            text = f"{criterion}, 1,000,000 x 768: peak memory below 1.5 times the features"
            rows.append([text, f"{memory:.2f}", verdict(memory < 1.5)])
    pairs = [
        (one, other)
        for criterion in ("D", "A", "V16")
        for regularization in (100.0, 1.0)
        for one in matching(
            lines,
            solver="newton",
            source="isotropic",
            dimension=768,
            criterion=criterion,
            regularization=regularization,
            seed=SEED,
        )
        for other in _newton_clip(lines, 5_000, criterion)
    ]
    for one, other in pairs:
        ratio = one["seconds"] / other["seconds"]
        case = one["case"]
        text = (
            f"{case['criterion']}, isotropic, lambda = {case['regularization']:g}: at most 3 times the CLIP-like time"
        )
        cell = f"{ratio:.1f} ({units(one, one['seconds']):.2g} Phi G)"
        rows.append([text, cell, verdict(ratio <= 3.0 and one["status"] == "reached")])
    return make_table(["asked", "measured", ""], rows)


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


def smallest_speedup(fast: Line, slow: Line) -> float:
    """The least ratio of times over all gaps that both reach, up to 0.1 (or the slow one's last, if it is larger).

    Both in units of Phi G, because they may have run on different machines.
    """
    coarsest = max(0.1, min(gap for _, gap, _ in slow["points"]))
    ratios = []
    for gap in {gap for _, gap, _ in slow["points"] if gap <= coarsest}:
        one, other = time_to(fast, gap), time_to(slow, gap)
        if one is not None and other is not None:
            ratios.append(units(slow, other) / units(fast, one))
    return min(ratios, default=float("nan"))


def _ratios(fast: Line, slow: Line) -> list[str]:
    last = min(gap for _, gap, _ in slow["points"])
    cells = []
    for level in (1e-1, 1e-2, last):
        one, other = time_to(fast, level), time_to(slow, level)
        ratio = units(slow, other) / units(fast, one) if one and other else None
        cells.append("" if ratio is None else f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}")
    return [*cells, f"{last:.1e}"]


def _newton_clip(lines: Sequence[Line], tokens: int, criterion: str) -> list[Line]:
    wanted = {"source": "clip", "tokens": tokens, "dimension": 768, "split": 1, "criterion": criterion}
    return [line for line in matching(lines, solver="newton", regularization=100.0, **wanted) if ran(line)]


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
    "requirements": requirements,
    "side-by-side": side_by_side,
    "speedups": speedups,
    "newton": newton_everywhere,
    "scaling": scaling,
    "small": small,
    "spread": spread,
    "weak": weak,
}
