"""The results file: one JSON object a line, appended when a run ends, so that a stopped benchmark goes on.

A line holds: case, solver, limits; status ("reached" the target, "stopped" at a limit, "refused" the problem,
"failed"); seconds (the fastest of `runs`), preparation (seconds before the clock starts), iterations, points
(seconds, gap / gain, iteration), reported_gap and certified_gap (independent), support, memory (peak, bytes),
memory_before (with all imports), feature_bytes, yardstick (median seconds of one Phi G) and yardstick_least, machine,
versions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["append", "key", "read"]

Line = dict[str, Any]


def key(case: dict[str, Any], solver: str) -> str:
    """What identifies a run."""
    return json.dumps([case, solver], sort_keys=True)


def read(path: Path) -> dict[str, Line]:
    """The last line of every run, by its key; an unfinished last line (a kill while writing) is left out."""
    found: dict[str, Line] = {}
    if not path.exists():
        return found
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(lines) - 1:
                break
            raise ValueError(f"Expected one JSON object a line in {path}, line {number + 1} is none.") from error
        found[key(line["case"], line["solver"])] = line
    return found


def append(path: Path, line: Line) -> None:
    """Add a line; what a kill while writing left of an unfinished one is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(json.dumps(line).encode() + b"\n")
