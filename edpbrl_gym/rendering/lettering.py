"""Text in pictures: a font for each character, lines of a given width, an ellipsis where a text is shortened.

Pillow draws with one font at a time, and silently draws a box, or nothing, for characters that the font lacks. Here
plain ASCII is drawn in Pillow's own font, other text in DejaVu Sans, which comes with matplotlib (Latin, Greek,
Cyrillic, much of Arabic and Hebrew), and characters that it lacks, such as Chinese, in installed fonts. Characters
without any font are named in a warning, once.
"""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import Need, check_installed

__all__ = ["ELLIPSIS", "Lettering", "letterings"]

ELLIPSIS = "..."
_JOINERS = "\u200c\u200d"  # invisible, but they affect the shapes of Arabic and Indic scripts
_UNUSUAL = ("bold", "italic", "oblique", "light", "thin", "black", "condensed", "mono", "serif", "math", "display")
_warned: set[str] = set()


@dataclass(frozen=True)
class Lettering:
    """Text of one size.

    Attributes:
        main: The Pillow font of all characters that are not in ``others``.
        others: Fonts of other characters, by character.
    """

    main: Any
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line_height(self) -> int:
        """Distance of two lines in pixels."""
        ascent, descent = self.main.getmetrics()
        return int(round(1.15 * (ascent + descent)))

    def length(self, text: str) -> float:
        """Return the width of a line in pixels."""
        return float(sum(font.getlength(run) for font, run in self._runs(text)))

    def draw(self, draw: Any, position: tuple[float, float], text: str, fill: Any) -> None:
        """Draw a line with a Pillow ``ImageDraw``; ``position`` is its upper left corner."""
        x, y = position
        baseline = y + self.main.getmetrics()[0]
        for font, run in self._runs(text):
            draw.text((x, baseline), run, font=font, fill=fill, anchor="ls")
            x += font.getlength(run)

    def lines(self, text: str, width: float, max_lines: int | None = None) -> list[str]:
        """Break a text into lines of at most ``width`` pixels.

        Args:
            text: The text, broken between words, and inside a word only if it is wider than a line.
            width: Width in pixels; a single letter may be wider.
            max_lines: Maximum number of lines; the last one ends with an ellipsis if the text is longer.
        """
        lines: list[str] = []
        for line in self._break(text, width):
            if max_lines is not None and len(lines) == max_lines:
                return [*lines[:-1], self._shorten(lines[-1], width)] if lines else []
            lines.append(line)
        return lines

    def _break(self, text: str, width: float) -> Iterator[str]:
        for paragraph in text.splitlines():
            current = ""
            for word in _clean(paragraph).split():
                if self.length(f"{current} {word}".strip()) <= width:
                    current = f"{current} {word}".strip()
                    continue
                if current:
                    yield current
                current = ""
                for letter in word:
                    if current and not unicodedata.combining(letter) and self.length(current + letter) > width:
                        yield current
                        current = ""
                    current += letter
            if current:
                yield current

    def _shorten(self, line: str, width: float) -> str:
        """Return the line with an ellipsis at its end, shortened until both fit."""
        while line and self.length(line + ELLIPSIS) > width:
            line = line[:-1].rstrip()
        return line + ELLIPSIS

    def _runs(self, text: str) -> Iterator[tuple[Any, str]]:
        """Parts of a line with the same font; marks stay with their letter."""
        if not self.others:
            yield self.main, text
            return
        font, run = self.main, ""
        for character in text:
            next_font = font if _keeps_font(character) else self.others.get(character, self.main)
            if run and next_font is not font:
                yield font, run
                run = ""
            font, run = next_font, run + character
        if run:
            yield font, run


def letterings(texts: Iterable[str], sizes: Sequence[int]) -> list[Lettering]:
    """Return a ``Lettering`` for these texts in each size.

    Args:
        texts: All texts to be drawn.
        sizes: Heights of the fonts in pixels.

    Raises:
        ModuleNotFoundError: Pillow isn't installed.
    """
    check_installed(Need("PIL", "text in pictures"))
    from PIL import ImageFont

    characters = set().union(*(_clean(text) for text in texts))
    if all(character.isascii() for character in characters):
        return [Lettering(ImageFont.load_default(size)) for size in sizes]
    main = _data_folder() / "fonts" / "ttf" / "DejaVuSans.ttf"
    needed = {character for character in characters if not _keeps_font(character)}
    missing = frozenset(needed - _covered(str(main), frozenset(needed)))
    files = _files_for(missing) if missing else {}
    _warn(sorted(missing - files.keys()))
    result = []
    for size in sizes:
        fonts = {file: ImageFont.truetype(file, size) for file in set(files.values())}
        special_fonts = {character: fonts[file] for character, file in files.items()}
        result.append(Lettering(ImageFont.truetype(main, size), special_fonts))
    return result


def _clean(text: str) -> str:
    """The text in composed form, without invisible characters: controls become blanks, directions are removed."""
    cleaned = []
    for character in unicodedata.normalize("NFC", text):
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp"):
            cleaned.append(" ")
        elif category == "Cs":  # a lone surrogate, which can't be encoded
            cleaned.append("\ufffd")
        elif category != "Cf" or character in _JOINERS:
            cleaned.append(character)
    return "".join(cleaned)


def _keeps_font(character: str) -> bool:
    """Whether a character is drawn with the font of the one before it: marks, joiners and blanks."""
    return character in _JOINERS or unicodedata.category(character) in ("Mn", "Me", "Zs")


def _data_folder() -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path())


def _covered(file: str, characters: frozenset[str]) -> frozenset[str]:
    """The characters that a font file has; none if it can't be read."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (RuntimeError, OSError):
        return frozenset()
    return frozenset(character for character in characters if font.get_char_index(ord(character)))


def _files_for(characters: frozenset[str]) -> dict[str, str]:
    """An installed font file for each character that has one, preferring files with many of the characters."""
    from matplotlib import font_manager

    files = {entry.fname for entry in font_manager.fontManager.ttflist} | set(font_manager.findSystemFonts())
    return _select_files(characters, frozenset(files))


@functools.lru_cache(maxsize=32)
def _select_files(characters: frozenset[str], files: frozenset[str]) -> dict[str, str]:
    data_folder = _data_folder()  # symbol fonts, and one with a box for everything
    usable = [file for file in files if not Path(file).is_relative_to(data_folder) and "lastresort" not in file.lower()]
    covers = {file: _covered(file, characters) for file in sorted(usable)}
    file_of: dict[str, str] = {}
    while covers:
        remaining = characters - file_of.keys()
        file = max(covers, key=lambda name: (len(covers[name] & remaining), -_unusual(name)))
        newly_covered = covers.pop(file) & remaining
        if not newly_covered:
            break
        if _scalable(file):
            file_of |= dict.fromkeys(newly_covered, file)
    return file_of


def _unusual(file: str) -> int:
    """Number of properties in a font's file name that a regular sans serif does not have."""
    name = Path(file).name.lower().replace("sans-serif", "").replace("sansserif", "")
    return sum(word in name for word in _UNUSUAL)


def _scalable(file: str) -> bool:
    """Whether Pillow can draw a font in any size; colour fonts of emoji often have only one size."""
    from PIL import ImageFont

    try:
        ImageFont.truetype(file, 15)
    except OSError:
        return False
    return True


def _warn(characters: Sequence[str]) -> None:
    """Warn about characters that no font has, once per process for each."""
    unreported = [character for character in characters if character not in _warned]
    if not unreported:
        return
    _warned.update(unreported)
    names = ", ".join(f"{character} (U+{ord(character):04X})" for character in unreported[:10])
    more = f" and {len(unreported) - 10} more" if len(unreported) > 10 else ""
    warnings.warn(
        f"Expected a font for every character to draw, found none on this machine for {names}{more}: they are drawn "
        "as boxes. Install one that has them, such as Noto (fonts-noto-cjk for Chinese, Japanese, Korean)",
        stacklevel=4,
    )
