"""Reading a vocabulary from a folder of token files, with errors that name file and line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edpbrl_gym.vocabulary.vocabulary import Vocabulary, fold

__all__ = ["BUILT_IN_FOLDER", "BUILT_IN_ORDER", "load_vocabulary"]

BUILT_IN_FOLDER = Path(__file__).resolve().parent / "data"
BUILT_IN_ORDER = ("bases", "ambient", "style", "composition", "lighting", "detail")  # the paper's order


def _read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"Expected UTF-8 text in {path}, got byte 0x{data[error.start]:02x} at line {line}; save the file as UTF-8"
        ) from None
    # not splitlines(): it also breaks at characters that are no line ends for an editor
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens of one file, one per line, with spaces trimmed and runs of white space made one space."""
    lines = _read_lines(path)
    if not any(line.strip() for line in lines):
        raise ValueError(f"Expected at least one token in {path}, got an empty file; write one token per line")
    first_seen: dict[str, int] = {}
    tokens = []
    for number, line in enumerate(lines, start=1):
        token = " ".join(line.split())
        if not token:
            raise ValueError(f"Expected a token at {path}, line {number}, got an empty line; remove it")
        folded = fold(token)
        if folded in first_seen:
            raise ValueError(
                f"Expected distinct tokens in {path}, got {token!r} at line {number} and already at line "
                f"{first_seen[folded]} (case and spaces folded); remove one of the lines"
            )
        first_seen[folded] = number
        tokens.append(token)
    return tuple(tokens)


def _ordered_names(folder: Path, files: dict[str, Path], order: Sequence[str] | None) -> list[str]:
    if order is None:
        return sorted(files)
    if isinstance(order, str):
        raise TypeError(f"Expected order as a list of file names, got the string {order!r}; write [{order!r}, ...]")
    names = [str(name).removesuffix(".txt") for name in order]
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
    """Return the vocabulary of a folder: one ``.txt`` file per prompt step, one token per line.

    H is the number of ``.txt`` files directly in the folder; names that begin with a dot are ignored. Spaces around
    a token are trimmed and runs of white space become one space; a newline at the end of the file is fine. One file
    must not hold a token twice (case and spaces folded). Two files may hold the same token: as an action of two
    steps it has two feature rows. The built-in files share no token.

    Args:
        path: the folder; None for the built-in vocabulary.
        order: the file names, with or without ``.txt``, in prompt order. None: alphabetical; for the built-in
            vocabulary the paper's order (bases, ambient, style, composition, lighting, detail).

    Raises:
        FileNotFoundError: the folder is missing or holds no ``.txt`` file.
        NotADirectoryError: ``path`` is a file.
        ValueError: an empty file, an empty line, a repeated token, bytes that are not UTF-8, or an order that names
            a missing file, repeats one or leaves one out. The message names file and line.
    """
    folder = BUILT_IN_FOLDER if path is None else Path(path).expanduser()
    if path is None and order is None:
        order = BUILT_IN_ORDER
    if not folder.exists():
        raise FileNotFoundError(f"Expected a folder of .txt files at {folder}, got nothing there; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(f"Expected a folder of .txt files, got the file {folder}; give the folder around it")
    files = {
        file.name.removesuffix(".txt"): file
        for file in folder.iterdir()
        if file.suffix == ".txt" and file.is_file() and not file.name.startswith(".")
    }
    if not files:
        raise FileNotFoundError(
            f"Expected at least one .txt file in {folder}, got none; write one file per prompt step, one token per line"
        )
    names = _ordered_names(folder, files, order)
    return Vocabulary(tuple(names), tuple(_read_tokens(files[name]) for name in names))
