"""``GuidedRenderer``: pictures of prompts moved towards a taste, in the same cache as all others."""

from __future__ import annotations

import hashlib
import inspect
import json
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array
from edpbrl_gym.rendering.cache import NewImage, RenderedImage, encode_png
from edpbrl_gym.rendering.guidance import GuidedPrompt, PromptGuide, load_projection, replaced_embeddings
from edpbrl_gym.rendering.pipelines import cut_prompts, generate, is_out_of_memory, quiet
from edpbrl_gym.rendering.renderer import NO_MEMORY, Renderer
from edpbrl_gym.rendering.settings import check_seed, image_key

__all__ = ["GuidedRenderer", "guided_key"]

_KEY_FORMAT = 1


def guided_key(key: str, theta: ArrayLike, projection: NDArray[Any], strength: float) -> str:
    """Return the key of a guided picture: sha256 (hex) of the plain picture's key and of the guidance.

    With strength 0 the picture is the plain one and its key is ``key``.

    Args:
        key: ``image_key`` of prompt, seed, settings and model.
        theta: The taste, shape (d,).
        projection: The text projection, shape (d, D).
        strength: Strength of the guidance.
    """
    if strength == 0:
        return key
    fields = {
        "format": _KEY_FORMAT,
        "image": key,
        "theta": hashlib.sha256(np.ascontiguousarray(theta, dtype=np.float64).tobytes()).hexdigest(),
        "projection": hashlib.sha256(np.ascontiguousarray(projection, dtype=np.float64).tobytes()).hexdigest(),
        "strength": float(strength),
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


class GuidedRenderer:
    """Renders prompts moved by ``PromptGuide``; the pictures are in the renderer's cache under their own keys.

    Args:
        renderer: Model, settings and cache. Its pipeline needs one CLIP text encoder and ``prompt_embeds``, like Stable
            Diffusion 1.x.
        projection: Hub id or folder of the CLIPTextModelWithProjection whose text tower the pipeline uses; None if the
            pipeline's own text encoder has a projection.
    """

    def __init__(self, renderer: Renderer, projection: str | None = None) -> None:
        self.renderer = renderer
        self.source = projection

    @cached_property
    def guide(self) -> PromptGuide:
        """The guide of the pipeline's text encoder, created on first use.

        Raises:
            TypeError: The pipeline can't be guided; the message says why.
            ValueError: There is no projection, or it doesn't match.
        """
        pipeline = self.renderer.loaded.pipeline
        parameters = inspect.signature(type(pipeline).__call__).parameters
        name = type(pipeline).__name__
        if "prompt_embeds" not in parameters or not hasattr(pipeline, "encode_prompt"):
            raise TypeError(f"Expected a pipeline that takes prompt_embeds for score guidance, got {name}")
        if getattr(pipeline, "text_encoder_2", None) is not None or getattr(pipeline, "text_encoder", None) is None:
            raise TypeError(
                f"Expected a pipeline with one CLIP text encoder for score guidance, such as Stable Diffusion 1.x, got "
                f"{name}; leave --score-guided out for this model"
            )
        weight = None if self.source is None else load_projection(self.source).weight
        return PromptGuide(pipeline.text_encoder, pipeline.tokenizer, weight)

    def render(
        self, prompt: str, theta: ArrayLike, strength: float, *, seed: int = 0
    ) -> tuple[RenderedImage, GuidedPrompt]:
        """Return the picture of a prompt moved towards a taste, from the cache or rendered now, and the moved prompt.

        With strength 0 it is the picture of ``Renderer.render``, byte for byte.

        Args:
            prompt: The text.
            theta: The taste, shape (d,), in the space of the projection (see ``check_same_features``).
            strength: Path length as a share of the norm of the prompt's token embeddings, >= 0.
            seed: Seed of the noise.

        Raises:
            TypeError: The pipeline can't be guided.
            ValueError: Theta, strength or projection do not match, or pixels are not finite.
            RuntimeError: There is not enough memory for one image.
            OSError: The cache folder can't be written.
        """
        check_seed(seed)
        with self.renderer.lock:  # guidance replaces the embeddings of the text encoder
            try:
                return self._render(prompt, theta, strength, seed)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            raise RuntimeError(NO_MEMORY)

    def _render(self, prompt: str, theta: ArrayLike, strength: float, seed: int) -> tuple[RenderedImage, GuidedPrompt]:
        renderer, guide = self.renderer, self.guide
        taste = check_array(theta, "theta", shape=(guide.dimension,), hint="it must be of the projection's space")
        guided_prompt = guide.ascend(prompt, taste, strength)
        plain = image_key(prompt, seed, renderer.settings, renderer.fingerprint)
        key = guided_key(plain, taste, guide.projection.cpu().double().numpy(), guided_prompt.strength)
        cached_image = renderer.cache.get(key)
        if cached_image is not None:
            return cached_image, guided_prompt
        renderer.cache.prepare()
        loaded = renderer.loaded
        pixels, flags = generate(
            loaded, renderer.settings, [prompt], [seed], embeddings=self.conditioning(guided_prompt)
        )
        facts = {"strength": guided_prompt.strength, "before": guided_prompt.base_score, "after": guided_prompt.score}
        cut = cut_prompts(loaded.pipeline, [prompt])[0]
        new = NewImage(key, encode_png(pixels[0]), prompt, seed, flags[0], cut)
        image = renderer.cache.put(new, {**renderer.provenance(1), "score_guided": facts})
        return image, guided_prompt

    def conditioning(self, guided_prompt: GuidedPrompt) -> Any:
        """Return the ``prompt_embeds`` of a moved prompt, torch tensor (1, L, D)."""
        import torch

        pipeline = self.renderer.loaded.pipeline
        with torch.inference_mode(), quiet(), replaced_embeddings(pipeline.text_encoder, guided_prompt.embeddings):
            states, _ = pipeline.encode_prompt(
                prompt=guided_prompt.prompt,
                device=self.renderer.loaded.device,
                num_images_per_prompt=1,
                do_classifier_free_guidance=False,
            )
        return states
