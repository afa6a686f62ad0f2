"""``edpbrl rank``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, counting, output, quiet_libraries, shown

if TYPE_CHECKING:
    from edpbrl_gym.features import ImageEncoder
    from edpbrl_gym.personalize.taste import Taste
    from edpbrl_gym.pictures import PicturePool

__all__ = ["Rank", "run"]

_NAMED = 10  # lines of files in the terminal
_COLUMNS = 5  # of a sheet


@dataclass(frozen=True)
class Rank:
    """Rank the pictures of a folder by a taste in pictures."""

    folder: Positional[Path]
    """Folder of pictures, with its sub-folders, or a table of files and prompts in it."""
    taste: Path
    """Taste learnt from pictures, as `edpbrl ask` and `edpbrl estimate` write it for answers about pictures."""
    out: Path = Path("runs/rank")
    """Folder for ranking.csv, left_out.csv, best.png and worst.png; the table has standard errors of scores where the
    answers lie beside the taste, as in a folder of `edpbrl ask`."""
    count: int = 20
    """Pictures on each of the two sheets; 0 draws none."""
    encoder: str | None = None
    """Encoder (None: the one that the taste names; a custom one must be named)."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.features import encoder_needs

        return [Need("PIL", "pictures", "pictures"), *([] if self.encoder is None else encoder_needs(self.encoder))]


def run(options: Rank) -> None:
    """Score every picture of a folder, write the table and the sheets, and print the best and the worst."""
    from edpbrl_gym._places import hold_folder
    from edpbrl_gym._validation import check_count
    from edpbrl_gym.comparisons.delimited import write_csv
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.personalize.taste import load_taste
    from edpbrl_gym.pictures import load_pictures

    with bad_arguments():
        check_count(options.count, "--count", minimum=0)
        if not options.folder.exists():
            raise UsageError(f"Expected a folder of pictures at {options.folder}, found nothing; check the path")
        taste = load_taste(options.taste)
        spec = _spec(options, taste)
        quiet_libraries()
        image_encoders = _loaded(spec)
    with hold_folder(options.out, "ranking.csv", "left_out.csv", "best.png", "worst.png"):
        with counting("pictures") as progress, bad_arguments():
            pool = load_pictures(options.folder, progress=progress)
        encoder = load_encoder(spec, drawn=pool.encoder(*image_encoders))
        _check_dimension(encoder, taste, options)
        features = taste.encoder(encoder).encode(pool.vocabulary.all_tokens, progress=True)
        scores, errors = features @ taste.theta, _standard_errors(taste, options.taste.parent, features)
        order = sorted(range(len(pool)), key=lambda item: (-scores[item], item))
        rows = [
            {
                "rank": rank,
                "file": pool.names[item],
                "text": pool.vocabulary.tokens[0][item],
                "score": float(scores[item]),
                **({} if errors is None else {"standard_error": float(errors[item])}),
            }
            for rank, item in enumerate(order, start=1)
        ]
        write_csv(options.out / "ranking.csv", list(rows[0]), rows)
        left_out = [{"file": name, "reason": reason} for name, reason in pool.left_out.items()]
        write_csv(options.out / "left_out.csv", ["file", "reason"], left_out)
        console = output()
        lines = [f"{row['rank']:>5}  {row['score']:+.3f}  {row['file']}" for row in rows]
        missing = [f"{one['file']}: {one['reason']}" for one in left_out[:_NAMED]]
        if len(left_out) > _NAMED:
            missing.append(f"and {len(left_out) - _NAMED} more, in {shown(options.out / 'left_out.csv')}")
        worst = lines[_NAMED:][: -_NAMED - 1 : -1]
        for title, some in (("Best", lines[:_NAMED]), ("Worst", worst), ("Left out", missing)):
            for number, line in enumerate(some):
                bullet(console, "" if number else title, line)
        sheets = _sheets(options, pool, order, scores)
        bullet(console, "Written", f"{len(rows)} pictures in {shown(options.out / 'ranking.csv')}")
        for sheet in sheets:
            bullet(console, "Sheet", shown(sheet))


def _spec(options: Rank, taste: Taste) -> str:
    """The name of the taste's encoder; a taste about anything but pictures is refused."""
    from edpbrl_gym.cli.answers import select_encoder
    from edpbrl_gym.features.loading import picture_parts

    name = str(taste.provenance.get("encoder", ""))
    if not picture_parts(name):
        about = "attributes" if "attributes" in taste.provenance else f"texts (encoder {name})" if name else "texts"
        raise UsageError(
            f"Expected a taste learnt from pictures in {options.taste}, got one about {about}, which says nothing of "
            f"pictures; learn one with `edpbrl ask --pictures {options.folder}`, or from answers about pictures with "
            "`edpbrl estimate`"
        )
    return select_encoder(options.encoder, name, options.taste)


def _loaded(spec: str) -> list[ImageEncoder]:
    """The encoders of the pictures, before they are opened."""
    from edpbrl_gym.features import load_image_encoder
    from edpbrl_gym.features.loading import picture_parts

    if not (seen := picture_parts(spec)):
        raise UsageError(f"Expected an encoder with a part 'picture:NAME' with --encoder, got {spec!r}")
    return [load_image_encoder(one) for one in seen]


def _standard_errors(taste: Taste, folder: Path, features: Any) -> Any:
    """Posterior standard deviations of the scores of rows (n, d), (n,); None where the folder lacks the answers."""
    import numpy as np

    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.likelihood import format_of

    file, prior = folder / str(taste.provenance.get("answers")), taste.mapping_prior()
    if prior is None or file.suffix != ".parquet" or not file.is_file():
        return None
    answers = Comparisons.from_parquet(file).informative
    fit = prior.fit(prior.mapped(answers).terms(format_of(answers.responses)))
    is_theirs = np.allclose(fit.estimate.theta, taste.theta, rtol=1e-3, atol=1e-6)
    return fit.posterior.standard_deviation(features) if is_theirs else None


def _check_dimension(encoder: Any, taste: Taste, options: Rank) -> None:
    expected = len(taste.theta) if taste.landmarks is None else taste.landmarks.shape[1]
    if encoder.dimension != expected:
        raise UsageError(
            f"Expected the encoder of {options.taste} ({taste.provenance.get('encoder')}, {expected} features), got "
            f"{encoder.name} with {encoder.dimension}; load the same weights"
        )


def _sheets(options: Rank, pool: PicturePool, order: list[int], scores: Any) -> list[Path]:
    from edpbrl_gym._pictures import read_picture
    from edpbrl_gym.rendering.sheets import Tile, contact_sheet, in_rows

    sheets: list[Path] = []
    texts = pool.vocabulary.all_tokens
    for title, some in (("best", order[: options.count]), ("worst", order[::-1][: options.count])):
        tiles = [
            Tile(read_picture(pool.files[item], longest=256), texts[item], (f"{scores[item]:+.3f}",)) for item in some
        ]
        if tiles:
            heading = f"The {len(tiles)} {title} of {len(pool)} pictures"
            sheets += contact_sheet(in_rows(tiles, _COLUMNS), options.out / f"{title}.png", title=heading)
    return sheets
