"""``edpbrl report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from edpbrl_gym.cli.console import output, shown

__all__ = ["Report", "run"]


@dataclass(frozen=True)
class Report:
    """Rebuild every figure and REPORT.md of a run from its results.parquet."""

    run: tyro.conf.Positional[Path]
    """Run folder, or its results.parquet."""
    out: Path | None = None
    """Folder for figures and report (None: the run's own)."""


def run(options: Report) -> None:
    """Rebuild figures and report."""
    from edpbrl_gym._files import check_links
    from edpbrl_gym.experiments.registry import write_report
    from edpbrl_gym.experiments.runs import read_results

    results = read_results(options.run)
    out = options.out or (options.run if options.run.is_dir() else options.run.parent)
    check_links(out, "REPORT.md", "figures")
    console = output()
    for path in write_report(results, out):
        console.print(f"wrote {shown(path)}", soft_wrap=True)
