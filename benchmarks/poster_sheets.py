"""The two sheets of posters in the docs: best and worst of 400 random ones for two tastes in pixels.

``python -m benchmarks.poster_sheets [FOLDER]`` writes posters-calm.png and posters-warm.png (default: docs); the same
files every time. The tastes are those of ``benchmarks/picture_tastes.py``. Page: docs/pictures.md.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from benchmarks.picture_tastes import TASTES
from edpbrl_gym._files import replacing
from edpbrl_gym._seeds import generator
from edpbrl_gym.rendering.posters import PostersRenderer
from edpbrl_gym.vocabulary import load_vocabulary

POSTERS, SHOWN, COLUMNS = 400, 12, 6
WIDTH, HEIGHT, GAP, MIDDLE = 132, 165, 8, 30  # pixels of a poster on a sheet, between two, between best and worst
BACKGROUND = "#f4f4f2"


def main(folder: Path) -> list[Path]:
    """Write the sheets and return their files: the best 12 in two rows, and below them the worst 12."""
    from PIL import Image

    vocabulary, rng = load_vocabulary("posters"), generator(0, "poster sheets")
    texts = [", ".join(tokens[rng.integers(len(tokens))] for tokens in vocabulary.tokens) for _ in range(POSTERS)]
    renderer = PostersRenderer(width=2 * WIDTH, height=2 * HEIGHT)
    pictures = [Image.open(io.BytesIO(one.png)).convert("RGB") for one in renderer.draw(texts, range(POSTERS))]
    rows, files = SHOWN // COLUMNS, []
    for name, taste in TASTES.items():
        order = sorted(range(POSTERS), key=lambda i: -taste(pictures[i]))
        size = (COLUMNS * (WIDTH + GAP) + GAP, 2 * rows * (HEIGHT + GAP) + GAP + MIDDLE)
        sheet = Image.new("RGB", size, BACKGROUND)
        for place, which in enumerate([*order[:SHOWN], *order[-SHOWN:]]):
            row, column = divmod(place, COLUMNS)
            small = pictures[which].resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
            sheet.paste(small, (GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP) + MIDDLE * (row >= rows)))
        files.append(folder / f"posters-{name}.png")
        with replacing(files[-1]) as path:
            sheet.quantize(256, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
    return files


if __name__ == "__main__":
    for file in main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs")):
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
