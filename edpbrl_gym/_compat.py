"""Small repairs of common installation mismatches, applied before the first import of a heavy package."""

from __future__ import annotations

__all__ = ["declare_torchvision_schemas"]

_declared: list[object] = []


def declare_torchvision_schemas() -> None:
    """Declare the two operators that a torchvision built for CUDA misses beside a CPU torch.

    With a CPU build of torch and the torchvision of the package index, ``import torchvision`` fails with "operator
    torchvision::nms does not exist" and takes transformers, sentence-transformers and open_clip down with it. We use
    neither operator; declaring their schemas lets the import go through. Call this before importing any of them;
    repeated calls do nothing.
    """
    if _declared:
        return
    import torch

    if torch.version.cuda is None:
        for name, schema in (
            ("nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
            ("qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
        ):
            try:
                torch.library.define(f"torchvision::{name}", schema)
            except RuntimeError:  # a matching torchvision has already registered it
                pass
    _declared.append(True)
