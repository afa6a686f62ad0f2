"""A report: sections of text, tables and figures, written as REPORT.md with its figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym._places import write_atomically
from edpbrl_gym.reporting.figures import save_figure
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Picture",
    "Report",
    "Section",
    "Text",
    "bullets",
]


@dataclass(frozen=True)
class Text:
    """Paragraphs and lists."""

    lines: Sequence[str] = ()  # of Markdown
    title: str = ""  # heading, "" for none
    level: int = 2  # of the heading

    def markdown(self) -> list[str]:
        """Lines of the section."""
        return [*([f"{'#' * self.level} {self.title}", ""] if self.title else []), *self.lines]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure."""

    name: str  # of its files
    caption: str  # alternative text
    figure: Figure


Section = Text | TextTable | Picture


@dataclass(frozen=True, eq=False)
class Report:
    """The report of an experiment, from its results alone."""

    title: str
    sections: Sequence[Section]  # tables without rows are left out
    headline: Sequence[TextTable | Text] = ()  # for the terminal

    def markdown(self) -> str:
        """The page; its figures are the files figures/NAME.png."""
        blocks = [f"# {self.title}"]
        for section in self.sections:
            if isinstance(section, Picture):
                blocks.append(f"![{section.caption}](figures/{section.name}.png)")
            elif lines := section.markdown():
                blocks.append("\n".join(lines).strip("\n"))
        return "\n\n".join(blocks) + "\n"

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write every figure (PNG and PDF) and REPORT.md into a folder; return the files, the report last."""
        target = Path(folder)
        pictures = [section for section in self.sections if isinstance(section, Picture)]
        files = [path for one in pictures for path in save_figure(one.figure, target / "figures", one.name)]
        path, text = target / "REPORT.md", self.markdown()
        write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))
        return [*files, path]


def bullets(lines: Iterable[str]) -> list[str]:
    """A Markdown list; lines that begin with two spaces are nested under the point above."""
    return [f"  - {line.strip()}" if line.startswith("  ") else f"- {line}" for line in lines]
