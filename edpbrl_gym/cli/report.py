"""``edpbrl report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import output, shown

__all__ = ["Report", "run"]


@dataclass(frozen=True)
class Report:
    """Rebuild every figure and REPORT.md of a run from its results.parquet, or make those of an exported study."""

    run: tyro.conf.Positional[Path]
    """Run folder, or its results.parquet; or a folder of `edpbrl study export`."""
    out: Path | None = None
    """Folder for figures and report (None: the run's own)."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.experiments.registry import experiment_needs

        return experiment_needs("report")


def run(options: Report) -> None:
    """Rebuild figures and report."""
    from edpbrl_gym._files import check_links
    from edpbrl_gym.experiments.registry import get_experiment
    from edpbrl_gym.experiments.runs import read_results
    from edpbrl_gym.study.export_tables import is_export, read_tables

    if is_export(options.run):
        from edpbrl_gym.study.reporting.report import make_report

        report = make_report(read_tables(options.run))
    else:
        results = read_results(options.run)
        report = get_experiment(results.kind).report(results)
    out = options.out or (options.run if options.run.is_dir() else options.run.parent)
    check_links(out, "REPORT.md", "figures")
    console = output()
    for path in report.write(out):
        console.print(f"wrote {shown(path)}", soft_wrap=True)
