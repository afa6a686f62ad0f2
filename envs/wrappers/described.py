"""Wrappers that redefine the features of an environment, so that questions, rewards and agents see theirs."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

from edpbrl_gym._base_environment import base_environment
from edpbrl_gym.features.maps import FeatureMap, MappedEncoder, map_rows

__all__ = ["DescribesLanes", "MappedFeatures", "MappedFeaturesVector"]


class DescribesLanes:
    """What ``base_environment`` returns for a stack with such a wrapper, in place of the innermost environment.

    Attributes that the wrapper does not have come from what described the lanes before (``_base``), through
    ``_described``, where a subclass changes them.
    """

    describes_lanes = True
    _base: Any

    def __getattr__(self, name: str) -> Any:
        """An attribute of the environment, redefined where it is about features."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._described(name, getattr(self._base, name))

    def _described(self, name: str, value: Any) -> Any:
        return value


class _Mapped(DescribesLanes):
    """The mapped attributes, for both wrappers."""

    feature_map: FeatureMap
    _rows: tuple[Any, Any] | None = None  # features and their images

    def _described(self, name: str, value: Any) -> Any:
        if name == "features":
            if self._rows is None or self._rows[0] is not value:
                self._rows = value, map_rows(self.feature_map, value)
            return self._rows[1]
        if name in ("trajectory_features", "state_features"):
            return lambda observations: map_rows(self.feature_map, value(observations))
        if name == "encoder":
            return MappedEncoder(value, self.feature_map)
        return value

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """Names of the maps so far, the innermost first."""
        return (*getattr(self._base, "feature_maps", ()), self.feature_map.name)


class MappedFeatures(_Mapped, gymnasium.Wrapper, RecordConstructorArgs):
    """Features z(phi) in place of phi, for tastes that are not linear in phi; over any environment.

    Everything that describes the environment is mapped: ``features`` (the rows of a tabular one, whose ``.mdp`` stays
    as it is), ``trajectory_features``, ``state_features`` and ``encoder``. ``PreferenceQuery``, ``LearnedReward`` and
    agents around this wrapper see them; observations, actions and rewards do not change.

    Args:
        env: The environment.
        feature_map: The map, such as ``WithLinear(RandomFourierFeatures.from_rows(rows, 512))``.

    Raises:
        TypeError: A vector environment, or an object that is no feature map.
    """

    def __init__(self, env: gymnasium.Env, feature_map: FeatureMap) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError("Expected a single environment, got a vector environment; use MappedFeaturesVector.")
        RecordConstructorArgs.__init__(self, feature_map=feature_map, _disable_deepcopy=True)
        gymnasium.Wrapper.__init__(self, env)
        self._base = base_environment(env)
        self.feature_map = _check_map(feature_map)


class MappedFeaturesVector(_Mapped, VectorWrapper, RecordConstructorArgs):
    """``MappedFeatures`` for a vector environment.

    Args:
        env: The vector environment.
        feature_map: The map.

    Raises:
        TypeError: An object that is no feature map.
    """

    def __init__(self, env: VectorEnv, feature_map: FeatureMap) -> None:
        RecordConstructorArgs.__init__(self, feature_map=feature_map, _disable_deepcopy=True)
        VectorWrapper.__init__(self, env)
        self._base = base_environment(env)
        self.feature_map = _check_map(feature_map)


def _check_map(feature_map: Any) -> FeatureMap:
    if not isinstance(feature_map, FeatureMap):
        raise TypeError(
            f"Expected a feature map such as RandomFourierFeatures.from_rows(rows, size), got "
            f"{type(feature_map).__name__}."
        )
    return feature_map
