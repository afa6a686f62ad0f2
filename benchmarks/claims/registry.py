"""docs/claims.toml: one entry for all numbers that one command prints, wherever they stand."""

from __future__ import annotations

import datetime
import fnmatch
import json
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.claims.pages import ROOT

__all__ = ["FILE", "Claim", "read", "with_seals"]

FILE = ROOT / "docs" / "claims.toml"


@dataclass(frozen=True)
class Claim:
    """Numbers of one origin.

    Attributes:
        id: A short name.
        command: What prints them; more than one line where several commands are needed.
        why: In the place of a command: why nothing has to be measured (limits set in the code, numbers of the paper).
        size: Seeds, runs and people behind them.
        minutes: CPU minutes of the command, roughly.
        measured: The day on which the numbers were put on their page, or last run again with the same result.
        machine: Whether the numbers are times or memory, which differ from machine to machine.
        older: Where the code behind them has changed since, or is gone: what has changed.
        needs: What the command needs beside the package: data, a server.
        results: The file of results in the repository.
        tests: What fails if the claim, or the code behind it, becomes wrong: paths or node ids of tests.
        recompute: Names of ``benchmarks.claims.cheap.RECOMPUTED``: functions that give the numbers in braces once more.
        sections: Page, heading, seal: all numbers of these sections.
        whole: Pages that the command writes and one of ``tests`` compares, so that no seal is needed; ``*`` stands for
            any name.
        quotes: Page, quotations: the numbers within them. ``{name}`` is a number that ``recompute`` gives.
    """

    id: str
    command: str = ""
    why: str = ""
    size: str = ""
    minutes: float = 0.0
    measured: datetime.date | None = None
    machine: bool = False
    older: str = ""
    needs: str = ""
    results: str = ""
    tests: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    quotes: dict[str, list[str]] = field(default_factory=dict)

    def writes(self, page: str) -> bool:
        """Whether the page is one of ``whole``."""
        return any(fnmatch.fnmatch(page, name) for name in self.whole)

    @property
    def commands(self) -> list[str]:
        """The lines of ``command``."""
        return [line for line in self.command.splitlines() if line.strip()]


def read(path: Path = FILE) -> list[Claim]:
    """All entries.

    Raises:
        ValueError: If an entry has no origin, no place or an unknown field, or an id stands twice.
    """
    with path.open("rb") as file:
        entries = tomllib.load(file)["claim"]
    known = {each.name for each in fields(Claim)}
    claims: list[Claim] = []
    for entry in entries:
        name = entry.get("id", "without id")
        if unknown := sorted(set(entry) - known):
            raise ValueError(f"Claim {name!r} has unknown fields {unknown}; known are {sorted(known)}.")
        claim = Claim(**{**entry, **{each: tuple(entry.get(each, ())) for each in ("tests", "whole", "recompute")}})
        if any(claim.id == other.id for other in claims):
            raise ValueError(f"Two claims are called {claim.id!r}.")
        if bool(claim.command) == bool(claim.why) and not (claim.older and not claim.why):
            raise ValueError(
                f"Claim {name!r} needs a command, or in its place `why` (nothing to be measured) or `older` (no "
                "command prints these numbers any more)."
            )
        if claim.command and (claim.measured is None or claim.minutes <= 0):
            raise ValueError(f"Claim {name!r} has a command, so it needs `measured` (a day) and `minutes` of CPU time.")
        if not claim.sections and not claim.quotes and not claim.whole:
            raise ValueError(f"Claim {name!r} has no place: give it sections, quotes or whole pages.")
        if claim.whole and not claim.tests:
            raise ValueError(f"Claim {name!r} is about whole pages: name the test that compares them.")
        claims.append(claim)
    return claims


def with_seals(text: str, seals: dict[tuple[str, str, str], str], measured: dict[str, str] | None = None) -> str:
    """The text of the file with other seals, by id, page and heading, and other days, by id."""
    lines, name, page = [], "", ""
    for line in text.splitlines(keepends=True):
        if line.startswith("[[claim]]"):
            name, page = "", ""
        elif found := re.match(r'id = "(.*)"', line):
            name = found[1]
        elif found := re.match(r'\[claim\.sections\."(.*)"\]', line):
            page = found[1]
        elif line.startswith("measured = ") and name in (measured or {}):
            line = f"measured = {(measured or {})[name]}\n"
        for (own, where, heading), seal in seals.items():
            if own == name and where == page and line.startswith(f"{key(heading)} = "):
                line = f'{key(heading)} = "{seal}"\n'
        lines.append(line)
    return "".join(lines)


def key(heading: str) -> Any:
    """A heading as the key of a line."""
    return json.dumps(heading, ensure_ascii=False)
