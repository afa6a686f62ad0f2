"""Dask clusters on this machine, at 127.0.0.1: of one call, or a scheduler and workers that a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_HTTP = "127.0.0.1:0"  # one without a dashboard, which None would put at a fixed port
_ADDRESSES = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", _HTTP)


@contextmanager
def local_cluster(folder: Path, **options: Any) -> Iterator[Any]:
    """``LocalCluster`` of processes; its scheduler runs in this process."""
    from distributed import LocalCluster

    with LocalCluster(
        processes=True,
        host="127.0.0.1",
        dashboard_address=_HTTP,
        memory_limit=None,
        local_directory=str(folder),
        silence_logs=50,
        **options,
    ) as cluster:
        yield cluster


@dataclass
class Started:
    """A scheduler and workers of one thread, as somebody starts them in a shell.

    Attributes:
        address: Of the scheduler.
        scheduler: Its process.
        workers: Theirs; who dies is not started again.
    """

    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]


@contextmanager
def started_cluster(folder: Path, *, workers: int = 2, allowed_failures: int = 3) -> Iterator[Started]:
    """Start them; kill them at the end.

    Args:
        folder: Where they run.
        workers: How many.
        allowed_failures: Dead workers with which the scheduler does not give a task up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "2",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
    }
    processes: list[subprocess.Popen] = []

    def start(command: str, *arguments: str) -> subprocess.Popen:
        log = open(folder / f"{command}-{len(processes)}.log", "wb")  # noqa: SIM115
        with log:
            program = [sys.executable, "-m", f"distributed.cli.dask_{command}", *_ADDRESSES]
            process = subprocess.Popen([*program, *arguments], cwd=folder, env=variables, stdout=log, stderr=log)
        processes.append(process)
        return process

    try:
        file = folder / "scheduler.json"
        scheduler = start("scheduler", "--port", "0", "--scheduler-file", str(file))
        while not (file.is_file() and file.read_text().endswith("}")):
            assert scheduler.poll() is None, (folder / "scheduler-0.log").read_text()
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        options = ["--no-nanny", "--nthreads", "1", "--local-directory", str(folder)]
        running = [start("worker", address, *options) for _ in range(workers)]
        yield Started(address, scheduler, running)
    finally:
        for process in processes:
            process.kill()
            process.wait()
