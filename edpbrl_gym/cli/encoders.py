"""The encoder of a command: the one named on the command line, else the one named in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym.cli.errors import UsageError, bad_arguments

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.features import TextEncoder

__all__ = ["answers_encoder", "select_encoder"]


def select_encoder(option: str | None, name: object, file: Path, *, advice: str = "") -> str:
    """Return ``option`` (--encoder), else the name in a file.

    A file alone never causes custom code to run: import strings must be given on the command line.

    Args:
        option: Value of --encoder, None if it was left out.
        name: Encoder named in the file, None without one.
        file: The file, for messages.
        advice: Further advice if no encoder is known.

    Raises:
        UsageError: No encoder is named, its name has no known form, or the file names a custom one.
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
    """Load the encoder with which comparisons were made.

    Args:
        option: Value of --encoder, None if it was left out.
        comparisons: The answers.
        file: Their file, for messages.
        advice: Further advice if no encoder is known.

    Raises:
        UsageError: As for ``select_encoder``.
        ValueError: Its weights are not those of the answers.
    """
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
