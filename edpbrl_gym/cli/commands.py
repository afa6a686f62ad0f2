"""All commands and their arguments; light to import, so that --help is fast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from edpbrl_gym.cli.ask import Ask
from edpbrl_gym.cli.bench import Bench
from edpbrl_gym.cli.bench_communities import BenchCommunities
from edpbrl_gym.cli.bench_people import BenchPeople
from edpbrl_gym.cli.demo import Demo
from edpbrl_gym.cli.design import Design
from edpbrl_gym.cli.encode import Encode
from edpbrl_gym.cli.estimate import Estimate
from edpbrl_gym.cli.fit_population import FitPopulation
from edpbrl_gym.cli.llm import LLM
from edpbrl_gym.cli.personalize import Personalize
from edpbrl_gym.cli.reinforce import Reinforce
from edpbrl_gym.cli.render import Render
from edpbrl_gym.cli.report import Report
from edpbrl_gym.cli.study import StudyCheck, StudyDelete, StudyExport, StudyInit
from edpbrl_gym.cli.study_replay import StudyReplay
from edpbrl_gym.cli.study_report import StudyReport
from edpbrl_gym.cli.study_serve import StudyServe
from edpbrl_gym.cli.synthetic import Synthetic
from edpbrl_gym.cli.train_mini_diffusion import TrainMiniDiffusion
from edpbrl_gym.cli.train_prompt_lm import TrainPromptLM

__all__ = ["commands"]


def commands(arguments: Sequence[str]) -> Any:
    """The type of all commands, for tyro.

    Args:
        arguments: Of the command line; ``--quick`` and ``--recipe`` among them decide what the defaults are.
    """
    quick = "--quick" in arguments
    recipe: Any = "tuned" if _value("--recipe", arguments) == "tuned" else "paper"  # tyro refuses other names

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

    @dataclass(frozen=True)
    class Benchmark:
        """Compare who asks and who estimates: simulated users, and real people's answers replayed."""

        experiment: OmitArgPrefixes[
            OmitSubcommandPrefixes[
                Annotated[
                    Bench,
                    subcommand(
                        "efficiency",
                        default=Bench.preset("efficiency", quick=quick),
                        description="How many questions are needed in prompt MDPs (up to 360), and what each component "
                        "buys; simulated users.",
                    ),
                ]
                | Annotated[
                    Bench,
                    subcommand(
                        "comparison",
                        default=Bench.preset("comparison", quick=quick),
                        description="All planners, on pools of items too, with up to 60 questions; simulated users.",
                    ),
                ]
                | Annotated[
                    Bench,
                    subcommand(
                        "first-answers",
                        default=Bench.preset("first-answers", quick=quick),
                        description="What a person's first answers about complete prompts teach, in two vocabularies; "
                        "simulated users.",
                    ),
                ]
                | Annotated[BenchPeople, subcommand("people")]
                | Annotated[BenchCommunities, subcommand("communities", default=BenchCommunities.preset(quick=quick))]
            ]
        ]

    @dataclass(frozen=True)
    class Study:
        """Ask many people: a web study."""

        experiment: OmitArgPrefixes[
            OmitSubcommandPrefixes[
                Annotated[StudyInit, subcommand("init")]
                | Annotated[StudyCheck, subcommand("check")]
                | Annotated[StudyServe, subcommand("serve")]
                | Annotated[StudyExport, subcommand("export")]
                | Annotated[StudyReport, subcommand("report")]
                | Annotated[StudyReplay, subcommand("replay")]
                | Annotated[StudyDelete, subcommand("delete")]
            ]
        ]

    return (
        Annotated[Demo, subcommand("demo")]
        | Annotated[Ask, subcommand("ask")]
        | Annotated[Design, subcommand("design")]
        | Annotated[Estimate, subcommand("estimate")]
        | Annotated[FitPopulation, subcommand("fit-population")]
        | Annotated[Personalize, subcommand("personalize")]
        | Annotated[Render, subcommand("render")]
        | Annotated[Encode, subcommand("encode")]
        | Annotated[Study, subcommand("study")]
        | Annotated[Reproduce, subcommand("reproduce")]
        | Annotated[Benchmark, subcommand("bench")]
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
