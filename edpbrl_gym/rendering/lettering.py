"""Text in pictures: for each character a font that has it, lines of a given width, an ellipsis where a text is cut.

Pillow draws with one font at a time and silently leaves a box, or nothing, for what that font lacks. Here plain ASCII
is drawn in Pillow's own font; any other text in DejaVu Sans, which matplotlib ships (Latin, Greek, Cyrillic, much of
Arabic and Hebrew); what that lacks, such as Chinese, in fonts that are installed on this machine. Characters for which
there is none are named in a warning, once.
"""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ELLIPSIS", "Lettering", "letterings"]

ELLIPSIS = "..."
_JOINERS = "\u200c\u200d"  # invisible, but Arabic and Indic scripts are shaped by them
_UNUSUAL = ("bold", "italic", "oblique", "light", "thin", "black", "condensed", "mono", "serif", "math", "display")
_warned: set[str] = set()


@dataclass(frozen=True)
class Lettering:
    """Text of one size.

    Attributes:
        main: The Pillow font of all characters that have no other.
        others: The fonts of these, by character.
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

    def draw(self, draw: Any, place: tuple[float, float], text: str, fill: Any) -> None:
        """Draw a line with a Pillow ``ImageDraw``; ``place`` is its left upper corner."""
        left, top = place
        baseline = top + self.main.getmetrics()[0]
        for font, run in self._runs(text):
            draw.text((left, baseline), run, font=font, fill=fill, anchor="ls")
            left += font.getlength(run)

    def lines(self, text: str, width: float, most: int | None = None) -> list[str]:
        """Break a text into lines of at most ``width`` pixels.

        Args:
            text: Broken between words, and inside a word only where it is wider than a line.
            width: In pixels; a single letter may be wider.
            most: Number of lines; where the text goes on, the last one ends with an ellipsis.
        """
        found: list[str] = []
        for line in self._broken(text, width):
            if most is not None and len(found) == most:
                return [*found[:-1], self._cut(found[-1], width)] if found else []
            found.append(line)
        return found

    def _broken(self, text: str, width: float) -> Iterator[str]:
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

    def _cut(self, line: str, width: float) -> str:
        """Return the line with an ellipsis at its end, shortened until both fit."""
        while line and self.length(line + ELLIPSIS) > width:
            line = line[:-1].rstrip()
        return line + ELLIPSIS

    def _runs(self, text: str) -> Iterator[tuple[Any, str]]:
        """Parts of a line that are drawn with the same font; marks stay with the letter that they belong to."""
        if not self.others:
            yield self.main, text
            return
        font, run = self.main, ""
        for character in text:
            other = font if _goes_along(character) else self.others.get(character, self.main)
            if run and other is not font:
                yield font, run
                run = ""
            font, run = other, run + character
        if run:
            yield font, run


def letterings(texts: Iterable[str], sizes: Sequence[int]) -> list[Lettering]:
    """Return what draws these texts, in each size.

    Args:
        texts: All that will be drawn.
        sizes: Heights of the fonts in pixels.

    Raises:
        ModuleNotFoundError: Pillow isn't installed.
    """
    try:
        from PIL import ImageFont
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'Expected Pillow to draw text, got no such package; run: pip install "edpbrl-gym[images]"', name="PIL"
        ) from error
    characters = set().union(*(_clean(text) for text in texts))
    if all(character.isascii() for character in characters):
        return [Lettering(ImageFont.load_default(size)) for size in sizes]
    main = _data_folder() / "fonts" / "ttf" / "DejaVuSans.ttf"
    wanted = {character for character in characters if not _goes_along(character)}
    lacking = frozenset(wanted - _covered(str(main), frozenset(wanted)))
    files = _files_for(lacking) if lacking else {}
    _warn(sorted(lacking - files.keys()))
    found = []
    for size in sizes:
        fonts = {file: ImageFont.truetype(file, size) for file in set(files.values())}
        others = {character: fonts[file] for character, file in files.items()}
        found.append(Lettering(ImageFont.truetype(main, size), others))
    return found


def _clean(text: str) -> str:
    """The text in composed form, without what can't be seen: controls become blanks, directions are left out."""
    kept = []
    for character in unicodedata.normalize("NFC", text):
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp"):
            kept.append(" ")
        elif category == "Cs":  # half of a pair, which no encoding can hold
            kept.append("\ufffd")
        elif category != "Cf" or character in _JOINERS:
            kept.append(character)
    return "".join(kept)


def _goes_along(character: str) -> bool:
    """Whether a character is drawn with the font of the one before it: marks, joiners and blanks."""
    return character in _JOINERS or unicodedata.category(character) in ("Mn", "Me", "Zs")


def _data_folder() -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path())


def _covered(file: str, characters: frozenset[str]) -> frozenset[str]:
    """Which of the characters a font file has; none where it can't be read."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (RuntimeError, OSError):
        return frozenset()
    return frozenset(character for character in characters if font.get_char_index(ord(character)))


def _files_for(characters: frozenset[str]) -> dict[str, str]:
    """A font file of this machine for each of the characters that one has; those that have most come first."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist} | set(font_manager.findSystemFonts())
    return _chosen_files(characters, frozenset(known))


@functools.lru_cache(maxsize=32)
def _chosen_files(characters: frozenset[str], files: frozenset[str]) -> dict[str, str]:
    own = _data_folder()  # symbol fonts, and one with a box for everything
    usable = [file for file in files if not Path(file).is_relative_to(own) and "lastresort" not in file.lower()]
    covers = {file: _covered(file, characters) for file in sorted(usable)}
    found: dict[str, str] = {}
    while covers:
        left = characters - found.keys()
        file = max(covers, key=lambda name: (len(covers[name] & left), -_unusual(name)))
        new = covers.pop(file) & left
        if not new:
            break
        if _scalable(file):
            found |= dict.fromkeys(new, file)
    return found


def _unusual(file: str) -> int:
    """How far a font is from a regular sans serif, by its file's name."""
    name = Path(file).name.lower().replace("sans-serif", "").replace("sansserif", "")
    return sum(word in name for word in _UNUSUAL)


def _scalable(file: str) -> bool:
    """Whether Pillow can draw a font in any size; colour fonts of emoji often have one size only."""
    from PIL import ImageFont

    try:
        ImageFont.truetype(file, 15)
    except OSError:
        return False
    return True


def _warn(characters: Sequence[str]) -> None:
    """Name the characters that no font has, each once a process."""
    new = [character for character in characters if character not in _warned]
    if not new:
        return
    _warned.update(new)
    named = ", ".join(f"{character} (U+{ord(character):04X})" for character in new[:10])
    more = f" and {len(new) - 10} more" if len(new) > 10 else ""
    warnings.warn(
        f"Expected a font for every character to draw, found none on this machine for {named}{more}: boxes stand for "
        "them in the picture. Install one that has them, such as Noto (fonts-noto-cjk for Chinese, Japanese, Korean)",
        stacklevel=4,
    )
