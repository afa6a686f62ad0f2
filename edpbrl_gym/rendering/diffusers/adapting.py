"""What changes a model before it draws: a LoRA, quantised weights, and weights that move to the GPU when needed."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edpbrl_gym._compat import require
from edpbrl_gym.rendering.diffusers.files import find_lora
from edpbrl_gym.rendering.settings import RenderSettings

__all__ = ["add_lora", "check_offload", "quantization_config"]

_DENOISERS = ("transformer", "unet")
# backend of diffusers -> module that it needs, and what to install; all others are diffusers' to check
_PACKAGES = {
    "bitsandbytes_4bit": ("bitsandbytes", "bitsandbytes"),
    "bitsandbytes_8bit": ("bitsandbytes", "bitsandbytes"),
    "quanto": ("optimum.quanto", "optimum-quanto"),
    "torchao": ("torchao", "torchao"),
}


def check_offload(offload: str | None, device: str) -> None:
    """Raise a ValueError unless ``offload`` is None, or "model" or "sequential" with a device that has own memory."""
    if offload not in (None, "model", "sequential"):
        raise ValueError(f"Expected offload as 'model', 'sequential' or None, got {offload!r}")
    if offload is not None and device.partition(":")[0] == "cpu":
        raise ValueError(
            f"Expected an accelerator with offload {offload!r}, got the device {device}, whose memory holds all "
            "weights anyway; leave offload out"
        )


def add_lora(pipeline: Any, settings: RenderSettings) -> None:
    """Load the LoRA of the settings, if there is one, into a pipeline.

    Raises:
        ValueError: The pipeline takes none, or this LoRA is none for it.
        ModuleNotFoundError: peft is not installed.
    """
    if settings.lora is None:
        return
    path, weight = find_lora(settings.lora)
    require("peft", "a LoRA", "language")
    refused = f"Expected a LoRA for {settings.model}, but {path.name} "
    if not hasattr(pipeline, "load_lora_weights"):
        raise ValueError(f"{refused}can't be loaded: {type(pipeline).__name__} takes no LoRA; leave it out")
    try:
        pipeline.load_lora_weights(str(path.parent), weight_name=path.name, adapter_name="lora")
        adapters = {name for names in pipeline.get_list_adapters().values() for name in names}
        if "lora" in adapters:  # diffusers only warns of weights that fit nothing
            pipeline.set_adapters(["lora"], [weight])
    except Exception as error:  # shapes, keys and formats: many classes
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{refused}could not be loaded ({type(error).__name__}: {reason})") from error
    if "lora" not in adapters:
        raise ValueError(f"{refused}has no weights for its {type(pipeline).__name__}; it was made for another model")


def quantization_config(quantize: str, components: list[str], dtype: Any) -> Any:
    """Return the ``PipelineQuantizationConfig`` that a text of ``ImageSettings`` names, for a pipeline's components.

    Names quantise what denoises; JSON says itself what it quantises. ``dtype`` is torch's, in which they compute.

    Raises:
        ValueError: The text is none of the forms, or diffusers refuses it.
        ModuleNotFoundError: A package is missing.
    """
    diffusers = require("diffusers", "rendering")
    kind, _, variant = quantize.partition(":")
    try:
        given = json.loads(quantize) if quantize.lstrip().startswith("{") else None
        kind = str(given.get("quant_backend")) if given else kind
        module, package = _PACKAGES.get(kind, (None, None))
        if module is not None and find_spec(module.partition(".")[0]) is None:
            raise ModuleNotFoundError(
                f"Expected the package {package!r} for quantised weights ({kind}), got no such package; run: pip "
                f"install {package}",
                name=package,
            )
        if given is not None:
            return diffusers.PipelineQuantizationConfig(**given)
        if kind in ("bitsandbytes_4bit", "bitsandbytes_8bit") and not variant:
            four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
            one = diffusers.BitsAndBytesConfig(**four if kind.endswith("4bit") else {"load_in_8bit": True})
        elif kind == "quanto":
            one = diffusers.QuantoConfig(weights_dtype=variant or "int8")
        elif kind == "torchao" and variant:
            one = diffusers.TorchAoConfig(getattr(import_module("torchao.quantization"), variant)())
        else:
            raise ValueError("none of these forms")
        denoisers = [name for name in components if name in _DENOISERS]
        return diffusers.PipelineQuantizationConfig(quant_mapping=dict.fromkeys(denoisers, one))
    except ModuleNotFoundError:
        raise
    except Exception as error:  # diffusers', of several classes
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            "Expected quantize as bitsandbytes_4bit, bitsandbytes_8bit, quanto:int8, torchao:CLASS or JSON of a "
            f"PipelineQuantizationConfig, got {quantize!r} ({reason})"
        ) from error
