"""Numbers of the README, from the tables of the pages that it summarises.

So a table that is measured anew changes the README too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchmarks.claims.pages import read_sections

__all__ = ["comparison_summary", "efficiency_summary", "first_answers_summary", "people_summary"]

Values = Mapping[str, float]


def first_answers_summary() -> Values:
    """Fewest and most answers, over users and vocabularies, that teach what 36 did; the error saved after 24."""
    sections = read_sections("docs/first-answers.md")
    source = sections["What to show, and how to let people answer"].source
    found: dict[str, float] = {}
    for name, (asked, aim) in {"nine": ("9, best", "8"), "ranks": ("6, ranking", "4")}.items():
        rows = [row for row in _rows(source) if row[0] == asked and row[1] == "adaptive" and row[3] == aim]
        for measure, row in zip(("", "_regret"), rows, strict=True):
            answers = [_number(cell) for cell in row[4:]]
            found |= {f"{name}_fewest{measure}": min(answers), f"{name}_most{measure}": max(answers)}
    rows = _rows(sections["Adaptive questions against Random ones"].source)
    differences, _ = (row for row in rows if row[0] == "mean of the four")  # in preference error, then in regret
    found["saved"] = -(_number(differences[3]) + _number(differences[6])) / 2
    return found


def efficiency_summary() -> Values:
    """How many times fewer questions today's code needs than Random ones with the paper's estimate."""
    rows = _rows(read_sections("docs/query-efficiency.md")["Questions needed by the adaptive planner"].source)[1:]
    shares = [_number(row[1]) for row in rows]
    return {"fewest": 1.0 / max(shares), "most": 1.0 / min(shares)}


def people_summary() -> Values:
    """Hit rates after one adaptive answer with the population, and after eight random ones without it."""
    rows = _rows(read_sections("docs/people.md")["Real people"].source)
    hits = [
        row for row in rows if len(row) == 9 and row[1] in ("population, adaptive", "alone, best (ridge 1), random")
    ]
    alone, population, alone_cards, population_cards = hits[:4]
    return {
        "with": _number(population[3]),
        "without": _number(alone[7]),
        "with_cards": _number(population_cards[3]),
        "without_cards": _number(alone_cards[7]),
    }


def comparison_summary() -> Values:
    """How many planners are ranked, and the best average rank in knowledge and in regret."""
    rows = [
        row for row in _rows(read_sections("docs/planner-comparison.md")["Average ranks"].source)[1:] if len(row) == 7
    ]
    return {
        "planners": len(rows),
        "knowledge": min(_number(row[1]) for row in rows),
        "regret": min(_number(row[3]) for row in rows),
    }


def _rows(source: str) -> list[list[str]]:
    """The cells of all rows of the tables of a section."""
    lines = [line for line in source.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _number(cell: str) -> float:
    """The first number of a cell."""
    found = re.match(r"[*]*([-+]?\d*\.?\d+)", cell)
    if found is None:
        raise ValueError(f"Expected a number, got the cell {cell!r}.")
    return float(found[1])
