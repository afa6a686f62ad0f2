"""The smallest experiment: a few numbers, and files beside the run folder by which a test holds, stops or kills it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.experiments.framework import Experiment, Run
from edpbrl_gym.experiments.runs import write_atomically
from edpbrl_gym.reporting.report import Report

_at_work: list[str] = []


@dataclass(frozen=True)
class TinySettings:
    """Settings.

    Attributes:
        place: Folder of the files: ``wait`` holds units from the third on as long as it is there; ``fail-N`` and
            ``kill-N`` name units that raise, or kill their process, which takes one byte of the file; ``did-PART-PID``
            says who has done what.
        count: Units.
    """

    place: str
    count: int = 6

    def as_config(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TinyUnit:
    number: int

    @property
    def part(self) -> str:
        return f"unit-{self.number}"


class TinyError(Exception):
    """What a unit raises."""


def _plan(settings: TinySettings) -> list[TinyUnit]:
    return [TinyUnit(number) for number in range(settings.count)]


def _write_shared(path: Path, place: str) -> None:
    write_atomically(path, lambda part: part.write_text(str(len(path.stem) / 3)))
    (Path(place) / f"did-{path.stem}-{os.getpid()}").touch()


def _prepare(run: Run, todo: list[TinyUnit]) -> np.ndarray:
    paths = [run.folder.path / "shared" / f"{name}.txt" for name in ("one", "three")]
    run.make_missing("shared", _write_shared, {path: (path, run.settings.place) for path in paths})
    return np.array([float(path.read_text()) for path in paths])


def _run_unit(settings: TinySettings, unit: TinyUnit, folder: Path, prepared: np.ndarray) -> list[dict[str, Any]]:
    assert not _at_work, f"{_at_work} runs in this process at the same time"
    _at_work.append(unit.part)
    try:
        place = Path(settings.place)
        while unit.number >= 2 and (place / "wait").exists():
            time.sleep(0.02)
        time.sleep(0.1)
        if (place / f"fail-{unit.number}").exists():
            raise TinyError(f"unit {unit.number} fails", unit.number)
        kill = place / f"kill-{unit.number}"
        if kill.exists() and kill.read_bytes():
            kill.write_bytes(kill.read_bytes()[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        (place / f"did-{unit.part}-{os.getpid()}").touch()
        matrix = np.random.default_rng(unit.number).standard_normal((200, 200))
        values = np.linalg.svd(matrix @ matrix.T / 3, compute_uv=False)[:3] * prepared.sum()
        return [{"unit": unit.number, "place": place, "value": value} for place, value in enumerate(values)]
    finally:
        _at_work.remove(unit.part)


def _report(results: Any) -> Report:
    return Report("Tiny", [])


TINY = Experiment("tiny", "no command", TinySettings, _plan, _run_unit, _report, prepare=_prepare)
