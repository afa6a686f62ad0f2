"""``Renderer``: images of prompts, in batches, each rendered once and stored on disk."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._devices import own_device
from edpbrl_gym._executor import Executor
from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.cache import ImageCache, NewImage, RenderedImage, encode_png
from edpbrl_gym.rendering.pipelines import (
    LoadedPipeline,
    cut_prompts,
    find_model,
    generate,
    is_out_of_memory,
    load_pipeline,
    model_fingerprint,
)
from edpbrl_gym.rendering.settings import RenderSettings, check_seed, image_key

__all__ = ["NO_MEMORY", "Renderer"]

NO_MEMORY = (
    "Expected memory for one image, got an out-of-memory error from torch; use attention slicing, a smaller height and "
    "width, float16 or bfloat16 on a GPU, or another device"
)
_log = logging.getLogger(__name__)


class Renderer:
    """Renders prompts, including truncated ones; no image is rendered twice.

    The model is loaded for the first missing image: if all are in the cache, it is only hashed. A batch is on disk
    before the next one begins, so an interruption loses at most one batch, and the same call continues from there. If
    there is not enough memory for a batch, the batch size is halved permanently. Threads wait for each other.

    Args:
        settings: The model and its settings.
        cache_folder: Folder of the images of all models.
        device: Torch device; None: "cuda" if available, else "cpu".
        batch_size: Maximum number of images in a batch.
        attention_slicing: Compute attention in slices, with less memory and more time.
        executor: Renders the batches on its workers, each with a model of its own (None: this process renders).

    Attributes:
        lock: Lock of the pipeline, required by any other code that changes or runs it.

    Raises:
        ValueError: ``batch_size`` is below 1.
    """

    def __init__(
        self,
        settings: RenderSettings,
        *,
        cache_folder: str | PathLike[str],
        device: str | None = None,
        batch_size: int = 4,
        attention_slicing: bool = False,
        executor: Executor | None = None,
    ) -> None:
        self.settings = settings
        self.cache = ImageCache(Path(cache_folder))
        self.device = device
        self.batch_size = check_count(batch_size, "batch_size")
        self.attention_slicing = bool(attention_slicing)
        self.executor = executor
        self.lock = threading.RLock()

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of the model's weights and configs; a model on the hub is downloaded for it, but not loaded."""
        if "loaded" in self.__dict__:
            return self.loaded.fingerprint
        return model_fingerprint(find_model(self.settings), self.settings.variant)

    @cached_property
    def loaded(self) -> LoadedPipeline:
        """The pipeline, loaded on first use; for the errors see ``load_pipeline``."""
        loaded = load_pipeline(self.settings, self.device, self.attention_slicing)
        if self.__dict__.get("fingerprint", loaded.fingerprint) != loaded.fingerprint:
            raise ValueError(f"Expected the same files of the model {loaded.name}, but they have changed; start again")
        return loaded

    def render(
        self,
        prompts: Sequence[str],
        *,
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[RenderedImage]:
        """Return the image of every prompt, from the cache or rendered now.

        Args:
            prompts: n texts; equal ones with equal seeds share an image.
            seed: Seed of the noise: one for all prompts, or n.
            progress: Callback of (distinct images done, all distinct images), called at the beginning and after every
                batch.

        Returns:
            n images, the i-th of ``prompts[i]``; flagged ones are marked.

        Raises:
            TypeError: The prompts are not texts, or the seeds are not integers.
            ValueError: The number of seeds is neither one nor that of the prompts, or a model or setting does not
                match.
            RuntimeError: There is not enough memory for one image.
            OSError: The cache folder can't be written.
        """
        pairs = _pairs(prompts, seed)
        with self.lock:
            keys = [image_key(text, number, self.settings, self.fingerprint) for text, number in pairs]
            tasks = dict(zip(keys, pairs, strict=True))
            images = {key: image for key in tasks if (image := self.cache.get(key)) is not None}
            missing = [key for key in tasks if key not in images]
            if missing:
                self.cache.prepare()
                images.update((key, image) for key in missing if (image := self.cache.get(key)) is not None)
                missing = [key for key in missing if key not in images]
            if progress is not None:
                progress(len(images), len(tasks))
            for rendered in self._rendered(missing, tasks):
                images.update((image.key, image) for image in rendered)
                if progress is not None:
                    progress(len(images), len(tasks))
            return [images[key] for key in keys]

    def _rendered(self, missing: list[str], tasks: dict[str, tuple[str, int]]) -> Iterator[list[RenderedImage]]:
        """The images of the missing keys, batch by batch."""
        batches = [missing[start : start + self.batch_size] for start in range(0, len(missing), self.batch_size)]
        if self.executor is None:
            for batch in batches:
                yield self._batch(batch, [tasks[key] for key in batch])
            return
        folder = self.cache.folder.absolute()
        maker = _Maker(
            self.settings, str(folder), self.device, self.batch_size, self.attention_slicing, self.fingerprint
        )
        calls = [(maker, batch, [tasks[key] for key in batch]) for batch in batches]
        for rendered in self.executor.map_unordered(_render_on_worker, calls, folder):
            yield [replace(image, path=self.cache.folder / image.path.relative_to(folder)) for image in rendered]

    def _batch(self, keys: list[str], tasks: list[tuple[str, int]]) -> list[RenderedImage]:
        """Render one batch and write it; in smaller ones if there is not enough memory."""
        done: list[RenderedImage] = []
        while len(done) < len(keys):
            part = slice(len(done), len(done) + self.batch_size)
            rendered = self._at_once(keys[part], tasks[part])
            if rendered is None:
                self._halve(len(keys[part]))
            else:
                done += rendered
        return done

    def _at_once(self, keys: list[str], tasks: list[tuple[str, int]]) -> list[RenderedImage] | None:
        """Render images at once and write them; None if there is not enough memory."""
        prompts, seeds = [text for text, _ in tasks], [number for _, number in tasks]
        loaded = self.loaded
        try:
            pixels, flags = generate(loaded, self.settings, prompts, seeds)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return None  # leaving the handler frees the tensors of the traceback
        cut = cut_prompts(loaded.pipeline, prompts)
        if any(cut):
            _log.warning(
                "%d of %d prompts are longer than the model reads; their ends have no effect", sum(cut), len(cut)
            )
        new = [
            NewImage(keys[i], encode_png(pixels[i]), prompts[i], seeds[i], flags[i], cut[i]) for i in range(len(keys))
        ]
        return self.cache.put_all(new, self.provenance(len(keys)))

    def _halve(self, size: int) -> None:
        """Halve the batch size, if it is more than one image."""
        if size == 1:
            raise RuntimeError(NO_MEMORY)
        self.batch_size = (size + 1) // 2
        _log.warning("Out of memory with %d images at once; continuing with %d", size, self.batch_size)
        gc.collect()
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def provenance(self, batch: int) -> dict[str, Any]:
        """Return the provenance of a batch: everything that determines the images and their rounding."""
        import torch

        return {
            "settings": self.settings.as_dict(),
            "model_fingerprint": self.fingerprint,
            "pipeline": type(self.loaded.pipeline).__name__,
            "scheduler": type(getattr(self.loaded.pipeline, "scheduler", None)).__name__,
            "device": torch.device(self.loaded.device).type,
            "batch": batch,
            "attention_slicing": self.attention_slicing,
            "versions": {name: version(name) for name in ("diffusers", "torch", "transformers")},
        }


def _pairs(prompts: Sequence[str], seed: int | Sequence[int]) -> list[tuple[str, int]]:
    """Return (prompt, seed) pairs, checked."""
    if isinstance(prompts, (str, bytes)):
        raise TypeError("Expected a list of prompts, got a single text; write [prompt]")
    texts = list(prompts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"Expected texts as prompts, got {type(text).__name__} at index {index}; convert it first")
    if isinstance(seed, Sequence) or isinstance(seed, np.ndarray):
        seeds = [check_seed(number, f"seed[{index}]") for index, number in enumerate(seed)]
        if len(seeds) != len(texts):
            raise ValueError(f"Expected one seed, or one for each of the {len(texts)} prompts, got {len(seeds)} seeds")
    else:
        seeds = [check_seed(seed)] * len(texts)
    return list(zip(texts, seeds, strict=True))


# -- on a worker -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Maker:
    """What makes the renderer of a worker."""

    settings: RenderSettings
    folder: str
    device: str | None
    batch_size: int
    attention_slicing: bool
    fingerprint: str


_renderers: dict[_Maker, Renderer] = {}  # of this process: the last one, so that its model is loaded once


def _render_on_worker(maker: _Maker, keys: list[str], tasks: list[tuple[str, int]]) -> list[RenderedImage]:
    """Render a batch, unless a worker that died with it has finished it."""
    renderer = _renderers.get(maker)
    if renderer is None:
        _renderers.clear()
        renderer = _renderers[maker] = Renderer(
            maker.settings,
            cache_folder=maker.folder,
            device=own_device(maker.device),
            batch_size=maker.batch_size,
            attention_slicing=maker.attention_slicing,
        )
        renderer.fingerprint = maker.fingerprint  # that of the files here is compared with it when they are loaded
    renderer.cache.finish_batches()
    found = [image for key in keys if (image := renderer.cache.get(key)) is not None]
    return found if len(found) == len(keys) else renderer._batch(keys, tasks)
