"""``edpbrl reproduce synthetic``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from edpbrl_gym.cli.console import output, quiet_libraries, shown, track
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.options import Synthetic

__all__ = ["run"]


def run(options: Synthetic) -> None:
    """Run or resume the experiment; print the table, the verdict and where the files are."""
    from edpbrl_gym.experiments.kinds import write_report
    from edpbrl_gym.experiments.plus_minus import mean_over
    from edpbrl_gym.experiments.report import design_lines, setting_line
    from edpbrl_gym.experiments.summary import verdict
    from edpbrl_gym.experiments.synthetic import run_synthetic

    begun = time.monotonic()
    with bad_arguments():
        settings = _settings(options)
        if options.jobs is not None and options.jobs < 1:
            raise UsageError(f"Expected --jobs >= 1, got {options.jobs}")
    out = options.out or Path("runs/synthetic-quick" if options.quick else "runs/synthetic")
    quiet_libraries()
    results = run_synthetic(settings, out, jobs=options.jobs, track=track, progress=True)
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
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def _settings(options: Synthetic) -> Any:
    from edpbrl_gym.experiments.settings import PAPER_USERS, QUICK, SyntheticSettings

    episodes, runs = options.episodes, options.runs
    if options.quick:  # only where the user has said nothing else
        episodes = QUICK["episodes"] if episodes == Synthetic.episodes else episodes
        runs = QUICK["runs"] if runs == Synthetic.runs else runs
    users: dict[str, str] = {}
    for text in options.users:
        name, equals, sentence = text.partition("=")
        if not equals and name not in PAPER_USERS:
            raise UsageError(f"Expected users among {', '.join(PAPER_USERS)} or as name=sentence, got {text!r}")
        users[name] = sentence if equals else PAPER_USERS[name]
        if not users[name].strip():
            raise UsageError(f"Expected a sentence after {name}=, got none")
    return SyntheticSettings(
        episodes=episodes,
        runs=runs,
        agents=options.agents,
        users=users,
        modes=options.modes,
        scales=options.scales,
        num_options=options.num_options,
        criterion=options.criterion,
        regularization=options.regularization,
        estimation_regularization=options.estimation_regularization,
        iterations=options.iterations,
        design_for=options.design_for,
        feedback=options.feedback,
        prompts=options.prompts,
        pairs=options.pairs,
        vocabulary=None if options.vocabulary is None else str(options.vocabulary),
        encoder=options.encoder,
        tokens_per_step=options.tokens_per_step,
        seed=options.seed,
    )


def _table(results: Any) -> Any:
    """Errors at the smallest and the largest T; the lower of a row in bold."""
    from rich.table import Table
    from rich.text import Text

    from edpbrl_gym.experiments.plus_minus import plus_minus
    from edpbrl_gym.experiments.settings import UserSettings
    from edpbrl_gym.experiments.summary import METRICS, agent_labels, curves

    agents = agent_labels(results.config)
    found = curves(results.table)
    ends = sorted({int(found["episodes"].min()), int(found["episodes"].max())})
    table = Table(title="Errors of the estimated taste (lower is better)", title_justify="left")
    for column in ("user", "answers", "metric", "T"):
        table.add_column(column, justify="right" if column == "T" else "left")
    for agent in agents:
        table.add_column(agent, justify="right")
    for (user, mode, scale), cell in found.groupby(["user", "mode", "scale"], sort=False):
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
