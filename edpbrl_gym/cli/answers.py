"""What commands on answers share: the encoder and the population behind them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym.cli.console import UsageError, bad_arguments

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation.taste_prior import TastePrior
    from edpbrl_gym.features import TextEncoder

__all__ = [
    "answers_encoder",
    "check_encoder_of_population",
    "check_population_file",
    "select_encoder",
]


def select_encoder(option: str | None, name: object, file: Path, *, advice: str = "") -> str:
    """Return --encoder, or where that is None the name in a file; ``advice`` ends the message where there is neither.

    A file alone never causes custom code to run: import strings must be given on the command line.
    """
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.features.loading import is_own_encoder

    if option is not None:
        with bad_arguments():
            return check_encoder_spec(option)
    if name is None:
        raise UsageError(f"Expected --encoder, as {file} doesn't say with which one it was made{advice}")
    with bad_arguments():
        spec = check_encoder_spec(name)
    if is_own_encoder(spec):
        raise UsageError(
            f"Expected --encoder, as {file} names a custom encoder: give --encoder {spec} to have that code run"
        )
    return spec


def answers_encoder(option: str | None, comparisons: Comparisons, file: Path, *, advice: str) -> TextEncoder:
    """Load the encoder with which comparisons were made; the arguments are those of ``select_encoder``."""
    from edpbrl_gym.features import load_encoder

    metadata = comparisons.metadata
    encoder = load_encoder(select_encoder(option, metadata.get("encoder"), file, advice=advice))
    fingerprint = metadata.get("encoder_fingerprint")
    if encoder.dimension != comparisons.dimension or (fingerprint is not None and encoder.fingerprint != fingerprint):
        raise ValueError(
            f"Expected the encoder of the answers ({metadata.get('encoder')}, {comparisons.dimension} features, sha256 "
            f"{str(fingerprint)[:16]}), got {encoder.name} ({encoder.dimension} features, sha256 "
            f"{encoder.fingerprint[:16]}); load the same weights"
        )
    return encoder


def check_population_file(file: Path, *, others: str = "") -> None:
    """Refuse a --prior that can't be a file of a population; ``others``: what else it takes, ending in " or "."""
    if file.suffix != ".safetensors":
        raise UsageError(
            f"Expected --prior {others}a population.safetensors of `edpbrl fit-population`, got {str(file)!r}"
        )
    if not file.is_file():
        raise UsageError(f"Expected a population at {file}, found none; make one with `edpbrl fit-population`")


def check_encoder_of_population(population: TastePrior, metadata: dict[str, Any], dimension: int, file: Path) -> None:
    """Refuse a population about other features than those of answers or questions.

    ``metadata`` has ``encoder`` and ``encoder_fingerprint`` of the features, as far as known, or ``attributes``.
    """
    origin = population.provenance
    known = origin.get("encoder_fingerprint"), metadata.get("encoder_fingerprint")
    same = (None in known or known[0] == known[1]) and origin.get("attributes") == metadata.get("attributes")
    if population.inputs == dimension and same:
        return
    raise ValueError(
        f"Expected the features of the population {file} ({_named(origin, population.inputs)}), got "
        f"{_named(metadata, dimension)}; use the same encoder or the same columns, or a population whose people "
        "answered with yours"
    )


def _named(metadata: Any, dimension: int) -> str:
    if "attributes" in metadata:
        return f"the attributes {', '.join(metadata['attributes'])}"
    sha256 = str(metadata.get("encoder_fingerprint"))[:16]
    encoder = f"encoder {metadata['encoder']}, sha256 {sha256}" if "encoder" in metadata else "no known encoder"
    return f"{dimension} features, {encoder}"
