"""The figures of docs/results.md, one panel each, from the tables of the pages that it summarises.

    python -m benchmarks.results_figures

Nothing is measured here: a table that is measured anew changes its figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.claims.pages import ROOT, read_sections
from edpbrl_gym.reporting.figures import legend, look, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["main", "pictures_figure", "questions_figure", "taps_figure"]

_WIDTH = 4.4  # inches: as wide as a phone shows letters of this size


def _cells(page: str, section: str, *, after: str = "") -> list[list[str]]:
    """The rows of the first table of a section after some text, without the marks of bold text."""
    source = read_sections(page)[section].source
    table = re.search(r"^\|.*?(?=\n\n|\Z)", source[source.index(after) :], flags=re.M | re.S)
    if table is None:
        raise ValueError(f"Expected a table in {page}, {section}, after {after!r}, found none")
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table[0].splitlines()]


def _first_number(cell: str) -> float:
    return float(re.findall(r"\d*\.?\d+", cell)[0])


def pictures_figure() -> Figure:
    """Real people's ratings of photographs: pairs ordered rightly, alone and with what others said."""
    page, section = "docs/people.md", "People and pictures"
    head, *others = _cells(page, section, after="With what others said of the same pictures")
    known = {"with others' answers": others[3], "with others' tastes": others[2]}
    x = [int(count) for count in head[1:]]
    curves = {label: (x, [100 * float(cell) for cell in row[1:]]) for label, row in known.items()}
    for questions in ("adaptive", "random"):
        curves[f"alone, {questions}"] = (x[1:], _row_of_photographs(page, section, f"{questions}, items"))
    with new_figure(_WIDTH, 3.4) as figure:
        axis = figure.subplots()
        for number, (label, (answers, rightly)) in enumerate(curves.items()):
            colour, line, marker = look(number)
            axis.plot(answers, rightly, color=colour, linestyle=line, marker=marker, markersize=4, label=label)
        axis.set(
            xlabel="own answers (best of four)",
            ylabel="pairs ordered rightly (%)",
            title="Photographs, real people's ratings",
            xticks=[0, 3, 6, 10, 20, 40],
        )
        legend(figure)
    return figure


def _row_of_photographs(page: str, section: str, questions: str) -> list[float]:
    rows = _cells(page, section)
    start = next(number for number, row in enumerate(rows) if row[0] == "photographs, best of 4")
    [row] = [row for row in rows[start : start + 4] if row[1] == questions]
    return [100 * float(cell) for cell in row[2:7]]


def questions_figure() -> Figure:
    """Share of the questions that random ones with the paper's estimate need, for four ways of answering."""
    rows = _cells("docs/query-efficiency.md", "Questions needed by the adaptive planner")[2:6]
    bars = {row[0]: 100 * _first_number(row[1]) for row in rows}
    return _bars(bars, "% of the questions, by how users answer", "Questions needed, random ones = 100")


def taps_figure() -> Figure:
    """Answers that teach what 36 about partial prompts do, by what is shown."""
    rows = _cells("docs/first-answers.md", "What to show, and how to let people answer")[2:]
    wanted = {
        "four partial prompts": ("4 partial prompts, best", "random"),
        "four prompts": ("4, best", "adaptive"),
        "nine prompts": ("9, best", "adaptive"),
        "six, best and worst": ("6, best and worst", "adaptive"),
        "six, ranked": ("6, ranking", "adaptive"),
    }
    found = {(row[0], row[1]): row[5] for row in rows}
    bars = {label: _first_number(found[key]) for label, key in wanted.items()}
    return _bars(bars, "answers of simulated users (scale 20)", "Answers for the same knowledge")


def _bars(values: Mapping[str, float], xlabel: str, title: str) -> Figure:
    with new_figure(_WIDTH, 0.75 + 0.36 * len(values)) as figure:
        axis = figure.subplots()
        names = list(values)[::-1]
        bars = axis.barh(names, [values[name] for name in names], color=look(0).colour, height=0.6)
        axis.bar_label(bars, fmt="{:.0f}", padding=3)
        axis.set_xlabel(xlabel)
        figure.suptitle(title, fontsize=9.5)
        axis.margins(x=0.12)
        axis.grid(visible=False, axis="y")
    return figure


def main(folder: Path = ROOT / "docs") -> None:
    """Draw all of them into a folder."""
    makers = {
        "results-pictures": pictures_figure,
        "results-questions": questions_figure,
        "results-answers": taps_figure,
    }
    for name, make in makers.items():
        for path in save_figure(make(), folder, name):
            if path.suffix == ".pdf":
                path.unlink()


if __name__ == "__main__":
    main()
