"""``edpbrl render``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Drawing, ModelWorkers, say_what_is_drawn
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, counting, output, quiet_libraries, shown
from edpbrl_gym.cli.texts import read_texts

if TYPE_CHECKING:
    from edpbrl_gym.rendering import CachedRenderer, RenderedImage, RenderingError

__all__ = ["Render", "run"]

_SHEET_IMAGES = 400  # larger sheets are unreadable, and their files huge
_OF_IMAGES = {"flagged": False, "cut": False, "negative_cut": False, "width": "", "height": "", "sha256": "", "key": ""}
"""What the manifest says of an image -> where there is none."""


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
                wanted = [(prompt, seed) for prompt in prompts for seed in seeds]
                say_what_is_drawn(renderer, prompts * len(seeds), [seed for seed in seeds for _ in prompts])
                found, missing = _render(renderer, wanted)
        reasons = [None] * len(wanted) if missing is None else missing.reasons
        cells = [
            _Cell(*pair, image, None if reason is None else str(reason))
            for pair, image, reason in zip(wanted, found, reasons, strict=True)
        ]
        files = _write(cells, options.out)
        images = [image for image in found if image is not None]
        sheets = _sheet(cells, files, options, seeds) if images else []
        console = output()
        flagged = sum(image.flagged for image in images)
        cut = len({image.prompt for image in images if image.cut})
        summary = f"{len(images) - flagged} images of {len(prompts)} prompts in {shown(options.out)}"
        console.print(f"Written: {summary}", soft_wrap=True)
        if len(images) < len(cells):
            console.print(f"Without a picture: {len(cells) - len(images)}, with the reasons in the manifest")
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
    from edpbrl_gym.vocabulary import SEPARATOR

    prompts, _ = read_texts(options.prompts, options.column, "prompt")
    if options.prefixes:
        parts = [text.split(SEPARATOR) for text in prompts]
        prompts = [SEPARATOR.join(some[: i + 1]) for some in parts for i in range(len(some))]
    return list(dict.fromkeys(prompts))


class _Cell(NamedTuple):
    """A prompt and a seed with their image, or why there is none."""

    prompt: str
    seed: int
    image: RenderedImage | None
    reason: str | None


def _render(
    renderer: CachedRenderer, wanted: list[tuple[str, int]]
) -> tuple[list[RenderedImage | None], RenderingError | None]:
    """The images of prompts and seeds; what says that some have none."""
    texts, seeds = [prompt for prompt, _ in wanted], [seed for _, seed in wanted]
    reached = "finished"
    try:
        with counting("render") as show:

            def progress(done: int, total: int) -> None:
                nonlocal reached
                reached = f"{done} of {total}"
                show(done, total)

            return renderer.render_some(texts, seed=seeds, progress=progress)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped by you; {reached} images are in the cache, and the same command makes the rest"
        ) from None


def _write(cells: list[_Cell], out: Path) -> list[Path | None]:
    """Copy the images and write the manifest; a flagged image, or a missing one, is named there with its reason."""
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.comparisons.delimited import write_csv

    rows, files = [], []
    for prompt, seed, image, reason in cells:
        # named by key, so that a file keeps its content when prompts are added or moved
        path = None if image is None or image.flagged else out / f"{image.key[:20]}.png"
        files.append(path)
        if path is not None:
            assert image is not None
            data = image.png
            if not (path.is_file() and path.read_bytes() == data):
                write_atomically(path, lambda part, data=data: part.write_bytes(data))  # type: ignore[misc]
        rows.append(
            {
                "prompt": prompt,
                "seed": seed,
                "file": "" if path is None else path.name,
                **{name: getattr(image, name, absent) for name, absent in _OF_IMAGES.items()},
                "reason": reason or "",
            }
        )
    write_csv(out / "manifest.csv", list(rows[0]), rows)
    return files


def _sheet(cells: list[_Cell], files: list[Path | None], options: Render, seeds: list[int]) -> list[Path]:
    """Draw the contact sheet: the images with their prompts, those of several seeds side by side."""
    if not options.sheet_columns:
        return []
    from edpbrl_gym.rendering.sheets import Tile, contact_sheet, in_rows

    several = len(seeds) > 1
    columns = len(seeds) if several else options.sheet_columns
    first = cells[: max(columns, _SHEET_IMAGES // columns * columns)]
    tiles = [
        Tile(path, one.prompt, flagged=one.image is not None and one.image.flagged, note=f"no picture: {one.reason}")
        for one, path in zip(first, files[: len(first)], strict=True)
    ]
    return contact_sheet(
        in_rows(tiles, columns),
        options.out / "sheet.png",
        columns=[f"seed {seed}" for seed in seeds] if several else (),
        title=f"The first {len(first)} of {len(cells)} images" if len(first) < len(cells) else "",
    )
