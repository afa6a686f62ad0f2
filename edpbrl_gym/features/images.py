"""Image encoders: pictures to rows of features, such as those of a CLIP model."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._pictures import check_pictures, converted, read_picture
from edpbrl_gym._validation import check_count
from edpbrl_gym.features.base import Encoder, hash_settings, hash_state_dict, normalise
from edpbrl_gym.features.clip import open_clip_model

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "IMAGE_ENCODER_FORMS",
    "ImageEncoder",
    "OpenClipImageEncoder",
    "check_image_encoder_spec",
    "encode_files",
    "load_image_encoder",
]

IMAGE_ENCODER_FORMS = {
    "open_clip:<model>/<pretrained tag or weights file>": "a CLIP image tower, such as open_clip:ViT-L-14/openai",
    "open_clip:local-dir:<folder>": "the same from a folder with open_clip_config.json and weights",
    "strokes": "12 measures of handwriting, for small grey pictures",
}


@runtime_checkable
class ImageEncoder(Encoder, Protocol):
    """Anything that turns n pictures into an (n, d) array of float32 rows with a norm of about 1 (1 of CLIP)."""

    def encode_images(self, images: Sequence[Image | PathLike[str] | str]) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d), float32, row i for ``images[i]``; (0, d) for none.

        Args:
            images: PIL images or image files (PNG, JPEG or WebP).

        Raises:
            TypeError: An element is not a picture, or a single picture is given instead of a list.
            FileNotFoundError: A file is missing.
            ValueError: A file is not such an image or too large, or the model returns NaN, infinity or a zero vector.
        """


class OpenClipImageEncoder:
    """The image tower of an open_clip model, in float32, with the model's own resizing, crop and colour statistics.

    The embeddings are in the space of ``OpenClipEncoder`` with the same source: their inner products are CLIP
    similarities. Arguments and errors are as there; the fingerprint covers the image tower and its preprocessing.
    """

    def __init__(self, source: str, *, batch_size: int = 32, device: str | None = None) -> None:
        from PIL import Image

        self.batch_size = check_count(batch_size, "batch_size")
        self.name = f"open_clip:{source}"
        package, _, self.model, self.device = open_clip_model(source, device)
        for component in ("text", "transformer", "token_embedding"):
            if hasattr(self.model, component):
                setattr(self.model, component, None)
        preprocessing = dict(self.model.visual.preprocess_cfg)
        self._prepare = package.transform.image_transform_v2(
            package.transform.PreprocessCfg(**preprocessing), is_train=False
        )
        self.fingerprint = hash_settings(
            {
                "kind": "open_clip image",
                "model": type(self.model).__name__,
                # the same weights with another activation are another encoder
                "activations": sorted({type(component).__name__ for component in self.model.visual.modules()}),
                "preprocessing": preprocessing,
                "weights": hash_state_dict(self.model.visual.state_dict()),
            }
        )
        self.dimension = int(self._encode_batch([Image.new("RGB", (8, 8), (128, 128, 128))]).shape[1])

    def encode_images(self, images: Sequence[Image | PathLike[str] | str]) -> NDArray[np.float32]:
        """As ``ImageEncoder.encode_images``; all colour modes are converted to RGB."""
        check_pictures(images)
        rows = np.empty((len(images), self.dimension), dtype=np.float32)
        for start in range(0, len(images), self.batch_size):
            chunk = [converted(image, "RGB") for image in images[start : start + self.batch_size]]
            labels = [f"picture {start + i}" for i in range(len(chunk))]
            rows[start : start + len(chunk)] = normalise(self._encode_batch(chunk), labels, self.dimension, self.name)
        return rows

    def _encode_batch(self, images: list[Image]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            pixels = torch.stack([self._prepare(image) for image in images]).to(self.device)
            return self.model.encode_image(pixels).float().cpu().numpy()


def encode_files(encoder: ImageEncoder, files: Sequence[PathLike[str] | str | bytes]) -> NDArray[np.float32]:
    """Return the features (n, d) of files of pictures, or of their bytes, as people see them (``read_picture``)."""
    return encoder.encode_images([read_picture(file) for file in files])


def check_image_encoder_spec(spec: object) -> str:
    """Return ``spec`` if it has one of the ``IMAGE_ENCODER_FORMS``, else raise a ValueError that lists them."""
    kind, _, source = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if isinstance(spec, str) and (spec == "strokes" or (kind == "open_clip" and source)):
        return spec
    forms = "; ".join(f"'{form}' ({description})" for form, description in IMAGE_ENCODER_FORMS.items())
    raise ValueError(f"Expected an image encoder of one of the forms {forms}; got {spec!r}")


def load_image_encoder(spec: str) -> ImageEncoder:
    """Return the image encoder that one of the ``IMAGE_ENCODER_FORMS`` names.

    Raises:
        ValueError: The form, model or tag is unknown, or the weights do not match.
        ModuleNotFoundError, FileNotFoundError, ConnectionError: As for ``OpenClipEncoder``.
    """
    kind, _, source = check_image_encoder_spec(spec).partition(":")
    if kind == "strokes":
        from edpbrl_gym.features.strokes import StrokeEncoder

        return StrokeEncoder()
    return OpenClipImageEncoder(source)
