"""Coming and going: when a study is open, for how many people, what each of them takes back to the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Literal
from urllib.parse import quote

from edpbrl_gym.study.platforms import NO_PLATFORM, PLATFORMS, Platform

__all__ = ["ENDS", "OUTCOMES", "Closed", "Outcome", "Pay", "Recruitment", "WayBack", "names_in"]

Outcome = Literal["complete", "screened_out", "no_consent", "quota_full", "timed_out"]
OUTCOMES: tuple[Outcome, ...] = ("complete", "screened_out", "no_consent", "quota_full", "timed_out")
"""How people end; each may have a code of its own."""
Closed = Literal["not_open", "closed", "full"]
"""Why nobody new is let in."""
ENDS: Mapping[str, Outcome] = {
    **{"finished": "complete", "failed": "screened_out", "withdrawn": "no_consent", "timed_out": "timed_out"},
    **{"screened": "screened_out", "declined": "no_consent", "full": "quota_full", "closed": "quota_full"},
}
"""Outcomes by the status of a participant (or "screened", of those who failed), and by why nobody becomes one."""


@dataclass(frozen=True)
class WayBack:
    """What somebody takes back to the platform."""

    outcome: Outcome
    code: str  # shown to be copied; "": there is none
    address: str  # behind the button, and where a redirect goes; "": there is none


@dataclass(frozen=True)
class Pay:
    """What somebody who finishes is paid."""

    amount: float
    currency: str  # three letters, such as EUR


@dataclass(frozen=True)
class Recruitment:
    """The table ``[recruitment]``."""

    platform: str = NO_PLATFORM  # name in ``PLATFORMS``
    settings: Mapping[str, str] = field(default_factory=dict)  # what the platform's address needs
    completion_url: str = ""  # address in the place of the platform's
    redirect: bool = False  # whether who has finished goes there without pressing the button
    codes: Mapping[str, str] = field(default_factory=dict)  # by outcome
    opens: datetime | None = None  # nobody is let in before
    closes: datetime | None = None  # nor from then on
    people: int | None = None  # most people who finish
    arms: Mapping[str, int] = field(default_factory=dict)  # most people who finish in an arm, by its name
    time_out: int | None = None  # minutes without an answer after which a place is free again; None: it never is
    pilot: bool = False  # whether new people try the study out: they are marked, and left out of reports and exports
    pay: Pay | None = None  # of which the report says what it is an hour

    @property
    def preset(self) -> Platform:
        return PLATFORMS[self.platform]

    def closed(self, now: datetime) -> Closed | None:
        """Why nobody new is let in at a time; None: people are."""
        if self.opens is not None and now < self.opens:
            return "not_open"
        return "closed" if self.closes is not None and now >= self.closes else None

    @property
    def idle_since(self) -> str | None:
        """When somebody who is timed out now has done something for the last time, ISO 8601; None: nobody is."""
        if self.time_out is None:
            return None
        return (datetime.now(UTC) - timedelta(minutes=self.time_out)).isoformat(timespec="microseconds")

    def way_back(self, outcome: Outcome, external: Mapping[str, str]) -> WayBack:
        """What somebody with these identifiers takes back.

        An address without a code means that all went well, so it is for those who have completed the study only. There
        is none for somebody whose link lacked what it names.
        """
        code = self.codes.get(outcome, "")
        address = self.completion_url or self.preset.back
        values = {**external, **self.settings, "code": code}
        names = names_in(address)
        fits = (outcome == "complete" or "code" in names) and all(values.get(name) for name in names)
        quoted = {name: quote(value, safe="") for name, value in values.items()}
        return WayBack(outcome, code, address.format(**quoted) if fits else "")


def names_in(address: str) -> set[str]:
    """The names in braces of an address.

    Raises:
        ValueError: A brace stands alone.
    """
    return {name for _, name, _, _ in Formatter().parse(address) if name is not None}
