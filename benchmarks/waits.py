"""How long people wait: each command from its start to what they see, beside what it may take.

    OMP_NUM_THREADS=2 python -m benchmarks.waits             # about three minutes on two quiet cores
    python -m benchmarks.waits --quick                       # without the demo and the study

Every case runs in a process of its own with a cache of its own, filled before where the table says "warm". Wall is the
time until the text is there; CPU is that of the whole process, which a busy machine changes less. Each is the median of
so many repeats.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.asking import Typist
from benchmarks.common import PROGRAM
from benchmarks.study_load import serving
from edpbrl_gym.study.template import write_template


@dataclass
class Args:
    """Arguments of the run."""

    quick: bool = False
    """one repeat, without the demo and the study"""
    answers: int = 9
    """questions answered before the last screen"""


@dataclass(frozen=True)
class Row:
    """One wait."""

    case: str
    cache: str  # "empty", "warm" or ""
    wall: float  # seconds
    cpu: float | None  # seconds of the whole process; None where only a part of it was waited for
    budget: str  # what it may take


@contextmanager
def _measured(found: list[tuple[float, float]]) -> Iterator[None]:
    """Appends wall and CPU seconds of the children that end meanwhile."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found.append((time.perf_counter() - start, cpu))


def _command(name: str, budget: str, command: list[str], repeats: int, cache: Path, kind: str = "") -> Row:
    """Wait for a command to end; an untimed first call fills the machine's own caches."""
    environment = {**os.environ, "EDPBRL_CACHE": str(cache)}
    found: list[tuple[float, float]] = []
    for _ in range(repeats + (repeats > 1)):
        with _measured(found):
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, cpu = (statistics.median(times) for times in zip(*found[-repeats:], strict=True))
    return Row(name, kind, wall, cpu, budget)


def _asking(args: Args, vocabulary: str, folder: Path) -> list[Row]:
    """First question with an empty and a warm cache, next questions, and the last screen, in the terminal."""
    cache, rows = folder / f"cache-{vocabulary}", []
    given = ["--terminal", "--vocabulary", vocabulary]
    for kind, budget in (("empty", "8 s"), ("warm", "5 s"))[: 1 if args.quick else 2]:
        typist = Typist(["ask", "--out", str(folder / f"{vocabulary}-{kind}"), *given], 100, cache)
        typist.read(300.0, "> ")
        rows.append(
            Row(f"first question of `ask`, `{vocabulary}`", kind, time.monotonic() - typist.start, None, budget)
        )
        if kind == "empty" and not args.quick:
            typist.process.kill()
            typist.process.wait()
    waits = []
    for number in range(args.answers):
        typist.read(2.0)  # a person reads, and the next question is prepared
        os.write(typist.handle, b"1")
        waits.append(typist.read(60.0, f"Question {number + 2}"))
    rows.append(Row(f"next question of `ask`, `{vocabulary}`", "", statistics.median(waits), None, "0.3 s"))
    typist.read(2.0)
    rows.append(Row(f"last screen of `ask`, `{vocabulary}`", "", _stop(typist), None, "3 s"))
    return rows


def _stop(typist: Typist) -> float:
    """Press Q and read until the command has ended; returns the seconds."""
    start = time.monotonic()
    os.write(typist.handle, b"q")
    while (
        typist.process.poll() is None and time.monotonic() - start < 120.0
    ):  # what it writes must be read, or it waits
        typist.read(0.1)
    return time.monotonic() - start


def _serving(folder: Path) -> Row:
    """From the command to the first page of a study."""
    study = folder / "study"
    write_template(study)
    start = time.monotonic()
    with serving(study) as (port, _), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = connection.recv(64)
        wall = time.monotonic() - start
    if b" 200 " not in answer:
        raise RuntimeError(f"Expected the server to be well, got {answer!r}")
    return Row("`study serve`, until it answers", "warm", wall, None, "10 s")


def measure(args: Args, say: Callable[[Row], object] = lambda row: None) -> list[Row]:
    """All waits."""
    repeats = 1 if args.quick else 5
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled files are kept, as where pip installed them
    rows: list[Row] = []

    def add(*found: Row) -> None:
        rows.extend(found)
        for row in found:
            say(row)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        add(_command("`import edpbrl_gym`", "0.2 s", [sys.executable, "-c", "import edpbrl_gym"], repeats, folder))
        help_ = [sys.executable, "-c", PROGRAM, "--help"]
        add(_command("`edpbrl --help`", "0.3 s", help_, repeats, folder))
        for vocabulary in ("posters",) if args.quick else ("posters", "images"):
            add(*_asking(args, vocabulary, folder))
        if not args.quick:
            add(_serving(folder))
            for kind in ("empty", "warm"):
                demo = [sys.executable, "-c", PROGRAM, "demo", "--out", str(folder / f"demo-{kind}")]
                add(_command("`edpbrl demo`", "30 s", demo, 1, folder / "cache-demo", kind))
    return rows


def line_of(row: Row) -> str:
    """A row of the table in Markdown."""
    cpu = "" if row.cpu is None else f"{row.cpu:.2f}"
    return f"| {row.case} | {row.cache} | {row.wall:.2f} | {cpu} | {row.budget} |"


def main(args: Args) -> None:
    """Print the table."""
    print("| wait | cache | wall s | CPU s | budget |\n|---|---|--:|--:|--:|", flush=True)
    measure(args, lambda row: print(line_of(row), flush=True))
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
