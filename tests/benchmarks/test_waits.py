"""The table of waits has a row for each of them; how long they are is the benchmark's business."""

from __future__ import annotations

from benchmarks.waits import Args, line_of, measure


def test_the_quick_table_has_every_row():
    said = []
    rows = measure(Args(quick=True, answers=2), said.append)
    assert said == rows and all(row.wall > 0 and row.budget.endswith(" s") for row in rows)
    assert [(row.case.partition(",")[0], row.cache) for row in rows] == [
        ("`import edpbrl_gym`", ""),
        ("`edpbrl --help`", ""),
        ("first question of `ask`", "empty"),
        ("first question of `ask`", "warm"),
        ("next question of `ask`", ""),
        ("last screen of `ask`", ""),
    ]
    assert line_of(rows[0]).count("|") == 6
