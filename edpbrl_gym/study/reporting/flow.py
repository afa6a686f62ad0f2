"""How people flowed through a study, from arrival to the comparison of the arms, as CONSORT draws it.

S. Hopewell et al., "CONSORT 2025 statement: updated guideline for reporting randomised trials" (2025), figure 1.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edpbrl_gym.reporting.figures import look, new_figure, set_title
from edpbrl_gym.study.exclusions import REASONS
from edpbrl_gym.study.export_tables import StudyTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ArmFlow", "Flow", "flow_figure", "flow_of"]

_BEFORE = {
    "enrolled": "no consent",
    "failed": "screened out",
    "withdrawn": "withdrew",
    "timed_out": "timed out",
    "consented": "no question yet",
    "asking": "no question yet",
}
_AFTER = {"withdrawn": "withdrew", "timed_out": "timed out", "failed": "screened out", "asking": "not finished yet"}


@dataclass(frozen=True)
class ArmFlow:
    """The people of an arm who were asked a question."""

    begun: int  # who saw the first question, which may be practice
    left: Mapping[str, int]  # who did not finish, by why
    finished: int
    excluded: Mapping[str, int]  # who finished and is left out by the rule of the study, by its reasons
    analysed: int


@dataclass(frozen=True)
class Flow:
    """Numbers of people; each is counted once at each step."""

    arrived: int
    consented: int
    before: Mapping[str, int]  # who did not get to the first question, by why
    arms: Mapping[str, ArmFlow]
    has_rule: bool  # whether the study excludes people by a rule

    @property
    def begun(self) -> int:
        return sum(arm.begun for arm in self.arms.values())


def flow_of(tables: StudyTables, arms: Sequence[str]) -> Flow:
    """Count the people of a study with these arms."""
    asked = {row["participant"] for row in tables.answers}
    before = Counter(
        _BEFORE.get(row["status"], "no question")
        for row in tables.participants
        if row["participant"] not in asked and row["status"] != "finished"
    )
    found = {}
    for name in arms:
        people = [
            row
            for row in tables.participants
            if row["arm"] == name and (row["participant"] in asked or row["status"] == "finished")
        ]
        finished = [row for row in people if row["status"] == "finished"]
        excluded = Counter(
            " and ".join(REASONS[one] for one in why.split(", ")) for why in map(_excluded, finished) if why
        )
        found[name] = ArmFlow(
            begun=len(people),
            left=Counter(_AFTER[row["status"]] for row in people if row["status"] != "finished"),
            finished=len(finished),
            excluded=excluded,
            analysed=len(finished) - sum(excluded.values()),
        )
    consented = sum(row["consent_version"] is not None for row in tables.participants)
    return Flow(len(tables.participants), consented, before, found, bool(tables.study.get("exclusions")))


def _excluded(row: Mapping[str, Any]) -> str:
    return row.get("excluded") or ""


# -- the figure, in inches -------------------------------------------------------------------------------------------

_WIDE, _GAP, _LINE, _ROOM, _MARGIN = 2.3, 0.3, 0.17, 0.28, 0.05
_LETTERS = 31  # in a line of a box
_STROKE: Any = {"color": "black", "linewidth": 0.9}


def flow_figure(flow: Flow) -> Figure:
    """Boxes from top to bottom, a column for each arm from the first question on."""
    columns = [_boxes(name, arm, flow.has_rule) for name, arm in flow.arms.items()]
    heights = [_height(max(boxes, key=len)) for boxes in zip(*columns, strict=True)]
    not_asked = _lost("Not asked", flow.before)
    width = max(len(columns), 2) * (_WIDE + _GAP) + _GAP
    arrived = [f"Arrived (n = {flow.arrived})", f"consented (n = {flow.consented})"]
    middle, first, single, side = width / 2, _height(arrived), _height([""]), _height(not_asked)
    beside = _MARGIN + first + _ROOM / 2
    second = beside + side + _ROOM / 2
    branch = second + single + _ROOM * 0.75
    height = branch + len(heights) * _ROOM + sum(heights) + _MARGIN
    with new_figure(width, height + 0.45, grid=False) as figure:
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set_xlim(0, width)
        axis.set_ylim(height, 0)
        _box(axis, middle - _WIDE / 2, _MARGIN, arrived, first)
        _arrow(axis, (middle, _MARGIN + first), (middle, second))
        _arrow(axis, (middle, beside + side / 2), (middle + _GAP, beside + side / 2))
        _box(axis, middle + _GAP, beside, not_asked, side, is_loss=True)
        _box(axis, middle - _WIDE / 2, second, [f"Asked a question (n = {flow.begun})"], single)
        start = middle - (len(columns) - 1) * (_WIDE + _GAP) / 2
        centres = [start + place * (_WIDE + _GAP) for place in range(len(columns))]
        axis.plot([middle, middle], [second + single, branch], **_STROKE)
        axis.plot([centres[0], centres[-1]], [branch, branch], **_STROKE)
        for place, (centre, boxes) in enumerate(zip(centres, columns, strict=True)):
            above = branch
            for row, lines in enumerate(boxes):
                top = above + _ROOM
                _arrow(axis, (centre, above), (centre, top))
                is_loss = row % 2 == 1
                _box(axis, centre - _WIDE / 2, top, lines, heights[row], is_loss=is_loss, colour=look(place).colour)
                above = top + heights[row]
        set_title(figure, "From arrival to the comparison of the arms", "Numbers of people; dashed: who is not below.")
    return figure


def _boxes(name: str, arm: ArmFlow, has_rule: bool) -> list[list[str]]:
    """The lines of an arm's boxes; every second one is of people who are not below."""
    boxes = [
        [*textwrap.wrap(name, _LETTERS), f"allocated and asked (n = {arm.begun})"],
        _lost("Did not finish", arm.left),
    ]
    if has_rule:
        boxes += [[f"Finished (n = {arm.finished})"], _lost("Excluded by the rule", arm.excluded)]
    return [*boxes, [f"{'Analysed' if has_rule else 'Finished and analysed'} (n = {arm.analysed})"]]


def _height(lines: Sequence[str]) -> float:
    return len(lines) * _LINE + 0.16


def _lost(title: str, why: Mapping[str, int]) -> list[str]:
    lines = [f"{title} (n = {sum(why.values())})"]
    for reason, number in sorted(why.items(), key=lambda pair: (-pair[1], pair[0])):
        lines += textwrap.wrap(f"{reason}: {number}", _LETTERS, initial_indent="  ", subsequent_indent="    ")
    return lines


def _box(
    axis: Any, x: float, y: float, lines: Sequence[str], height: float, *, is_loss: bool = False, colour: str = "black"
) -> None:
    from matplotlib.patches import Rectangle

    line = (0, (4, 3)) if is_loss else "-"
    axis.add_patch(Rectangle((x, y), _WIDE, height, facecolor="white", edgecolor=colour, linewidth=1.1, linestyle=line))
    left, aligned = (x + 0.1, "left") if is_loss else (x + _WIDE / 2, "center")
    first = y + height / 2 - (len(lines) - 1) * _LINE / 2
    for place, text in enumerate(lines):
        axis.text(left, first + place * _LINE, text, ha=aligned, va="center_baseline", fontsize=8.5)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **_STROKE})
