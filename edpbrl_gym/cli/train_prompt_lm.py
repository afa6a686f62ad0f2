"""``edpbrl train-prompt-lm``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import command, output, quiet_libraries, shown
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.cli.training import training_into

__all__ = ["TrainPromptLM", "run"]


@dataclass(frozen=True)
class TrainPromptLM:
    """Train a small language model of prompts on a vocabulary; without options, the one of the package."""

    quick: bool = False
    """A much smaller one in half a minute: 50 tokens of each step in place of 250, a sixth of the parameters."""
    prompts: int | None = None
    """Training prompts, composed from the vocabulary (None: 72000, quick: 12000)."""
    steps: int | None = None
    """Optimiser steps (None: one pass over the prompts)."""
    vocabulary: str | None = None
    """Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical order (None:
    images)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Folder of the model, for `--model` (None: prompt-lm, or prompt-lm-quick)."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        packages = ("torch", "transformers", "tokenizers")
        return [Need(package, "training a language model") for package in packages]


def run(options: TrainPromptLM) -> None:
    """Train the prompt language model, write its folder, and print its figures and samples.

    Raises:
        Stopped: After Ctrl-C; nothing is written.
    """
    from edpbrl_gym._validation import check_count, check_path
    from edpbrl_gym.vocabulary import load_vocabulary

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        check_count(options.seed, "--seed", minimum=0)
        for name in ("prompts", "steps"):
            if getattr(options, name) is not None:
                check_count(getattr(options, name), f"--{name}")
    vocabulary = load_vocabulary(options.vocabulary)
    folder = (options.out or Path("prompt-lm-quick" if options.quick else "prompt-lm")).expanduser()
    quiet_libraries()
    from edpbrl_gym.language.folders import check_replaceable
    from edpbrl_gym.language.training import DEFAULT, QUICK, train_prompt_lm

    settings = QUICK if options.quick else DEFAULT
    changes = {"prompts": options.prompts, "steps": options.steps}
    settings = replace(settings, **{name: value for name, value in changes.items() if value is not None})
    with training_into(folder, check_replaceable):
        report = train_prompt_lm(folder, vocabulary=vocabulary, seed=options.seed, settings=settings, progress=True)
    console = output()
    console.print(report.summary())
    console.print("\nPrompts drawn from it, not chosen:")
    for text in report.samples:
        console.print(f"  {text}", soft_wrap=True)
    console.print(f"\nWritten: {shown(folder)}", soft_wrap=True)
    use = command("edpbrl", "reproduce", "reinforce", "--model", shown(folder))
    console.print(f"Use it with: {use}", soft_wrap=True)
