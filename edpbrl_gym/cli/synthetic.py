"""``edpbrl reproduce synthetic``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import output, quiet_libraries, show_files, track
from edpbrl_gym.experiments.settings import QUICK, SyntheticSettings

__all__ = ["Synthetic", "run"]


@dataclass(frozen=True)
class Synthetic:
    """Users whose taste is a sentence's embedding: designed against random questions. The defaults are the paper's."""

    settings: OmitArgPrefixes[SyntheticSettings] = field(default_factory=SyntheticSettings)
    quick: bool = False
    """A small version in about 3 minutes on 2 cores: T = 10, 40, 110 and 8 runs where you do not set them."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/synthetic, or runs/synthetic-quick). A stopped run resumes."""

    @classmethod
    def small(cls) -> Synthetic:
        """The defaults with --quick."""
        return cls(SyntheticSettings(**QUICK))

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.agents.registry import agent_needs
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        return [
            *encoder_needs(self.settings.encoder),
            *experiment_needs("reproduce synthetic"),
            *(need for agent in self.settings.parsed_agents for need in agent_needs(agent.name)),
            *self.workers.needs(),
        ]


def run(options: Synthetic) -> None:
    """Run or resume the experiment; print the table, the verdict and where the files are."""
    from edpbrl_gym.experiments.framework import run_experiment
    from edpbrl_gym.experiments.registry import write_report
    from edpbrl_gym.experiments.sections import design_lines
    from edpbrl_gym.experiments.synthetic import SYNTHETIC
    from edpbrl_gym.experiments.synthetic_report import setting_line, verdict
    from edpbrl_gym.reporting.statistics import mean_over

    start = time.monotonic()
    settings = options.settings
    out = options.out or Path("runs/synthetic-quick" if options.quick else "runs/synthetic")
    quiet_libraries()
    with options.workers.executor() as executor:
        results = run_experiment(SYNTHETIC, settings, out, jobs=executor, track=track, progress=True)
    files = write_report(results, out)
    console = output()
    console.print()
    console.print(_table(results))
    console.print(f"{mean_over(settings.runs, 'run').capitalize()}; {setting_line(results)}")
    console.print("\nWho won where", style="bold")
    for sentence in verdict(results.table, results.config):
        console.print(f"  {sentence}")
    warned = [line for line in design_lines(results) if line.startswith("  warning")]
    if warned:
        console.print(f"\nWarnings of the designs: {len(warned)}, all in REPORT.md; the last:", style="bold")
        console.print(warned[-1])
    show_files(files, start)


def _table(results: Any) -> Any:
    """Errors at the smallest and the largest T; the lower of a row in bold."""
    from rich.table import Table
    from rich.text import Text

    from edpbrl_gym.experiments.settings import UserSettings, agent_labels
    from edpbrl_gym.experiments.synthetic_report import METRICS, curves
    from edpbrl_gym.reporting.statistics import plus_minus

    agents = agent_labels(results.config)
    summary = curves(results.table)
    ends = sorted({int(summary["episodes"].min()), int(summary["episodes"].max())})
    table = Table(title="Errors of the estimated taste (lower is better)", title_justify="left")
    for column in ("user", "answers", "metric", "T"):
        table.add_column(column, justify="right" if column == "T" else "left")
    for agent in agents:
        table.add_column(agent, justify="right")
    for (user, mode, scale), cell in summary.groupby(["user", "mode", "scale"], sort=False):
        for metric, name in METRICS.items():
            for episodes in ends:
                rows = cell[cell["episodes"] == episodes].set_index("agent").loc[agents]
                means = rows[f"{metric}_mean"].to_numpy(dtype=float)
                errors = rows[f"{metric}_sem"].to_numpy(dtype=float)
                texts = [plus_minus(mean, error, ".3f") for mean, error in zip(means, errors, strict=True)]
                best = int(means.argmin())
                cells = [Text(text, style="bold" if place == best else "") for place, text in enumerate(texts)]
                table.add_row(str(user), UserSettings(mode, scale).label, name, str(episodes), *cells)
        table.add_section()
    return table
