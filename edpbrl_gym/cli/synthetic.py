"""``edpbrl reproduce synthetic``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edpbrl_gym.cli.arguments import CriterionName
from edpbrl_gym.cli.console import output, quiet_libraries, shown, track
from edpbrl_gym.cli.errors import UsageError, bad_arguments

__all__ = ["Synthetic", "run"]


@dataclass(frozen=True)
class Synthetic:
    """Users whose taste is a sentence's embedding: designed against random questions. The defaults are the paper's."""

    quick: bool = False
    """A small version in about 3 minutes on 2 cores: T = 10, 40, 110 and 8 runs where you do not set them."""
    episodes: tuple[int, ...] = (10, 30, 50, 70, 90, 110)
    """The T at which estimates are judged."""
    runs: int = 25
    """Independent repeats."""
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    """Who asks, the baseline last: name or package.module:Class[,option=value...], as frank_wolfe,criterion=D."""
    users: tuple[str, ...] = ("sunny", "medieval", "technological")
    """The paper's users by name, or your own as name=sentence."""
    modes: tuple[Literal["argmax", "sampled"], ...] = ("argmax", "sampled")
    """Users take the best option, or sample from the softmax (the paper does not say which)."""
    scales: tuple[float, ...] = (1.0, 20.0)
    """Inverse temperatures of the sampled mode; 1 is nearly uniform, at 20 about 6 in 10 answers are the best."""
    num_options: int = 4
    """K, options of a question."""
    criterion: CriterionName = "V"
    """What the designs optimise."""
    regularization: float = 100.0
    """Lambda of the designs."""
    estimation_regularization: float | None = None
    """Lambda of the estimates (None: that of the designs)."""
    iterations: int = 100
    """Frank-Wolfe iterations at most."""
    design_for: Literal["each", "largest"] = "each"
    """A design for each T, as its objective has T in it, or one for the largest T, whose first episodes serve all."""
    feedback: Literal["truncated", "state"] = "truncated"
    """Compare partial prompts, or single tokens."""
    prompts: int = 1000
    """Held-out prompts of the preference error."""
    pairs: int = 5000
    """Pairs of them."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper:
    CLIP ViT-L/14), package.module:Class."""
    tokens_per_step: int | None = None
    """Use at most so many train tokens of every step (None: all)."""
    seed: int = 0
    """Seed of everything."""
    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it."""
    out: Path | None = None
    """Run folder (None: runs/synthetic, or runs/synthetic-quick). A stopped run goes on where it was."""


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
