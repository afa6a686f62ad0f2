"""Build the wheel and the sdist of the files that git tracks, with the addresses of the repository that builds them.

With an address, the metadata gets the project's URLs, and the README's relative links lead to the files of the release
there, so that they work on a page of the package index. Without one, the build works too and links stay relative.

python release/build.py --repository https://example.org/owner/name --out dist
python release/build.py --repository https://example.org/owner/name --notes  # print the notes, build nothing
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# a link or a picture of Markdown whose target is neither an address nor a place on the page
LINK = re.compile(r"(!?\[[^\]]*\]\()(?!\w+:|#)([^)\s]+)")
PAGES = {
    "Homepage": "",
    "Documentation": "/tree/{tag}/docs",
    "Source": "/tree/{tag}",
    "Changelog": "/blob/{tag}/CHANGELOG.md",
    "Issues": "/issues",
}


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return a page with its relative links as addresses of the repository's files at a tag.

    Args:
        text: Markdown of a page at the root of the repository.
        repository: Address of the repository, without a slash at its end.
        tag: The tag.
    """

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}{repository}/{kind}/{tag}/{match[2]}"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)  # code stays as it is
    return "".join(part if part.startswith("```") else LINK.sub(absolute, part) for part in parts)


def with_urls(setup: str, repository: str, tag: str) -> str:
    """Return a setup.cfg with the project's URLs."""
    lines = [f"    {name} = {repository}{page.format(tag=tag)}" for name, page in PAGES.items()]
    return setup.replace("[metadata]\n", "\n".join(["[metadata]", "project_urls =", *lines, ""]), 1)


def copy_tracked(place: Path) -> None:
    """Copy what git tracks, as it lies in the working tree; links stay links."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def version_of(place: Path) -> str:
    """The version that the sources name."""
    match = re.search(r'^__version__ = "([^"]+)"$', (place / "edpbrl_gym" / "__init__.py").read_text(), flags=re.M)
    if match is None:
        raise SystemExit('Expected a line __version__ = "..." in edpbrl_gym/__init__.py, found none')
    return match[1]


def notes(changelog: str, version: str) -> str:
    """What a version is in short: that section of its part of the changelog."""
    found = re.search(rf"^## {re.escape(version)}\b.*?^### In short\n+(.*?)^##", changelog, flags=re.M | re.S)
    if found is None or "\n## " in found[0]:
        raise SystemExit(f'Expected a section "In short" of version {version} in CHANGELOG.md, found none')
    return f"{found[1].strip()}\n\nEverything: [CHANGELOG.md](CHANGELOG.md).\n"


def main() -> None:
    """Build into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", help="address of the repository (without one, links stay relative)")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the wheel and the sdist")
    parser.add_argument("--notes", action="store_true", help="print the notes of the release instead")
    options = parser.parse_args()
    if options.repository is not None and not re.fullmatch(r"https://[^\s/]+/\S+[^/]", options.repository):
        parser.error(f"expected an address such as https://example.org/owner/name, got {options.repository!r}")
    if options.notes:
        version = version_of(ROOT)
        text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        print(text if options.repository is None else absolute_links(text, options.repository, f"v{version}"), end="")
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_tracked(place)
        if options.repository is not None:
            tag = f"v{version_of(place)}"
            for name, change in (("README.md", absolute_links), ("setup.cfg", with_urls)):
                path = place / name
                path.write_text(change(path.read_text(encoding="utf-8"), options.repository, tag), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "build", "--outdir", options.out.resolve(), "."], cwd=place, check=True)


if __name__ == "__main__":
    main()
