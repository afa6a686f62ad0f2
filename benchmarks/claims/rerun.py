"""A claim's commands once more: the numbers of its pages beside those that are printed today."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claims.checks import Pages
from benchmarks.claims.pages import ROOT, rows, value
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
    """The rows of the claim's tables whose numbers differ from the row of the output with the same words."""
    today: dict[tuple[str, ...], list[list[str]]] = {}
    for words, numbers in rows(output):
        today.setdefault(words, []).append(numbers)
    same = changed = missing = 0
    for page, seals in claim.sections.items():
        for heading in seals:
            for words, numbers in rows(pages[page][heading].source):
                found = [each for each in today.get(words, ()) if len(each) == len(numbers)]
                if not numbers:
                    continue
                if not found:
                    missing += 1
                elif any(_equal(numbers, each) for each in found):
                    same += 1
                else:
                    changed += 1
                    lines = f"  page  {'  '.join(numbers)}\n  today {'  '.join(found[0])}"
                    yield f"{page}, {heading}: {' '.join(words)}\n{lines}"
    yield (
        f"{same} rows of the pages are the same today, {changed} differ, {missing} have no row of the same words in "
        "the output: compare these, and the numbers in the text, by eye."
    )


def _equal(written: list[str], today: list[str]) -> bool:
    """Whether numbers agree to the digits of both."""
    pairs = [(value(one), value(other)) for one, other in zip(written, today, strict=True)]
    return all(abs(one - other) <= max(half, rest) * 1.001 for (one, half), (other, rest) in pairs)
