"""``edpbrl encode``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import ModelWorkers
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, output, quiet_libraries, shown
from edpbrl_gym.cli.texts import read_texts

__all__ = ["Encode", "run"]


@dataclass(frozen=True)
class Encode:
    """Write the embeddings of many texts to a .npy file; texts encoded before come from the cache."""

    texts: Positional[Path]
    """Text file with a text in each line, or table (.csv, .tsv, .parquet) with columns of texts, as `edpbrl design` and
    `edpbrl personalize` write them; empty lines and cells are left out."""
    column: tuple[str, ...] = ()
    """Columns of a table with texts (none given: prompt, else text, else option_1, option_2, ...)."""
    out: Path = Path("features.npy")
    """The file: float32, a row of unit norm for each text, in their order (of a table row by row, in each row column by
    column)."""
    encoder: str = "minilm"
    """Text encoder, as for the other commands."""
    batch_size: int = 256
    """Maximum number of texts per call of the model."""
    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    workers: OmitArgPrefixes[ModelWorkers] = field(default_factory=ModelWorkers)

    def needs(self) -> list[Need]:
        from edpbrl_gym.features import encoder_needs

        return [*encoder_needs(self.encoder), *self.workers.needs()]


def run(options: Encode) -> None:
    """Encode the texts of a file."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym._validation import check_count
    from edpbrl_gym.features import CachedEncoder, encode_to_file, load_encoder

    start = time.monotonic()
    with bad_arguments():
        check_count(options.batch_size, "--batch-size")
        if options.out.suffix != ".npy":
            raise UsageError(f"Expected a file name ending in .npy with --out, got {options.out.name!r}")
        texts, columns = read_texts(options.texts, options.column, "text")
    prepare_place(options.out)
    with hold_place(options.out):
        quiet_libraries()
        with options.workers.if_any() as executor:
            with bad_arguments():
                encoder = load_encoder(
                    options.encoder, batch_size=options.batch_size, device=options.device, executor=executor
                )
                if not isinstance(encoder, CachedEncoder):
                    raise UsageError(
                        f"Expected one encoder of texts with a model, got {options.encoder}; encode by each one that "
                        "is joined, pictures by load_image_encoder, and use a file of rows as it is"
                    )
            try:
                encode_to_file(encoder, texts, options.out, progress=True)
            except KeyboardInterrupt:
                raise Stopped(
                    "stopped by you; finished chunks of texts are in the cache, and the same command encodes the rest"
                ) from None
        if columns:
            distinct = f"{len(texts):,} texts, {len(set(texts)):,} distinct ones"
            output().print(f"Encoded: {distinct}, of the columns {', '.join(columns)} of {shown(options.texts)}")
        size = options.out.stat().st_size / 1e6
        output().print(
            f"Written: {len(texts):,} x {encoder.dimension} features in {shown(options.out)} ({size:,.1f} MB, "
            f"{time.monotonic() - start:.1f} s)",
            soft_wrap=True,
        )
