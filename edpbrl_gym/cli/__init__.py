"""``edpbrl``: all commands, the rules by which their arguments are read, and the errors of all as one line.

Parsing is light; a command imports its dependencies when it runs.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from edpbrl_gym._compat import check_installed
from edpbrl_gym.cli.ask import Ask
from edpbrl_gym.cli.console import (
    OK,
    NamedOutput,
    UsageError,
    bad_arguments,
    explain,
    printable,
    printable_logs,
    unboxed,
)
from edpbrl_gym.cli.demo import Demo
from edpbrl_gym.cli.design import Design
from edpbrl_gym.cli.encode import Encode
from edpbrl_gym.cli.estimate import Estimate
from edpbrl_gym.cli.fit_population import FitPopulation
from edpbrl_gym.cli.llm import LLM
from edpbrl_gym.cli.personalize import Personalize
from edpbrl_gym.cli.rank import Rank
from edpbrl_gym.cli.reinforce import Reinforce
from edpbrl_gym.cli.render import Render
from edpbrl_gym.cli.report import Report
from edpbrl_gym.cli.study import StudyCheck, StudyDelete, StudyExport, StudyInit, StudyReport
from edpbrl_gym.cli.study_doctor import StudyDoctor
from edpbrl_gym.cli.study_draw import StudyDraw
from edpbrl_gym.cli.study_power import StudyPower
from edpbrl_gym.cli.study_preregister import StudyPreregister
from edpbrl_gym.cli.study_replay import StudyReplay
from edpbrl_gym.cli.study_serve import StudyServe
from edpbrl_gym.cli.synthetic import Synthetic

__all__ = ["RULES", "main"]

_DESCRIPTION = """Learn a person's taste in prompts from as few questions as possible.

`edpbrl demo` shows it in a minute; `edpbrl COMMAND --help` lists the options of a command. For all commands:
--debug shows the traceback of an error, --version prints the version. Exit codes: 0 done, 1 failed,
2 wrong arguments, 130 interrupted."""

_PRESETS = {
    "reproduce synthetic": {"--quick": "--episodes 10 40 110 --runs 8"},
    "reproduce reinforce": {
        "--recipe tuned": "--kind copies --optimiser adamw --learning-rate 0.001 --credit marginal_causal "
        "--regularization 10 --kl-weight 0.015",
        "--quick": "--iterations 10 --meta-samples 4 --episodes 4 --evaluation-samples 4 --map-prompts 25 --repeats 3 "
        "--questions 24 48 --taste-seeds 2 --prompts 200 --pairs 1000",
    },
}
"""Command -> an option -> the options that it stands for, where they are not given."""

_RENAMED = {
    "render": {"--model": "--renderer"},
    "personalize": {"--model": "--renderer", "--pictures": "--draw"},
    "reproduce llm": {"--render-model": "--renderer"},
}
"""Command -> an option that has another name now -> that name."""

RULES = tyro.constructors.ConstructorRegistry()
"""How arguments of some types are read, for tyro."""


@dataclass(frozen=True)
class Reproduce:
    """Repeat an experiment of the paper."""

    experiment: OmitArgPrefixes[
        OmitSubcommandPrefixes[
            Annotated[Synthetic, subcommand("synthetic")]
            | Annotated[Reinforce, subcommand("reinforce")]
            | Annotated[LLM, subcommand("llm")]
        ]
    ]


@dataclass(frozen=True)
class Study:
    """Ask many people: a web study."""

    experiment: OmitArgPrefixes[
        OmitSubcommandPrefixes[
            Annotated[StudyInit, subcommand("init")]
            | Annotated[StudyCheck, subcommand("check")]
            | Annotated[StudyPower, subcommand("power")]
            | Annotated[StudyPreregister, subcommand("preregister")]
            | Annotated[StudyDraw, subcommand("draw")]
            | Annotated[StudyServe, subcommand("serve")]
            | Annotated[StudyExport, subcommand("export")]
            | Annotated[StudyReport, subcommand("report")]
            | Annotated[StudyDoctor, subcommand("doctor")]
            | Annotated[StudyReplay, subcommand("replay")]
            | Annotated[StudyDelete, subcommand("delete")]
        ]
    ]


@dataclass(frozen=True)
class Commands:
    """All commands."""

    experiment: Annotated[
        OmitArgPrefixes[
            OmitSubcommandPrefixes[
                Annotated[Demo, subcommand("demo")]
                | Annotated[Ask, subcommand("ask")]
                | Annotated[Design, subcommand("design")]
                | Annotated[Estimate, subcommand("estimate")]
                | Annotated[FitPopulation, subcommand("fit-population")]
                | Annotated[Personalize, subcommand("personalize")]
                | Annotated[Rank, subcommand("rank")]
                | Annotated[Render, subcommand("render")]
                | Annotated[Encode, subcommand("encode")]
                | Annotated[Study, subcommand("study")]
                | Annotated[Reproduce, subcommand("reproduce")]
                | Annotated[Report, subcommand("report")]
            ]
        ],
        tyro.conf.arg(help="What to do."),  # given, so that tyro does not look for it in the source
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``edpbrl`` with the given arguments (default: those of the process).

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.
    """
    printable_logs()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    with redirect_stdout(NamedOutput(sys.stdout)):
        try:
            _run(arguments)
            sys.stdout.flush()  # so that a full disk is reported here, not when the interpreter exits
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
            return explain(error)
    return OK


def _run(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        from edpbrl_gym import __version__

        print(f"edpbrl {__version__}")
        return
    try:
        options = _parse(arguments or ["--help"])
    except SystemExit:  # tyro has printed the help
        return
    with bad_arguments():
        needs = options.needs()
    check_installed(*needs)
    run: Callable[[Any], None] = import_module(type(options).__module__).run
    run(options)


def _parse(arguments: list[str]) -> Any:
    """The options of the command in the arguments; what tyro would print in a box becomes a UsageError."""
    for command, renamed in _RENAMED.items():
        for name in (argument.partition("=")[0] for argument in arguments):
            if f"{' '.join(arguments)} ".startswith(f"{command} ") and name in renamed:
                raise UsageError(f"Expected {renamed[name]}, the name of {name} of {command} now; write it so")
    messages = io.StringIO()
    try:
        with redirect_stderr(messages):
            options: Any = tyro.cli(
                Commands,
                prog="edpbrl",
                description=_DESCRIPTION,
                args=_with_presets(arguments),
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=RULES,
            )
    except SystemExit:
        if not messages.getvalue():  # the help was printed
            raise
        raise UsageError(unboxed(messages.getvalue())) from None
    while hasattr(options, "experiment"):  # commands are below `edpbrl`, and some below another command
        options = options.experiment
    return options


def _with_presets(arguments: Sequence[str]) -> list[str]:
    """The arguments with what --quick and --recipe stand for before all others, which win."""
    name, options = list(arguments[:2]), list(arguments[2:])
    given = " ".join(options).replace("=", " ").split()
    preset: list[str] = []
    for option, words in _PRESETS.get(" ".join(name), {}).items():
        first, *value = option.split()
        if first in given and given[given.index(first) + 1 :][: len(value)] == value:
            preset += words.split()
    return [*name, *preset, *options]


@RULES.primitive_rule
def _path(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Paths as tyro reads them, except the empty one: ``Path("")`` would silently be the current folder."""
    optional = info.type == (Path | None)
    if info.type is not Path and not optional:
        return None

    def read(arguments: list[str]) -> Path | None:
        if optional and arguments[0] == "None":
            return None
        if not arguments[0]:
            raise ValueError("an empty path; leave the option out for its default, or write . for the current folder")
        return Path(arguments[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{None}|PATH" if optional else "PATH",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Path) or (optional and value is None),
        str_from_instance=lambda value: [str(value)],
    )


@RULES.primitive_rule
def _named_texts(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Texts by name as ``name=text``; a name alone gets an empty text, which the settings may replace."""
    if info.type != Mapping[str, str]:
        return None

    def read(arguments: list[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for argument in arguments:
            if argument.partition("=")[0] in texts:
                raise ValueError(f"every name once, got {argument!r}")
            name, equals, texts[name] = argument.partition("=")
            if equals and not texts[name].strip():
                raise ValueError(f"a text after {name}=, got none")
        return texts

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME[=TEXT] ...",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: list(value),
    )
