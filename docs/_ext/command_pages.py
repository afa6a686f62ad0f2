"""The page of the command line: what ``--help`` prints for every command."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping

__all__ = ["help_of", "pages"]


def pages() -> Mapping[str, str | bytes]:
    """The page of all commands."""
    text = [
        "# The command line\n",
        "What `--help` prints. `edpbrl --version` prints the version; `--debug` shows the traceback of an error.\n",
    ]
    text += [f"## edpbrl\n\n```text\n{help_of([])}\n```\n"]
    for command in subcommands([]):
        inner = subcommands([command])
        text.append(f"## edpbrl {command}\n\n```text\n{help_of([command])}\n```\n")
        text += [f"### edpbrl {command} {name}\n\n```text\n{help_of([command, name])}\n```\n" for name in inner]
    return {"commands.md": "\n".join(text)}


def help_of(command: list[str]) -> str:
    """What ``edpbrl COMMAND --help`` prints, without colours, 100 columns wide."""
    from edpbrl_gym.cli import main

    kept = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            main([*command, "--help"])
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def subcommands(command: list[str]) -> list[str]:
    """The commands that a help text lists."""
    match = re.search(r"\{([\w,-]+)\}", help_of(command).partition("options ─")[0])
    return match[1].split(",") if match else []
