"""``edpbrl reproduce reinforce``."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, show_report
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment

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
    """Language models as query policies, trained by REINFORCE, without a vocabulary. Sizes are the paper's."""

    settings: OmitArgPrefixes[ReinforceExperiment] = field(default_factory=ReinforceExperiment)
    quick: bool = False
    """A check that everything works in a few minutes, not a result: few iterations of few trajectories where you do not
    set them."""
    recipe: Literal["paper", "tuned"] = "paper"
    """Options where you do not set them: the paper's, or what learnt most on other seeds: copies, adamw 0.001,
    marginal_causal, lambda 10, KL weight 0.015 (docs/reinforce.md)."""
    tensorboard: bool = False
    """Write the training's scalars for TensorBoard to OUT/training/tensorboard."""
    device: str | None = None
    """Torch device of the language models (None: cuda where there is one)."""
    out: Path | None = None
    """Run folder (None: runs/reinforce, or runs/reinforce-quick). A stopped run resumes."""

    def needs(self) -> list[Need]:
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
    """Run or resume the experiment."""
    from rich.progress import TextColumn

    from edpbrl_gym.experiments.reinforce.report import make_report
    from edpbrl_gym.experiments.reinforce.run import run_reinforce
    from edpbrl_gym.language.training_log import CollapseWarning

    start = time.monotonic()
    settings = options.settings
    out = options.out or Path("runs/reinforce-quick" if options.quick else "runs/reinforce")
    quiet_libraries()
    console = output()
    with progress_bars(TextColumn("{task.fields[evaluation]}", markup=False)) as progress:
        task = progress.add_task("training", total=settings.training.iterations, evaluation="")

        def show(history: TrainingLog) -> None:
            evaluation = ""
            if history.evaluations and history.base is not None:
                last = history.evaluations[-1]
                evaluation = f"objective {last.mean:.2f} after {last.iteration}, base model {history.base.mean:.2f}"
            progress.update(task, completed=len(history.iterations), evaluation=evaluation)

        def say(step: str) -> None:
            if step in _STAGES:
                progress.stop()
                console.print(f"Measuring {_STAGES[step]} ...")

        warnings.simplefilter("ignore", CollapseWarning)  # it is among the findings
        results = run_reinforce(
            settings, out, device=options.device, tensorboard=options.tensorboard, callback=show, say=say
        )
    show_report(make_report(results), out, start)
