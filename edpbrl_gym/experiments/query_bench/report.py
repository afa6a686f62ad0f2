"""Figures and REPORT.md of a benchmark run, from its results alone."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edpbrl_gym.experiments.figures import save_figure
from edpbrl_gym.experiments.query_bench.figures import curves_figure, metrics_figure, needed_figure, pieces_figure
from edpbrl_gym.experiments.query_bench.settings import REGIMES
from edpbrl_gym.experiments.query_bench.summary import PAPER, RunIndex
from edpbrl_gym.experiments.query_bench.tables import (
    TARGET_B,
    TARGETS_A,
    Summary,
    TextTable,
    curves_table,
    duel_table,
    main_arms,
    marks_table,
    metrics_table,
    needed_table,
    pieces_table,
    summarise,
    tally_lines,
    time_table,
)
from edpbrl_gym.experiments.runs import Results, write_atomically

__all__ = ["code_line", "write_report"]


def write_report(results: Results, folder: str | os.PathLike[str], *, page: Path | None = None) -> list[Path]:
    """Write every figure (PNG and PDF) and REPORT.md.

    Args:
        results: From ``run.gather``.
        folder: Where they go.
        page: Also write the report as this Markdown file, the PNG figures beside it.

    Returns:
        The files written, the report last.

    Raises:
        RunFolderError: If a place can't be written.
    """
    target = Path(folder)
    summary = summarise(results.table)
    figures = _figures(results, summary, target / "figures")
    files = [path for paths in figures.values() for path in paths]
    path = target / "REPORT.md"
    text = _text(results, summary, {name: f"figures/{name}.png" for name in figures})
    write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))
    if page is not None:
        names = {name: f"queries-{name}.png" for name in figures}
        document = _text(results, summary, names)
        write_atomically(page, lambda name: name.write_text(document, encoding="utf-8"))
        for name, paths in figures.items():
            write_atomically(page.parent / names[name], functools.partial(shutil.copyfile, paths[0]))
    return [*files, path]


def _figures(results: Results, summary: Summary, folder: Path) -> dict[str, list[Path]]:
    index = RunIndex(results.table)
    headline = [name for name in summary.regimes if REGIMES[name].headline]
    side = [name for name in summary.regimes if not REGIMES[name].headline]
    main = main_arms(summary)
    line = _setting_line(results)
    made: dict[str, Any] = {}
    if headline:
        made["curves"] = curves_figure(index, headline, main, subtitle=line)
        made["metrics"] = metrics_figure(index, headline, main, subtitle=line)
    if side:
        made["side-curves"] = curves_figure(index, side, main, subtitle=line)
    marks = [
        (title, [item for item in summary.needed[mark, "cosine_error"] if item.arm in main and item.arm != PAPER])
        for mark, title in (
            ("a", "(a) to the error of Random + ridge 100"),
            ("b", "(b) to the error of Random + our estimator"),
        )
    ]
    if any(found for _, found in marks):
        aims: list[dict[str, float]] = [TARGETS_A, dict.fromkeys(summary.regimes, TARGET_B)]
        made["needed"] = needed_figure(marks, main, aims)
    if summary.pieces:
        made["pieces"] = pieces_figure(summary.pieces)
    return {name: save_figure(figure, folder, name) for name, figure in made.items()}


def _setting_line(results: Results) -> str:
    known = results.provenance
    seeds = int(results.table["seed"].nunique())
    return (
        f"vocabulary of {sum(known['sizes'])} tokens ({len(known['steps'])} steps), encoder {known['encoder']}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}"
    )


_PICTURES = {
    "curves": "Learning curves of the headline regimes",
    "needed": "Questions needed",
    "pieces": "What each piece buys",
    "metrics": "The other metrics",
    "side-curves": "Learning curves of the side regimes",
}


def _text(results: Results, summary: Summary, pictures: Mapping[str, str]) -> str:
    def picture(name: str) -> list[str]:
        return [f"![{_PICTURES[name]}]({pictures[name]})", ""] if name in pictures else []

    def section(table: TextTable) -> list[str]:
        return table.markdown() if table.rows else []

    table = results.table
    runs = table[["regime", "arm", "seed", "sentence"]].drop_duplicates()
    lines = [
        "# Query efficiency: how few questions will do",
        "",
        f"`edpbrl bench queries`: {len(runs)} runs (regime x arm x user x seed); {_setting_line(results)}. Every "
        "number below is computed from results.parquet; `edpbrl bench queries --report RUN` writes this page again.",
        "",
        *section(marks_table(summary)),
        *picture("curves"),
        *picture("needed"),
        *section(pieces_table(summary)),
        *picture("pieces"),
        *section(needed_table(summary, results)),
        *section(duel_table(summary)),
        *tally_lines(summary),
        "",
        *section(metrics_table(summary)),
        *picture("metrics"),
        *picture("side-curves"),
        *section(curves_table(summary, table)),
        *section(time_table(summary, table)),
        *_how(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _how(results: Results) -> list[str]:
    config, known, table = results.config, results.provenance, results.table
    sentences = "; ".join(f'{name}: "{text}"' for name, text in config["sentences"].items())
    software = ", ".join(f"{name} {version}" for name, version in known["sessions"][-1]["versions"].items())
    return [
        "## How it was done",
        "",
        f"- Users: theta* is the unit-norm embedding of a sentence: {sentences}. A seed has "
        f"{_per_seed(table)} of them.",
        "- A run is a (seed, sentence). All arms of a run see the same user with the same random draws; static rules "
        "ask the same questions of all users of a seed. Intervals resample whole runs.",
        f"- Questions come from the train split of the vocabulary; preference error on {config['pairs']} pairs of "
        f"{config['prompts']} held-out prompts, choice error on held-out questions answered without noise, regret "
        "against the best prompt that a wider beam search finds with theta* itself.",
        "- T needed: the mean curve over runs, linear between the T measured, from which T on it stays at or below the "
        "level.",
        f"- Estimates that did not converge: {int((~table['converged'].astype(bool)).sum())} of {len(table)}. Share of "
        f"skipped questions: {float(table['skipped'].mean()):.3f} over all rows.",
        f"- Encoder sha256 {config['encoder_fingerprint'][:16]}, vocabulary sha256 "
        f"{config['vocabulary_fingerprint'][:16]}.",
        f"- {code_line(table)}",
        f"- {software}.",
    ]


def code_line(table: Any) -> str:
    """Which versions of the code made the rows; a mixture is said arm by arm."""
    if "code" not in table:
        return "The version of the code was not recorded."
    versions = table.assign(code=table["code"].fillna("unknown")).groupby("code", sort=False)["arm"].unique()
    if len(versions) == 1:
        return f"All rows were made by the same code (sha256 {versions.index[0]})."
    said = "; ".join(f"{code}: {', '.join(sorted(arms))}" for code, arms in versions.items())
    return f"Rows were made by {len(versions)} versions of the code (sha256: arms): {said}."


def _per_seed(table: Any) -> str:
    counts = sorted({int(count) for count in table.groupby("seed")["sentence"].nunique()})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
