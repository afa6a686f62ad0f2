"""What the reports of all experiments are made of: arms compared, their curves, designs, users, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edpbrl_gym.design.result import certified
from edpbrl_gym.reporting.figures import Curve, look
from edpbrl_gym.reporting.report import Text, bullets
from edpbrl_gym.reporting.statistics import PairedDifference, plus_minus

if TYPE_CHECKING:
    from edpbrl_gym.experiments.runs import Results

__all__ = [
    "arm_curves",
    "by_arm",
    "compared",
    "convergence_line",
    "designs_section",
    "difference",
    "provenance_section",
    "sentences_line",
]


def by_arm(rows: Any, arm: str, unit: str, value: str) -> Any:
    """Means of a measure: a row for each unit (run, style, set of questions), a column for each arm (DataFrame)."""
    return rows.groupby([unit, arm], sort=False)[value].mean().unstack(arm)


def difference(table: Any, first: str, second: str) -> PairedDifference:
    """Two arms of a ``by_arm``, compared on the units that both have."""
    return PairedDifference((table[first] - table[second]).dropna().to_numpy(dtype=float))


def compared(table: Any, arms: Iterable[str], pairs: Iterable[tuple[str, str]], form: str) -> list[str]:
    """Cells of a table: means of the arms of a ``by_arm``, and differences of pairs, with standard errors."""
    gaps = [difference(table, *pair) for pair in pairs]
    cells = [plus_minus(table[arm].mean(), table[arm].sem(), form) for arm in arms]
    return [*cells, *(plus_minus(gap.mean, gap.error, f"+{form}") for gap in gaps)]


def arm_curves(rows: Any, labels: Mapping[str, str], arm: str, x: str, unit: str, value: str) -> list[Curve]:
    """A measure against ``x`` for each arm (name -> label): means over units with bands of one standard error."""
    curves = []
    for number, (name, label) in enumerate(labels.items()):
        over_units = rows[rows[arm] == name].groupby([x, unit])[value].mean().groupby(x)
        mean, error = over_units.mean(), over_units.sem()
        curves.append(Curve(label, mean.index, mean, look(number), mean - error, mean + error))
    return curves


def designs_section(results: Results) -> Text:
    """One line for each design, and its warnings, indented, below it."""
    lines = []
    for design in results.provenance.get("designs", []):
        sizes = "/".join(f"{size:.0f}" for size in design["support"])
        regularization = design["regularization"]
        prior = "prior precision as given" if regularization is None else f"lambda = {regularization:g}"
        lines.append(
            f"{design['agent']}, T = {design['episodes']}: {design['criterion']}-design, "
            f"{prior}, {design['status'].replace('_', ' ')} after {design['iterations']} "
            f"iterations ({design['seconds']:.1f} s), efficiency at least {certified(design['efficiency'])}, gap "
            f"{design['relative_gap']:.2g} of the gain, effectively {sizes} tokens shown at the steps"
        )
        lines += [f"  warning: {message}" for message in design["warnings"]]
    return Text(bullets(lines) or ["No arm solves a design."], "Designs and their warnings")


def sentences_line(users: Mapping[str, str]) -> str:
    """The sentences behind the simulated users."""
    return "theta* is the unit-norm embedding of the user's sentence: " + "; ".join(
        f'{name}: "{text}"' for name, text in users.items()
    )


def convergence_line(converged: Any) -> str:
    """The number of estimates that did not converge."""
    return f"Estimates that did not converge: {int((~converged.astype(bool)).sum())} of {len(converged)}."


def provenance_section(results: Results, *more: str) -> Text:
    """Encoder, vocabulary, seed, dates, further lines and versions."""
    known, config = results.provenance, results.config
    made_with = [f"encoder {known['encoder']}"] if "encoder" in known else []
    made_with += [
        f"{name.removesuffix('_fingerprint')} sha256 {value[:16]}"
        for name, value in {**known, **config}.items()
        if name.endswith("_fingerprint")
    ]
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
