"""``edpbrl encode``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym._files import errors_naming
from edpbrl_gym.cli.arguments import ModelWorkers
from edpbrl_gym.cli.console import output, quiet_libraries, shown
from edpbrl_gym.cli.errors import Stopped, UsageError, bad_arguments

__all__ = ["Encode", "run"]


@dataclass(frozen=True)
class Encode:
    """Write the embeddings of many texts to a .npy file; texts encoded before come from the cache."""

    texts: Positional[Path]
    """Text file in UTF-8 with a text in each line; empty lines are left out."""
    out: Path = Path("features.npy")
    """The file: float32, a row of unit norm for each text, in their order."""
    encoder: str = "minilm"
    """Text encoder, as for the other commands."""
    batch_size: int = 256
    """Maximum number of texts per call of the model."""
    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    workers: OmitArgPrefixes[ModelWorkers] = field(default_factory=ModelWorkers)

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.features import encoder_needs

        return [*encoder_needs(self.encoder), *self.workers.needs()]


def run(options: Encode) -> None:
    """Encode the texts of a file.

    Raises:
        Stopped: After Ctrl-C; finished chunks are in the cache.
    """
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym._validation import check_count
    from edpbrl_gym.features import CachedEncoder, encode_to_file, load_encoder

    start = time.monotonic()
    with bad_arguments():
        check_count(options.batch_size, "--batch-size")
        if options.out.suffix != ".npy":
            raise UsageError(f"Expected a file name ending in .npy with --out, got {options.out.name!r}")
        texts = _read(options.texts)
    prepare_place(options.out)
    lock = hold_place(options.out)
    quiet_libraries()
    with options.workers.if_any() as executor:
        with bad_arguments():
            encoder = load_encoder(
                options.encoder, batch_size=options.batch_size, device=options.device, executor=executor
            )
            if not isinstance(encoder, CachedEncoder):
                raise UsageError(f"Expected an encoder with a model, got {options.encoder}, which is a file of rows")
        try:
            encode_to_file(encoder, texts, options.out, progress=True)
        except KeyboardInterrupt:
            raise Stopped(
                "stopped by you; finished chunks of texts are in the cache, and the same command encodes the rest"
            ) from None
    size = options.out.stat().st_size / 1e6
    output().print(
        f"Written: {len(texts):,} x {encoder.dimension} features in {shown(options.out)} ({size:,.1f} MB, "
        f"{time.monotonic() - start:.1f} s)",
        soft_wrap=True,
    )
    del lock


def _read(source: Path) -> list[str]:
    """The texts of the file."""
    if not source.is_file():
        raise UsageError(f"Expected a file of texts at {source}, found none")
    try:
        with errors_naming(source), open(source, encoding="utf-8-sig") as lines:
            texts = [text for line in lines if (text := line.strip())]
    except UnicodeDecodeError:
        raise UsageError(f"Expected text in UTF-8 in {source}, got other bytes; save it as UTF-8") from None
    if not texts:
        raise UsageError(f"Expected at least one text in {source}, found none")
    return texts
