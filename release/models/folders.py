"""Where a trained model is written."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["TRAINING_FILE", "check_free"]

TRAINING_FILE = "training.json"  # the record beside the weights: settings, seed, versions, figures


def check_free(out: str | os.PathLike[str]) -> Path:
    """Return the folder, before the work rather than after it.

    Raises:
        ValueError: If something is there.
    """
    folder = Path(out).expanduser()
    if folder.exists():
        raise ValueError(
            f"Expected nothing at {folder}, where the model is to be written; choose another, or remove it"
        )
    return folder
