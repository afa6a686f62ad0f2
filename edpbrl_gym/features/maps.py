"""Feature maps: from features phi (n, d) to features z(phi) (n, D), for tastes that are not linear in phi.

A reward that is linear in z is a function of phi from the space of the kernel z(x) . z(y) (the paper's remark on RKHS
rewards). The likelihood, the estimate and the design know nothing of this: they get other rows. A map over an
environment is ``edpbrl_gym.envs.wrappers.MappedFeatures``, over answered questions
``edpbrl_gym.comparisons.map_comparisons``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Floats32
from edpbrl_gym._validation import check_array, check_choice_of, check_count, check_number
from edpbrl_gym.features.base import TextEncoder

__all__ = ["FeatureMap", "MappedEncoder", "RandomFourierFeatures", "WithLinear", "join_actions", "map_rows"]


_BLOCK_NUMBERS = 1 << 22  # mapped numbers in a block: bounds the memory of the angles
_MOST_ROWS = 1000  # rows whose distances give the median bandwidth


@runtime_checkable
class FeatureMap(Protocol):
    """A map of feature rows. Its name says everything that it depends on: equal names, equal maps."""

    @property
    def name(self) -> str:
        """The map and its parameters."""

    @property
    def inputs(self) -> int:
        """Number of features d that it takes."""

    @property
    def dimension(self) -> int:
        """Number of features D that it gives."""

    def __call__(self, rows: ArrayLike) -> Floats:
        """Map rows (..., d) to (..., D)."""


def map_rows(feature_map: FeatureMap, rows: ArrayLike) -> Floats:
    """Apply a map to rows (..., d), and check what it gives: (..., D), finite.

    Raises:
        TypeError: An object that is no ``FeatureMap``.
        ValueError: Rows with another number of features than the map takes, or a map that does not keep its word.
    """
    if not isinstance(feature_map, FeatureMap):
        raise TypeError(
            f"Expected a feature map (name, inputs, dimension, and a call rows (n, d) -> (n, D)), got "
            f"{type(feature_map).__name__}; make one with RandomFourierFeatures.from_rows(rows, size)"
        )
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim < 1 or array.shape[-1] != feature_map.inputs:
        raise ValueError(
            f"Expected rows of {feature_map.inputs} features for {feature_map.name}, got shape {array.shape}"
        )
    mapped = check_array(feature_map(array), f"rows of {feature_map.name}", shape=(None,) * array.ndim)
    if mapped.shape != (*array.shape[:-1], feature_map.dimension):
        raise ValueError(
            f"Expected {feature_map.name} to give rows of {feature_map.dimension} features, got shape {mapped.shape} "
            f"for rows of shape {array.shape}"
        )
    return mapped


class RandomFourierFeatures:
    """Features whose products approximate the Gaussian kernel (Rahimi & Recht, 2007).

        z(x) = m^-1/2 (cos(w_1 . x), .., cos(w_m . x), sin(w_1 . x), .., sin(w_m . x)),  w_j ~ N(0, b^-2 I_d),
        E[z(x) . z(y)] = k = exp(-|x - y|^2 / (2 b^2)),   Var[z(x) . z(y)] = (1 - k^2)^2 / (2 m).

    Every row has norm 1. A reward theta . z(x) with theta ~ N(0, s I) is approximately a Gaussian process with the
    covariance s k.

    Args:
        inputs: d, features of a row.
        size: D = 2 m, features that the map gives, even.
        bandwidth: b > 0, in the units of the features.
        seed: Seed of the frequencies.

    Raises:
        ValueError: An odd size, or a value out of its range.
    """

    def __init__(self, inputs: int, size: int, *, bandwidth: float, seed: int = 0) -> None:
        self.inputs = check_count(inputs, "inputs (d)")
        self.dimension = check_count(size, "size (D)", minimum=2)
        if self.dimension % 2:
            raise ValueError(f"Expected an even size, a cosine and a sine for each frequency, got {size}")
        self.bandwidth = check_number(bandwidth, "bandwidth", minimum=0.0, exclusive=True)
        self.seed = check_count(seed, "seed", minimum=0)
        rng = np.random.default_rng(self.seed)
        self._frequencies = rng.standard_normal((self.inputs, self.dimension // 2)) / self.bandwidth

    @classmethod
    def from_rows(cls, rows: ArrayLike, size: int, *, factor: float = 1.0, seed: int = 0) -> RandomFourierFeatures:
        """A map with the bandwidth ``factor`` times the median distance of two of the rows (the median heuristic).

        Args:
            rows: Feature rows, (n, d), n >= 2; of more than 1,000 a sample is taken.
            size: D, even.
            factor: > 0; smaller factors follow finer detail.
            seed: Seed of the frequencies and of the sample.

        Raises:
            ValueError: Fewer than 2 rows, or rows most of which are equal.
        """
        seed = check_count(seed, "seed", minimum=0)
        table = check_array(rows, "rows", shape=("n", "d"))
        if len(table) < 2:
            raise ValueError(f"Expected at least 2 rows for the median distance, got {len(table)}; give a bandwidth")
        if len(table) > _MOST_ROWS:
            table = table[np.random.default_rng([seed, 1]).choice(len(table), size=_MOST_ROWS, replace=False)]
        squares = np.square(table).sum(axis=1)
        distances = squares[:, None] + squares - 2.0 * table @ table.T
        median = float(np.sqrt(max(0.0, np.median(distances[np.triu_indices(len(table), k=1)]))))
        if median == 0.0:
            raise ValueError("Expected rows that differ, got rows whose median distance is 0; give a bandwidth")
        scale = check_number(factor, "factor", minimum=0.0, exclusive=True)
        return cls(table.shape[1], size, bandwidth=scale * median, seed=seed)

    @property
    def name(self) -> str:
        """The map and its parameters."""
        return f"fourier({self.inputs} to {self.dimension}, bandwidth {self.bandwidth!r}, seed {self.seed})"

    def __call__(self, rows: ArrayLike) -> Floats:
        """Map rows (..., d) to (..., D)."""
        array = np.asarray(rows, dtype=np.float64)
        flat = array.reshape(-1, self.inputs)
        half = self.dimension // 2
        mapped = np.empty((len(flat), self.dimension))
        step = max(1, _BLOCK_NUMBERS // self.dimension)
        for start in range(0, len(flat), step):
            angles = flat[start : start + step] @ self._frequencies
            np.cos(angles, out=mapped[start : start + step, :half])
            np.sin(angles, out=mapped[start : start + step, half:])
        mapped /= np.sqrt(half)
        return mapped.reshape(*array.shape[:-1], self.dimension)


class WithLinear:
    """The features themselves beside a map of them, [phi, weight * z(phi)]: a taste is often mostly linear.

    Its kernel is x . y + weight^2 z(x) . z(y).

    Args:
        feature_map: The map z.
        weight: Weight > 0 of the mapped part; its square is the prior variance of the mapped part relative to the
            linear one under an isotropic prior.
    """

    def __init__(self, feature_map: FeatureMap, weight: float = 1.0) -> None:
        self.feature_map = feature_map
        self.weight = check_number(weight, "weight", minimum=0.0, exclusive=True)
        self.inputs = int(feature_map.inputs)
        self.dimension = self.inputs + int(feature_map.dimension)

    @property
    def name(self) -> str:
        """The map and its parameters."""
        return f"linear + {self.weight!r} {self.feature_map.name}"

    def __call__(self, rows: ArrayLike) -> Floats:
        """Map rows (..., d) to (..., d + D)."""
        array = np.asarray(rows, dtype=np.float64)
        return np.concatenate([array, self.weight * self.feature_map(array)], axis=-1)


class MappedEncoder:
    """A text encoder whose embeddings are mapped; their norm is the map's, not 1.

    Args:
        encoder: The encoder.
        feature_map: A map of its embeddings.

    Raises:
        ValueError: The map takes another number of features.
    """

    def __init__(self, encoder: TextEncoder, feature_map: FeatureMap) -> None:
        if encoder.dimension != feature_map.inputs:
            raise ValueError(
                f"Expected a map of {encoder.dimension} features, those of {encoder.name}, got {feature_map.name}"
            )
        self.encoder, self.feature_map = encoder, feature_map
        self.name, self.fingerprint = mapped_space(encoder.name, encoder.fingerprint, feature_map)
        self.dimension = int(feature_map.dimension)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Floats32:
        """Return the mapped embeddings, (n, D)."""
        return map_rows(self.feature_map, self.encoder.encode(texts, progress=progress)).astype(np.float32)


def mapped_space(encoder: str, fingerprint: str, feature_map: FeatureMap) -> tuple[str, str]:
    """Name and fingerprint of a feature space under a map, from those of its encoder."""
    digest = hashlib.sha256(f"{fingerprint}:{feature_map.name}".encode()).hexdigest()
    return f"{encoder}, {feature_map.name}", digest


def join_actions(rows: ArrayLike, actions: ArrayLike, join: Literal["concatenated", "products"]) -> Floats:
    """Features of state-action pairs from those of states, for rewards r(s, a) (paper, section 3).

    "concatenated" gives [phi(s), e_a]: r(s, a) = f(s) + g(a). "products" gives the products of all entries of phi(s)
    and e_a: each action has its own taste.

    Args:
        rows: Features of the states, (n, d).
        actions: Indicators e_a of the actions, (n, A); a row of zeros where no action was taken yet.
        join: Which of the two.

    Returns:
        Features (n, d + A) or (n, d A).

    Raises:
        ValueError: Different numbers of rows, or another ``join``.
    """
    check_choice_of(join, "join", ("concatenated", "products"))
    states = check_array(rows, "rows", shape=("n", "d"))
    indicators = check_array(actions, "actions", shape=(len(states), "A"))
    if join == "concatenated":
        return np.concatenate([states, indicators], axis=1)
    return np.asarray((states[:, :, None] * indicators[:, None, :]).reshape(len(states), -1))
