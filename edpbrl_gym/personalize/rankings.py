"""Prompts ranked by several tastes for several base prompts: the paper's comparison of base, ED-PBRL and Random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.features import TextEncoder, as_encoder
from edpbrl_gym.personalize.search import Prompt

__all__ = ["Picture", "RankedPrompts", "rank_prompts", "rankings_table"]

Search = Callable[[Floats, str | None], list[Prompt]]


@dataclass(frozen=True)
class RankedPrompts:
    """The best prompts for one taste and one base, best first.

    Attributes:
        taste: Name of the taste, such as "ED-PBRL".
        base: Base prompt with which all prompts begin, or None.
        prompts: Prompts, best first; ``score`` is the RankScore, theta_hat . phi by this taste.
        true_scores: GTScore of each prompt, theta* . phi, or None if the true taste isn't known.
        base_score: RankScore of the base itself, None without a base.
        base_true_score: GTScore of the base itself, None without a base or a true taste.
    """

    taste: str
    base: str | None
    prompts: tuple[Prompt, ...]
    true_scores: tuple[float, ...] | None
    base_score: float | None
    base_true_score: float | None


@dataclass(frozen=True)
class Picture:
    """File of a prompt's picture, and whether the safety checker flagged it."""

    path: Any
    flagged: bool


def rank_prompts(
    tastes: Mapping[str, Floats],
    search: Search,
    encoder: TextEncoder,
    *,
    bases: Sequence[str | None] = (None,),
    truth: Floats | None = None,
    track: Callable[[int, int], object] = lambda done, total: None,
) -> list[RankedPrompts]:
    """Search for prompts for every base and taste, and score them.

    Args:
        tastes: theta by name, each of shape (d,).
        search: Takes (theta, base) and returns prompts, best first.
        encoder: The encoder of all tastes.
        bases: Base prompts; None searches without one.
        truth: The true taste theta*, shape (d,), if it is known.
        track: Callback of (searches done, all searches), called at the beginning and after each search.

    Returns:
        A ranking for each base and taste: all of the first base, then all of the second.
    """
    encoder = as_encoder(encoder)
    rankings: list[RankedPrompts] = []
    total = len(bases) * len(tastes)
    track(0, total)
    for base in (None if given is None else given.strip() for given in bases):
        base_row = None if base is None else encoder.encode([base])[0].astype(np.float64)
        for name, theta in tastes.items():
            prompts = tuple(search(theta, base))
            true = None
            if truth is not None:
                rows = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64)
                true = tuple(float(score) for score in rows @ truth)
            rankings.append(
                RankedPrompts(
                    taste=name,
                    base=base,
                    prompts=prompts,
                    true_scores=true,
                    base_score=None if base_row is None else float(base_row @ theta),
                    base_true_score=None if base_row is None or truth is None else float(base_row @ truth),
                )
            )
            track(len(rankings), total)
    return rankings


def rankings_table(
    rankings: Sequence[RankedPrompts], *, pictures: Mapping[str, Picture] | None = None
) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the columns, and the rankings as rows, one per prompt.

    Columns: taste, base, rank, score (RankScore), true_score (GTScore), base_score, base_true_score, prompt, image,
    flagged. Columns without values are left out.
    """
    rows: list[dict[str, Any]] = []
    for ranking in rankings:
        for number, prompt in enumerate(ranking.prompts):
            picture = None if pictures is None else pictures.get(prompt.text)
            row = {
                "taste": ranking.taste,
                "base": ranking.base,
                "rank": number + 1,
                "score": prompt.score,
                "true_score": None if ranking.true_scores is None else ranking.true_scores[number],
                "base_score": ranking.base_score,
                "base_true_score": ranking.base_true_score,
                "prompt": prompt.text,
                "image": None if picture is None else str(picture.path),
                "flagged": None if picture is None else picture.flagged,
            }
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(row[name] is not None for row in rows)], rows
