"""Dask clusters on this machine, at 127.0.0.1: of one call, or a scheduler and workers that a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_HTTP = "127.0.0.1:0"  # one without a dashboard, which None would put at a fixed port
_ADDRESSES = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", _HTTP)
WITHOUT_OUR_PACKAGE = "import sys\nsys.modules['edpbrl_gym'] = None\n"


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
        scheduler: Its process. It can't import edpbrl_gym.
        workers: Theirs; who dies is not started again.
        start_worker: Starts another one, which is added to ``workers``.
    """

    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]
    start_worker: Callable[[], None]

    def living(self) -> list[int]:
        """Process numbers of the workers that live."""
        return [worker.pid for worker in list(self.workers) if worker.poll() is None]


@contextmanager
def started_cluster(
    folder: Path, *, workers: int = 2, allowed_failures: int = 3, more: Sequence[str] = ()
) -> Iterator[Started]:
    """Start them; kill them at the end.

    Args:
        folder: Where they run.
        workers: How many.
        allowed_failures: Dead workers with which the scheduler does not give a task up.
        more: Arguments of the workers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    block = folder / "without.py"
    block.write_text(WITHOUT_OUR_PACKAGE)
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
        scheduler = start("scheduler", "--port", "0", "--scheduler-file", str(file), "--preload", str(block))
        while not (file.is_file() and file.read_text().endswith("}")):
            assert scheduler.poll() is None, (folder / "scheduler-0.log").read_text()
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        options = ["--no-nanny", "--nthreads", "1", "--local-directory", str(folder), *more]
        running = [start("worker", address, *options) for _ in range(workers)]
        yield Started(address, scheduler, running, lambda: running.append(start("worker", address, *options)))
    finally:
        for process in processes:
            process.kill()
            process.wait()
