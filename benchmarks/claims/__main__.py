"""Command line of the claims: check, recompute, seal, write."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence

from benchmarks.claims import cheap, checks, page, registry
from benchmarks.claims.pages import ROOT

PAGE = ROOT / "docs" / "claims.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and dispatch; returns the exit code: 0 all holds, 1 it does not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="every number has an entry, and every entry is true to its page")
    commands.add_parser("recompute", help="compute the cheap ones once more")
    commands.add_parser("write", help="write docs/claims.md")
    seal = commands.add_parser("seal", help="take the numbers of the pages as they are now")
    seal.add_argument("names", nargs="*", metavar="NAME", help="claims (default: all)")
    seal.add_argument("--measured", type=datetime.date.fromisoformat, help="the day on which they were measured anew")
    given = parser.parse_args(arguments)
    claims, pages = registry.read(), checks.all_pages()
    chosen = [claim for claim in claims if claim.id in getattr(given, "names", ())]
    if unknown := sorted(set(getattr(given, "names", ())) - {claim.id for claim in chosen}):
        parser.error(f"no claim is called {', '.join(unknown)}; known are {', '.join(claim.id for claim in claims)}")
    if given.command == "seal":
        return _seal(chosen or claims, given.measured, pages)
    if given.command == "write":
        PAGE.write_text(page.make_page(claims, pages), encoding="utf-8")
        return 0
    found = checks.problems(claims, pages) if given.command == "check" else list(cheap.differences(claims, pages))
    if given.command == "check" and not found and PAGE.read_text(encoding="utf-8") != page.make_page(claims, pages):
        found.append("docs/claims.md is not what docs/claims.toml gives: python -m benchmarks.claims write.")
    print("\n".join(found) or "All holds.")
    return int(bool(found))


def _seal(chosen: Sequence[registry.Claim], day: datetime.date | None, pages: checks.Pages) -> int:
    seals = {}
    for claim in chosen:
        for name, headings in claim.sections.items():
            for heading, old in headings.items():
                if (section := pages[name].get(heading)) and section.seal() != old:
                    seals[claim.id, name, heading] = section.seal()
                    print(f"{claim.id}: {name}, {heading}")
                    for quoted in (other for other in claim.quotes if other != name):
                        print(f"  {quoted} says the same: {'; '.join(claim.quotes[quoted])}")
    days = {claim.id: day.isoformat() for claim in chosen} if day else {}
    text = registry.FILE.read_text(encoding="utf-8")
    registry.FILE.write_text(registry.with_seals(text, seals, days), encoding="utf-8")
    print(f"{len(seals)} seals renewed" if seals else "All seals were right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
