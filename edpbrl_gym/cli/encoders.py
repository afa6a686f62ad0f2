"""Which encoder a command takes: the one that was named on the command line, else the one that a file names."""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym.cli.errors import UsageError, bad_arguments

__all__ = ["chosen_encoder"]


def chosen_encoder(given: str | None, stored: object, file: Path, *, advice: str = "") -> str:
    """Return ``given`` (--encoder), else the name that was found in a file.

    A file never has code of one's own run that the command line doesn't name: import strings must be given.

    Args:
        given: The option, None where it was left out.
        stored: What the file names, None where it names none.
        file: For messages.
        advice: What else helps where no encoder is known.

    Raises:
        UsageError: No encoder is named, its name has no known form, or the file names one of one's own.
    """
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.features.loading import is_own_encoder

    if given is not None:
        with bad_arguments():
            return check_encoder_spec(given)
    if stored is None:
        raise UsageError(f"Expected --encoder, as {file} doesn't say with which one it was made{advice}")
    with bad_arguments():
        spec = check_encoder_spec(stored)
    if is_own_encoder(spec):
        raise UsageError(
            f"Expected --encoder, as {file} names a custom encoder: give --encoder {spec} to have that code run"
        )
    return spec
