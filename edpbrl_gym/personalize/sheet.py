"""The contact sheet of the comparison of base, ED-PBRL and Random, with the scores under each picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from edpbrl_gym.personalize.rankings import Picture, RankedPrompts
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

__all__ = ["comparison_sheet"]


def comparison_sheet(
    rankings: Sequence[RankedPrompts],
    pictures: Mapping[str, Picture],
    path: str | os.PathLike[str],
    *,
    count: int = 3,
    title: str = "",
    tile: int = 256,
) -> list[Path]:
    """Draw the best prompts of every taste side by side.

    There is a column for the base (if any) and one for each ranking, and a row for each rank. The caption of a picture
    has the RankScore (by the taste of the column), the GTScore (by the true taste, if known) and the prompt.

    Args:
        rankings: Rankings of one or more bases; every base has the same tastes in the same order.
        pictures: Pictures by prompt; a tile says where there is none.
        path: PNG file; further pages are numbered.
        count: Number of ranks to show.
        title: Title of the sheet.
        tile: Width of a picture in pixels.

    Returns:
        The files.

    Raises:
        ValueError: There are no rankings.
    """
    if not rankings:
        raise ValueError("Expected at least one ranking for a sheet, got none")
    bases = list(dict.fromkeys(ranking.base for ranking in rankings))
    names = list(dict.fromkeys(ranking.taste for ranking in rankings))
    rows: list[list[Tile | None]] = []
    labels: list[str] = []
    for base in bases:
        group = {ranking.taste: ranking for ranking in rankings if ranking.base == base}
        num_ranks = max(min(count, len(ranking.prompts)) for ranking in group.values())
        for number in range(num_ranks):
            base_tile = [] if base is None else [_base(list(group.values()), pictures) if number == 0 else None]
            rows.append([*base_tile, *(_ranked(group[name], number, pictures) for name in names)])
            labels.append(f"rank {number + 1}")
    columns = [*(["Base"] if bases != [None] else []), *names]
    return contact_sheet(rows, path, columns=columns, labels=labels, title=title, tile=tile)


def _ranked(ranking: RankedPrompts, number: int, pictures: Mapping[str, Picture]) -> Tile | None:
    if number >= len(ranking.prompts):
        return None
    prompt = ranking.prompts[number]
    lines = [f"RankScore {prompt.score:.3f}"]
    lines += [] if ranking.true_scores is None else [f"GTScore {ranking.true_scores[number]:.3f}"]
    return _tile(pictures.get(prompt.text), prompt.text, lines)


def _base(group: Sequence[RankedPrompts], pictures: Mapping[str, Picture]) -> Tile:
    base, true = group[0].base or "", group[0].base_true_score
    lines = [f"RankScore {ranking.base_score:.3f} by {ranking.taste}" for ranking in group]
    lines += [] if true is None else [f"GTScore {true:.3f}"]
    return _tile(pictures.get(base), base, lines)


def _tile(picture: Picture | None, text: str, lines: list[str]) -> Tile:
    found = (None, False) if picture is None else (picture.path, picture.flagged)
    return Tile(found[0], text, tuple(lines), flagged=found[1])
