"""Reading a vocabulary, built in or from a folder of token files, with errors that name file and line."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edpbrl_gym._texts import read_lines
from edpbrl_gym.vocabulary.tokens import fold, normalise, refusal
from edpbrl_gym.vocabulary.vocabulary import Vocabulary

__all__ = ["BUILT_IN", "BuiltIn", "built_in_name", "load_vocabulary"]

_log = logging.getLogger(__name__)
_DATA = Path(__file__).resolve().parent / "data"


class BuiltIn(NamedTuple):
    """Folder of a built-in vocabulary, and the names of its steps in prompt order."""

    folder: Path
    order: tuple[str, ...]


BUILT_IN: dict[str, BuiltIn] = {
    # the paper's order
    "images": BuiltIn(_DATA / "images", ("bases", "ambient", "style", "composition", "lighting", "detail")),
    "interiors": BuiltIn(_DATA / "interiors", ("room", "furnishing", "palette", "style", "light", "detail")),
    "posters": BuiltIn(_DATA / "posters", ("subject", "palette", "composition", "light", "texture", "ornament")),
    "styles": BuiltIn(_DATA / "styles", ("medium", "palette", "light", "mood", "composition", "detail")),
}
"""Name -> vocabulary: "images", any image that a prompt can describe; "interiors", rooms; "posters", which the renderer
"posters" draws; "styles", of any subject."""


def _locate(path: str | os.PathLike[str] | None) -> tuple[Path, tuple[str, ...] | None]:
    """Return the folder that a path or a built-in name stands for, and the order of a built-in vocabulary."""
    if path is None:
        return BUILT_IN["images"]
    if isinstance(path, str) and path in BUILT_IN:
        if any(Path(path).glob("*.txt")):
            _log_folder(path)
        return BUILT_IN[path]
    return Path(path).expanduser(), None


@functools.cache  # once per process, although every environment asks
def _log_folder(name: str) -> None:
    _log.warning("Took the built-in vocabulary %r, not the folder %s; write ./%s for the folder", name, name, name)


def _read_tokens(path: Path) -> tuple[str, ...]:
    lines = [normalise(line) for line in read_lines(path)]
    if not any(line.strip() for line in lines):
        raise ValueError(f"Expected at least one token in {path}, got an empty file; write one token per line")
    first_seen: dict[str, int] = {}
    tokens = []
    for number, line in enumerate(lines, start=1):
        problem = refusal(line.replace("\t", " "))
        if problem is not None:
            raise ValueError(f"Expected a readable token at {path}, line {number}, got {problem}")
        token = " ".join(line.split())
        if not fold(token):
            raise ValueError(f"Expected a token at {path}, line {number}, got an empty line; remove it")
        folded = fold(token)
        if folded in first_seen:
            raise ValueError(
                f"Expected distinct tokens in {path}, got {token!r} at line {number} and already at line "
                f"{first_seen[folded]} (case, spaces and what can't be seen folded); remove one of the lines"
            )
        first_seen[folded] = number
        tokens.append(token)
    return tuple(tokens)


def _step_name(name: str) -> str:
    """Return the name without its ending .txt, composed: some file systems decompose accents."""
    return normalise(name[:-4] if name.lower().endswith(".txt") else name)


@functools.cache  # once per process, although every environment reads the folder
def _log_ignored(folder: Path, names: tuple[str, ...]) -> None:
    _log.warning(
        "Ignored in %s: %s; every step of a prompt is a file whose name ends in .txt", folder, ", ".join(names)
    )


def _token_files(folder: Path) -> dict[str, Path]:
    """Return the token files of a folder by the names of their steps; other files are named in the log.

    Raises:
        FileNotFoundError: There is no token file, or a link is broken.
        ValueError: There are two files for one step.
    """
    files: dict[str, Path] = {}
    ignored = []
    for file in sorted(folder.iterdir()):
        if file.name.startswith("."):
            continue
        if file.suffix.lower() == ".txt" and not file.exists():
            raise FileNotFoundError(
                f"Expected a file of tokens at {file}, got a link to {os.readlink(file)}, which isn't there; mend or "
                "remove the link"
            )
        if file.suffix.lower() != ".txt" or not file.is_file():
            kind = " (a folder)" if file.is_dir() else "" if file.is_file() else " (not a regular file)"
            ignored.append(f"{file.name!a}{kind}")
            continue
        step = _step_name(file.name)
        if step in files:
            raise ValueError(
                f"Expected one file for the step {step!r} in {folder}, got {files[step].name!a} and {file.name!a}; "
                "rename one"
            )
        files[step] = file
    if not files:
        other_names = ", ".join(ignored) or "none"
        raise FileNotFoundError(
            f"Expected at least one .txt file in {folder}, got {other_names}; write one file per prompt step, one "
            "token per line"
        )
    if ignored:
        _log_ignored(folder, tuple(ignored))
    return files


def _ordered_names(folder: Path, files: dict[str, Path], order: Sequence[str] | None) -> list[str]:
    if order is None:
        return sorted(files)
    if isinstance(order, str):
        raise TypeError(f"Expected order as a list of file names, got the string {order!r}; write [{order!r}, ...]")
    names = [_step_name(str(name)) for name in order]
    present = ", ".join(sorted(files))
    for name in names:
        if name not in files:
            raise ValueError(f"Expected order to name files of {folder} ({present}), got {name!r}; no {name}.txt there")
        if names.count(name) > 1:
            raise ValueError(f"Expected every file once in order, got {name!r} {names.count(name)} times")
    left_out = sorted(set(files) - set(names))
    if left_out:
        raise ValueError(
            f"Expected order to name every file of {folder}, got no {', '.join(left_out)}; "
            f"add it to order or move {', '.join(f'{name}.txt' for name in left_out)} out of the folder"
        )
    return names


def load_vocabulary(path: str | os.PathLike[str] | None = None, order: Sequence[str] | None = None) -> Vocabulary:
    """Return a built-in vocabulary, or that of a folder: one ``.txt`` file per prompt step, one token per line.

    Names that begin with a dot are ignored; other files are named in the log. Unicode is composed (NFC), spaces around
    a token are trimmed and runs of white space become one space. A file must not contain a token twice (composition,
    case and spaces folded); two files may.

    Args:
        path: "images" (5,159 tokens; also None), "interiors" (408 tokens about rooms), "posters" (97 tokens, each of
            which changes the pictures of the renderer "posters"), "styles" (306 everyday words, without a subject: see
            ``Vocabulary.with_subject``), or the folder. A built-in name wins over a folder of that name in the current
            directory: "./interiors" or ``Path("interiors")`` is the folder.
        order: File names, with or without ``.txt``, in prompt order. None: alphabetical; for a built-in vocabulary
            its own order (``BUILT_IN[name].order``; for "images" the paper's).

    Raises:
        FileNotFoundError: The folder is missing, has no ``.txt`` file, or contains a broken link.
        NotADirectoryError: ``path`` is a file.
        ValueError: An empty path or file, a line that is no token, a repeated token, bytes that are no Unicode text,
            two files for one step, or an order that does not name each file once. The message names file and line.
    """
    known = ", ".join(BUILT_IN)
    if path is not None and not os.fspath(path):
        raise ValueError(
            f"Expected a folder of .txt files, got an empty path; leave it out or name a built-in one ({known})"
        )
    folder, own_order = _locate(path)
    if not folder.exists():
        raise FileNotFoundError(
            f"Expected a folder of .txt files at {folder}, got nothing there; check the path, or give a built-in "
            f"name ({known}) in place of a path"
        )
    if not folder.is_dir():
        raise NotADirectoryError(f"Expected a folder of .txt files, got the file {folder}; give the folder around it")
    files = _token_files(folder)
    names = _ordered_names(folder, files, own_order if order is None else order)
    return Vocabulary(tuple(names), tuple(_read_tokens(files[name]) for name in names))


def built_in_name(vocabulary: Vocabulary) -> str | None:
    """The name of the built-in vocabulary with these steps and tokens; None for any other."""
    for name, built_in in BUILT_IN.items():
        if built_in.order == vocabulary.names and load_vocabulary(name) == vocabulary:
            return name
    return None
