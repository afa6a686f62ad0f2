"""All commands and their arguments; light to import, so that --help is fast."""

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
from edpbrl_gym.cli.train_prompt_lm import TrainPromptLM

__all__ = ["commands"]


def commands(quick: bool) -> Any:
    """The type of all commands, for tyro.

    Args:
        quick: Where the user does not set them, arguments are those of the small version of a command.
    """

    def version(command: Any) -> Any:
        return command.small() if quick else command()

    @dataclass(frozen=True)
    class Reproduce:
        """Repeat an experiment of the paper."""

        experiment: OmitArgPrefixes[
            OmitSubcommandPrefixes[
                Annotated[Synthetic, subcommand("synthetic", default=version(Synthetic))]
                | Annotated[Reinforce, subcommand("reinforce")]
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
        | Annotated[Bench, subcommand("bench")]
        | Annotated[TrainPromptLM, subcommand("train-prompt-lm")]
        | Annotated[Report, subcommand("report")]
    )
