"""The identifiers with which platforms send people to a study, as a link carries them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from edpbrl_gym.study.platforms import NO_PLATFORM, PLATFORMS, parameters_of

__all__ = ["MAX_IDENTIFIER", "VISIT", "Link", "Problem", "identity_of", "read_link"]

MAX_IDENTIFIER = 128  # characters
VISIT = frozenset(name for platform in PLATFORMS.values() for name in platform.visits)
"""Names of what is new whenever somebody comes again; they do not tell participants apart if there is another name."""

_UNACCEPTED = [platform.unaccepted for platform in PLATFORMS.values() if platform.unaccepted]
_NOTHING = frozenset(
    {"undefined", "null", "none", "nil", "nan", "na", "n/a", "false", "true", "unknown", "test", "your_id"}
)
_TEMPLATE = re.compile(
    r"[{}\[\]<>]"  # {{%PROLIFIC_PID%}}, ${e://Field/ID}, [[ID]], <ID>
    r"|%.+%|__.+__|^[$#]|^([@*|~^!])\S*\1$"  # %SURVEY_CODE%, __ID__, $ID, #N/A, *|ID|*
)
_NO_ANSWER = re.compile(r"(?i:x{3,}|[a-z_]*_not_available)|(?:[^\w\u0080-\U0010ffff]|_)*")  # marks alone, or nothing


@dataclass(frozen=True)
class Problem:
    """Why an identifier can't be taken."""

    name: str
    kind: Literal["unfilled", "characters", "long", "twice"]  # what each means is in ``__str__``
    value: str = ""  # the placeholder, for the visitor only; "" for others

    def __str__(self) -> str:
        """One line for a log, which never says who somebody is."""
        found = {
            "unfilled": "nothing, or a placeholder that the platform has not filled in",
            "characters": "other characters than printable ASCII",
            "long": f"more than {MAX_IDENTIFIER} characters",
            "twice": "two different values",
        }
        return f"Expected an identifier as {self.name}, got {found[self.kind]}"


@dataclass(frozen=True)
class Link:
    """What a link says about who opens it."""

    external: dict[str, str] = field(default_factory=dict)  # identifiers by name, as the platform writes the names
    problem: Problem | None = None  # why one of them can't be taken; None: all can
    is_preview: bool = False  # whether it shows a task that nobody has accepted
    unknown: tuple[str, ...] = ()  # names of other parameters


def _folded(name: str) -> str:
    """A name without case and marks: platforms and people write PROLIFIC_PID, prolific_pid and prolificPid."""
    return re.sub(r"[\W_]", "", name.removeprefix("amp;").lower())  # of "&amp;" in a link that was copied from HTML


_KNOWN = {_folded(name): name for name in parameters_of(NO_PLATFORM)}


def read_link(parameters: Iterable[tuple[str, str]], platform: str = NO_PLATFORM) -> Link:
    """The identifiers in the parameters of a link to a study of a platform.

    A name may be written in any case, with or without hyphens and underscores. Without identifiers, a template that was
    not filled in is a problem under any name: it should have been one. So is a link of a platform that does not say who
    somebody is.
    """
    known = {_folded(name): name for name in parameters_of(platform)}
    external: dict[str, str] = {}
    problems: list[Problem] = []
    others: list[tuple[str, str]] = []
    for written, text in parameters:
        name, value = known.get(_folded(written)), text.strip()
        if name is None:
            others.append((written, value))
        elif (name, value.upper()) in _UNACCEPTED:
            return Link(is_preview=True)
        elif (problem := _problem(name, value)) is not None:
            problems.append(problem)
        elif external.setdefault(name, value) != value:
            problems.append(Problem(name, "twice"))
    unknown = [(name, value) for name, value in others if name.lower() != "lang" and not name.startswith("utm_")]
    if not external and not problems:
        templates = [(name, value) for name, value in unknown if _TEMPLATE.search(_plain(value))]
        problems = [Problem(name[:40], "unfilled", value[:80]) for name, value in templates]
    wanted = PLATFORMS[platform].people[0]
    if platform != NO_PLATFORM and wanted not in external and not problems:
        problems = [Problem(wanted, "unfilled")]
    return Link(external, problems[0] if problems else None, False, tuple(name for name, _ in unknown))


def _problem(name: str, value: str) -> Problem | None:
    if _is_unfilled(value, name):
        return Problem(name, "unfilled", value[:80])
    if not (value.isascii() and value.isprintable()):
        return Problem(name, "characters")
    return Problem(name, "long") if len(value) > MAX_IDENTIFIER else None


def _is_unfilled(value: str, name: str) -> bool:
    """Whether it is a placeholder, a program's word for nothing, or a name."""
    plain = _plain(value)
    is_word = plain.lower() in _NOTHING or _folded(plain) in {*_KNOWN, _folded(name)}
    return is_word or bool(_TEMPLATE.search(plain) or _NO_ANSWER.fullmatch(plain))


def _plain(value: str) -> str:
    """A value without the escapes of addresses and of HTML, perhaps several times."""
    for _ in range(3):
        value = html.unescape(unquote(value)).strip()
    return value


def identity_of(external: Mapping[str, str]) -> list[tuple[str, str]]:
    """What tells a participant from others, in the order of the names; empty without identifiers."""
    pairs = sorted(external.items())
    return [pair for pair in pairs if pair[0] not in VISIT] or pairs
