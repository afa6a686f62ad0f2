"""Pictures that exist: a folder of them, each with a text of its own, and the renderer that finds them by it.

The texts are those of a table beside the pictures (CSV, TSV or parquet with a column of files and one of prompts), or
else the names of the files. ``edpbrl_gym.pictures`` makes a pool of the same texts.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edpbrl_gym._pictures import ENDINGS, LONGEST, file_within, read_picture
from edpbrl_gym.comparisons.layouts import plain_name
from edpbrl_gym.comparisons.tables import column_names, is_table, read_table
from edpbrl_gym.features.base import hash_file, hash_settings
from edpbrl_gym.rendering.base import Drawn, NotDrawn, Renderer
from edpbrl_gym.vocabulary.tokens import fold, normalise, refusal

__all__ = ["FolderRenderer", "NamedPictures", "label", "name_pictures", "told"]

_FILE = ("file", "filename", "filepath", "image", "imagepath", "imagefile", "imagefilename", "path", "picture", "img")
_TEXT = ("prompt", "text", "caption", "description")
_READABLE = ", ".join(ENDINGS)
_LEVEL = 3  # of compression: photographs get hardly smaller by more, and it takes three times as long
_SHORT = 600  # characters of a prompt before the name of its file


@dataclass(frozen=True)
class NamedPictures:
    """The files of a folder that may be pictures, none of them opened yet.

    Attributes:
        folder: The folder.
        files: Text -> its file; no two texts are equal once case, spaces and what can't be seen are folded.
        left_out: Every other file, relative to the folder -> why it has no text.
        prompts: Prompt of a table, folded -> the texts of its files, of which there may be several.
    """

    folder: Path
    files: dict[str, Path]
    left_out: dict[str, str]
    prompts: dict[str, list[str]]


def name_pictures(place: str | os.PathLike[str]) -> NamedPictures:
    """Give each picture of a folder and its sub-folders a text; hidden files are ignored.

    Args:
        place: The folder, or a table of its files and their prompts, relative to the folder of the table. In a folder
            such a table is found by its columns. Without one, the text of a picture is its name.

    Raises:
        FileNotFoundError: There is no such folder or table.
        ValueError: Several such tables, or a damaged one.
    """
    path = Path(place).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"Expected a folder of pictures at {path}, found nothing; check the path")
    folder = path if path.is_dir() else path.parent
    left_out: dict[str, str] = {}
    table = _table(path, left_out)
    found = _files(folder, left_out, table)
    rows = [(_readable_name(one), one) for one in found] if table is None else _rows(table, folder, found, left_out)
    kept: list[tuple[str, Path]] = []
    for text, file in rows:
        problem = refusal(text) if fold(text) else "nothing that can be read"
        if problem is None:
            kept.append((text, file))
        else:
            what = "name" if table is None else "prompt"
            left_out[label(folder, file)] = f"its {what} can't be read: {_printable(problem)}"
    texts = _distinct(kept, folder)
    prompts: dict[str, list[str]] = {}
    for (text, _), name in zip(kept, texts, strict=True):
        prompts.setdefault(fold(text), []).append(name)
    return NamedPictures(folder, dict(zip(texts, (file for _, file in kept), strict=True)), left_out, prompts)


def _printable(text: str) -> str:
    """A text that every terminal and file takes."""
    return os.fsencode(text).decode("utf-8", "replace")


def label(folder: Path, file: Path) -> str:
    """The path of a file relative to the folder, as every terminal and file takes it."""
    return _printable(file.relative_to(folder).as_posix())


def _readable_name(file: Path) -> str:
    return " ".join(normalise(file.stem).replace("_", " ").split())


def _columns(header: Sequence[str]) -> tuple[str, str] | None:
    """The columns of files and prompts."""
    plain = {plain_name(name): name for name in reversed(header)}
    file, text = (next((plain[one] for one in names if one in plain), None) for names in (_FILE, _TEXT))
    return None if file is None or text is None else (file, text)


def _table(path: Path, left_out: dict[str, str]) -> Path | None:
    """The table of a folder, if it has one, or the table that was given."""
    if not path.is_dir():
        if not is_table(path) or _columns(column_names(path)) is None:
            raise ValueError(
                f"Expected a folder of pictures, or a table (.csv, .tsv or .parquet) with a column file and a column "
                f"prompt, got {path}"
            )
        return path
    tables = []
    for one in sorted(path.iterdir()):
        if one.is_file() and is_table(one) and not one.name.startswith("."):
            try:
                if _columns(column_names(one)) is not None:
                    tables.append(one)
                    continue
                left_out[label(path, one)] = "a table without the columns file and prompt"
            except (ValueError, OSError) as error:
                left_out[label(path, one)] = f"a table that can't be read ({_printable(str(error))})"
    if len(tables) > 1:
        raise ValueError(
            f"Expected one table of files and prompts in {path}, got {', '.join(one.name for one in tables)}; give the "
            f"table in place of the folder, such as {tables[0]}"
        )
    return tables[0] if tables else None


def _files(folder: Path, left_out: dict[str, str], table: Path | None) -> list[Path]:
    """The files that may be pictures by their names, in the order of their names."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in folders:
            inner = Path(place, name)
            if inner.is_symlink():  # which os.walk does not follow
                left_out[label(folder, inner)] = "a link to a folder, which is not followed"
            elif name.lower().endswith(ENDINGS):
                left_out[label(folder, inner)] = "a folder"
        for name in names:
            file = Path(place, name)
            if name.startswith(".") or file == table or label(folder, file) in left_out:
                continue
            if not name.lower().endswith(ENDINGS):
                left_out[label(folder, file)] = "not a picture by its name; if it is one, convert it to PNG or JPEG"
            elif not file.is_file():
                left_out[label(folder, file)] = "a broken link" if file.is_symlink() else "not a regular file"
            else:
                found.append(file)
    return sorted(found, key=lambda file: (normalise(label(folder, file)), file))


def _rows(table: Path, folder: Path, found: list[Path], left_out: dict[str, str]) -> list[tuple[str, Path]]:
    """The prompts and files of a table, in its order."""
    read = read_table(table, "a table of files and prompts")
    columns = _columns(read.header)
    assert columns is not None
    rows, there = [], set(found)
    for place, name, text in zip(read.places, *map(read.entries, columns), strict=True):
        try:
            file = file_within(folder, name)
        except ValueError as error:
            left_out[_printable(name) or place] = f"named in {place} of {table.name}, but {error}"
            continue
        if not file.is_file():
            left_out.setdefault(label(folder, file), f"named in {place} of {table.name}, but not there")
        elif not text:
            left_out[label(folder, file)] = f"without a prompt in {place} of {table.name}"
        else:
            left_out.pop(label(folder, file), None)  # the table decides, not the ending
            rows.append((" ".join(normalise(text).split()), file))
    for file in sorted(there - {file for _, file in rows}):
        left_out.setdefault(label(folder, file), f"not in {table.name}")
    return list(dict.fromkeys(rows))


def _distinct(rows: Sequence[tuple[str, Path]], folder: Path) -> list[str]:
    """The texts, with the file's name where several are equal, or with its path, or a number."""
    names = [text for text, _ in rows]
    for whole in (False, True):
        times = Counter(map(fold, names))
        names = [
            name
            if times[fold(name)] == 1
            else f"{text[:_SHORT]} ({label(folder, file) if whole else _printable(file.name)})"
            for name, (text, file) in zip(names, rows, strict=True)
        ]
    seen: set[str] = set()
    for place, name in enumerate(names):
        number = 2
        while fold(names[place]) in seen:
            names[place], number = f"{name} ({number})", number + 1
        seen.add(fold(names[place]))
    return names


class FolderRenderer(Renderer):
    """Finds the pictures of a folder by their texts; nothing is drawn.

    A prompt with several pictures in a table has one for each seed, in turn. Pictures are read as people see them
    (``read_picture``), in at most ``LONGEST`` pixels; the files stay as they are.

    Args:
        source: The folder, or a table of files and prompts in it (``name_pictures``).

    Raises:
        FileNotFoundError, ValueError: As for ``name_pictures``; or there is no picture.
    """

    batch_size = 8

    def __init__(self, source: str) -> None:
        self.name = f"folder:{source}"
        self.pictures = name_pictures(source)
        if not self.pictures.files:
            raise ValueError(f"Expected pictures ({_READABLE}) in {source}, found none; {told(self.pictures.left_out)}")
        self._texts = {fold(text): text for text in self.pictures.files}
        self._keyed: dict[Path, str | None] = {}  # digests that are in keys

    def describe(self) -> dict[str, Any]:
        return {"model": self.name, "pictures": len(self.pictures.files), "longest": LONGEST}

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the texts and the contents of all files, which are read whole."""
        contents = [(text, _digest(file)) for text, file in sorted(self.pictures.files.items())]
        return hash_settings([contents, LONGEST])

    def identity_of(self, text: str, seed: int) -> dict[str, Any]:
        """By the contents of its file, so that a changed file is another picture, and all others stay the same."""
        file = self.file_of(text, seed)
        if file is not None:
            self._keyed[file] = _digest(file)
        return {"renderer": "folder", "longest": LONGEST, "file": None if file is None else self._keyed[file]}

    def provenance(self, batch: int) -> dict[str, Any]:
        return {"settings": self.describe(), "seeded": self.seeded, "batch": batch}

    def file_of(self, text: str, seed: int = 0) -> Path | None:
        """The file of a text; None: it has none."""
        folded = fold(text)
        names = [self._texts[folded]] if folded in self._texts else self.pictures.prompts.get(folded, [])
        return self.pictures.files[names[seed % len(names)]] if names else None

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Drawn | NotDrawn]:
        """Read the pictures of the texts; see ``Renderer.draw``."""
        return [self._read(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _read(self, text: str, seed: int) -> Drawn | NotDrawn:
        file = self.file_of(text, seed)
        if file is None:
            return NotDrawn(f"no picture of {text[:200]!r} in {self.pictures.folder}")
        stream = io.BytesIO()
        try:
            read_picture(file).save(stream, format="PNG", compress_level=_LEVEL)
        except (OSError, ValueError) as error:
            return NotDrawn(str(error))
        if file in self._keyed and _digest(file) != self._keyed[file]:
            return NotDrawn(f"{file} changed while it was read")
        return Drawn(stream.getvalue())


def _digest(file: Path) -> str | None:
    """sha256 (hex) of a file; None: it can't be read."""
    with suppress(OSError):
        return hash_file(file)
    return None


def told(left_out: Mapping[str, str], most: int = 3) -> str:
    """The files that were left out, in a line: the first ones and their number."""
    some = [f"{name} ({reason})" for name, reason in list(left_out.items())[:most]]
    return f"left out: {', '.join(some)}{', ...' if len(left_out) > most else ''}" if some else "it is empty"
