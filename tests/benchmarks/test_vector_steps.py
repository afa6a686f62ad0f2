"""The benchmark of vector environments: its rows."""

from __future__ import annotations

from benchmarks.vector_steps import READ, WRITTEN, measure


def test_a_row_for_each_environment_and_way_of_reading():
    rows = measure(lanes=2, repeats=1, steps=3)
    assert [(row["environment"], row["read"]) for row in rows[1:]] == [(name, how) for name in WRITTEN for how in READ]
    assert rows[0]["environment"] == "CartPole" and rows[0]["ratio"] == 1.0
    assert all(row["rate"] > 0 and row["lanes"] == 2 for row in rows)
