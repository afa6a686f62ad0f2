"""Items that each option of a question may be: the whole pool, or those of the option's lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym._validation import check_integers

__all__ = ["LaneGroup", "check_lanes", "draw_questions", "lane_groups"]


@dataclass(frozen=True, eq=False)
class LaneGroup:
    """Options chosen from the same items, which must therefore differ.

    Attributes:
        items: Indices into the pool, ascending, (m,).
        lanes: Positions of the options in the question, (g,).
    """

    items: Indices
    lanes: Indices


def check_lanes(lanes: Sequence[NDArray[np.integer]], num_items: int, num_options: int) -> tuple[Indices, ...]:
    """The items of each option, ascending; options with the same items share one array.

    Raises:
        ValueError: Another number of lanes than K, no items, indices out of range or twice, two lanes that have some
            items in common but not all, or more lanes with the same items than there are.
    """
    if len(lanes) != num_options:
        raise ValueError(f"Expected lanes for K = {num_options} options, got {len(lanes)}")
    result: list[Indices] = []
    owner = np.full(num_items, -1)  # the first lane that has the item
    for number, lane in enumerate(lanes):
        items = np.sort(check_integers(np.asarray(lane), f"lanes[{number}]", shape=("m",), low=0, high=num_items - 1))
        if not len(items) or (np.diff(items) == 0).any():
            raise ValueError(f"Expected different items in lanes[{number}], at least one, got {len(items)}")
        first = int(owner[items[0]])
        if first < 0 and (owner[items] == -1).all():
            owner[items] = number
        elif first < 0 or not np.array_equal(result[first], items):
            raise ValueError(f"Expected lanes[{number}] to have the same items as an earlier lane, or none of them")
        else:
            items = result[first]
        result.append(items)
    for group in _grouped(result):
        if len(group.items) < len(group.lanes):
            raise ValueError(
                f"Expected at least {len(group.lanes)} items in lanes[{group.lanes[0]}], which as many options share, "
                f"got {len(group.items)}"
            )
    return tuple(result)


def lane_groups(num_items: int, num_options: int, lanes: tuple[Indices, ...] | None) -> list[LaneGroup]:
    """The groups of checked lanes; without lanes all options are one group that has the whole pool."""
    if lanes is None:
        return [LaneGroup(np.arange(num_items), np.arange(num_options))]
    return _grouped(lanes)


def draw_questions(
    count: int,
    num_items: int,
    num_options: int,
    rng: np.random.Generator,
    *,
    lanes: tuple[Indices, ...] | None = None,
) -> Indices:
    """Independent questions of K different items, uniform over those that the lanes allow, (count, K).

    Option k of a group is drawn from its n - k remaining items, by its rank among them.
    """
    if lanes is None:
        return _draw_sets(count, num_items, num_options, rng)
    table = np.empty((count, num_options), dtype=np.int64)
    for group in _grouped(lanes):
        table[:, group.lanes] = group.items[_draw_sets(count, len(group.items), len(group.lanes), rng)]
    return table


def _draw_sets(count: int, num_items: int, size: int, rng: np.random.Generator) -> Indices:
    table = np.empty((count, size), dtype=np.int64)
    for k in range(size):
        rank = rng.integers(num_items - k, size=count)
        earlier = np.sort(table[:, :k], axis=1)
        for j in range(k):
            rank += rank >= earlier[:, j]
        table[:, k] = rank
    return table


def _grouped(lanes: Sequence[Indices]) -> list[LaneGroup]:
    places: dict[int, list[int]] = {}
    for number, items in enumerate(lanes):
        places.setdefault(int(items[0]), []).append(number)
    return [LaneGroup(lanes[numbers[0]], np.array(numbers)) for numbers in places.values()]
