"""``edpbrl train-mini-diffusion``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import output, quiet_libraries, shown
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.cli.training import training_into

__all__ = ["TrainMiniDiffusion", "run"]


@dataclass(frozen=True)
class TrainMiniDiffusion:
    """Train a small diffusion model of handwritten digits; without options, the one of the package."""

    quick: bool = False
    """An eighth of the steps: digits that are hard to read, in half a minute."""
    steps: int | None = None
    """Optimiser steps (None: 1200, quick: 150)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Folder of the model (None: mini-diffusion, or mini-diffusion-quick)."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        packages = ("diffusers", "torch", "sklearn")
        return [Need(package, "training a diffusion model", "images") for package in packages]


def run(options: TrainMiniDiffusion) -> None:
    """Train the diffusion model, write its folder, and print its figures.

    Raises:
        Stopped: After Ctrl-C; nothing is written.
    """
    from edpbrl_gym._validation import check_count

    with bad_arguments():
        check_count(options.seed, "--seed", minimum=0)
        if options.steps is not None:
            check_count(options.steps, "--steps")
    folder = (options.out or Path("mini-diffusion-quick" if options.quick else "mini-diffusion")).expanduser()
    quiet_libraries()
    from edpbrl_gym.diffusion.digits import DEFAULT, FOLDERS, QUICK, train_mini_diffusion

    settings = QUICK if options.quick else DEFAULT
    if options.steps is not None:
        settings = replace(settings, steps=options.steps)
    with training_into(folder, FOLDERS.check_replaceable):
        report = train_mini_diffusion(folder, seed=options.seed, settings=settings, progress=True)
    console = output()
    console.print(report.summary())
    console.print(f"\nWritten: {shown(folder)}", soft_wrap=True)
    console.print(
        f'Use it with: gymnasium.make("edpbrl/DiffusionGuidance-v0", model="{shown(folder)}")',
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
