"""All commands and their arguments; light to import, so that --help is fast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from edpbrl_gym.cli.bench import Bench
from edpbrl_gym.cli.demo import Demo
from edpbrl_gym.cli.design import Design
from edpbrl_gym.cli.estimate import Estimate
from edpbrl_gym.cli.llm import LLM
from edpbrl_gym.cli.personalize import Personalize
from edpbrl_gym.cli.reinforce import Reinforce
from edpbrl_gym.cli.render import Render
from edpbrl_gym.cli.report import Report
from edpbrl_gym.cli.synthetic import Synthetic
from edpbrl_gym.cli.train_mini_diffusion import TrainMiniDiffusion
from edpbrl_gym.cli.train_prompt_lm import TrainPromptLM

__all__ = ["commands"]


def commands(arguments: Sequence[str]) -> Any:
    """The type of all commands, for tyro.

    Args:
        arguments: Of the command line; ``--quick``, ``--recipe`` and the study of ``bench`` among them decide what the
            defaults are.
    """
    quick = "--quick" in arguments
    recipe: Any = "tuned" if _value("--recipe", arguments) == "tuned" else "paper"  # tyro refuses other names
    study: Any = next((name for name in ("comparison", "first-answers") if name in arguments), "efficiency")

    @dataclass(frozen=True)
    class Reproduce:
        """Repeat an experiment of the paper."""

        experiment: OmitArgPrefixes[
            OmitSubcommandPrefixes[
                Annotated[Synthetic, subcommand("synthetic", default=Synthetic.small() if quick else Synthetic())]
                | Annotated[Reinforce, subcommand("reinforce", default=Reinforce.preset(recipe, quick=quick))]
                | Annotated[LLM, subcommand("llm")]
            ]
        ]

    return (
        Annotated[Demo, subcommand("demo")]
        | Annotated[Design, subcommand("design")]
        | Annotated[Estimate, subcommand("estimate")]
        | Annotated[Personalize, subcommand("personalize")]
        | Annotated[Render, subcommand("render")]
        | Annotated[Reproduce, subcommand("reproduce")]
        | Annotated[Bench, subcommand("bench", default=Bench.preset(study, quick=quick))]
        | Annotated[TrainPromptLM, subcommand("train-prompt-lm")]
        | Annotated[TrainMiniDiffusion, subcommand("train-mini-diffusion")]
        | Annotated[Report, subcommand("report")]
    )


def _value(option: str, arguments: Sequence[str]) -> str | None:
    """The last value of ``option VALUE`` or ``option=VALUE``; None where there is none."""
    value = None
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if argument.partition("=")[0] == option:
            value = argument.partition("=")[2] if "=" in argument else following
    return value
