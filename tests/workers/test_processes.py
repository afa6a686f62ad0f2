"""Processes that die are replaced, a call that kills its process ends the work; each worker has a device of its own."""

import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from edpbrl_gym import _devices
from edpbrl_gym._devices import claim, own_device
from edpbrl_gym.experiments.framework import run_experiment
from edpbrl_gym.workers import LocalProcesses, WorkersLostError, processes
from tests.helpers.tiny_units import TINY, TinyError, TinySettings


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "place").mkdir()
    return TinySettings(str(tmp_path / "place"))


def test_processes_that_die_lose_nothing(settings, tmp_path):
    expected = run_experiment(TINY, settings, tmp_path / "alone", jobs=1).table
    for number in (1, 4):
        (Path(settings.place) / f"kill-{number}").write_bytes(b"x")
    results = run_experiment(TINY, settings, tmp_path / "run", jobs=2)
    assert all(not (Path(settings.place) / f"kill-{number}").read_bytes() for number in (1, 4))
    pandas.testing.assert_frame_equal(results.table, expected, check_exact=True)


def test_a_unit_that_always_kills_its_process_ends_the_run_after_all_others(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LOSSES", 4)
    (Path(settings.place) / "kill-1").write_bytes(b"x" * 100)
    with pytest.raises(WorkersLostError, match="died 4 times in a row.*enough memory"):
        run_experiment(TINY, settings, tmp_path / "run", jobs=2)
    parts = {path.stem for path in (tmp_path / "run" / "parts").glob("*.parquet")}
    assert parts == {f"unit-{number}" for number in (0, 2, 3, 4, 5)}


def test_an_exception_of_a_call_is_raised_here(settings, tmp_path):
    (Path(settings.place) / "fail-2").touch()
    with pytest.raises(TinyError, match="unit 2 fails"):
        run_experiment(TINY, settings, tmp_path / "run", jobs=LocalProcesses(2))


OTHER = """
import sys
from edpbrl_gym._devices import claim
print(claim(["one", "two"]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(_devices.tempfile, "tempdir", None)
    monkeypatch.setattr(_devices, "_claimed", {})


def test_workers_take_different_devices_and_leave_them_when_they_die(own_folder):
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "0\n"
        with pytest.raises(RuntimeError, match=r"Expected a free GPU of .*, other workers have all 1"):
            claim(["one"])
        assert claim(["one", "two"]) == 1
        assert claim(["one", "two"]) == 1  # the one it has
        other.kill()
    assert claim(["one"]) == 0


def test_a_device_that_is_named_is_shared():
    assert [own_device(name) for name in ("cpu", "cuda:0", "mps")] == ["cpu", "cuda:0", "mps"]
