"""What docs/claims.toml says, for readers: docs/claims.md, and on the site the end of every page with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from benchmarks.claims.checks import Pages
from benchmarks.claims.pages import pattern
from benchmarks.claims.registry import Claim

__all__ = ["HEADING", "make_page", "origins"]

HEADING = "Where these numbers come from"
"""Of the section that the site adds to the end of each page; the table of docs/claims.md links to it."""
_README = "README.md"  # is no page of the site
_INTRODUCTION = f"""# Where the numbers come from

Behind every number of the README and of these pages is a command. The commands stand on the pages themselves; on the
documentation site the last section of each page, "{HEADING}", lists them with the numbers that they
print, their cost, the day, the files of results and the tests. All of this is made of `docs/claims.toml`.
"""
_RULES = """## How they are kept true

- **A number can't change unnoticed.** The test suite fails if a number is changed, added or removed without its entry
  in `docs/claims.toml`, if a command can't be run as it is written, or if a test that is named as evidence is not
  there. In the README every number needs an entry, elsewhere those in tables and the measured ones in the text.
- **Recomputed** are numbers that take seconds and don't depend on the machine: every run of the test suite compares
  them to the last digit that is printed.
- **A day** says when the others were put on their page, or last run again with the same result. CPU minutes are rough;
  times and memory are those of one machine.
- **Older code** means that the code behind numbers has changed since, or that no command prints them any more.

The commands of the claims (`--help` names their options):

    python -m benchmarks.claims check       # does all of this hold?
    python -m benchmarks.claims recompute   # the numbers that take seconds
    python -m benchmarks.claims seal NAME   # after numbers were changed
    python -m benchmarks.claims write       # this page
"""


def make_page(claims: Sequence[Claim], pages: Pages) -> str:
    """docs/claims.md in Markdown: the pages, and the origins of the numbers of the README."""
    measured = [claim for claim in claims if not claim.why]
    sealed = {(page, heading) for claim in claims for page, seals in claim.sections.items() for heading in seals}
    count = sum(len(list(pages[page][heading].claims())) for page, heading in sealed)
    lines = [
        _INTRODUCTION,
        f"{len(measured)} claims stand behind about {round(count, -2):,} numbers. "
        f"{sum(bool(claim.recompute) for claim in measured)} are recomputed by the test suite (in part, where a "
        f"command takes longer), {sum(claim.machine for claim in measured)} depend on the machine, and "
        f"{sum(bool(claim.older) for claim in measured)} hold numbers of older code. All commands together take about "
        f"{sum(claim.minutes for claim in measured) / 60:.0f} hours of one core.\n",
        "| page | claims | recomputed | older code | CPU minutes |\n|---|---:|---:|---:|---:|",
        *(_line(page, own) for page in pages if page != _README and (own := _of(claims, page))),
        f"\n## The README\n\nNumbers of [{_README}](../{_README}):\n",
        origins(claims, _README, pages),
        _RULES,
    ]
    return "\n".join(lines)


def origins(claims: Sequence[Claim], page: str, pages: Pages) -> str:
    """Where the numbers of a page come from, in Markdown: a paragraph a claim; nothing for a page without numbers."""
    return "\n".join(line for claim in _of(claims, page) for line in _origin(claim, page, pages))


def _of(claims: Sequence[Claim], page: str) -> list[Claim]:
    return [claim for claim in claims if page in claim.sections or page in claim.quotes or claim.writes(page)]


def _line(page: str, claims: Sequence[Claim]) -> str:
    """The row of a page."""
    name = PurePosixPath(page).name
    place = HEADING.lower().replace(" ", "-")
    counts = [len(claims), sum(bool(claim.recompute) for claim in claims), sum(bool(claim.older) for claim in claims)]
    minutes = sum(claim.minutes for claim in claims)
    cells = [f"[{name}]({name}#{place})", *(str(one or "") for one in counts), f"{minutes:.3g}" if minutes else ""]
    return f"| {' | '.join(cells)} |"


def _origin(claim: Claim, page: str, pages: Pages) -> Iterator[str]:
    """The numbers of a claim on a page, its commands, and what else is known of it."""
    yield f"**{claim.id}**: {'; '.join(_places(claim, page, pages))}\n"
    if claim.commands:
        yield "\n".join(["```bash", *claim.commands, "```\n"])
    said = [f"{claim.size[0].upper()}{claim.size[1:]}."] if claim.size else []
    said += [claim.why] if claim.why else []
    said += [f"{claim.minutes:g} CPU minutes, {claim.measured}."] if claim.measured else []
    said += ["Times of one machine."] if claim.machine else []
    said += [f"**Older code**: {claim.older}"] if claim.older else []
    said += [f"Needs: {claim.needs}"] if claim.needs else []
    said += [f"Results: `{claim.results}`."] if claim.results else []
    said += [f"Tests: {', '.join(f'`{test}`' for test in claim.tests)}."] if claim.tests else []
    yield f"{' '.join(said)}\n"


def _places(claim: Claim, page: str, pages: Pages) -> Iterator[str]:
    """The sections and the quotations of a page that hold numbers of a claim."""
    if claim.writes(page):
        yield "the whole page"
    yield from claim.sections.get(page, {})
    for quote in claim.quotes.get(page, ()):
        found = next(filter(None, map(pattern(quote).search, (section.text for section in pages[page].values()))), None)
        written = (found[0] if found else quote).strip("|").replace("`", "").replace("**", "").strip()
        yield f'"{written}"' + (" (recomputed)" if "{" in quote else "")
