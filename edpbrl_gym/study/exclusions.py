"""The table ``[exclusions]``: a rule, set before the study, by which people are left out when arms are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edpbrl_gym.study.config import ChecksConfig
    from edpbrl_gym.study.config_reading import Table

__all__ = ["REASONS", "Exclusions", "excluded_by", "read_exclusions", "rule_of"]

_LONGEST = 600.0
REASONS = {"failed_checks": "failed checks", "changed_repeats": "changed repeats", "median_seconds": "too fast"}
"""The parts of the rule, and what a report calls those who meet them."""


@dataclass(frozen=True)
class Exclusions:
    """Whoever meets one of these is excluded; None: nobody is for this reason."""

    failed_checks: int | None = None  # so many attention checks failed, or more
    changed_repeats: int | None = None  # so many repeated questions answered with another best option, or more
    median_seconds: float | None = None  # fewer seconds for an answer that counts, as the person's median

    def as_json(self) -> dict[str, Any]:
        """The reasons that there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def excluded_by(rule: Mapping[str, Any], row: Mapping[str, Any]) -> str | None:
    """Why a person is excluded, names of the rule joined by commas; None: the person is not.

    Args:
        rule: What ``Exclusions.as_json`` gives.
        row: Row of ``PARTICIPANTS``.
    """
    seconds = row["median_s"]
    met = {
        "failed_checks": row["attention_asked"] - row["attention_passed"] >= rule.get("failed_checks", 1),
        "changed_repeats": row["repeats_asked"] - row["repeats_agreed"] >= rule.get("changed_repeats", 1),
        "median_seconds": seconds is not None and seconds < rule.get("median_seconds", 0.0),
    }
    return ", ".join(name for name in rule if met[name]) or None


def rule_of(rule: Mapping[str, Any]) -> list[str]:
    """The rule in words, a part for each reason."""
    words = {
        "failed_checks": "attention checks failed: {} or more",
        "changed_repeats": "repeated questions answered differently: {} or more",
        "median_seconds": "median time for an answer: less than {:g} seconds",
    }
    return [words[name].format(value) for name, value in rule.items()]


def read_exclusions(document: Table, checks: ChecksConfig) -> Exclusions:
    """The rule of a document; mistakes are noted."""
    table = document.table("exclusions")
    result = Exclusions(
        failed_checks=table.integer("failed_checks", 1, minimum=1) if table.has("failed_checks") else None,
        changed_repeats=table.integer("changed_repeats", 1, minimum=1) if table.has("changed_repeats") else None,
        median_seconds=(
            table.number("median_seconds", 1.0, minimum=0.1, maximum=_LONGEST) if table.has("median_seconds") else None
        ),
    )
    for name, key, most in (
        ("failed_checks", "attention", checks.attention),
        ("changed_repeats", "repeated", checks.repeated),
    ):
        if (getattr(result, name) or 0) > most:
            table.note(name, f"at most {most}, as many as [checks] {key} says", "nobody could be excluded")
    table.refuse_others(also=("failed_checks", "changed_repeats", "median_seconds"))
    return result
