"""The table ``[recruitment]`` of a study, read strictly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edpbrl_gym.study.platforms import NO_PLATFORM, PLATFORMS, parameters_of
from edpbrl_gym.study.recruitment import OUTCOMES, Pay, Recruitment, names_in

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table

__all__ = ["read_recruitment"]

_SETTINGS = {"school": r"[A-Za-z0-9][A-Za-z0-9-]*"}  # part of the name of a host; others are quoted
_MOST_PEOPLE = 1_000_000
_MOST_MINUTES = 60 * 24 * 30


def read_recruitment(document: Table, arms: Sequence[str]) -> Recruitment:
    """The recruitment of a document, whose arms have these names; mistakes are noted."""
    if document.has("completion_code"):
        old = document.text("completion_code", "", empty=True)
        document.mistakes.append(
            "completion_code: expected its new place, the key complete of the table [recruitment.codes], got "
            f"completion_code; move it there: complete = {old!r}"
        )
    table = document.table("recruitment")
    platform = table.choice("platform", tuple(PLATFORMS), NO_PLATFORM)
    preset = PLATFORMS[platform]
    codes = table.table("codes")
    found = {name: codes.text(name, "", of="a code", empty=True) for name in OUTCOMES}
    codes.refuse_others()
    address = _address(table, platform)
    told = preset.needs_code or "code" in names_in(address or preset.back)
    if told and not found["complete"] and not document.has("completion_code"):
        whom = preset.title or "the page to which people go back"
        codes.note("complete", f"the code by which {whom} knows who has finished", "write it between quotes")
    opens, closes = table.moment("opens"), table.moment("closes")
    if opens is not None and closes is not None and closes <= opens:
        table.note("closes", "a time after that of opens")
    by_arm = table.table("arms")
    most = {name: by_arm.integer(name, 50, minimum=1, maximum=_MOST_PEOPLE) for name in arms if by_arm.has(name)}
    for name in by_arm.remaining():
        by_arm.note(name, f"the name of an arm: {', '.join(arms)}")
    result = Recruitment(
        platform=platform,
        settings=_settings(table, preset.settings),
        completion_url=address,
        redirect=table.flag("redirect", False),
        codes={name: code for name, code in found.items() if code},
        opens=opens,
        closes=closes,
        people=table.integer("people", 100, minimum=1, maximum=_MOST_PEOPLE) if table.has("people") else None,
        arms=most,
        time_out=table.integer("time_out", 60, minimum=1, maximum=_MOST_MINUTES) if table.has("time_out") else None,
        pilot=table.flag("pilot", False),
        pay=_pay(table),
    )
    if result.redirect and not (result.completion_url or preset.back):
        table.note("redirect", "an address to go to", "give completion_url")
    table.refuse_others(also=("completion_url", "people", "time_out", "pay", *preset.settings))
    return result


def _pay(table: Table) -> Pay | None:
    if not table.has("pay"):
        return None
    pay = table.table("pay")
    if not pay.has("amount"):
        pay.note("amount", "what somebody who finishes is paid", "write amount = 3.00")
    result = Pay(pay.number("amount", 1.0, minimum=0.0, maximum=1e6), pay.text("currency", of="three letters"))
    if result.currency and not re.fullmatch("[A-Z]{3}", result.currency):
        pay.note("currency", 'three capital letters, such as "EUR"')
    pay.refuse_others()
    return result


def _settings(table: Table, names: Sequence[str]) -> dict[str, str]:
    """What the address of the platform needs, without which nobody is credited."""
    found = {}
    for name in names:
        found[name] = table.text(name, of="what stands in the platform's completion address")
        pattern = _SETTINGS.get(name)
        if pattern and found[name] and not re.fullmatch(pattern, found[name]):
            table.note(name, "the first part of the name of the platform's host, such as university")
    return found


def _address(table: Table, platform: str) -> str:
    if not table.has("completion_url"):
        return ""
    address = table.text("completion_url", "", of="an address")
    known = {"code", *parameters_of(platform), *PLATFORMS[platform].settings}
    try:
        unknown = sorted(names_in(address) - known)
    except ValueError:
        unknown = ["a brace that stands alone"]
    if unknown:
        table.note("completion_url", f"an address with the names {', '.join(sorted(known))} in braces", unknown[0])
    elif not re.match(r"https?://[^/{}\s]+", address) or re.search(r"\s", address):
        table.note("completion_url", "an address that begins with https:// and a host")
        return ""
    return "" if unknown else address
