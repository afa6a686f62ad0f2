"""``DiffusersRenderer``: pictures by a text-to-image model of diffusers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.base import Drawn, Renderer
from edpbrl_gym.rendering.cache import encode_png
from edpbrl_gym.rendering.diffusers.arguments import refuse_unread_negative
from edpbrl_gym.rendering.diffusers.files import find_model, model_class, model_kind, whole_fingerprint
from edpbrl_gym.rendering.diffusers.pipelines import LoadedPipeline, generate, is_out_of_memory, load_pipeline
from edpbrl_gym.rendering.diffusers.reading import TextWatch
from edpbrl_gym.rendering.settings import ImageSettings, RenderSettings

__all__ = ["DiffusersRenderer"]

_NO_MEMORY = (
    "Expected memory for one image, got an out-of-memory error from torch; use offload, attention slicing, a smaller "
    "height and width, float16 or bfloat16 on a GPU, or another device"
)
_log = logging.getLogger(__name__)


class DiffusersRenderer(Renderer):
    """A text-to-image model of diffusers, loaded for the first picture; until then its files are only hashed.

    Args:
        model: Hub id, a folder written by ``save_pretrained``, or a single .safetensors file.
        device: Torch device; None: "cuda" if available, else "cpu".
        batch_size: Maximum number of images in a batch.
        attention_slicing: Compute attention in slices, with less memory and more time.
        offload: "model" or "sequential": with less memory on the device and more time, see ``load_pipeline``.
        **settings: Of the images, see ``ImageSettings``.

    Raises:
        ValueError: ``batch_size`` is below 1, or a setting is out of its range.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        batch_size: int = 4,
        attention_slicing: bool = False,
        offload: str | None = None,
        **settings: Any,
    ) -> None:
        self.settings = RenderSettings(model=model, **settings)
        self.name = model
        self.device = device
        self.batch_size = check_count(batch_size, "batch_size")
        self.attention_slicing, self.offload = bool(attention_slicing), offload
        self._told: set[str] = set()  # what has been said about prompts that are cut

    @classmethod
    def options(cls) -> list[str]:
        return [*super().options(), *(setting.name for setting in fields(ImageSettings))]

    def describe(self) -> dict[str, Any]:
        return self.settings.as_dict()

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of the model's weights and configs; a model on the hub is downloaded for it, but not loaded."""
        if "loaded" in self.__dict__:
            return self.loaded.fingerprint
        return whole_fingerprint(self.settings, self._folder)

    @cached_property
    def _folder(self) -> Path:
        return find_model(self.settings)

    @cached_property
    def resolved(self) -> RenderSettings:
        """The settings with the pipeline's own steps and guidance in place of None."""
        if None not in (self.settings.steps, self.settings.guidance):
            return self.settings
        return model_kind(self._folder).resolve(self.settings)

    @cached_property
    def loaded(self) -> LoadedPipeline:
        """The pipeline, loaded on first use; for the errors see ``load_pipeline``."""
        loaded = load_pipeline(self.settings, self.device, self.attention_slicing, self.offload)
        if self.__dict__.get("fingerprint", loaded.fingerprint) != loaded.fingerprint:
            raise ValueError(f"Expected the same files of the model {loaded.name}, but they have changed; start again")
        return loaded

    def load(self) -> None:
        self.loaded  # noqa: B018

    def identity(self) -> dict[str, Any]:
        """The model by its fingerprint, and all settings that change an image; None as the pipeline's own value."""
        if self.settings.negative:  # also where older images, drawn without it, are in the cache
            refuse_unread_negative(model_class(self._folder), self.settings.model, self.settings)
        return self.resolved.identity(self.fingerprint)

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Drawn]:
        loaded = self.loaded
        try:
            pixels, flags, read = generate(loaded, self.resolved, texts, seeds)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._tell_cut(read, texts)
            return [
                Drawn(encode_png(pixels[i]), flags[i], read.is_cut(text), read.negative_is_cut)
                for i, text in enumerate(texts)
            ]
        gc.collect()  # leaving the handler has freed the tensors of the traceback
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise MemoryError(_NO_MEMORY)

    def _tell_cut(self, read: TextWatch, prompts: Sequence[str]) -> None:
        """Warn of prompts that the model does not read to their ends, without quoting them."""
        cut = sum(map(read.is_cut, prompts))
        if cut:
            _log.warning(
                "%d of %d prompts are longer than the model reads; their ends have no effect", cut, len(prompts)
            )
        if read.negative_is_cut and "negative" not in self._told:
            self._told.add("negative")
            _log.warning("The negative prompt is longer than the model reads; its end has no effect")
        for cutting, whole in read.partial(prompts).items():
            if cutting not in self._told:
                self._told.add(cutting)
                _log.warning(
                    "Some prompts are longer than %s of the model keeps; %s reads them to the end", cutting,
                    ", ".join(whole),
                )  # fmt: skip

    def provenance(self, batch: int) -> dict[str, Any]:
        """Everything that determines the images of a batch and their rounding."""
        import torch

        return {
            "settings": self.resolved.as_dict(),
            "model_fingerprint": self.fingerprint,
            "pipeline": type(self.loaded.pipeline).__name__,
            "scheduler": type(getattr(self.loaded.pipeline, "scheduler", None)).__name__,
            "device": torch.device(self.loaded.device).type,
            "batch": batch,
            "attention_slicing": self.attention_slicing,
            "offload": self.offload,
            "versions": {name: version(name) for name in ("diffusers", "torch", "transformers")},
        }
