"""The arguments of every command; light to import, so that --help is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from edpbrl_gym.cli.options.bench import Bench
from edpbrl_gym.cli.options.llm import LLM
from edpbrl_gym.cli.options.main import Demo, Design, Estimate, Report
from edpbrl_gym.cli.options.personalize import Personalize
from edpbrl_gym.cli.options.render import Render
from edpbrl_gym.cli.options.reproduce import Reinforce, Synthetic, TrainPromptLM

__all__ = [
    "LLM",
    "Bench",
    "Command",
    "Demo",
    "Design",
    "Estimate",
    "Personalize",
    "Reinforce",
    "Render",
    "Report",
    "Reproduce",
    "Synthetic",
    "TrainPromptLM",
]


@dataclass(frozen=True)
class Reproduce:
    """Repeat an experiment of the paper."""

    experiment: tyro.conf.OmitArgPrefixes[
        tyro.conf.OmitSubcommandPrefixes[
            Annotated[Synthetic, tyro.conf.subcommand("synthetic")]
            | Annotated[Reinforce, tyro.conf.subcommand("reinforce")]
            | Annotated[LLM, tyro.conf.subcommand("llm")]
        ]
    ]


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Design, tyro.conf.subcommand("design")]
    | Annotated[Estimate, tyro.conf.subcommand("estimate")]
    | Annotated[Personalize, tyro.conf.subcommand("personalize")]
    | Annotated[Render, tyro.conf.subcommand("render")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[TrainPromptLM, tyro.conf.subcommand("train-prompt-lm")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)
