"""``edpbrl reproduce reinforce``."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, shown
from edpbrl_gym.cli.errors import bad_arguments

if TYPE_CHECKING:
    from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
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

    quick: bool = False
    """A check that everything works in a few minutes, not a result: few iterations of few trajectories."""
    model: str | None = None
    """Language model that all policies begin at: hub id or folder, such as Gustavosta/MagicPrompt-Stable-Diffusion
    (None: the project's own small model, which ships with it)."""
    num_options: int = 4
    """K, policies and options of a question."""
    recipe: Literal["paper", "tuned"] = "paper"
    """What the options below are where you do not set them: the paper's, or what learnt most on other seeds: copies,
    adamw 0.001, marginal_causal, lambda 10, KL weight 0.015 (docs/reinforce.md)."""
    kind: Literal["adapters", "copies"] | None = None
    """LoRA adapters on one frozen model (None: so, but in the recipe tuned), or K full copies (the paper's)."""
    rank: int = 8
    """Rank of the adapters."""
    noise: float = 0.0
    """Standard deviation of the noise on the weights at the start."""
    iterations: int | None = None
    """Gradient steps (None: 200, quick: 10)."""
    meta_samples: int | None = None
    """M, samples of the objective for a gradient (None: 8, quick: 4)."""
    episodes: int | None = None
    """T, trajectories of a sample (None: 8, quick: 4)."""
    words: int = 8
    """H, words of a prompt."""
    max_tokens: int = 32
    """Most tokens of a prompt, whatever its words."""
    regularization: float | None = None
    """Lambda of the objective (None: 1, tuned: 10)."""
    optimiser: Literal["sgd", "adamw"] | None = None
    """Optimiser of the policies (None: sgd, tuned: adamw)."""
    learning_rate: float | None = None
    """Its step size (None: 0.001)."""
    credit: Literal["batch_mean", "leave_one_out", "moving_average", "marginal", "causal", "marginal_causal"] | None = (
        None
    )
    """Baseline or credit of the gradient (None: batch_mean, tuned: marginal_causal, which varies least)."""
    average_decay: float = 0.9
    """Of the credit moving_average."""
    kl_weight: float | None = None
    """Weight of the divergence from the base model, which keeps prompts readable (None: 0, tuned: 0.015)."""
    max_gradient_norm: float | None = None
    """Shorten gradients to this norm (None: never)."""
    temperature: float = 1.0
    """Of the sampling."""
    evaluate_every: int = 5
    """Iterations between evaluations."""
    evaluation_samples: int | None = None
    """Samples of the objective in an evaluation (None: 16, quick: 4)."""
    checkpoint_every: int = 5
    """Iterations between checkpoints."""
    batch_size: int = 64
    """Most prompts in one forward pass of a language model."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16: mixed precision, on CUDA only."""
    tensorboard: bool = False
    """Write the training's scalars for TensorBoard to OUT/training/tensorboard."""
    questions: tuple[int, ...] | None = None
    """Numbers of questions after which tastes are estimated (None: 24 48 96 192, quick: 24 48)."""
    vocabulary: Path | None = None
    """Token files for the prior, the Random baseline and the judged prompts (None: the built-in ones)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper:
    CLIP ViT-L/14), package.module:Class."""
    device: str | None = None
    """Of the language models (None: cuda where there is one)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Run folder (None: runs/reinforce, or runs/reinforce-quick). A stopped run goes on where it was."""


def run(options: Reinforce) -> None:
    """Run or resume the experiment; print what came out and where the files are."""
    from edpbrl_gym._compat import need
    from edpbrl_gym.experiments.registry import write_report
    from edpbrl_gym.experiments.reinforce.report import findings
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

    def __call__(self, history: TrainingLog) -> None:
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
