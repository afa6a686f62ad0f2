"""The tables of docs/performance.md, from the results alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.solvers.results import Line

__all__ = ["LEVELS", "NAMES", "TABLES", "relative_to_features", "time_to", "units", "with_units"]

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
_SOURCES = {"minilm": "built-in", "clip": "CLIP-like", "isotropic": "isotropic"}


def time_to(line: Line, level: float) -> float | None:
    """Seconds until the gap was at most `level` of the gain; None if it never was.

    For the target itself these are the seconds until the solver returned a design that we confirm, its own last
    certificate included.
    """
    if "points" not in line:
        return None
    if level <= line["limits"]["target"]:
        return float(line["seconds"]) if line["certified_gap"] <= level else None
    return next((seconds for seconds, gap, _ in line["points"] if gap <= level), None)


def with_units(lines: Iterable[Line]) -> list[Line]:
    """The lines with their "unit": the fastest Phi G that any run on the same features measured.

    Every process measures it, right after its solver; the fastest of all is the least flattering unit, and a machine
    that was busy for a moment can't make a solver look fast.
    """
    found = list(lines)
    least: dict[tuple[Any, ...], float] = {}
    for line in found:
        if _ran(line):
            features = _features(line)
            least[features] = min(line["yardstick_least"], least.get(features, float("inf")))
    return [line | {"unit": least[_features(line)]} if _ran(line) else line for line in found]


def units(line: Line, seconds: float) -> float:
    """Seconds as a multiple of one float32 Phi G."""
    return float(seconds / line["unit"])


def relative_to_features(line: Line) -> float:
    """Peak memory of the run less that of a process with all imports, as a multiple of the float32 features."""
    return float((line["memory"] - line["memory_before"]) / line["feature_bytes"])


def matching(lines: Iterable[Line], **wanted: Any) -> list[Line]:
    """The lines whose case (or solver) has these values."""
    return [
        line for line in lines if all(({"solver": line["solver"]} | line["case"])[k] == v for k, v in wanted.items())
    ]


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
                *(_time(line, level) for level in LEVELS),
                *(
                    [_gap(line), f"{line['seconds']:.1f} s", str(line["iterations"]), _megabytes(line)]
                    if _ran(line)
                    else 4 * [_why(line)]
                ),
            ]
            for line in own
        ]
        head = ["solver", "to 1e-2", "to 1e-4", "to 1e-6", "gap at the end", "after", "iterations", "memory"]
        parts.append(f"**{describe(case)}**\n\n{_table(head, rows)}")
    return "\n\n".join(parts)


def newton_everywhere(lines: Sequence[Line]) -> str:
    """`newton` on every problem of 3,000 to 5,000 tokens."""
    rows = []
    for line in matching(lines, solver="newton"):
        case = line["case"]
        if (case["tokens"], case["dimension"]) in _MAIN and _ran(line):
            rows.append([describe(case), *_newton_cells(line)])
    return _table(["problem", "time", "in Phi G", "gap / gain", "iterations", "support", "memory"], rows)


def scaling(lines: Sequence[Line]) -> str:
    """`newton` on CLIP-like features of all sizes, lambda = 100."""
    rows = []
    for line in matching(lines, solver="newton", source="clip", split=1, regularization=100.0):
        case = line["case"]
        if case["dimension"] >= 384 and _ran(line):
            cells = _newton_cells(line)
            cells[-1] = f"{relative_to_features(line):.2f} x" if case["tokens"] >= 50_000 else cells[-1]
            size = f"{case['tokens']:,} x {case['dimension']}"
            order = (case["dimension"], "DAV".index(case["criterion"][0]), case["tokens"])
            unit = _seconds(line["unit"])
            rows.append((order, [size, case["criterion"], unit, *cells, _seconds(line["preparation"])]))
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
    return _table(head, [cells for _, cells in sorted(rows, key=lambda row: row[0])])


def speedups(lines: Sequence[Line]) -> str:
    """How many times faster `newton` gets to a gap than the Frank-Wolfe variants, at gaps that both reach."""
    rows = []
    for case in _cases(lines):
        fast = matching(lines, solver="newton", **case)
        for name in ("frank_wolfe", "paper", "pairwise"):
            for slow in matching(lines, solver=name, **case):
                if fast and _ran(fast[0]) and _ran(slow) and (case["tokens"], case["dimension"]) in _MAIN:
                    rows.append([describe(case), NAMES[name], *_ratios(fast[0], slow)])
    head = ["problem", "against", "at 1e-1", "at 1e-2", "at its last gap", "its last gap"]
    return _table(head, rows)


def small(lines: Sequence[Line]) -> str:
    """Beside `newton`, cvxpy where it fits."""
    rows = []
    for line in matching(lines, solver="cvxpy"):
        fast = matching(lines, solver="newton", **line["case"])
        if not _ran(line):
            rows.append([describe(line["case"]), _why(line), "", "", "", ""])
        elif fast:
            difference = abs(line["value"] - fast[0]["value"]) / max(1.0, abs(line["value"]))
            cells = [_seconds(line["seconds"]), _gap(line), _seconds(fast[0]["seconds"]), _gap(fast[0])]
            rows.append([describe(line["case"]), *cells, f"{difference:.0e}"])
    return _table(["problem", "cvxpy", "its gap", "`newton`", "its gap", "difference of the values"], rows)


def requirements(lines: Sequence[Line]) -> str:
    """What the solver was asked to show, and what it shows."""
    rows = []
    for criterion, limit in (("D", 10.0), ("A", 15.0), ("V16", 5.0)):
        for line in _newton_clip(lines, 5_000, criterion):
            ratio = units(line, line["seconds"])
            text = f"{criterion}, 5,000 x 768: gap 1e-6 in at most {limit:g} Phi G"
            rows.append([text, f"{ratio:.1f}", _verdict(ratio <= limit and line["status"] == "reached")])
    for criterion in ("D", "A", "V16"):
        case = {"source": "clip", "tokens": 5_000, "dimension": 768, "split": 1, "criterion": criterion}
        for slow in matching(lines, solver="frank_wolfe", regularization=100.0, **case):
            for fast in _newton_clip(lines, 5_000, criterion):
                least = smallest_speedup(fast, slow)
                text = f"{criterion}, 5,000 x 768: 50 times faster than plain Frank-Wolfe to any common gap up to 0.1"
                rows.append([text, f"{least:.0f} at least", _verdict(least >= 50)])
    for criterion, limit in (("D", 1.0), ("A", 1.5)):
        for line in _newton_clip(lines, 1_000_000, criterion):
            ratio = units(line, line["seconds"])
            text = f"{criterion}, 1,000,000 x 768: in less than {limit:g} Phi G"
            rows.append([text, f"{ratio:.2f}", _verdict(ratio < limit and line["status"] == "reached")])
            memory = relative_to_features(line)
            text = f"{criterion}, 1,000,000 x 768: peak memory below 1.5 times the features"
            rows.append([text, f"{memory:.2f}", _verdict(memory < 1.5)])
    pairs = [
        (one, other)
        for criterion in ("D", "A", "V16")
        for regularization in (100.0, 1.0)
        for one in matching(
            lines, solver="newton", source="isotropic", criterion=criterion, regularization=regularization
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
        rows.append([text, cell, _verdict(ratio <= 3.0 and one["status"] == "reached")])
    return _table(["asked", "measured", ""], rows)


def environment(lines: Sequence[Line]) -> str:
    """Where the numbers come from, in one sentence."""
    ran = [line for line in lines if _ran(line)]
    if not ran:
        return "No results."
    last = max(ran, key=lambda line: line["versions"]["date"])
    versions = ", ".join(
        f"{name} {value}" for name, value in last["versions"].items() if name not in ("commit", "date")
    )
    commits = sorted({line["versions"]["commit"] for line in ran})
    dates = sorted(line["versions"]["date"] for line in ran)
    return (
        f"{len(ran)} runs, {dates[0]} to {dates[-1]}, commit {', '.join(commits)}; one thread of {last['machine']}; "
        f"{versions}."
    )


def smallest_speedup(fast: Line, slow: Line) -> float:
    """The least ratio of times over all gaps that both reach, up to 0.1 (or the slow one's last, if it is larger)."""
    coarsest = max(0.1, min(gap for _, gap, _ in slow["points"]))
    ratios = []
    for gap in {gap for _, gap, _ in slow["points"] if gap <= coarsest}:
        one, other = time_to(fast, gap), time_to(slow, gap)
        if one is not None and other is not None:
            ratios.append(other / one)
    return min(ratios, default=float("nan"))


def describe(case: dict[str, Any]) -> str:
    """A problem in words."""
    split = f", {case['split']} vocabularies" if case["split"] > 1 else ""
    return (
        f"{_SOURCES[case['source']]} {case['tokens']:,} x {case['dimension']}{split}, {case['criterion']}, "
        f"lambda = {case['regularization']:g}"
    )


def _ratios(fast: Line, slow: Line) -> list[str]:
    last = min(gap for _, gap, _ in slow["points"])
    cells = []
    for level in (1e-1, 1e-2, last):
        one, other = time_to(fast, level), time_to(slow, level)
        ratio = other / one if one and other else None
        cells.append("" if ratio is None else f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}")
    return [*cells, f"{last:.1e}"]


def _newton_clip(lines: Sequence[Line], tokens: int, criterion: str) -> list[Line]:
    wanted = {"source": "clip", "tokens": tokens, "dimension": 768, "split": 1, "criterion": criterion}
    return [line for line in matching(lines, solver="newton", regularization=100.0, **wanted) if _ran(line)]


def _newton_cells(line: Line) -> list[str]:
    ratio = units(line, line["seconds"])
    number = f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
    return [
        _seconds(line["seconds"]),
        number,
        _gap(line),
        str(line["iterations"]),
        f"{line['support']:,}",
        _megabytes(line),
    ]


def _cases(lines: Sequence[Line]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in lines:
        if line["case"] not in found:
            found.append(line["case"])
    return found


def _features(line: Line) -> tuple[Any, ...]:
    return tuple(line["case"][name] for name in ("source", "tokens", "dimension"))


def _ran(line: Line) -> bool:
    return "points" in line


def _why(line: Line) -> str:
    return {"refused": "does not fit", "missing": "not installed"}.get(line["status"], line["status"])


def _time(line: Line, level: float) -> str:
    seconds = time_to(line, level)
    if seconds is None:
        return "-"
    ratio = units(line, seconds)
    return f"{_seconds(seconds)} ({ratio:.2g})" if ratio < 100 else f"{_seconds(seconds)} ({ratio:,.0f})"


def _seconds(seconds: float) -> str:
    return (
        f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    )


def _gap(line: Line) -> str:
    return f"{line['certified_gap']:.0e}"


def _megabytes(line: Line) -> str:
    return f"{(line['memory'] - line['memory_before']) / 1e6:,.0f} MB"


def _verdict(met: bool) -> str:
    return "met" if met else "**not met**"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


TABLES = {
    "environment": environment,
    "requirements": requirements,
    "side-by-side": side_by_side,
    "speedups": speedups,
    "newton": newton_everywhere,
    "scaling": scaling,
    "small": small,
}
