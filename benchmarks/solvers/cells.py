"""What a line of the results says: times, units, words, cells of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.solvers.results import Line

__all__ = [
    "describe",
    "describe_source",
    "gap_cell",
    "in_megabytes",
    "in_seconds",
    "make_table",
    "matching",
    "ran",
    "relative_to_features",
    "time_cell",
    "time_to",
    "units",
    "why",
    "with_units",
]

_SOURCES = {
    "minilm": "built-in",
    "clip": "CLIP-like",
}
_CHANGES = {"": "", "float16": " in float16"}


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
    """The lines with their "unit": the fastest Phi G that any run on the same features and machine measured.

    Every process measures it, right after its solver; the fastest of all is the least flattering unit, and a machine
    that was busy for a moment can't make a solver look fast.
    """
    found = list(lines)
    least: dict[tuple[Any, ...], float] = {}
    for line in found:
        if ran(line):
            features = _features(line)
            least[features] = min(line["yardstick_least"], least.get(features, float("inf")))
    return [line | {"unit": least[_features(line)]} if ran(line) else line for line in found]


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


def describe(case: dict[str, Any]) -> str:
    """A problem in words."""
    split = f", {case['split']} vocabularies" if case["split"] > 1 else ""
    return (
        f"{describe_source(case['source'])} {case['tokens']:,} x {case['dimension']}{split}, {case['criterion']}, "
        f"lambda = {case['regularization']:g}"
    )


def describe_source(source: str) -> str:
    """Features in words."""
    kind, _, change = source.partition("+")
    return f"{_SOURCES.get(kind, kind)}{_CHANGES[change]}"


def _features(line: Line) -> tuple[Any, ...]:
    return (line["machine"], *(line["case"][name] for name in ("source", "tokens", "dimension", "seed")))


def ran(line: Line) -> bool:
    """Whether the solver ran."""
    return "points" in line


def why(line: Line) -> str:
    """Why it did not."""
    return "does not fit" if line["status"] == "refused" else str(line["status"])


def time_cell(line: Line, level: float) -> str:
    """Seconds to a gap, in brackets in units of Phi G; "-" where it was not reached."""
    seconds = time_to(line, level)
    if seconds is None:
        return "-"
    ratio = units(line, seconds)
    return f"{in_seconds(seconds)} ({ratio:.2g})" if ratio < 100 else f"{in_seconds(seconds)} ({ratio:,.0f})"


def in_seconds(seconds: float) -> str:
    """Seconds with two digits."""
    return (
        f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    )


def gap_cell(line: Line) -> str:
    """The certified gap."""
    return f"{line['certified_gap']:.0e}"


def in_megabytes(line: Line) -> str:
    """Peak memory of the run less that of a process with all imports."""
    return f"{(line['memory'] - line['memory_before']) / 1e6:,.0f} MB"


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
