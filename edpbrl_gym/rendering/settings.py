"""Settings of images, and their cache keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["DTYPES", "MAX_SEED", "ImageSettings", "RenderSettings", "check_seed", "image_key", "sampling"]

DTYPES = ("float32", "float16", "bfloat16")
MAX_SEED = 2**63 - 1  # the largest seed of a torch.Generator that fits numpy's int64

_LATER = ("true_cfg_scale", "lora", "quantize", "config")
_KEY_FORMAT = 1  # to be raised if the same settings give other images


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Settings of a text-to-image model.

    Attributes:
        steps: Number of denoising steps (None: the pipeline's own, such as 50); turbo-class models need 1 to 4.
        guidance: Classifier-free guidance scale, >= 0 (None: the pipeline's own, such as 7.5); turbo-class models need
            0. At 1 and below there is no guidance.
        height: Height in pixels (None: the model's own).
        width: Width in pixels (None: the model's own).
        negative: Negative prompt, for models with guidance; refused where a model reads none.
        true_cfg_scale: Classifier-free guidance of models whose ``guidance`` is an input of the model, such as FLUX.1
            (None: none, else above 1); a negative prompt needs it there. It doubles the time.
        dtype: Number format of weights and noise; the 16-bit formats are for GPUs.
        variant: File variant of the weights, such as fp16 (None: the main one).
        revision: Branch, tag or commit on the hub (None: the main branch).
        lora: Weights of a LoRA: a .safetensors file, a folder with one, or owner/name or owner/name/FILE of the hub; at
            the end "@0.8" is its weight (else 1).
        quantize: Quantised weights of the model that denoises: bitsandbytes_4bit, bitsandbytes_8bit, quanto:int8 (also
            int4, int2, float8), torchao:CLASS, such as torchao:Int8WeightOnlyConfig, or the arguments of diffusers'
            PipelineQuantizationConfig as JSON.
        config: Folder, or hub id, with the configs of a model that is a single file (None: the hub's for its kind).

    Raises:
        ValueError: A value is out of its range.
        TypeError: A value has the wrong type.
    """

    steps: int | None = None
    guidance: float | None = None
    height: int | None = None
    width: int | None = None
    negative: str = ""
    true_cfg_scale: float | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    variant: str | None = None
    revision: str | None = None
    lora: str | None = None
    quantize: str | None = None
    config: str | None = None

    def __post_init__(self) -> None:
        for name in ("negative", "lora", "quantize", "config"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "negative"):
                raise TypeError(f"Expected {name} as a text, got {type(value).__name__}")
        if self.steps is not None:
            object.__setattr__(self, "steps", check_count(self.steps, "steps"))
        if self.guidance is not None:
            object.__setattr__(self, "guidance", check_number(self.guidance, "guidance", minimum=0.0))
        if self.true_cfg_scale is not None:
            scale = check_number(self.true_cfg_scale, "true_cfg_scale", minimum=1.0, exclusive=True)
            object.__setattr__(self, "true_cfg_scale", scale)
        check_choice_of(self.dtype, "dtype", DTYPES)
        for name in ("height", "width"):
            if getattr(self, name) is None:
                continue
            size = check_count(getattr(self, name), name, minimum=8)
            if size % 8:
                raise ValueError(f"Expected {name} as a multiple of 8 pixels, got {size}")
            object.__setattr__(self, name, size)


@dataclass(frozen=True, kw_only=True)
class RenderSettings(ImageSettings):
    """A text-to-image model and its settings: everything that determines an image except prompt and seed.

    Attributes:
        model: Hub id, such as "CompVis/stable-diffusion-v1-4", a folder written by ``save_pretrained``, or a single
            .safetensors file.

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
        # without what records that are older than a setting don't have
        return {name: value for name, value in asdict(self).items() if value is not None or name not in _LATER}

    def identity(self, model_fingerprint: str) -> dict[str, Any]:
        """Return what determines an image beside prompt and seed, for ``image_key``.

        The model enters by the fingerprint of its weights and configs (including scheduler, safety checker and LoRA),
        not by its origin. Steps and guidance that are None are not resolved here.
        """
        names = ("steps", "guidance", "height", "width", "negative", "dtype")
        fields = {"model": model_fingerprint, **{name: getattr(self, name) for name in names}}
        fields |= {name: value for name in ("true_cfg_scale", "quantize") if (value := getattr(self, name)) is not None}
        if self.negative and (self.guidance or 0.0) <= 1.0:  # images without this field were drawn without the negative
            fields["negative_read"] = True
        return fields


def sampling(described: Mapping[str, Any]) -> str:
    """Steps and guidance among the settings of a renderer, if they are set, for titles, with a comma after each."""
    steps, guidance = described.get("steps"), described.get("guidance")
    return ("" if steps is None else f"{steps} steps, ") + ("" if guidance is None else f"guidance {guidance:g}, ")


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return ``seed`` as an int in 0..2**63 - 1, else a TypeError or ValueError."""
    return check_count(seed, name, minimum=0, maximum=MAX_SEED)


def image_key(prompt: str, seed: int, identity: Mapping[str, Any]) -> str:
    """Return the cache key of an image: sha256 (hex) of prompt, seed and all that ``Renderer.identity`` names.

    Batch size and device do not enter, since they change only the rounding of an image; the cache records them beside
    it.
    """
    fields = {"format": _KEY_FORMAT, "prompt": prompt, "seed": seed, **identity}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
