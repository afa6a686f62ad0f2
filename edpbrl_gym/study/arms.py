"""Arms of a study, assigned in blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym._seeds import generator
from edpbrl_gym.study.config import Arm

__all__ = ["arm_of"]


def arm_of(arms: Sequence[Arm], number: int, seed: int) -> Arm:
    """The arm of the participant with a number, from 0, by permuted-block randomisation.

    A block is a random order in which each arm occurs as often as its weight, so that after every block the arms have
    participants in the ratio of their weights. It depends on the seed and the number only.
    """
    slots = np.repeat(np.arange(len(arms)), [arm.weight for arm in arms])
    block, place = divmod(number, len(slots))
    return arms[int(generator(seed, "block of arms", block).permutation(slots)[place])]
