"""A file of `edpbrl fit-population` as the prior of another command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym.cli.errors import UsageError

if TYPE_CHECKING:
    from edpbrl_gym.estimation.population import Population

__all__ = ["check_encoder_of_population", "check_population_file"]


def check_population_file(place: Path, *, others: str = "") -> None:
    """Refuse a --prior that can't be a file of a population.

    Args:
        place: The value of the option.
        others: What else the option takes, for messages; ends in " or ".

    Raises:
        UsageError: Another ending, or there is no such file.
    """
    if place.suffix != ".safetensors":
        raise UsageError(
            f"Expected --prior {others}a population.safetensors of `edpbrl fit-population`, got {str(place)!r}"
        )
    if not place.is_file():
        raise UsageError(f"Expected a population at {place}, found none; make one with `edpbrl fit-population`")


def check_encoder_of_population(population: Population, metadata: dict[str, Any], dimension: int, place: Path) -> None:
    """Refuse a population about other features than those of answers or questions.

    Args:
        population: The population.
        metadata: ``encoder`` and ``encoder_fingerprint`` of the features, as far as they are known.
        dimension: Number of features.
        place: File of the population, for messages.

    Raises:
        ValueError: The number of features or the encoder's weights differ.
    """
    origin = population.provenance
    known = origin.get("encoder_fingerprint"), metadata.get("encoder_fingerprint")
    if population.dimension == dimension and (None in known or known[0] == known[1]):
        return
    raise ValueError(
        f"Expected the features of the population {place} ({_named(origin, population.dimension)}), got "
        f"{_named(metadata, dimension)}; use the same encoder, or a population whose people answered with yours"
    )


def _named(metadata: Any, dimension: int) -> str:
    sha256 = str(metadata.get("encoder_fingerprint"))[:16]
    encoder = f"encoder {metadata['encoder']}, sha256 {sha256}" if "encoder" in metadata else "no known encoder"
    return f"{dimension} features, {encoder}"
