"""The table of agents: a row for each, and for one of a reader's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import agents

PAGE = Path(__file__).parents[2] / "docs" / "reinforcement-learning.md"


def cells(printed: str) -> dict[tuple[str, str], list[str]]:
    """Measure and agent -> the other cells of their row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    return {(row[0], row[1]): row[2:] for row in rows[2:]}


@pytest.mark.needs("rl", "text", "experiments")
def test_every_agent_and_the_one_of_the_page_have_rows(tmp_path, monkeypatch, capsys):
    block = re.search(r"^```python\n(import numpy.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert block and len(block[1].splitlines()) <= 25
    (tmp_path / "my_agent.py").write_text(block[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)
    names = ["my_agent:MyAgent", *agents.NAMES]
    agents.main(["--quick", "--agents", *names, "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    rows = cells(printed)
    assert list(rows) == [(measure, name) for measure in agents.MEASURES.values() for name in names]
    for (_, name), row in rows.items():
        assert re.fullmatch(r"\d\.\d{3} ± \d\.\d{3}", row[0])
        assert (row[1] == "") == (name == "random")
    written = (tmp_path / "out" / "agents.md").read_text(encoding="utf-8")
    assert written.strip() == printed.strip()
    assert {file.name for file in (tmp_path / "out").glob("*.png")} == {"agents.png", "agents-regret.png"}
    values = (tmp_path / "out" / "agents.csv").read_text(encoding="utf-8").splitlines()
    assert len(values) == 1 + len(names) * 2  # two users, one number of answers


def test_the_difference_to_random_is_of_the_same_users():
    base, other = np.array([[0.5, 0.4], [0.3, 0.2]]), np.array([[0.4, 0.3], [0.2, 0.1]])
    found = [
        agents.Found(name, {"wrong": values, "regret": values}, 0.0, 0.0)
        for name, values in (("random", base), ("other", other))
    ]
    size = agents.Size(answers=(6, 12))
    [*_, row] = [row for row in agents.table(found, size).rows if row[1] == "other"]
    # users differ by 0.2, the difference of the agents by nothing
    assert row[2:5] == ["0.300 ± 0.100", "0.200 ± 0.100", "+0.100 ± 0.000"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--agents", "nobody"], "nobody"),
        (["--agents", "no_such_module:Agent"], "no_such_module"),
        (["--users", "1"], "2 to 12 users"),
        (["--jobs", "0"], "at least one job"),
    ],
)
def test_bad_arguments_are_refused_in_a_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        agents.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_the_table_of_the_page_has_the_agents_of_the_command():
    rows = cells(PAGE.read_text(encoding="utf-8").partition("## The agents in one table")[2].partition("\n## ")[0])
    assert list(rows) == [(measure, name) for measure in agents.MEASURES.values() for name in agents.NAMES]
