"""``edpbrl render``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym._files import errors_naming
from edpbrl_gym.cli.arguments import ModelWorkers
from edpbrl_gym.cli.console import counting, output, quiet_libraries, shown
from edpbrl_gym.cli.drawing import Drawing
from edpbrl_gym.cli.errors import Stopped, UsageError, bad_arguments
from edpbrl_gym.rendering.settings import RenderSettings

if TYPE_CHECKING:
    from edpbrl_gym.rendering import RenderedImage, Renderer

__all__ = ["Render", "run"]

_SHEET_IMAGES = 400  # larger sheets are unreadable, and their files huge
_JOIN = ", "  # between the tokens of a prompt


@dataclass(frozen=True)
class Render:
    """Render prompts as images; images rendered before come from the cache."""

    prompts: Positional[Path]
    """Text file with a prompt in each line, or CSV file; `edpbrl personalize` and `edpbrl design` write such CSV."""
    settings: OmitArgPrefixes[RenderSettings]
    out: Path = Path("runs/images")
    """Folder for the images, manifest.csv and the contact sheet."""
    column: tuple[str, ...] = ()
    """Columns of the CSV file with prompts (none given: prompt, else text, else option_1, option_2, ...)."""
    prefixes: bool = False
    """Also render the truncated prompts: every beginning of a prompt that ends before a comma."""
    seed: tuple[int, ...] = (0,)
    """Seeds of the noise; every prompt gets an image for each."""
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    workers: OmitArgPrefixes[ModelWorkers] = field(default_factory=ModelWorkers)
    sheet_columns: int = 4
    """Images in each row of the contact sheet; 0 draws none."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        packages = ("diffusers", "torch", "transformers", "PIL")
        return [*(Need(package, "pictures", "images") for package in packages), *self.workers.needs()]


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
    lock = hold_folder(options.out, "manifest.csv", "sheet.png")
    quiet_libraries()
    with options.workers.if_any() as executor:
        images = _render(options.drawing.renderer(options.settings, executor), prompts, seeds)
    files = _write(images, options.out)
    sheets = _sheet(images, files, options, seeds)
    console = output()
    flagged = sum(image.flagged for image in images)
    cut = len({image.prompt for image in images if image.cut})
    summary = f"{len(images) - flagged} images of {len(prompts)} prompts in {shown(options.out)}"
    console.print(f"Written: {summary}", soft_wrap=True)
    if flagged:
        console.print(f"Flagged by the model's safety checker, not shown: {flagged}")
    if cut:
        console.print(f"Longer than the model reads, rendered from their beginnings: {cut}")
    console.print(f"Manifest: {shown(options.out / 'manifest.csv')}", soft_wrap=True)
    for sheet in sheets:
        console.print(f"Contact sheet: {shown(sheet)}", soft_wrap=True)
    del lock


def _prompts(options: Render) -> list[str]:
    """The distinct prompts of the file, in its order; with --prefixes their truncations come before them."""
    source = options.prompts
    if not source.is_file():
        raise UsageError(f"Expected a file of prompts at {source}, found none")
    if source.suffix.lower() in (".csv", ".tsv"):
        prompts = _from_table(source, options.column)
    elif options.column:
        raise UsageError(f"Expected a CSV file with --column, got {source}")
    else:
        try:
            with errors_naming(source):
                lines = source.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise UsageError(f"Expected text in UTF-8 in {source}, got other bytes; save it as UTF-8") from None
        prompts = [line.strip() for line in lines if line.strip()]
    if options.prefixes:
        prompts = [
            _JOIN.join(parts[: i + 1]) for text in prompts for parts in [text.split(_JOIN)] for i in range(len(parts))
        ]
    if not prompts:
        raise UsageError(f"Expected at least one prompt in {source}, found none")
    return list(dict.fromkeys(prompts))


def _from_table(source: Path, columns: tuple[str, ...]) -> list[str]:
    """The texts of some columns, row by row; empty cells are left out."""
    from edpbrl_gym.comparisons.csv_files import read_csv

    table = read_csv(source)
    header, rows = table.header, table.rows
    names = list(columns)
    if not names:
        options = [name for name in header if name.startswith("option_")]
        names = next(
            (candidate for candidate in (["prompt"], ["text"], options) if candidate and candidate[0] in header), []
        )
    missing = [name for name in names if name not in header]
    if missing or not names:
        expected = ", ".join(missing) or "prompt, text or option_1, option_2, ..."
        raise UsageError(
            f"Expected the column(s) {expected} in {source}, which has {', '.join(header)}; name the columns with "
            "prompts by --column"
        )
    indices = [header.index(name) for name in names]
    return [text for row in rows for text in (row[index].strip() for index in indices) if text]


def _render(renderer: Renderer, prompts: list[str], seeds: list[int]) -> list[RenderedImage]:
    """The images of every prompt and seed, the seeds of a prompt together."""
    texts = [prompt for prompt in prompts for _ in seeds]
    reached = "finished"
    try:
        with counting("render") as show:

            def progress(done: int, total: int) -> None:
                nonlocal reached
                reached = f"{done} of {total}"
                show(done, total)

            return renderer.render(texts, seed=seeds * len(prompts), progress=progress)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped by you; {reached} images are in the cache, and the same command makes the rest"
        ) from None


def _write(images: list[RenderedImage], out: Path) -> list[Path | None]:
    """Copy the images and write the manifest; a flagged image is named there but not copied."""
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.comparisons.csv_files import write_csv

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
