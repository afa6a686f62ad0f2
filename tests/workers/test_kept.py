"""Processes that stay: every call is elsewhere, one that dies is replaced, none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from edpbrl_gym.workers import KeptProcesses, WorkersLostError


def where(_):
    return os.getpid()


def die_once(path):
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(_):
    raise ValueError("no")


def test_a_single_call_is_done_elsewhere_by_a_process_that_stays(tmp_path):
    with KeptProcesses() as processes:
        first = list(processes.map_unordered(where, [(1,)], tmp_path))
        assert first != [os.getpid()] and list(processes.map_unordered(where, [(1,), (2,)], tmp_path)) == 2 * first
        with pytest.raises(ValueError, match="no"):
            list(processes.map_unordered(refuse, [(1,)], tmp_path))
        assert list(processes.map_unordered(where, [(1,)], tmp_path)) == first
    with pytest.raises(ValueError, match="count"):
        KeptProcesses(0)


def test_one_that_dies_is_replaced_and_one_that_always_dies_is_said(tmp_path):
    with KeptProcesses(2) as processes:
        assert list(processes.map_unordered(die_once, [(tmp_path / "died",)], tmp_path)) == ["alive"]
        with pytest.raises(WorkersLostError, match="3 times"):
            list(processes.map_unordered(die, [(1,)], tmp_path))
        assert list(processes.map_unordered(die_once, [(tmp_path / "died",)], tmp_path)) == ["alive"]


def test_none_outlives_a_parent_that_is_killed(tmp_path):
    program = (
        "from tests.workers.test_kept import where\nfrom edpbrl_gym.workers import KeptProcesses\n"
        "from pathlib import Path\nimport time\nif __name__ == '__main__':\n"
        "    print(*KeptProcesses().map_unordered(where, [(1,)], Path()), flush=True)\n    time.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True, env=environment
    )
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the child lives on")
