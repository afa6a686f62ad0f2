"""Kill a command of the command line in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def kill_when_two_parts_are_done(
    arguments: Sequence[str], out: Path, pattern: str = "parts/*.parquet"
) -> dict[str, int]:
    """Run ``edpbrl ARGUMENTS`` in a process group of its own, kill -9 the group, return its parts' times by name."""
    program = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while len(list(out.glob(pattern))) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return part_times(out, pattern)


def part_times(out: Path, pattern: str = "parts/*.parquet") -> dict[str, int]:
    """When each part was written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob(pattern)}
