"""All experiments, by the kind of their run folders."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym._compat import Need

if TYPE_CHECKING:
    from edpbrl_gym.experiments.framework import Experiment
    from edpbrl_gym.experiments.runs import Results

__all__ = ["EXPERIMENTS", "experiment_needs", "get_experiment", "write_report"]

EXPERIMENTS: dict[str, str] = {
    "synthetic": "edpbrl_gym.experiments.synthetic:SYNTHETIC",
    "demo": "edpbrl_gym.experiments.demo:DEMO",
    "reinforce": "edpbrl_gym.experiments.reinforce.run:REINFORCE",
    "llm": "edpbrl_gym.experiments.llm.run:LLM",
}
"""Kind, as in a run's config.json and results.parquet, and the import string of its ``Experiment``."""


def experiment_needs(command: str) -> list[Need]:
    """What every experiment needs for its tables and figures; the command is named in messages."""
    return [Need(package, f"`edpbrl {command}`") for package in ("pandas", "matplotlib")]


def get_experiment(kind: str) -> Experiment:
    """Return the experiment of that kind."""
    if kind not in EXPERIMENTS:
        from edpbrl_gym.experiments.runs import RunFolderError

        raise RunFolderError(
            f"Expected results of one of {', '.join(EXPERIMENTS)}, got {kind!r}; use a newer edpbrl-gym, or "
            "`python -m benchmarks.NAME` in its repository for a benchmark"
        )
    module, _, name = EXPERIMENTS[kind].partition(":")
    experiment: Experiment = getattr(importlib.import_module(module), name)
    return experiment


def write_report(results: Results, folder: str | os.PathLike[str]) -> list[Path]:
    """Write every figure and REPORT.md of a run, from its results alone, as ``Report.write``."""
    return get_experiment(results.kind).report(results).write(folder)
