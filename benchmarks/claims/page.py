"""docs/claims.md, made of docs/claims.toml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from benchmarks.claims.checks import Pages
from benchmarks.claims.pages import pattern
from benchmarks.claims.registry import Claim

__all__ = ["make_page"]

_INTRODUCTION = """# Where the numbers come from

Every number that stands in the README and in these pages, with the command that prints it. This page is made of
`docs/claims.toml`.

- **A number can't change unnoticed.** The entry of a section holds a seal of its numbers. The test suite fails if a
  number is changed, added or removed without its entry, if a command can't be run as it is written or stands on none
  of the pages that hold its numbers, or if a test that is named as evidence is not there. In the README every number
  needs an entry, elsewhere every number in a table and every measured one in the text (with decimals, with thousands,
  or with a unit).
- **Recomputed** are numbers that take seconds and don't depend on the machine: every run of the test suite computes
  them and compares them to the last digit that is printed.
- **A day** says when the others were put on their page, or last run again with the same result; the test suite does
  not measure them. CPU minutes are rough. Times and memory are those of one machine. `python -m benchmarks.claims run
  NAME` runs the commands of a claim and prints what differs from the page today (`--folder FOLDER` for commands that
  need data); it changes no page.
- **Older code** is said where the code behind numbers has changed since, or where no command prints them any more.

The commands of this page:

    python -m benchmarks.claims check          # does all of this hold? seconds
    python -m benchmarks.claims recompute      # the numbers that take seconds
    python -m benchmarks.claims run NAME       # the others
    python -m benchmarks.claims seal NAME      # after numbers were changed on purpose; --measured DAY if they are new
    python -m benchmarks.claims write          # this page
"""
_HEAD = "| name | numbers | printed by | cost, day | tests |\n|---|---|---|---|---|"


def make_page(claims: Sequence[Claim], pages: Pages) -> str:
    """The page in Markdown."""
    measured = [claim for claim in claims if not claim.why]
    sealed = {(page, heading) for claim in claims for page, seals in claim.sections.items() for heading in seals}
    count = sum(len(list(pages[page][heading].claims())) for page, heading in sealed)
    lines = [
        _INTRODUCTION,
        f"{len(measured)} claims stand behind about {round(count, -2):,} numbers in {len(sealed)} sections of "
        f"{len({page for page, _ in sealed})} pages and in {_quotations(claims)} quotations. "
        f"{sum(bool(claim.recompute) for claim in measured)} claims are recomputed by the test suite (in part, where a "
        f"command takes longer), {sum(claim.machine for claim in measured)} depend on the machine, and "
        f"{sum(bool(claim.older) for claim in measured)} hold numbers of older code. All commands together take about "
        f"{sum(claim.minutes for claim in measured) / 60:.0f} hours of one core.\n",
    ]
    for page in pages:
        if own := [claim for claim in claims if page in claim.sections or page in claim.quotes or claim.writes(page)]:
            name = PurePosixPath(page).name
            link = f"../{page}" if "/" not in page else page.removeprefix("docs/")
            lines.append(f"## {name}\n\nNumbers of [{page}]({link}):\n")
            lines.append(_HEAD)
            lines += [_row(claim, page, pages) for claim in own]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _quotations(claims: Sequence[Claim]) -> int:
    return sum(len(quotes) for claim in claims for quotes in claim.quotes.values())


def _row(claim: Claim, page: str, pages: Pages) -> str:
    places = [*(["the whole page"] if claim.writes(page) else []), *claim.sections.get(page, {})]
    for quote in claim.quotes.get(page, ()):
        found = next(filter(None, map(pattern(quote).search, (section.text for section in pages[page].values()))), None)
        written = (found[0] if found else quote).strip("|").replace("`", "").replace("**", "").strip()
        places.append(f'"{written}"' + (" (recomputed)" if "{" in quote else ""))
    source = [f"`{line}`" for line in claim.commands] or [claim.why or "no command any more"]
    source += [claim.size] if claim.size else []
    source += [f"needs: {claim.needs}"] if claim.needs else []
    source += [f"results: `{claim.results}`"] if claim.results else []
    cost = [f"{claim.minutes:g} CPU minutes", str(claim.measured)] if claim.measured else []
    cost += ["times of one machine"] if claim.machine else []
    cost += [f"**older code**: {claim.older}"] if claim.older else []
    cells = [[claim.id], places, source, cost, [f"`{test}`" for test in claim.tests]]
    return "| " + " | ".join("<br>".join(cell).replace("|", "\\|") for cell in cells) + " |"
