"""Prompts ranked by several tastes for several base prompts: the paper's comparison of base, ED-PBRL and Random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import Prompt

__all__ = ["GuidedPicture", "Picture", "RankedPrompts", "rank_prompts", "rankings_table"]

Search = Callable[[Floats, str | None], list[Prompt]]


@dataclass(frozen=True)
class RankedPrompts:
    """The best prompts for one taste and one base, best first.

    Attributes:
        taste: Name of the taste, such as "ED-PBRL".
        source: Source of the prompts: "beam" or "policy".
        base: Base prompt with which all prompts begin, or None.
        prompts: Prompts, best first; ``score`` is the RankScore, theta_hat . phi by this taste.
        true_scores: GTScore of each prompt, theta* . phi, or None if the true taste isn't known.
        base_score: RankScore of the base itself, None without a base.
        base_true_score: GTScore of the base itself, None without a base or a true taste.
    """

    taste: str
    source: str
    base: str | None
    prompts: tuple[Prompt, ...]
    true_scores: tuple[float, ...] | None
    base_score: float | None
    base_true_score: float | None

    @property
    def name(self) -> str:
        """Column header of this ranking."""
        return self.taste if self.source == "beam" else f"{self.taste}, {self.source}"


@dataclass(frozen=True)
class Picture:
    """File of a prompt's picture, and whether the safety checker flagged it."""

    path: Any
    flagged: bool


@dataclass(frozen=True)
class GuidedPicture:
    """The picture of a base prompt moved towards a taste (score guidance).

    Attributes:
        taste: Name of the taste.
        base: The prompt.
        strength: Strength of the guidance.
        score: theta_hat . phi of the moved prompt.
        base_score: theta_hat . phi of the prompt itself.
        true_score: theta* . phi of the moved prompt, None if the true taste isn't known.
        picture: The picture.
    """

    taste: str
    base: str
    strength: float
    score: float
    base_score: float
    true_score: float | None
    picture: Picture


def rank_prompts(
    tastes: Mapping[str, Floats],
    searches: Sequence[tuple[str, str, Search]],
    encoder: TextEncoder,
    *,
    bases: Sequence[str | None] = (None,),
    truth: Floats | None = None,
    track: Callable[[int, int], object] = lambda done, total: None,
) -> list[RankedPrompts]:
    """Search for prompts for every base and taste, and score them.

    Args:
        tastes: theta by name, each of shape (d,).
        searches: (name of a taste, source, search) triples; a search takes (theta, base) and returns prompts, best
            first.
        encoder: The encoder of all tastes.
        bases: Base prompts; None searches without one.
        truth: The true taste theta*, shape (d,), if it is known.
        track: Callback of (searches done, all searches), called at the beginning and after each search.

    Returns:
        A ranking for each base and search: all of the first base, then all of the second.
    """
    rankings: list[RankedPrompts] = []
    total = len(bases) * len(searches)
    track(0, total)
    for base in bases:
        base_row = None if base is None else encoder.encode([base.strip()])[0].astype(np.float64)
        for name, source, search in searches:
            theta = tastes[name]
            prompts = tuple(search(theta, base))
            true = None
            if truth is not None:
                rows = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64)
                true = tuple(float(score) for score in rows @ truth)
            rankings.append(
                RankedPrompts(
                    taste=name,
                    source=source,
                    base=None if base is None else base.strip(),
                    prompts=prompts,
                    true_scores=true,
                    base_score=None if base_row is None else float(base_row @ theta),
                    base_true_score=None if base_row is None or truth is None else float(base_row @ truth),
                )
            )
            track(len(rankings), total)
    return rankings


def rankings_table(
    rankings: Sequence[RankedPrompts],
    *,
    pictures: Mapping[str, Picture] | None = None,
    guided: Sequence[GuidedPicture] = (),
) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the columns, and the rankings as rows, one per prompt.

    Columns: taste, source ("beam", "policy", "guided"), base, rank, score (RankScore), true_score (GTScore),
    base_score, base_true_score, strength (of score guidance), prompt, image, flagged. Columns without values are left
    out.
    """
    rows: list[dict[str, Any]] = []
    for ranking in rankings:
        for number, prompt in enumerate(ranking.prompts):
            row: dict[str, Any] = {
                "taste": ranking.taste,
                "source": ranking.source,
                "base": ranking.base,
                "rank": number + 1,
                "score": prompt.score,
                "true_score": None if ranking.true_scores is None else ranking.true_scores[number],
                "base_score": ranking.base_score,
                "base_true_score": ranking.base_true_score,
                "prompt": prompt.text,
            }
            rows.append(row | _picture(None if pictures is None else pictures.get(prompt.text)))
    true_bases = {(ranking.taste, ranking.base): ranking.base_true_score for ranking in rankings}
    for guided_picture in guided:
        row = {
            "taste": guided_picture.taste,
            "source": "guided",
            "base": guided_picture.base,
            "rank": 1,
            "score": guided_picture.score,
            "true_score": guided_picture.true_score,
            "base_score": guided_picture.base_score,
            "base_true_score": true_bases.get((guided_picture.taste, guided_picture.base)),
            "strength": guided_picture.strength,
            "prompt": guided_picture.base,
        }
        rows.append(row | _picture(guided_picture.picture))
    order = ["taste", "source", "base", "rank", "score", "true_score", "base_score", "base_true_score", "strength"]
    names = [*order, "prompt", "image", "flagged"]
    return [name for name in names if any(row.get(name) is not None for row in rows)], rows


def _picture(picture: Picture | None) -> dict[str, Any]:
    if picture is None:
        return {"image": None, "flagged": None}
    return {"image": str(picture.path), "flagged": picture.flagged}
