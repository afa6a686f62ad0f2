"""Tables and files of answers that have no reader yet, each recognised and refused by a ValueError of one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edpbrl_gym.comparisons.layouts import plain_name

__all__ = ["is_tie", "refuse_other_forms", "shows_pictures", "tie_error"]

_TIE = re.compile(
    r"ties?|tied|equal(ly good)?|equals|the same|same|draw|both|neither|no preference|indifferent|0\.5|.*=.*",
    re.IGNORECASE,
)
_PICTURE = re.compile(
    r"filepaths?|(image|img|picture|photo|jpg|png)s?([0-9]|url|urls|path|paths|file|files|uid|[0-9]uid|[0-9]url)*|generations|path[0-9]"
)
_VERDICT = re.compile(
    r"rank|ranks|ranking|label|label[0-9]|labels|humanpreference|preference|preferences|bestimageuid|rawannotations|"
    r"overallrating|score|scores|choicedist"
)


def is_tie(cell: str) -> bool:
    """Whether a choice says that options are equally good."""
    return _TIE.fullmatch(cell.strip()) is not None


def tie_error(cell: str, where: str) -> ValueError:
    """The error about a tie."""
    return ValueError(
        f"Expected an answer that names one best option in {where}, got the tie {cell!r}; ties can't be read from "
        "files yet: remove the row, or leave its choice empty, which leaves the question out"
    )


def shows_pictures(columns: Sequence[str]) -> bool:
    """Whether columns are those of answers about pictures."""
    plain = [plain_name(name) for name in columns]
    return any(map(_PICTURE.fullmatch, plain)) and any(map(_VERDICT.fullmatch, plain))


def refuse_other_forms(columns: Sequence[str], source: object) -> None:
    """Refuse a table with these columns if it has its options side by side."""
    wide = _wide(columns)
    if wide:
        raise ValueError(
            f"Expected a row for each option of a question in {source}, got a row for each question, with the options "
            f"side by side ({', '.join(wide)}, ...); write it as a long table (person, question, option, chosen, "
            "attributes), for example with pandas.wide_to_long or as.data.frame(dfidx(...)) in R"
        )


def _wide(columns: Sequence[str]) -> list[str]:
    """Columns of a table with its options side by side, price.bus and price.car or BUS_COST and CAR_COST; else []."""
    parts = [(name, re.fullmatch(r"(.+?)[._:](.+)", name)) for name in columns]
    split = [(name, match[1], match[2]) for name, match in parts if match is not None]
    for first, second in ((1, 2), (2, 1)):
        groups: dict[str, dict[str, str]] = {}
        for one in split:
            groups.setdefault(one[first], {})[one[second]] = one[0]
        options = [frozenset(group) for group in groups.values() if len(group) > 1]
        same = [group for group in options if options.count(group) > 1]
        found = [set(group.values()) for group in groups.values() if len(group) > 1]
        if not same and first == 1 and len(found) == 1 and all("." in name for name in found[0]):
            same = options  # price.bus and price.car, as R writes them, are enough
        if same:
            return [name for group in groups.values() if frozenset(group) == same[0] for name in group.values()][:3]
    return []
