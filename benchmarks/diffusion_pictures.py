"""The pictures of docs/diffusion.md, by the package's own model of handwritten digits.

python -m benchmarks.diffusion_pictures --out docs       # diffusion-digits.png, diffusion-blocks.png; 20 s
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from sklearn.datasets import load_digits

import edpbrl_gym  # noqa: F401  (registers the environments)
from benchmarks.common import make_parser
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

ID = "edpbrl/DiffusionGuidance-v0"
SIZE = 8  # pixels of a digit; enlarged by whole factors, pixel by pixel
PATHS = (
    ("1 all the way", [1, 1, 1, 1, 1]),
    ("8 all the way", [8, 8, 8, 8, 8]),
    ("first 8, then 1", [8, 1, 1, 1, 1]),
    ("first 1, then 8", [1, 8, 8, 8, 8]),
    ("0 0 8 1 7", [0, 0, 8, 1, 7]),
)


def picture(image: np.ndarray, factor: int) -> Any:
    """A Pillow image of an array (8, 8) or (8, 8, 3), enlarged."""
    from PIL import Image

    return Image.fromarray(np.asarray(image, dtype=np.uint8).repeat(factor, axis=0).repeat(factor, axis=1))


def draw_digits(folder: Path) -> None:
    """Real digits, and samples of every class from the same ten noises, at several weights."""
    digits = load_digits()
    real = [digits.images[np.flatnonzero(digits.target == digit)[3]] * (255 / 16) for digit in range(10)]
    rows = [[Tile(picture(image, 8)) for image in real]]
    labels = ["a real digit"]
    for weight in (1.0, 2.0, 4.0):
        lanes: Any = gymnasium.make_vec(ID, num_envs=10, weights=[weight], autoreset_mode="disabled")
        lanes.reset(options={"noise_seed": list(range(10))})
        for _ in range(5):
            observations, *_ = lanes.step(np.arange(10))
        rows.append([Tile(picture(image, 8)) for image in lanes.unwrapped.trajectory_images(observations)])
        labels.append(f"weight {weight:g}")
    contact_sheet(rows, folder / "diffusion-digits.png", columns=[str(digit) for digit in range(10)], labels=labels,
                  tile=8 * SIZE, title="Classes asked for, 10 DDIM steps; a column has one noise")  # fmt: skip


def draw_blocks(folder: Path) -> None:
    """What the model predicts after each block of one noise, in several directions."""
    lanes: Any = gymnasium.make_vec(ID, num_envs=len(PATHS), autoreset_mode="disabled")
    lanes.reset(options={"noise_seed": 4})
    rows: list[list[Tile]] = [[] for _ in PATHS]
    for block in range(5):
        observations, *_ = lanes.step(np.array([actions[block] for _, actions in PATHS]))
        for row, image in zip(rows, lanes.unwrapped.trajectory_images(observations), strict=True):
            row.append(Tile(picture(image, 12)))
    contact_sheet(rows, folder / "diffusion-blocks.png", columns=[f"block {block + 1}" for block in range(5)],
                  labels=[name for name, _ in PATHS], tile=12 * SIZE,
                  title="From one noise: the predicted image after each block")  # fmt: skip


def main() -> None:
    """Draw the pictures."""
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    args = parser.parse_args()
    draw_digits(args.out)
    draw_blocks(args.out)


if __name__ == "__main__":
    main()
