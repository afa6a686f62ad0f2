"""What must hold between docs/claims.toml, the pages, the commands and the tests; nothing is measured here."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.claims.pages import ROOT, Section, page_names, pattern, read_sections
from benchmarks.claims.registry import Claim

__all__ = ["Pages", "all_pages", "problems"]

Pages = dict[str, dict[str, Section]]


def all_pages() -> Pages:
    """The sections of all pages that need entries."""
    return {page: read_sections(page) for page in page_names()}


def problems(claims: Sequence[Claim], pages: Pages) -> list[str]:
    """One sentence for everything that does not hold; none if all is well."""
    found = [*_places(claims, pages), *_unclaimed(claims, pages), *_orphans(claims)]
    for claim in claims:
        found += [f"Claim {claim.id!r}: {reason}" for reason in (*_commands(claim), *_evidence(claim))]
    return found


def _places(claims: Iterable[Claim], pages: Pages) -> Iterator[str]:
    """Entries whose sections or quotations are not on their page, or have other numbers than at the last look."""
    for claim in claims:
        for page, seals in claim.sections.items():
            for heading, seal in seals.items():
                section = pages.get(page, {}).get(heading)
                if section is None:
                    yield f"Claim {claim.id!r}: {page} has no section {heading!r}."
                elif section.seal() != seal:
                    yield (
                        f"{page}, section {heading!r}: its numbers are not those of claim {claim.id!r} any more. If "
                        f"they should change, say so: python -m benchmarks.claims seal {claim.id} (with --measured DAY "
                        "if the command was run again), then write."
                    )
        for page, quotes in claim.quotes.items():
            for quote in quotes:
                if not any(pattern(quote).search(section.text) for section in pages.get(page, {}).values()):
                    yield f"Claim {claim.id!r}: {page} does not say {quote!r}; change the quotation or the page."


def _unclaimed(claims: Sequence[Claim], pages: Pages) -> Iterator[str]:
    """Numbers without an entry."""
    for page, sections in pages.items():
        if any(claim.writes(page) for claim in claims):
            continue
        sealed = {heading for claim in claims for heading in claim.sections.get(page, ())}
        quotes = [pattern(quote) for claim in claims for quote in claim.quotes.get(page, ())]
        for section in (section for section in sections.values() if section.heading not in sealed):
            spans = [found.span() for quote in quotes for found in quote.finditer(section.text)]
            bare = [
                (start, end)
                for start, end in section.claims()
                if not any(low <= start and end <= high for low, high in spans)
            ]
            if bare:
                numbers = ", ".join(section.text[start:end] for start, end in bare[:8])
                around = section.text[max(0, bare[0][0] - 40) : bare[0][1] + 30].replace("\n", " ")
                yield (
                    f"{page}, section {section.heading!r}: no entry of docs/claims.toml says where {numbers} "
                    f"{'come' if len(bare) > 1 else 'comes'} from (... {around} ...)."
                )


def _orphans(claims: Iterable[Claim]) -> Iterator[str]:
    """Benchmarks that can be run and that neither a claim nor the guide for contributors names."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")  # it names the scripts that are for contributors
    named = " ".join([guide, *(claim.command for claim in claims)])
    for path in sorted((ROOT / "benchmarks").iterdir()):
        main = path if path.suffix == ".py" else path / "__main__.py"
        runs = main.exists() and '__name__ == "__main__"' in main.read_text(encoding="utf-8")
        if runs and path.stem != "claims" and not re.search(rf"benchmarks\.{path.stem}\b", named):
            yield f"benchmarks/{path.name} is behind no claim: name it in docs/claims.toml, or remove it."


def _commands(claim: Claim) -> Iterator[str]:
    """Commands that cannot run, or that no page of the claim names."""
    written = [path.relative_to(ROOT).as_posix() for name in claim.whole for path in ROOT.glob(name)]
    pages = [*claim.sections, *claim.quotes, *written]
    text = " ".join((ROOT / page).read_text(encoding="utf-8") for page in pages if (ROOT / page).exists())
    text = re.sub(r"(?:\\?\s)+", " ", text)
    for line in claim.commands:
        words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=.*", word)]
        if words[:3] == ["python", "-m", "pytest"]:
            yield from _tests(f"{words[3]}::{words[-1]}" if "-k" in words else words[3])
            continue
        if " ".join(re.sub(r"\b[A-Z_]+=\S+ ", "", line).split()) not in text:
            yield f"none of its pages names the command {line!r}."
        if words[0] == "edpbrl":
            yield from _edpbrl(words[1:])
        elif words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks.", "release.")):
            yield from _script(words[2], words[3:])
        elif words[0] == "python" and (ROOT / words[1]).is_file():
            yield from _options(ROOT / words[1], words[2:])
        else:
            yield f"{line!r} is neither an edpbrl command nor a script or test of this repository."


def _edpbrl(arguments: list[str]) -> Iterator[str]:
    from edpbrl_gym.cli import _parse
    from edpbrl_gym.cli.console import UsageError

    try:
        _parse(arguments)
    except (UsageError, SystemExit) as error:
        yield f"edpbrl rejects {' '.join(arguments)!r}: {error}"


def _script(module: str, arguments: list[str]) -> Iterator[str]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        yield f"there is no module {module}."
        return
    origin = Path(spec.origin)
    yield from _options(origin.with_name("__main__.py") if origin.name == "__init__.py" else origin, arguments)


def _options(script: Path, arguments: list[str]) -> Iterator[str]:
    files = script.parent.glob("*.py") if script.name == "__main__.py" else (script,)
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for option in (word.partition("=")[0] for word in arguments if word.startswith("--")):
        name = option.removeprefix("--").replace("-", "_")  # of a field, where tyro reads the arguments
        if f'"{option}"' not in source and not re.search(rf"^    {name}: ", source, re.M):
            yield f"{script.relative_to(ROOT)} has no option {option}."


def _evidence(claim: Claim) -> Iterator[str]:
    """Tests and files of results that are not there."""
    for test in claim.tests:
        yield from _tests(test)
    if claim.results and not (ROOT / claim.results).exists():
        yield f"there are no results {claim.results}."


def _tests(node: str) -> Iterator[str]:
    path, _, name = node.partition("::")
    if not (ROOT / path).exists():
        yield f"there is no test {path}."
    elif name and not re.search(rf"^ *def {re.escape(name)}\w*\(", (ROOT / path).read_text(encoding="utf-8"), re.M):
        yield f"{path} has no test {name}."
