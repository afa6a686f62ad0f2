"""A report: sections of text, tables and figures, written as REPORT.md with its figures."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
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
    """Paragraphs and lists.

    Attributes:
        lines: Markdown lines.
        title: Heading, "" for none.
        level: Level of the heading.
    """

    lines: Sequence[str] = ()
    title: str = ""
    level: int = 2

    def markdown(self) -> list[str]:
        """Lines of the section."""
        return [*([f"{'#' * self.level} {self.title}", ""] if self.title else []), *self.lines]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure.

    Attributes:
        name: Name of its files.
        caption: Alternative text.
        figure: The figure.
    """

    name: str
    caption: str
    figure: Figure


Section = Text | TextTable | Picture


@dataclass(frozen=True, eq=False)
class Report:
    """The report of an experiment, from its results alone.

    Attributes:
        title: Title of the page.
        sections: Sections; tables without rows are left out.
        headline: Tables for the terminal.
        prefix: Prefix of the names of its figures beside another page.
    """

    title: str
    sections: Sequence[Section]
    headline: Sequence[TextTable] = ()
    prefix: str = ""

    def markdown(self, place: str) -> str:
        """The page; figures are the files ``place`` + name + ".png"."""
        blocks = [f"# {self.title}"]
        for section in self.sections:
            if isinstance(section, Picture):
                blocks.append(f"![{section.caption}]({place}{section.name}.png)")
            elif lines := section.markdown():
                blocks.append("\n".join(lines).strip("\n"))
        return "\n\n".join(blocks) + "\n"

    def write(self, folder: str | os.PathLike[str], *, page: Path | None = None) -> list[Path]:
        """Write every figure (PNG and PDF) and REPORT.md.

        Args:
            folder: Folder of the files.
            page: Also write the report as this Markdown file, the PNG figures beside it.

        Returns:
            The files written, the report last.

        Raises:
            RunFolderError: If a file can't be written.
        """
        target = Path(folder)
        pictures = [section for section in self.sections if isinstance(section, Picture)]
        files = {picture.name: save_figure(picture.figure, target / "figures", picture.name) for picture in pictures}
        path = target / "REPORT.md"
        _write_text(path, self.markdown("figures/"))
        if page is not None:
            _write_text(page, self.markdown(self.prefix))
            for name, paths in files.items():
                copy = page.parent / f"{self.prefix}{name}.png"
                write_atomically(copy, functools.partial(shutil.copyfile, paths[0]))
        return [*(file for paths in files.values() for file in paths), path]


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))


def bullets(lines: Sequence[str]) -> list[str]:
    """A Markdown list; lines that begin with two spaces are nested under the point above."""
    return [f"  - {line.strip()}" if line.startswith("  ") else f"- {line}" for line in lines]
