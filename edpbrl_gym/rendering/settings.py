"""What decides an image, and the key under which it is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["DTYPES", "MAX_SEED", "ImageSettings", "RenderSettings", "check_seed", "image_key"]

DTYPES = ("float32", "float16", "bfloat16")
MAX_SEED = 2**63 - 1  # of a torch.Generator that numpy's int64 can hold too

_KEY_FORMAT = 1  # a change of the way in which images are made from the same settings counts this up


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """How a text-to-image model is run. The defaults are those of Stable Diffusion 1.4, the paper's model.

    Attributes:
        steps: Denoising steps; turbo-class models take 1 to 4.
        guidance: Classifier-free guidance scale, >= 0; turbo-class models take 0. At 1 and below there is none.
        height: Pixels (None: the model's own).
        width: Pixels (None: the model's own).
        negative: What the images should not show; it acts only where there is guidance.
        dtype: Number format of weights and noise; the short ones are for GPUs.
        variant: File variant of the weights, such as fp16 (None: the main one).
        revision: Branch, tag or commit on the hub (None: the main branch).

    Raises:
        ValueError: A value out of its range.
        TypeError: A value of a wrong type.
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
    """A text-to-image model and how it is run: all that decides an image but prompt and seed.

    Attributes:
        model: Hub id, such as "CompVis/stable-diffusion-v1-4", or a folder that ``save_pretrained`` has written.

    Raises:
        ValueError: A value out of its range.
        TypeError: A value of a wrong type.
    """

    model: str

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise ValueError(f"Expected model as a hub id or a folder, got {self.model!r}")
        super().__post_init__()

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON-able dict; ``RenderSettings(**that)`` are the same settings."""
        return asdict(self)


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return ``seed`` as an int in 0..2**63 - 1.

    Raises:
        TypeError: no integer.
        ValueError: out of range.
    """
    number = check_count(seed, name, minimum=0)
    if number > MAX_SEED:
        raise ValueError(f"Expected {name} <= {MAX_SEED} (2**63 - 1), got {number}")
    return number


def image_key(prompt: str, seed: int, settings: RenderSettings, model_fingerprint: str) -> str:
    """Return the sha256 (hex) of what decides an image: model, prompt, seed, steps, guidance, size, negative, dtype.

    The model goes in by the fingerprint of its weights and configs (scheduler and safety checker among them), not by
    the place from which it was loaded. Batch size, device and attention slicing do not go in: they change the rounding
    of an image, not the image that is meant. Of what was used for an image, the cache keeps a note beside it.
    """
    decides = {
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
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
