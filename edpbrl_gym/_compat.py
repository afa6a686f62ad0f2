"""Small repairs of common installation mismatches, applied before the first import of a heavy package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["declare_torchvision_schemas"]

# the operators for which torchvision registers a Python kernel at import, without asking whether they exist
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_done: list[bool] = []


def _operators_load(package: Path) -> bool:
    """Whether torchvision's compiled operators load into this torch; loading them again later is harmless."""
    import torch

    for library in sorted(package.glob("_C*")):
        if library.suffix in (".so", ".pyd", ".dll", ".dylib"):
            try:
                torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
            except (OSError, ImportError):
                return False
            return True
    return False


def declare_torchvision_schemas() -> None:
    """Let ``import torchvision`` go through where its compiled operators do not load.

    The torchvision of the package index is built for CUDA. Beside a CPU build of torch its library does not load,
    ``import torchvision`` fails with "operator torchvision::nms does not exist" and takes transformers,
    sentence-transformers and open_clip down with it. None of our models uses these operators: declaring their schemas
    is enough. A torchvision that fits its torch is left alone (it would refuse a second declaration).

    Call this before importing any of these packages. It does nothing without torchvision, after torchvision has been
    imported, and when called again.
    """
    if _done or "torchvision" in sys.modules:
        return
    _done.append(True)
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    if _operators_load(Path(next(iter(spec.submodule_search_locations)))):
        return
    import torch

    for name, schema in _SCHEMAS.items():
        try:
            torch.library.define(f"torchvision::{name}", schema)
        except RuntimeError:  # someone else has applied the same repair
            continue
