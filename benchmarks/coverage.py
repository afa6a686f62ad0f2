"""How much of the mathematics the tests of its own rooms run: statements and branches, by coverage.py.

    OMP_NUM_THREADS=1 python -m benchmarks.coverage              # the first table of docs/trust.md; half an hour
    OMP_NUM_THREADS=1 python -m benchmarks.coverage --room mdp likelihood

Ends with an error where less than `--least` percent of the branches of a room are taken by `tests/ROOM` alone. A branch
is one of the ways that a condition or a loop can go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import make_parser, show
from edpbrl_gym.reporting.tables import TextTable

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("mdp", "likelihood", "estimation", "design", "planners")


def measure(room: str) -> dict[str, int]:
    """Totals of coverage.py for one room."""
    with tempfile.TemporaryDirectory() as folder:
        data, report = f"{folder}/data", f"{folder}/report.json"
        run = ["run", "--branch", f"--source=edpbrl_gym/{room}", f"--data-file={data}", "-m", "pytest", "-q"]
        commands = ([*run, f"tests/{room}"], ["json", "-q", f"--data-file={data}", "-o", report])
        for command in commands:
            subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, check=True)
        totals: dict[str, int] = json.loads(Path(report).read_text(encoding="utf-8"))["totals"]
    return totals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--room", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--least", type=float, default=90.0, help="percent of a room's branches")
    options = parser.parse_args()
    rows, low = [], []
    for room in options.room:
        totals = measure(room)
        lines = totals["covered_lines"], totals["num_statements"]
        branches = totals["covered_branches"], totals["num_branches"]
        shares = [100 * taken / count for taken, count in (lines, branches)]
        rows.append((room, f"{lines[0]:,} of {lines[1]:,}", f"{shares[0]:.1f}%"))
        rows[-1] += (f"{branches[0]:,} of {branches[1]:,}", f"{shares[1]:.1f}%")
        if shares[1] < options.least:
            low.append(room)
    show(TextTable("", ("room", "statements", "", "branches", ""), rows, words=1))
    if low:
        raise SystemExit(f"Expected at least {options.least:g}% of the branches, got less of {', '.join(low)}")


if __name__ == "__main__":
    main()
