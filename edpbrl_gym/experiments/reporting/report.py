"""A report: sections of text, tables and figures, written as REPORT.md with its figures."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._places import write_atomically
from edpbrl_gym.design.result import certified
from edpbrl_gym.experiments.reporting.figures import save_figure
from edpbrl_gym.experiments.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edpbrl_gym.experiments.runs import Results

__all__ = [
    "Picture",
    "Report",
    "Section",
    "Text",
    "bullets",
    "code_line",
    "convergence_line",
    "design_lines",
    "designs_section",
    "provenance_section",
    "sentences_line",
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


# -- common sections -------------------------------------------------------------------------------------------------


def design_lines(results: Results) -> list[str]:
    """One line for each design, and each distinct warning, indented, below it."""
    lines = []
    for design in results.provenance["designs"]:
        sizes = "/".join(f"{size:.0f}" for size in design["support"])
        lines.append(
            f"{design['agent']}, T = {design['episodes']}: {design['criterion']}-design, "
            f"{_prior_of(design)}, {design['status'].replace('_', ' ')} after {design['iterations']} "
            f"iterations ({design['seconds']:.1f} s), efficiency at least {certified(design['efficiency'])}, gap "
            f"{design['relative_gap']:.2g} of the gain, effectively {sizes} tokens shown at the steps"
        )
        lines += [f"  warning: {message}" for message in design["warnings"]]
    return lines


def _prior_of(design: Mapping[str, Any]) -> str:
    regularization = design["regularization"]
    return "prior precision as given" if regularization is None else f"lambda = {regularization:g}"


def designs_section(results: Results) -> Text:
    """The designs and their warnings."""
    lines = bullets(design_lines(results)) if results.provenance.get("designs") else ["No arm solves a design."]
    return Text(lines, "Designs and their warnings")


def sentences_line(users: Mapping[str, str]) -> str:
    """The sentences behind the simulated users."""
    return "theta* is the unit-norm embedding of the user's sentence: " + "; ".join(
        f'{name}: "{text}"' for name, text in users.items()
    )


def convergence_line(converged: Any) -> str:
    """The number of estimates that did not converge."""
    return f"Estimates that did not converge: {int((~converged.astype(bool)).sum())} of {len(converged)}."


def code_line(table: Any) -> str:
    """The versions of the code behind the rows; a mixture is listed by arm."""
    if "code" not in table:
        return "The version of the code was not recorded."
    versions = table.assign(code=table["code"].fillna("unknown")).groupby("code", sort=False)["arm"].unique()
    if len(versions) == 1:
        return f"All rows were made by the same code (sha256 {versions.index[0]})."
    of_arms = "; ".join(f"{code}: {', '.join(sorted(arms))}" for code, arms in versions.items())
    return f"Rows were made by {len(versions)} versions of the code (sha256: arms): {of_arms}."


def provenance_section(results: Results, *more: str) -> Text:
    """Encoder, vocabulary, seed, dates and versions.

    Args:
        results: Results of the run.
        *more: Further lines.
    """
    known, config = results.provenance, results.config
    hashes = {
        name.removesuffix("_fingerprint"): value
        for name, value in {**known, **config}.items()
        if name.endswith("_fingerprint")
    }
    made_with = [f"encoder {known['encoder']}"] if "encoder" in known else []
    made_with += [f"{name} sha256 {value[:16]}" for name, value in hashes.items()]
    made_with += [f"seed {config['seed']}"] if "seed" in config else []
    sessions = known["sessions"]
    ended = f"finished {known['finished']}" if "finished" in known else "not finished"
    software = ", ".join(f"{name} {version}" for name, version in sessions[-1]["versions"].items())
    lines = [
        *([", ".join(made_with)] if made_with else []),
        f"started {sessions[0]['begun']}, {ended}, sessions: {len(sessions)}",
        *more,
        software,
    ]
    return Text(bullets(lines), "Provenance")
