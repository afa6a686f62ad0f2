"""Errors as one line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edpbrl_gym.cli.console import STANDARD_OUTPUT, printable

__all__ = [
    "BAD_ARGUMENTS",
    "FAILURE",
    "INTERRUPTED",
    "OK",
    "Stopped",
    "UsageError",
    "bad_arguments",
    "explain",
    "unboxed",
]

OK, FAILURE, BAD_ARGUMENTS, INTERRUPTED = 0, 1, 2, 130

_FULL = "; free some space there, or choose another place"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: "; choose a place that can be written",
}

# errors of our own code and of the system whose message is meant for the user
_EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError)


class UsageError(ValueError):
    """An argument of the command line is wrong."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C ended the work early; the message names the results written so far and their place."""


@contextmanager
def bad_arguments() -> Iterator[None]:
    """Turn errors of checks of the command's arguments into a UsageError."""
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(_message(error)) from error


def explain(error: BaseException) -> int:
    """Print an error as one line to stderr; return the exit code."""
    if isinstance(error, Stopped):
        print(f"edpbrl: {printable(str(error))}", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, KeyboardInterrupt):
        print("edpbrl: interrupted; the same command resumes a run with --out", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, OSError):
        _drop(sys.stdout)
    if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
        return FAILURE  # the reader, such as head, has closed the pipe
    text = " ".join(_message(error).split()) or type(error).__name__
    if not isinstance(error, _EXPECTED):
        text = f"{type(error).__name__}: {text}; this looks like a bug, run again with --debug and report it"
    print(f"edpbrl: error: {printable(text)}", file=sys.stderr)
    return BAD_ARGUMENTS if isinstance(error, UsageError) else FAILURE


def _message(error: BaseException) -> str:
    """Message of an error; that of the system starts with the file and ends with advice."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    place = "a file that the system did not name" if error.filename is None else error.filename
    names = [os.fsdecode(name) for name in (place, error.filename2) if name is not None and not isinstance(name, int)]
    return f"{' -> '.join(names)}: {error.strerror}{_ADVICE.get(error.errno, '')}"


def _drop(stream: Any) -> None:
    """Drop the buffer of a stream that can't be written, or the interpreter's exit would fail too."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def unboxed(text: str) -> str:
    """Return the text of a box of the argument parser as one line, without its title and frame."""
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        words = line.strip("\u2502 ")
        if words.startswith(("\u256d", "\u2570")):  # the corners of the frame
            continue
        if re.fullmatch("[-\u2500]{5,}", words):
            paragraphs.append([])
        elif words:
            paragraphs[-1].append(words)
    if len(paragraphs) > 1 and "\u256d" not in text:  # a frame in ASCII has no corners: the first row is the title
        paragraphs[0] = paragraphs[0][1:]
    line = "; ".join(" ".join(lines).rstrip(".") for lines in paragraphs if lines)
    return re.sub(r"^Error parsing \S+: ", "", line)  # the location in our classes does not help users
