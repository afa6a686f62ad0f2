"""``edpbrl reproduce reinforce``."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, shown
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.cli.options import Reinforce

if TYPE_CHECKING:
    from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
    from edpbrl_gym.language.history import History

__all__ = ["run"]

_STAGES = {
    "similarity": "how alike the prompts of different policies are",
    "map": "a map of the prompts",
    "perplexity": "how likely the prompts are under the base model",
    "tastes": "what simulated users' answers teach",
}


def run(options: Reinforce) -> None:
    """Run or resume the experiment; print what came out and where the files are."""
    from edpbrl_gym._compat import need
    from edpbrl_gym.experiments.reinforce.report import findings, write_report
    from edpbrl_gym.experiments.reinforce.run import run_reinforce
    from edpbrl_gym.language.divergence import CollapseWarning

    begun = time.monotonic()
    with bad_arguments():
        settings = _settings(options)
    if settings.kind == "adapters":
        need("peft", "adapters on a language model", "language")
    if options.tensorboard:
        need("tensorboard", "--tensorboard", "language")
    out = options.out or Path("runs/reinforce-quick" if options.quick else "runs/reinforce")
    quiet_libraries()
    console = output()
    with _training(settings.training.iterations) as progress:

        def say(step: str) -> None:
            if step in _STAGES:
                progress.stop()
                console.print(f"Measuring {_STAGES[step]} ...")

        accelerator = _accelerator()
        warnings.simplefilter("ignore", CollapseWarning)  # the findings say it
        results = run_reinforce(
            settings,
            out,
            device=options.device if accelerator is None else str(accelerator.device),
            accelerator=accelerator,
            tensorboard=options.tensorboard,
            callback=progress,
            say=say,
        )
    if results is None:  # another process reports
        return
    files = write_report(results, out)
    console.print()
    for line in findings(results):
        console.print(f"- {line}")
    _prompts(console, results)
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def _settings(options: Reinforce) -> ReinforceExperiment:
    """The settings; what the user leaves open is the recipe's, or that of the quick version."""
    from edpbrl_gym.experiments.reinforce.settings import QUICK, TUNED, ReinforceExperiment
    from edpbrl_gym.language.settings import ReinforceSettings

    quick: dict[str, Any] = QUICK if options.quick else {}
    recipe: dict[str, Any] = TUNED if options.recipe == "tuned" else {}
    training: dict[str, Any] = recipe.get("training", {}) | quick.get("training", {})
    for field in fields(ReinforceSettings):
        value = getattr(options, field.name)
        if value is not None:
            training[field.name] = value
    more = {name: value for name, value in quick.items() if name != "training"}
    if options.questions is not None:
        more["counts"] = options.questions
    return ReinforceExperiment(
        training=ReinforceSettings(**training),
        model=options.model,
        num_options=options.num_options,
        kind=options.kind or recipe.get("kind", "adapters"),
        rank=options.rank,
        noise=options.noise,
        encoder=options.encoder,
        vocabulary=None if options.vocabulary is None else str(options.vocabulary),
        **more,
    )


def _accelerator() -> Any:
    """One of several processes that a launcher has started; None for a process of its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from edpbrl_gym._compat import require

    return require("accelerate", "several processes", 'pip install "edpbrl-gym[language]"').Accelerator()


class _Bar:
    """Called with the history after every iteration and evaluation; shows both on stderr."""

    def __init__(self, progress: Any, iterations: int) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=iterations, told="")

    def __call__(self, history: History) -> None:
        told = ""
        if history.evaluations and history.base is not None:
            last = history.evaluations[-1]
            told = f"objective {last.mean:.2f} after {last.iteration}, base model {history.base.mean:.2f}"
        self._progress.update(self._task, completed=len(history.iterations), told=told)

    def stop(self) -> None:
        """Leave the terminal to what follows; may be called again."""
        self._progress.stop()


@contextmanager
def _training(iterations: int) -> Iterator[_Bar]:
    from rich.progress import TextColumn

    with progress_bars(TextColumn("{task.fields[told]}", markup=False)) as progress:
        yield _Bar(progress, iterations)


def _prompts(console: Any, results: Any) -> None:
    """A few prompts of every policy, before and after."""
    rows = results.table[results.table["part"] == "map"]
    count = int(results.config["shown_prompts"])
    for arm, title in (("base", "Prompts of the base model"), ("trained", "Prompts of the trained policies")):
        console.print(f"\n{title}", style="bold")
        for policy, cell in rows[rows["arm"] == arm].groupby("policy", sort=True):
            for text in cell["prompt"].head(count if arm == "trained" else 2):
                console.print(f"  {int(policy) + 1}  {text}")
