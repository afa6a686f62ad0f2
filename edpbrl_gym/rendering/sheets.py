"""Contact sheets: pictures in rows and columns with their captions, drawn with Pillow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edpbrl_gym._files import replacing
from edpbrl_gym._pictures import open_picture
from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.lettering import Lettering, letterings

__all__ = ["Tile", "contact_sheet", "in_rows"]

FLAGGED = "flagged by the model's safety checker, not shown"

_MARGIN = 24  # around the sheet
_GAP = 20  # between cells
_INK, _SOFT, _GREY, _LINE = (24, 24, 24), (96, 96, 96), (205, 205, 205), (165, 165, 165)
_TEXT_SIZES = (15, 18, 22)  # pixels: captions, headers and labels, the title
_MAX_LINES = 40  # of one text: several times as many as a prompt of the built-in vocabulary needs
_MAX_HEIGHT = 12_000  # pixels of one page, which image viewers and 32-bit decoders can still open


@dataclass(frozen=True)
class Tile:
    """One picture of a sheet with the texts below it.

    Attributes:
        image: A file, a Pillow image, or None for a light tile with ``note``.
        caption: Text below the picture, wrapped to its width; after 40 lines it ends with an ellipsis, like all texts.
        lines: Short lines between picture and caption, such as scores, also wrapped.
        flagged: Whether a safety checker has flagged it: it is then never opened, and a marked grey tile is shown.
        note: Text of the tile of a missing picture.
    """

    image: Path | str | Any | None
    caption: str = ""
    lines: tuple[str, ...] = ()
    flagged: bool = False
    note: str = "no picture"


@dataclass(frozen=True)
class _Cell:
    tile: Tile
    lines: list[str]
    caption: list[str]


@dataclass(frozen=True)
class _Style:
    """Lettering and measures of a sheet; sizes in pixels."""

    tile: int
    label_width: int
    text: Lettering
    head: Lettering
    title: Lettering


def in_rows(tiles: Sequence[Tile], columns: int) -> list[list[Tile]]:
    """Return tiles in rows of ``columns``, the last row possibly shorter."""
    width = check_count(columns, "columns")
    return [list(tiles[start : start + width]) for start in range(0, len(tiles), width)]


def contact_sheet(
    rows: Sequence[Sequence[Tile | None]],
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    labels: Sequence[str] = (),
    title: str = "",
    tile: int = 256,
    max_height: int = _MAX_HEIGHT,
) -> list[Path]:
    """Draw pictures with their captions into a PNG file.

    Every cell is as wide as a picture, captions are wrapped to that width, and a row is as high as its highest cell, so
    nothing overlaps; a text of more than 40 lines ends with an ellipsis. Characters are drawn in a font that has them;
    those without an installed font are named in a warning. Pictures keep their proportions. A flagged picture is not
    opened: a grey tile with a cross says that it is not shown. Rows that don't fit on a page of ``max_height`` are in
    further files (``sheet-2.png``, ...). The same rows give the same bytes; every file is written atomically.

    Args:
        rows: The cells of every row; rows may differ in length, None leaves a cell empty.
        path: PNG file; its folder is created.
        columns: Headers of the columns; none or one for each column.
        labels: Labels to the left of the rows; none or one for each row.
        title: Title of the sheet.
        tile: Width and largest height of a picture in pixels.
        max_height: Maximum height of a page in pixels; a single row may exceed it.

    Returns:
        The files, in order.

    Raises:
        ValueError: There are no cells, the number of headers or labels is not that of columns or rows, or a file is not
            a picture.
        FileNotFoundError: A picture's file does not exist.
        ModuleNotFoundError: Pillow isn't installed.
    """
    cells = [list(row) for row in rows]
    width = max((len(row) for row in cells), default=0)
    if width == 0:
        raise ValueError("Expected at least one picture for a contact sheet, got none")
    if len(columns) not in (0, width):
        raise ValueError(f"Expected a header for each of the {width} columns, got {len(columns)}")
    if len(labels) not in (0, len(cells)):
        raise ValueError(f"Expected a label for each of the {len(cells)} rows, got {len(labels)}")
    texts = [
        title,
        *columns,
        *labels,
        *(text for row in cells for one in row if one for text in (one.caption, *one.lines, one.note)),
    ]
    style = _style(check_count(tile, "tile", minimum=32), labels, texts)
    layout = [[None if cell_tile is None else _wrap_cell(cell_tile, style) for cell_tile in row] for row in cells]
    pictures = [[None if cell is None else _picture(cell.tile, style) for cell in row] for row in layout]
    heights = [
        max((_cell_height(c, p, style) for c, p in zip(row, row_pictures, strict=True) if c is not None), default=0)
        for row, row_pictures in zip(layout, pictures, strict=True)
    ]
    wrapped = [style.head.lines(label, style.label_width - _GAP, _MAX_LINES) for label in labels]
    if wrapped:
        heights = [max(h, len(w) * style.head.line_height) for h, w in zip(heights, wrapped, strict=True)]
    total = 2 * _MARGIN + (style.label_width if labels else 0) + width * style.tile + (width - 1) * _GAP
    head = _head(title, columns, style, total)
    files = []
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    for number, page_rows in enumerate(_pages(heights, max_height - head.height), start=1):
        sheet = _page(head, page_rows, layout, pictures, heights, wrapped, style, total)
        name = target if number == 1 else target.with_name(f"{target.stem}-{number}{target.suffix}")
        with replacing(name) as text:
            sheet.save(text, format="PNG")
        files.append(name)
    return files


def _style(tile: int, labels: Sequence[str], texts: Sequence[str]) -> _Style:
    text, head, title = letterings([*texts, FLAGGED], _TEXT_SIZES)
    return _Style(tile, max(96, tile // 2) if labels else 0, text, head, title)


def _wrap_cell(tile: Tile, style: _Style) -> _Cell:
    lines = [wrapped_line for line in tile.lines for wrapped_line in style.text.lines(line, style.tile, _MAX_LINES)]
    return _Cell(tile, lines, style.text.lines(tile.caption, style.tile, _MAX_LINES))


def _picture(tile: Tile, style: _Style) -> Any:
    """The picture of a cell, at most tile x tile pixels."""
    from PIL import Image

    if tile.flagged:
        return _placeholder(FLAGGED, style, crossed=True)
    if tile.image is None:
        return _placeholder(tile.note, style, crossed=False)
    if isinstance(tile.image, (str, os.PathLike)):
        with open_picture(tile.image) as file_picture:
            picture = file_picture.convert("RGB")
    else:
        picture = tile.image.convert("RGB")
    scale = min(style.tile / picture.width, style.tile / picture.height)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    # small pictures are enlarged without smoothing, so that the output of a tiny model is shown as it is
    return picture.resize(size, Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.LANCZOS)


def _placeholder(text: str, style: _Style, *, crossed: bool) -> Any:
    from PIL import Image, ImageDraw

    size = style.tile
    tile = Image.new("RGB", (size, size), _GREY if crossed else (238, 238, 238))
    draw = ImageDraw.Draw(tile)
    draw.rectangle((0, 0, size - 1, size - 1), outline=_LINE, width=2)
    if crossed:
        draw.line((0, 0, size, size), fill=_LINE, width=2)
        draw.line((0, size, size, 0), fill=_LINE, width=2)
    step = style.text.line_height
    lines = style.text.lines(text, size - 32, max(1, (size - 16) // step))
    top = (size - step * len(lines)) // 2
    widest = max((style.text.length(line) for line in lines), default=0)
    box = ((size - widest) / 2 - 8, top - 6, (size + widest) / 2 + 8, top + step * len(lines) + 6)
    draw.rectangle(box, fill=tile.getpixel((size // 2, 3)))
    for number, line in enumerate(lines):
        style.text.draw(draw, ((size - style.text.length(line)) / 2, top + number * step), line, _INK)
    return tile


def _cell_height(cell: _Cell, picture: Any, style: _Style) -> int:
    text = (len(cell.lines) + len(cell.caption)) * style.text.line_height
    return int(picture.height) + (8 + text if text else 0)


def _pages(heights: list[int], room: int) -> list[list[int]]:
    """Row numbers of each page."""
    pages: list[list[int]] = [[]]
    used_height = 2 * _MARGIN
    for number, height in enumerate(heights):
        if pages[-1] and used_height + height + _GAP > room:
            pages.append([])
            used_height = 2 * _MARGIN
        pages[-1].append(number)
        used_height += height + _GAP
    return pages


def _head(title: str, columns: Sequence[str], style: _Style, total: int) -> Any:
    """Title and headers as a strip of the sheet's width, the top of every page."""
    from PIL import Image, ImageDraw

    titles = style.title.lines(title, total - 2 * _MARGIN, _MAX_LINES)
    headers = [style.head.lines(column, style.tile, _MAX_LINES) for column in columns]
    title_step, head_step = style.title.line_height, style.head.line_height
    title_height = len(titles) * title_step + (_GAP // 2 if titles else 0)
    height = (
        title_height + max((len(lines) for lines in headers), default=0) * head_step + (_GAP // 2 if headers else 0)
    )
    strip = Image.new("RGB", (total, height), "white")
    draw = ImageDraw.Draw(strip)
    for number, line in enumerate(titles):
        style.title.draw(draw, (_MARGIN, number * title_step), line, _INK)
    for column, lines in enumerate(headers):
        left = _MARGIN + style.label_width + column * (style.tile + _GAP)
        for number, line in enumerate(lines):
            style.head.draw(draw, (left, title_height + number * head_step), line, _INK)
    return strip


def _page(
    head: Any,
    page_rows: list[int],
    layout: list[list[_Cell | None]],
    pictures: list[list[Any]],
    heights: list[int],
    labels: list[list[str]],
    style: _Style,
    total: int,
) -> Any:
    from PIL import Image, ImageDraw

    height = 2 * _MARGIN + head.height + sum(heights[row] for row in page_rows) + _GAP * (len(page_rows) - 1)
    sheet = Image.new("RGB", (total, height), "white")
    sheet.paste(head, (0, _MARGIN))
    draw = ImageDraw.Draw(sheet)
    top = _MARGIN + head.height
    text_step, head_step = style.text.line_height, style.head.line_height
    for row in page_rows:
        for number, line in enumerate(labels[row] if labels else []):
            style.head.draw(draw, (_MARGIN, top + number * head_step), line, _INK)
        for column, (cell, picture) in enumerate(zip(layout[row], pictures[row], strict=True)):
            if cell is None:
                continue
            left = _MARGIN + style.label_width + column * (style.tile + _GAP)
            sheet.paste(picture, (left + (style.tile - picture.width) // 2, top))
            text_top = top + picture.height + 8
            for number, line in enumerate([*cell.lines, *cell.caption]):
                colour = _INK if number < len(cell.lines) else _SOFT
                style.text.draw(draw, (left, text_top + number * text_step), line, colour)
        top += heights[row] + _GAP
    return sheet
