"""Processes that die are replaced; a call that kills its process ends the work, after all others."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

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
