"""``edpbrl render``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Drawing, ModelWorkers
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, counting, output, quiet_libraries, shown
from edpbrl_gym.cli.texts import read_texts
from edpbrl_gym.rendering import RenderingError

if TYPE_CHECKING:
    from edpbrl_gym.rendering import CachedRenderer, RenderedImage

__all__ = ["Render", "run"]

_SHEET_IMAGES = 400  # larger sheets are unreadable, and their files huge
_JOIN = ", "  # between the tokens of a prompt


@dataclass(frozen=True)
class Render:
    """Render prompts as images; images rendered before come from the cache."""

    prompts: Positional[Path]
    """Text file with a prompt in each line, or table (.csv, .tsv, .parquet), as `edpbrl personalize` and `edpbrl
    design` write them."""
    out: Path = Path("runs/images")
    """Folder for the images, manifest.csv and the contact sheet."""
    column: tuple[str, ...] = ()
    """Columns of the table with prompts (none given: prompt, else text, else option_1, option_2, ...)."""
    prefixes: bool = False
    """Also render the truncated prompts: every beginning of a prompt that ends before a comma."""
    seed: tuple[int, ...] = (0,)
    """Seeds of the noise; every prompt gets an image for each."""
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    workers: OmitArgPrefixes[ModelWorkers] = field(default_factory=ModelWorkers)
    sheet_columns: int = 4
    """Images in each row of the contact sheet; 0 draws none."""

    def needs(self) -> list[Need]:
        return [*self.drawing.needs(required=True), *self.workers.needs()]


def run(options: Render) -> None:
    """Render the prompts of a file, and write the images, a manifest and a contact sheet.

    Raises:
        Stopped: After Ctrl-C; finished batches are in the cache.
    """
    from edpbrl_gym._places import hold_folder
    from edpbrl_gym._validation import check_count
    from edpbrl_gym.rendering.settings import check_seed

    with bad_arguments():
        check_count(options.sheet_columns, "--sheet-columns", minimum=0)
        seeds = list(dict.fromkeys(check_seed(seed, "--seed") for seed in options.seed))
        if not seeds:
            raise UsageError("Expected at least one --seed, got none")
        prompts = _prompts(options)
        if options.out.exists() and not options.out.is_dir():
            raise UsageError(f"Expected a folder for the images with --out, got the file {options.out}")
    with hold_folder(options.out, "manifest.csv", "sheet.png"):
        quiet_libraries()
        with options.workers.if_any() as executor:
            with bad_arguments():
                renderer = options.drawing.load(executor)
            with renderer:
                images, missing = _render(renderer, prompts, seeds)
        if not images and missing is not None:
            raise missing
        files = _write(images, options.out)
        sheets = _sheet(images, files, options, seeds) if missing is None else []
        console = output()
        flagged = sum(image.flagged for image in images)
        cut = len({image.prompt for image in images if image.cut})
        summary = f"{len(images) - flagged} images of {len(prompts)} prompts in {shown(options.out)}"
        console.print(f"Written: {summary}", soft_wrap=True)
        if flagged:
            console.print(f"Flagged by the model's safety checker, not shown: {flagged}")
        if cut:
            console.print(f"Longer than the model reads, rendered from their beginnings: {cut}")
        if any(image.negative_cut for image in images):
            console.print("The negative prompt is longer than the model reads: its end has no effect")
        console.print(f"Manifest: {shown(options.out / 'manifest.csv')}", soft_wrap=True)
        for sheet in sheets:
            console.print(f"Contact sheet: {shown(sheet)}", soft_wrap=True)
        if renderer.spent:
            console.print(f"Cost: {renderer.spent:g}")
        if missing is not None:
            raise missing


def _prompts(options: Render) -> list[str]:
    """The distinct prompts of the file, in its order; with --prefixes their truncations come before them."""
    prompts, _ = read_texts(options.prompts, options.column, "prompt")
    if options.prefixes:
        prompts = [
            _JOIN.join(parts[: i + 1]) for text in prompts for parts in [text.split(_JOIN)] for i in range(len(parts))
        ]
    return list(dict.fromkeys(prompts))


def _render(
    renderer: CachedRenderer, prompts: list[str], seeds: list[int]
) -> tuple[list[RenderedImage], RenderingError | None]:
    """The images of every prompt and seed, the seeds of a prompt together; what says that some have none."""
    texts = [prompt for prompt in prompts for _ in seeds]
    reached = "finished"
    try:
        with counting("render") as show:

            def progress(done: int, total: int) -> None:
                nonlocal reached
                reached = f"{done} of {total}"
                show(done, total)

            return renderer.render(texts, seed=seeds * len(prompts), progress=progress), None
    except RenderingError as error:
        return [image for image in error.images if image is not None], error
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped by you; {reached} images are in the cache, and the same command makes the rest"
        ) from None


def _write(images: list[RenderedImage], out: Path) -> list[Path | None]:
    """Copy the images and write the manifest; a flagged image is named there but not copied."""
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.comparisons.delimited import write_csv

    rows, files = [], []
    for image in images:
        # named by key, so that a file keeps its content when prompts are added or moved
        path = None if image.flagged else out / f"{image.key[:20]}.png"
        files.append(path)
        if path is not None:
            data = image.png
            if not (path.is_file() and path.read_bytes() == data):
                write_atomically(path, lambda part, data=data: part.write_bytes(data))  # type: ignore[misc]
        rows.append(
            {
                "prompt": image.prompt,
                "seed": image.seed,
                "file": "" if path is None else path.name,
                "flagged": image.flagged,
                "cut": image.cut,
                "negative_cut": image.negative_cut,
                "width": image.width,
                "height": image.height,
                "sha256": image.sha256,
                "key": image.key,
            }
        )
    write_csv(out / "manifest.csv", list(rows[0]), rows)
    return files


def _sheet(images: list[RenderedImage], files: list[Path | None], options: Render, seeds: list[int]) -> list[Path]:
    """Draw the contact sheet: the images with their prompts, those of several seeds side by side."""
    if not options.sheet_columns:
        return []
    from edpbrl_gym.rendering.sheets import Tile, contact_sheet, in_rows

    several = len(seeds) > 1
    columns = len(seeds) if several else options.sheet_columns
    shown_images = images[: max(columns, _SHEET_IMAGES // columns * columns)]
    tiles = [
        Tile(image=path, caption=image.prompt, flagged=image.flagged)
        for image, path in zip(shown_images, files[: len(shown_images)], strict=True)
    ]
    return contact_sheet(
        in_rows(tiles, columns),
        options.out / "sheet.png",
        columns=[f"seed {seed}" for seed in seeds] if several else (),
        title=f"The first {len(shown_images)} of {len(images)} images" if len(shown_images) < len(images) else "",
    )
