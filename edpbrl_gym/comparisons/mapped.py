"""Answered questions with mapped features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.features.maps import map_rows, mapped_space

if TYPE_CHECKING:
    from edpbrl_gym.features.maps import FeatureMap

__all__ = ["map_comparisons"]


def map_comparisons(comparisons: Comparisons, feature_map: FeatureMap) -> Comparisons:
    """The same answers about options with mapped features, so that ``estimate`` learns a taste that is linear in them.

    Texts, episodes, steps and times are kept. The metadata name the map, and the encoder and its fingerprint become
    those of the mapped feature space, so that mapped and other answers are never mixed.

    Args:
        comparisons: Answered questions, features (n, K, d).
        feature_map: A map of d features.

    Returns:
        Comparisons with features (n, K, D), stored as float32.

    Raises:
        TypeError: An object that is no feature map.
        ValueError: A map of another number of features.
    """
    metadata = dict(comparisons.metadata)
    mapped = map_rows(feature_map, comparisons.features)
    metadata["feature_map"] = [*metadata.get("feature_map", []), feature_map.name]
    if "encoder" in metadata:
        name, fingerprint = mapped_space(metadata["encoder"], metadata.get("encoder_fingerprint", ""), feature_map)
        metadata |= {"encoder": name, "encoder_fingerprint": fingerprint}
    return replace(comparisons, features=mapped.astype(np.float32), metadata=metadata)
