"""``edpbrl reproduce reinforce``."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, show_files
from edpbrl_gym.experiments.reinforce.settings import Recipe, ReinforceExperiment

if TYPE_CHECKING:
    from edpbrl_gym.language.training_log import TrainingLog

__all__ = ["Reinforce", "run"]

_STAGES = {
    "similarity": "how alike the prompts of different policies are",
    "map": "a map of the prompts",
    "perplexity": "how likely the prompts are under the base model",
    "tastes": "what simulated users' answers teach",
}


@dataclass(frozen=True)
class Reinforce:
    """Language models as query policies, trained by REINFORCE, without a vocabulary. Sizes are the paper's.

    Several GPUs: accelerate launch --num_processes N -m edpbrl_gym.cli reproduce reinforce.
    """

    settings: OmitArgPrefixes[ReinforceExperiment] = field(default_factory=ReinforceExperiment)
    quick: bool = False
    """A check that everything works in a few minutes, not a result: few iterations of few trajectories where you do not
    set them."""
    recipe: Recipe = "paper"
    """Options where you do not set them: the paper's, or what learnt most on other seeds: copies, adamw 0.001,
    marginal_causal, lambda 10, KL weight 0.015 (docs/reinforce.md)."""
    tensorboard: bool = False
    """Write the training's scalars for TensorBoard to OUT/training/tensorboard."""
    device: str | None = None
    """Torch device of the language models (None: cuda where there is one)."""
    out: Path | None = None
    """Run folder (None: runs/reinforce, or runs/reinforce-quick). A stopped run resumes."""

    @classmethod
    def preset(cls, recipe: Recipe, *, quick: bool) -> Reinforce:
        """What the defaults are with --recipe and --quick."""
        return cls(ReinforceExperiment.preset(recipe, quick=quick), recipe=recipe)

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        models = ("torch", "transformers", "tokenizers")
        return [
            *(Need(package, "language models") for package in models),
            *encoder_needs(self.settings.encoder),
            *experiment_needs("reproduce reinforce"),
            Need("sklearn", "the map of the prompts", "experiments"),
            *([Need("peft", "adapters on a language model")] if self.settings.kind == "adapters" else []),
            *([Need("tensorboard", "--tensorboard")] if self.tensorboard else []),
        ]


def run(options: Reinforce) -> None:
    """Run or resume the experiment; print the findings and the paths of the files."""
    from edpbrl_gym.experiments.registry import write_report
    from edpbrl_gym.experiments.reinforce.report import findings
    from edpbrl_gym.experiments.reinforce.run import run_reinforce
    from edpbrl_gym.language.divergence import CollapseWarning

    start = time.monotonic()
    settings = options.settings
    out = options.out or Path("runs/reinforce-quick" if options.quick else "runs/reinforce")
    quiet_libraries()
    console = output()
    with _training(settings.training.iterations) as progress:

        def say(step: str) -> None:
            if step in _STAGES:
                progress.stop()
                console.print(f"Measuring {_STAGES[step]} ...")

        accelerator = _accelerator()
        warnings.simplefilter("ignore", CollapseWarning)  # it is among the findings
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
    show_files(files, start)


def _accelerator() -> Any:
    """The accelerator of a process started by a launcher; None for a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from edpbrl_gym._compat import require

    return require("accelerate", "several processes").Accelerator()


class _Bar:
    """Called with the history after every iteration and evaluation; shows both on stderr."""

    def __init__(self, progress: Any, iterations: int) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=iterations, evaluation="")

    def __call__(self, history: TrainingLog) -> None:
        evaluation = ""
        if history.evaluations and history.base is not None:
            last = history.evaluations[-1]
            evaluation = f"objective {last.mean:.2f} after {last.iteration}, base model {history.base.mean:.2f}"
        self._progress.update(self._task, completed=len(history.iterations), evaluation=evaluation)

    def stop(self) -> None:
        """Release the terminal; may be called again."""
        self._progress.stop()


@contextmanager
def _training(iterations: int) -> Iterator[_Bar]:
    from rich.progress import TextColumn

    with progress_bars(TextColumn("{task.fields[evaluation]}", markup=False)) as progress:
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
