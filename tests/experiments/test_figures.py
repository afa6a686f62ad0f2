"""Figures: what their axes say."""

from __future__ import annotations

from edpbrl_gym.reporting.figures import Curve, Look, Panel, curves_figure


def test_labels_of_a_log_axis_leave_room():
    """12, 15 and 18 are so close on a log axis that the labels of 15 and 18 would touch."""
    answers = [3, 6, 9, 12, 15, 18, 24, 36, 60, 120]
    panel = Panel([Curve("a curve", answers, [1.0] * len(answers), Look("#000000", "-", "o"))])
    (axis,) = curves_figure([panel], columns=1, xlabel="answers", title="a title", log=True).axes
    assert axis.get_xticks().tolist() == answers
    shown = [label.get_text() for label in axis.get_xticklabels()]
    assert shown == ["3", "6", "9", "12", "", "18", "24", "36", "60", "120"]
