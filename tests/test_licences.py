"""The page of licences lists every dependency, with the licence that the installed package states."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from release.licences import PAGE, licences, requirements

HINT = "run: python release/licences.py --write"


def listed() -> dict[str, str]:
    """The row of each package of the page."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").split("\n") if line.startswith("| ")]
    return {line.split("|")[1].strip(" *"): line for line in rows[1:]}


def test_every_dependency_of_setup_cfg_is_listed_as_one():
    page = listed()
    names = {canonicalize_name(one.name) for roots in requirements().values() for one in roots} - {"edpbrl-gym"}
    assert names <= set(page), f"not on the page: {sorted(names - set(page))}; {HINT}"
    bold = {name for name, line in page.items() if line.startswith("| **")}
    assert bold == names, f"{sorted(bold ^ names)}; {HINT}"


def test_what_is_installed_is_listed_with_its_licence():
    page = listed()
    wrong = [one.name for one in licences() if page.get(one.name) != one.row()]
    assert not wrong, f"these rows are missing or differ: {wrong}; {HINT}"


def test_no_licence_is_left_open_and_every_copyleft_one_is_explained():
    text = PAGE.read_text(encoding="utf-8").partition("<!-- licences -->")[0]
    for one in licences():
        assert re.search("[A-Za-z]{2}", one.licence) and "not stated" not in one.licence, one
        assert not one.copyleft or f"`{one.name.removesuffix('-binary')}`" in text, f"explain {one.name} on the page"
