"""Sections that the reports of several experiments have: designs, users, convergence, code, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edpbrl_gym.design.result import certified
from edpbrl_gym.reporting.report import Text, bullets

if TYPE_CHECKING:
    from edpbrl_gym.experiments.runs import Results

__all__ = [
    "code_line",
    "convergence_line",
    "design_lines",
    "designs_section",
    "provenance_section",
    "sentences_line",
]


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
