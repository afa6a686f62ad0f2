"""``edpbrl``: the command line. Parsing is light; a command imports its dependencies when it runs."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

from edpbrl_gym._compat import check_installed
from edpbrl_gym.cli.console import NamedOutput, printable, printable_logs
from edpbrl_gym.cli.errors import OK, UsageError, bad_arguments, explain, unboxed

__all__ = ["main"]

_DESCRIPTION = """Learn a person's taste in prompts from as few questions as possible.

`edpbrl demo` shows it in a minute; `edpbrl COMMAND --help` lists the options of a command. For all commands:
--debug shows the traceback of an error, --version prints the version. Exit codes: 0 done, 1 failed,
2 wrong arguments, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``edpbrl`` with the given arguments (default: those of the process).

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.
    """
    printable_logs()
    with redirect_stdout(NamedOutput(sys.stdout)):
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
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
    options = getattr(options, "experiment", options)  # that of `reproduce`, `bench` and `study`
    with bad_arguments():
        needs = options.needs()
    check_installed(*needs)
    run: Callable[[Any], None] = import_module(type(options).__module__).run
    run(options)


def _parse(arguments: list[str]) -> Any:
    """Read the arguments; what tyro would print in a box becomes a UsageError."""
    import tyro

    from edpbrl_gym.cli.arguments import RULES
    from edpbrl_gym.cli.commands import commands

    messages = io.StringIO()
    try:
        with redirect_stderr(messages):
            return tyro.cli(
                commands(arguments),
                prog="edpbrl",
                description=_DESCRIPTION,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=RULES,
            )
    except SystemExit:
        if not messages.getvalue():  # the help was printed
            raise
        raise UsageError(unboxed(messages.getvalue())) from None
