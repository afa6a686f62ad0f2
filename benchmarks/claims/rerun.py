"""A claim's commands once more: the numbers of its pages beside those that are printed today."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claims.checks import Pages
from benchmarks.claims.pages import ROOT, Section, rows, value
from benchmarks.claims.registry import Claim

__all__ = ["beside", "run"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(claim: Claim, folder: Path) -> str:
    """Run the commands in a folder, with copies of the pages that they may write; return all that they wrote.

    Raises:
        subprocess.CalledProcessError: If a command fails.
    """
    for name in ("docs", "examples", "tests"):
        if not (folder / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "benchmarks" / "results").mkdir(parents=True, exist_ok=True)
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        **dict.fromkeys(_THREADS, "1"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        "COLUMNS": "240",
    }
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    printed = []
    for line in claim.commands:
        print(f"+ {line}", flush=True)
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        printed.append(done.stdout)
        (folder / f"{claim.id}.txt").write_text("\n".join(printed), encoding="utf-8")
        done.check_returncode()
    written = [path for path in sorted(folder.rglob("*.md")) if before.get(path) != path.stat().st_mtime_ns]
    return "\n".join([*printed, *(path.read_text(encoding="utf-8") for path in written)])


def beside(claim: Claim, pages: Pages, output: str) -> Iterator[str]:
    """What of the claim's sections the output does not bear out.

    A row of a table is the same if the row of the output with the same words has its numbers, or if one line of the
    output has all its decimals. Other numbers, and those of the text, have to stand anywhere in the output. All are
    compared to their last digit.
    """
    by_words: dict[tuple[str, ...], list[list[str]]] = {}
    for words, numbers in rows(output):
        by_words.setdefault(words, []).append(numbers)
    lines = [[value(number)[0] for number in Section("", "", line, line).numbers()] for line in output.splitlines()]
    printed = [number for line in lines for number in line]
    counts = dict.fromkeys(("the same today", "changed", "printed in other rows", "not printed"), 0)
    for page, heading in ((page, heading) for page, seals in claim.sections.items() for heading in seals):
        section = pages[page][heading]
        for words, numbers in ((words, numbers) for words, numbers in rows(section.source) if numbers):
            found = [each for each in by_words.get(words, ()) if len(each) == len(numbers)]
            decimals = [number for number in numbers if "." in number] or numbers
            if any(_equal(numbers, each) for each in found) or any(_all_in(decimals, line) for line in lines):
                counts["the same today"] += 1
            elif found:
                counts["changed"] += 1
                shown = f"  page  {'  '.join(numbers)}\n  today {'  '.join(found[0])}"
                yield f"{page}, {heading}: {' '.join(words)}\n{shown}"
            elif _all_in(decimals, printed):
                counts["printed in other rows"] += 1
            else:
                counts["not printed"] += 1
                gone = [number for number in decimals if not _all_in([number], printed)]
                yield f"{page}, {heading}: {' '.join(words)}: not in the output: {', '.join(gone)}"
        if gone := [number for number in section.measured() if not _all_in([number], printed)]:
            yield f"{page}, {heading}: numbers of the text that are not in the output: {', '.join(gone)}"
    yield "Rows of tables: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + "."


def _all_in(written: list[str], printed: list[float]) -> bool:
    """Whether all numbers of the page are among those that were printed, as they are or as shares for percentages."""
    exact = [value(number) for number in written]
    return all(any(abs(one - each) <= 1.001 * half for each in printed) for one, half in exact) or all(
        any(abs(one - 100.0 * each) <= 1.001 * half for each in printed) for one, half in exact
    )


def _equal(written: list[str], today: list[str]) -> bool:
    """Whether numbers agree to the digits of both."""
    pairs = [(value(one), value(other)) for one, other in zip(written, today, strict=True)]
    return all(abs(one - other) <= max(half, rest) * 1.001 for (one, half), (other, rest) in pairs)
