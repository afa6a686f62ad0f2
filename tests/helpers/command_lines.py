"""Command lines that pages and sources write, tried on the parsers of the commands without running them."""

from __future__ import annotations

import argparse
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import tyro

from edpbrl_gym.cli import _parse
from edpbrl_gym.cli.console import UsageError

ROOT = Path(__file__).resolve().parents[2]
_STARTS = re.compile(r"(?:\S*/)?(?:edpbrl|python3?)$")
_OTHERS = {"venv", "sphinx", "cProfile"}  # modules of others
# what is left out
_LACKS = re.compile("^Missing from|^Missing value for argument '--|^Expected one of {|arguments are required")


def commands_of(text: str, *, is_page: bool) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The words of each command of the project in a page or a source, and whether it is complete.

    A line of a block on a page is a complete command; what stands in backticks may leave out what it needs.
    """
    text = re.sub(r"[ \t]*\\\n\s*", " ", text)
    fences = r"^```(?:bash|sh|text)?\n(.*?)^```$"
    blocks = re.findall(fences, text, flags=re.M | re.S) if is_page else []
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S) if is_page else text
    blocks += re.findall(r"^ {4,}(.*)$", rest, flags=re.M) if is_page else []
    for line in "\n".join(blocks).splitlines():
        for words in _split(line.strip()):
            yield words, True
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", rest):
        for words in _split(" ".join(span.split())):
            yield words, False


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of the project on a line of a shell, without settings of the environment before them."""
    if not re.search(r"\b(?:edpbrl|python3?) ", line):
        return
    reader = shlex.shlex(re.sub(r"\$\([^)]*\)", "X", line), posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, "#"
    words: list[str] = []
    try:
        for word in [*reader, "&&"]:
            if not set(word) <= set("|&;<>"):
                words.append(word)
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words and _STARTS.match(words[0]) and words[1:] not in ([], ["..."]):
                yield (words[0].rpartition("/")[2], *words[1:])
            words = []
    except ValueError:  # an apostrophe: it is a sentence
        return


def refusal(words: tuple[str, ...], *, complete: bool) -> str | None:
    """Why a command is refused; None: its parser takes it."""
    said = _edpbrl(list(words[1:])) if words[0] == "edpbrl" else _python(words[1:])
    lacks = said is not None and _LACKS.search(said) and "Unrecognized" not in said
    return None if lacks and not complete else said


def _python(words: tuple[str, ...]) -> str | None:
    if words[0] != "-m":
        return _script(ROOT / words[0], words[1:]) if (ROOT / words[0]).is_file() else f"there is no {words[0]}"
    module = words[1]
    if module == "pytest":
        missing = [word for word in words[2:] if "/" in word and not (ROOT / word.partition("::")[0]).exists()]
        return f"there is no {missing[0]}" if missing else None
    if module in _OTHERS or module.endswith(".NAME"):
        return None
    path = ROOT.joinpath(*module.split("."))
    found = [one for one in (path.with_suffix(".py"), path / "__main__.py") if one.is_file()]
    return _script(found[0], words[2:], module) if found else f"there is no module {module}"


def _edpbrl(arguments: list[str]) -> str | None:
    if arguments == ["--version"]:
        return None
    try:
        _parse(arguments)
    except UsageError as error:
        return str(error)
    except SystemExit:  # the help was asked for
        pass
    return None


class _Parsed(BaseException):
    """The arguments were accepted."""


def _script(path: Path, arguments: tuple[str, ...], module: str | None = None) -> str | None:
    """Run a script until its parser has taken the arguments."""
    if not re.search(r"parse_args\(|tyro\.cli\(|\bparse\(", path.read_text(encoding="utf-8")):
        return f"{path.name} takes no arguments, got {arguments}" if arguments else None

    def stopping(parse):
        def parse_and_stop(*given, **options):
            parse(*given, **options)
            raise _Parsed

        return parse_and_stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stopping(argparse.ArgumentParser.parse_args))
        patch.setattr(tyro, "cli", stopping(tyro.cli))
        patch.setattr(sys, "argv", [str(path), *arguments])
        patch.setattr(sys, "path", [str(path.parent), str(ROOT), *sys.path])
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                if module is None:
                    runpy.run_path(str(path), run_name="__main__")
                else:
                    runpy.run_module(module, run_name="__main__", alter_sys=True)
        except _Parsed:
            return None
        except SystemExit as error:
            return f"{path.name} ends with {error.code}: {said.getvalue()}"
    return f"{path.name} read no arguments"
