"""Text files that people hand over: any Unicode encoding that says what it is, any line end.

What is no such text, or a damaged .gz, is a ValueError that names the file and, where it can, the line.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from pathlib import Path

from edpbrl_gym._files import errors_naming

__all__ = ["decode", "read_bytes", "read_lines", "read_text"]

LINE_END = "\r\n|\r|\n"  # not splitlines(): it also breaks at characters that no editor takes for line ends
# the marks of UTF-32 begin with those of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_bytes(path: Path) -> bytes:
    """The contents of a file, those of a .gz unpacked."""
    with errors_naming(path):
        data = path.read_bytes()
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"Expected a file packed by gzip at {path}, could not read it ({error})") from None


def decode(data: bytes, path: Path) -> str:
    """The text of a file's contents: UTF-8, or what the byte order mark says, which is left out."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    start = data[:200]
    if encoding == "utf-8" and 3 * start.count(0) > len(start):
        raise ValueError(
            f"Expected UTF-8 text in {path}, got zero bytes, as of UTF-16 without a byte order mark; save the file as "
            "UTF-8"
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = len(re.split(LINE_END.encode(), data[: error.start]))
        place = f"byte 0x{data[error.start]:02x} at line {line}" if encoding.startswith("utf-8") else "damaged bytes"
        raise ValueError(f"Expected UTF-8 text in {path}, got {place}; save the file as UTF-8") from None


def read_text(path: Path) -> str:
    """The text of a file."""
    return decode(read_bytes(path), path)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, which end in LF, CRLF or CR; see ``read_text``."""
    lines = re.split(LINE_END, read_text(path))
    return lines[:-1] if lines[-1] == "" else lines
