"""Pages in Markdown: their sections, and the numbers in these."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "STRICT", "Section", "page_names", "pattern", "read_sections", "value"]

ROOT = Path(__file__).resolve().parents[2]
STRICT = ("README.md",)  # pages on which every number needs an entry, not only those that look measured
GENERATED = ("docs/claims.md",)
_FILLER = "\x00"  # in the place of what holds no claims: code, addresses
NUMBER = re.compile(
    r"(?<![\w.=/])(?<![A-Za-z]-)(?:(?<![\w.])[-+])?"  # not within a word, version, setting, path or name-2.0; a sign
    r"(?:\d{1,3}(?:,\d{3})+|\d*)(?:\.\d+|(?<=\d))(?:e[-+]?\d+)?"  # thousands or digits, decimals, exponent
    r"(?=x\b|(?![\w/]|\.\d))"  # "2.5x" is a number, "3rd" is none
)
_UNIT = r"%|x\b|times\b|m?s\b|(?:milli)?seconds?\b|minutes?\b|hours?\b|[kKMG]i?B\b|points?\b|nats?\b"
_TABLE = re.compile(r"^\|.*$", re.M)
_SETTING = re.compile(r"\b[A-Za-z][\w*']*\s=\s[-+]?[\d.,]+(?:(?:,? (?:to|and|or) |, )[\d.]+)*")  # "lambda = 1 and 100"


@dataclass(frozen=True)
class Section:
    """What stands below a heading, up to the next heading of any level.

    Attributes:
        page: The page, from the root of the repository.
        heading: The heading as it is written, without its marks.
        source: The Markdown below it.
        text: The same without code blocks and comments, with single spaces.
    """

    page: str
    heading: str
    source: str
    text: str

    @property
    def masked(self) -> str:
        """``text`` with fillers in the place of inline code and of the addresses of links, character for character."""
        return re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", lambda found: _FILLER * len(found[0]), self.text)

    def numbers(self) -> list[str]:
        """All numbers outside code, in their order."""
        return [found[0] for found in NUMBER.finditer(self.masked)]

    def measured(self) -> list[str]:
        """The numbers of the text, outside tables, that need an entry."""
        tables = [found.span() for found in _TABLE.finditer(self.masked)]
        return [self.text[start:end] for start, end in self.claims() if not _within(start, tables)]

    def seal(self) -> str:
        """A digest of the numbers: another one means that a number was changed, added or removed."""
        return hashlib.sha256(" ".join(self.numbers()).encode()).hexdigest()[:8]

    def claims(self) -> Iterator[tuple[int, int]]:
        """Where numbers stand that need an entry: measured ones in prose, all in tables; on strict pages all."""
        settings = [found.span() for found in _SETTING.finditer(self.masked)]
        tables = [found.span() for found in _TABLE.finditer(self.masked)]
        for found in NUMBER.finditer(self.masked):
            everywhere = self.page in STRICT or _within(found.start(), tables)
            if (everywhere or _looks_measured(self.masked, *found.span())) and not _within(found.start(), settings):
                yield found.span()


def _within(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in spans)


def _looks_measured(text: str, start: int, end: int) -> bool:
    """Whether a number has decimals, thousands or an exponent, or stands before a unit."""
    return bool(re.search(r"[.,e]", text[start:end]) or re.match(rf"\s?(?:{_UNIT})", text[end:]))


def page_names() -> list[str]:
    """The pages whose numbers need entries."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [name for name in (page.relative_to(ROOT).as_posix() for page in pages) if name not in GENERATED]


def read_sections(page: str, text: str | None = None) -> dict[str, Section]:
    """The sections of a page by heading.

    Raises:
        ValueError: If two sections have the same heading, so that an entry could not tell them apart.
    """
    lines = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    sections: dict[str, list[str]] = {}
    heading, fenced = "", False
    for line in lines.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if not fenced and re.match(r"#{1,6} ", line):
            heading = line.lstrip("#").strip()
            if heading in sections:
                raise ValueError(f"{page} has two sections {heading!r}; give one of them another heading.")
        sections.setdefault(heading, []).append(line)
    return {heading: Section(page, heading, "\n".join(found), _prose(found)) for heading, found in sections.items()}


def _prose(lines: list[str]) -> str:
    """Lines without the heading, code blocks, comments and pictures; single spaces, and a row of a table a line."""
    text = "\n".join(line for line in lines if not re.match(r"#{1,6} ", line))
    text = re.sub(r"^[ >]*```.*?^[ >]*```\s*?$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|^!\[.*?\]\([^)]*\)$", "", text, flags=re.M | re.S)
    text = re.sub(r"(?:^|(?<=\n\n))(?: {4}.*\n?)+", "", text)  # indented code follows an empty line
    joined: list[str] = []
    for line in (" ".join(line.split()) for line in text.splitlines()):
        if line and (not joined or line.startswith("|") or joined[-1].startswith("|")):
            joined.append(line)
        elif line:
            joined[-1] += f" {line}"
    return "\n".join(joined)


def pattern(quote: str) -> re.Pattern[str]:
    """What finds a quotation in ``Section.text``: ``{name}`` and ``{name2}`` stand for numbers."""
    parts = re.split(r"\{(\w+)\}", " ".join(quote.split()))
    number = r"(?P<{}>[-+]?[\d.,]*\d(?:e[-+]?\d+)?)"
    found = "".join(
        re.escape(part) if place % 2 == 0 else number.replace("{}", part) for place, part in enumerate(parts)
    )
    return re.compile(rf"(?<![\w.]){found}(?!\w)")


def value(number: str) -> tuple[float, float]:
    """A number as it is written, and half a unit of its last digit."""
    plain = number.replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(plain), 0.5 * 10.0 ** (int(exponent or 0) - decimals)
