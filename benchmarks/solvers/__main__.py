"""Command line of the solver benchmark: run, report, worker (used by run)."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.solvers import results, suites, vocabularies

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("performance.md", "solver-measurements.md")
RESULTS = ROOT / "benchmarks" / "results" / "solvers.jsonl"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_GRACE = 600.0  # seconds over a run's own limit before its process is ended


def main(arguments: list[str] | None = None) -> int:
    """Parse and dispatch; returns the exit code."""
    if (sys.argv[1:] if arguments is None else arguments)[:1] == ["worker"]:
        from benchmarks.solvers import worker

        worker.main((sys.argv[1:] if arguments is None else arguments)[1])
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what the results file does not hold yet")
    run.add_argument("--suite", choices=tuple(suites.SUITES), default="default")
    run.add_argument("--quick", action="store_const", dest="suite", const="quick", help="a smoke test: --suite quick")
    run.add_argument("--time-limit", type=float, help="seconds for each solver other than newton")
    run.add_argument("--only", default="", help="only runs whose 'case solver' matches this regular expression")
    run.add_argument("--again", default="$^", help="run again what matches this regular expression")
    run.add_argument("--folder", type=Path, default=vocabularies.default_folder(), help="where features are kept")
    run.add_argument("--list", action="store_true", help="say what would run")
    report = commands.add_parser("report", help="tables from the results")
    report.add_argument("--page", type=Path, nargs="+", default=[ROOT / "docs" / name for name in PAGES])
    for command in (run, report):
        command.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        return run_all(given)
    from benchmarks.solvers import report as reporting

    for page in given.page:
        reporting.write(given.results, page)
    return 0


def run_all(given: argparse.Namespace) -> int:
    """Run the missing runs of a suite one after the other; returns 1 if one failed."""
    finished = {key for key, line in results.read(given.results).items() if line["status"] != "failed"}
    todo = []
    for run in suites.suite(given.suite, given.time_limit):
        name = f"{run.case.name} {run.solver}"
        repeated = re.search(given.again, name)
        if re.search(given.only, name) and (repeated or results.key(run.case.settings(), run.solver) not in finished):
            todo.append((name, run))
    print(f"{len(todo)} runs; results in {given.results}, features in {given.folder}", flush=True)
    failures = 0
    begun = time.perf_counter()
    for number, (name, run) in enumerate(todo, start=1):
        if given.list:
            print(name)
            continue
        prepare(run, given.folder)
        line = run_one(run, given.folder)
        results.append(given.results, line)
        failures += line["status"] == "failed"
        elapsed = time.perf_counter() - begun
        print(f"[{number}/{len(todo)}, {elapsed:.0f} s] {name}: {in_words(line)}", flush=True)
    return 1 if failures else 0


def prepare(run: suites.Run, folder: Path) -> None:
    """Make the features in a process of their own, so that no run pays for it in time or memory."""
    case = run.case
    file = vocabularies.features_file(case.source, case.tokens, case.dimension, case.seed, folder)
    if file.exists():
        return
    call = (
        f"prepare({case.source!r}, {case.tokens}, {case.dimension}, {case.split}, {case.seed}, Path({str(folder)!r}))"
    )
    code = f"from pathlib import Path; from benchmarks.solvers.vocabularies import prepare; {call}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=_environment(), check=True)


def run_one(run: suites.Run, folder: Path) -> results.Line:
    """One run in a fresh process; a crash or an endless run becomes a line with the status "failed"."""
    order = run.order(str(folder))
    line = {"case": order["case"], "solver": run.solver, "status": "failed"}
    command = [sys.executable, "-m", "benchmarks.solvers", "worker", json.dumps(order)]
    limit = run.time_limit + _GRACE
    try:
        done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return line | {"message": f"ended after {limit:g} s"}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return line | {"message": last[0]}
    return json.loads(done.stdout.splitlines()[-1]) | {"versions": versions()}


def in_words(line: results.Line) -> str:
    """A line of the results for the terminal."""
    if "seconds" not in line:
        return f"{line['status']}: {line['message']}"
    return (
        f"{line['status']}, {line['seconds']:.3g} s = {line['seconds'] / line['yardstick_least']:.3g} Phi G, gap "
        f"{line['certified_gap']:.1e}, {line['iterations']} iterations, "
        f"{(line['memory'] - line['memory_before']) / line['feature_bytes']:.2f} x features"
    )


def versions() -> dict[str, str]:
    """What a result depends on: the commit, and the packages that do the arithmetic."""
    from importlib.metadata import version

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    found = {name: version(name) for name in ("numpy", "scipy", "torch")}
    return found | {"commit": commit.stdout.strip() or "unknown", "date": time.strftime("%Y-%m-%d %H:%M")}


def _environment() -> dict[str, str]:
    return os.environ | dict.fromkeys(_THREADS, "1")


if __name__ == "__main__":
    sys.exit(main())
