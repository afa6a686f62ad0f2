"""Settings of images, and their cache keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["DTYPES", "MAX_SEED", "ImageSettings", "RenderSettings", "check_seed", "image_key"]

DTYPES = ("float32", "float16", "bfloat16")
MAX_SEED = 2**63 - 1  # the largest seed of a torch.Generator that fits numpy's int64

_KEY_FORMAT = 1  # to be raised if the same settings give other images


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Settings of a text-to-image model. The defaults are those of Stable Diffusion 1.4, the paper's model.

    Attributes:
        steps: Number of denoising steps; turbo-class models need 1 to 4.
        guidance: Classifier-free guidance scale, >= 0; turbo-class models need 0. At 1 and below there is no guidance.
        height: Height in pixels (None: the model's own).
        width: Width in pixels (None: the model's own).
        negative: Negative prompt, without effect if there is no guidance.
        dtype: Number format of weights and noise; the 16-bit formats are for GPUs.
        variant: File variant of the weights, such as fp16 (None: the main one).
        revision: Branch, tag or commit on the hub (None: the main branch).

    Raises:
        ValueError: A value is out of its range.
        TypeError: A value has the wrong type.
    """

    steps: int = 50
    guidance: float = 7.5
    height: int | None = None
    width: int | None = None
    negative: str = ""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    variant: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.negative, str):
            raise TypeError(f"Expected negative as a text, got {type(self.negative).__name__}")
        object.__setattr__(self, "steps", check_count(self.steps, "steps"))
        object.__setattr__(self, "guidance", check_number(self.guidance, "guidance", minimum=0.0))
        check_choice_of(self.dtype, "dtype", DTYPES)
        for name in ("height", "width"):
            if getattr(self, name) is None:
                continue
            size = check_count(getattr(self, name), name, minimum=8)
            if size % 8:
                raise ValueError(f"Expected {name} as a multiple of 8 pixels, got {size}")
            object.__setattr__(self, name, size)

    def of(self, model: str) -> RenderSettings:
        """The settings with a model."""
        return RenderSettings(model=model, **asdict(self))


@dataclass(frozen=True, kw_only=True)
class RenderSettings(ImageSettings):
    """A text-to-image model and its settings: everything that determines an image except prompt and seed.

    Attributes:
        model: Hub id, such as "CompVis/stable-diffusion-v1-4", or a folder written by ``save_pretrained``.

    Raises:
        ValueError: A value is out of its range.
        TypeError: A value has the wrong type.
    """

    model: str

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise ValueError(f"Expected model as a hub id or a folder, got {self.model!r}")
        super().__post_init__()

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON-able dict; ``RenderSettings(**...)`` restores them."""
        return asdict(self)


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return ``seed`` as an int in 0..2**63 - 1.

    Raises:
        TypeError: The seed is not an integer.
        ValueError: It is out of range.
    """
    number = check_count(seed, name, minimum=0)
    if number > MAX_SEED:
        raise ValueError(f"Expected {name} <= {MAX_SEED} (2**63 - 1), got {number}")
    return number


def image_key(prompt: str, seed: int, settings: RenderSettings, model_fingerprint: str) -> str:
    """Return the cache key of an image: sha256 (hex) of model, prompt, seed, steps, guidance, size, negative, dtype.

    The model enters by the fingerprint of its weights and configs (including scheduler and safety checker), not by its
    origin. Batch size, device and attention slicing do not enter, since they change only the rounding of an image; the
    cache records them beside the image.
    """
    fields = {
        "format": _KEY_FORMAT,
        "model": model_fingerprint,
        "prompt": prompt,
        "seed": seed,
        "steps": settings.steps,
        "guidance": settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "negative": settings.negative,
        "dtype": settings.dtype,
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
