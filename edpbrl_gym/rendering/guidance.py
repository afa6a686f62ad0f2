"""Score guidance: gradient ascent of theta . phi in a prompt's token embeddings, to render the moved prompt.

phi(prompt) = P h / |P h|, with h the CLIP text encoder's state at the end-of-text token and P its text projection. The
encoder reads the prompt as token embeddings E (one row per token), so s(E) = theta . phi(E) has a gradient. The path

    dE / dt = grad s / |grad s|,    E(0) = the prompt's own embeddings,

is followed up to the length t = strength * |E(0)|. Then s rises along the path, |E(t) - E(0)| <= t is a trust region,
and a smaller strength is an earlier point of the same path. A diffusion pipeline is conditioned on the states of the
same encoder for the moved embeddings.

theta belongs to the projected space of one text encoder. The gradient is meaningful only with that encoder in the
pipeline (the paper's Stable Diffusion 1.4 has the text tower of CLIP ViT-L/14) and with its projection;
``check_same_features`` checks this.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_choice_of, check_number
from edpbrl_gym.rendering.pipelines import quiet

__all__ = [
    "GuidedPrompt",
    "Projection",
    "PromptGuide",
    "check_same_features",
    "load_projection",
    "replaced_embeddings",
]


_STEP = 0.01  # length of a step, as a share of the norm of the prompt's embeddings
_ARMIJO = 0.1  # share of the gain predicted by the gradient that a step must reach
_SMALLEST = 1e-3  # share of a step below which the ascent ends
_SAME = 0.999  # smallest cosine of two embeddings of a text by the same encoder, also in half precision


@dataclass(frozen=True, eq=False)
class GuidedPrompt:
    """A prompt whose token embeddings were moved towards a taste.

    Attributes:
        prompt: The text.
        strength: Largest path length, as a share of the norm of the prompt's own embeddings.
        embeddings: The moved token embeddings, torch tensor (1, L, D); equal to the prompt's own for strength 0.
        features: Phi of the moved prompt, shape (d,), unit norm.
        base_score: theta . phi of the prompt itself.
        score: theta . phi of the moved prompt.
        distance: Distance from the prompt's own embeddings as a share of their norm; at most ``strength``.
        steps: Number of gradient steps.
    """

    prompt: str
    strength: float
    embeddings: Any
    features: Floats
    base_score: float
    score: float
    distance: float
    steps: int


@dataclass(frozen=True, eq=False)
class Projection:
    """The text projection of a CLIP model.

    Attributes:
        name: Hub id or folder of the model.
        weight: The matrix P, torch tensor (d, D).
    """

    name: str
    weight: Any


def load_projection(source: str) -> Projection:
    """Load a CLIPTextModelWithProjection (or the CLIP model that contains one) by hub id or folder, in float32.

    Raises:
        FileNotFoundError: The folder does not exist.
        ConnectionError: The hub can't be reached or has no such model.
        ValueError: The model has no text projection.
    """
    import torch

    from edpbrl_gym._compat import declare_torchvision_schemas

    declare_torchvision_schemas()
    from transformers import CLIPTextModelWithProjection

    folder = Path(source).expanduser()
    if not folder.is_dir() and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise FileNotFoundError(f"Expected a CLIP text model at {folder}, found no such folder; check the path")
    model: Any
    report: Any
    try:
        with quiet():  # transformers prints a table of missing weights; the error below says it in a line
            model, report = CLIPTextModelWithProjection.from_pretrained(  # type: ignore[misc]
                str(folder) if folder.is_dir() else source, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        if folder.is_dir():
            raise ValueError(f"Expected a CLIP text model with projection in {folder}, got {text}") from None
        raise ConnectionError(
            f"Expected the CLIP text model {source!r} from the model hub, got {text}; download it where there is a "
            "connection and give its folder"
        ) from None
    missing = sorted([*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])])
    if missing:  # transformers would use random weights
        raise ValueError(
            f"Expected a CLIP text model with projection in {source}, its weights lack {missing[0]} "
            f"({len(missing)} in all); give a CLIPTextModelWithProjection, such as openai/clip-vit-large-patch14"
        )
    return Projection(source, model.text_projection.weight.detach())


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Tokens of a prompt in a pipeline: ids (1, L), attention mask or None, and the mask of its words (1, L)."""

    ids: Any
    mask: Any
    words: Any


class PromptGuide:
    """theta . phi as a function of a prompt's token embeddings, and its gradient ascent.

    Args:
        text_encoder: A transformers CLIPTextModel or CLIPTextModelWithProjection, such as a pipeline's.
        tokenizer: Its tokenizer.
        projection: The text projection P, shape (d, D); None takes the encoder's own.
        dtype: "float32" or "float64" for all computations; an encoder of another type is copied.

    Raises:
        TypeError: The encoder is not a CLIP text model.
        ValueError: There is no projection, or it doesn't match the encoder's width.
    """

    def __init__(self, text_encoder: Any, tokenizer: Any, projection: Any = None, *, dtype: str = "float32") -> None:
        import torch

        kind = type(text_encoder).__name__
        if kind not in ("CLIPTextModel", "CLIPTextModelWithProjection"):
            raise TypeError(
                f"Expected a CLIP text encoder (CLIPTextModel, CLIPTextModelWithProjection) to guide, got {kind}; "
                "score guidance works with pipelines such as Stable Diffusion 1.x"
            )
        if projection is None and kind == "CLIPTextModel":
            raise ValueError(
                "Expected the text projection that belongs to the pipeline's text encoder, which ships without one; "
                "give a CLIPTextModelWithProjection by hub id or folder (for Stable Diffusion 1.4: "
                "openai/clip-vit-large-patch14)"
            )
        self._torch = torch
        number = getattr(torch, check_choice_of(dtype, "dtype", ("float32", "float64")))
        weight = text_encoder.text_projection.weight if projection is None else torch.as_tensor(projection)
        width = int(text_encoder.config.hidden_size)
        if weight.ndim != 2 or weight.shape[1] != width:
            raise ValueError(
                f"Expected a projection of shape (d, {width}) for this text encoder, got {tuple(weight.shape)}; it "
                "belongs to another text encoder"
            )
        if text_encoder.dtype != number:
            text_encoder = copy.deepcopy(text_encoder).to(number)
        self.encoder = text_encoder.eval()
        self.tokenizer = tokenizer
        self.projection = weight.detach().to(device=text_encoder.device, dtype=number)
        self.dimension = int(weight.shape[0])

    def tokens(self, prompt: str) -> _Tokens:
        """Return the prompt's tokens as in a pipeline: truncated and padded to the encoder's length."""
        encoding = self.tokenizer(
            [prompt],
            padding="max_length",
            max_length=self.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        ids = encoding.input_ids.to(self.encoder.device)
        marks = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        ends = int((ids[0] == marks[1]).int().argmax())
        place = self._torch.arange(ids.shape[1], device=ids.device)[None]
        masked = getattr(self.encoder.config, "use_attention_mask", False)
        mask = encoding.attention_mask.to(ids.device) if masked else None
        return _Tokens(ids, mask, (place < ends) & (ids != marks[0]))

    def embed(self, tokens: _Tokens) -> Any:
        """Return the token embeddings, (1, L, D), without gradient."""
        return self.encoder.get_input_embeddings()(tokens.ids).detach()

    def features_of(self, tokens: _Tokens, embeddings: Any) -> Any:
        """Return phi (d,), unit norm, of token embeddings (1, L, D); differentiable in them."""
        tower = self.encoder if type(self.encoder).__name__ == "CLIPTextModel" else self.encoder.text_model
        with replaced_embeddings(self.encoder, embeddings):
            state = tower(tokens.ids, attention_mask=tokens.mask).pooler_output[0]
        raw = self.projection @ state
        return raw / raw.norm()

    def features(self, prompts: Sequence[str]) -> Floats:
        """Return phi of prompts, shape (n, d), unit norm, by the pipeline's encoder and the projection."""
        rows = np.empty((len(prompts), self.dimension))
        with self._torch.no_grad():
            for row, prompt in zip(rows, prompts, strict=True):
                tokens = self.tokens(prompt)
                row[:] = self.features_of(tokens, self.embed(tokens)).cpu().double().numpy()
        return rows

    def gradient(self, tokens: _Tokens, embeddings: Any, theta: Any) -> tuple[float, Any]:
        """Return theta . phi and its gradient in the token embeddings, (1, L, D), zero except for words."""
        with self._torch.enable_grad():
            variable = embeddings.detach().requires_grad_(True)
            score = theta @ self.features_of(tokens, variable)
            (slope,) = self._torch.autograd.grad(score, variable)
        return float(score.detach()), slope * tokens.words[..., None]

    def ascend(self, prompt: str, theta: ArrayLike, strength: float) -> GuidedPrompt:
        """Follow the gradient of theta . phi on a path of length ``strength`` times the norm of the embeddings.

        Every step raises the score by at least a tenth of the gain predicted by the gradient (it is halved until it
        does), so the score rises with the strength; the path ends early if no step does.

        Args:
            prompt: The text; its begin, end and padding tokens are not moved.
            theta: The taste, shape (d,), other than 0.
            strength: At least 0; 0 leaves the prompt as it is, 1 moves by up to the embeddings' own norm.

        Raises:
            ValueError: Theta's dimension isn't the projection's, theta is 0, the strength is negative, or the prompt
                has no words.
        """
        strength = check_number(strength, "strength", minimum=0.0)
        taste = check_array(theta, "theta", shape=(self.dimension,), hint="it must be of the projection's space")
        if not taste.any():
            raise ValueError("Expected a taste theta other than 0, got 0: it has no direction to guide to")
        taste_tensor = self._torch.as_tensor(taste, device=self.projection.device).to(self.projection.dtype)
        tokens = self.tokens(prompt)
        start = self.embed(tokens)
        if strength > 0 and not bool(tokens.words.any()):
            raise ValueError("Expected a prompt with words to guide, got an empty one")
        norm = float((start * tokens.words[..., None]).norm())
        point, num_steps, remaining = start, 0, strength * norm
        score, slope = self.gradient(tokens, point, taste_tensor)
        base_score = score
        while remaining > 1e-9 * norm:
            step = self._step(tokens, point, taste_tensor, score, slope, min(_STEP * norm, remaining))
            if step is None:
                break
            point, length = step
            remaining -= length
            num_steps += 1
            score, slope = self.gradient(tokens, point, taste_tensor)
        with self._torch.no_grad():
            features = self.features_of(tokens, point).cpu().double().numpy()
            distance = float((point - start).norm()) / norm if norm else 0.0
        return GuidedPrompt(prompt, strength, point, features, base_score, score, distance, num_steps)

    def _step(
        self, tokens: _Tokens, point: Any, theta: Any, score: float, slope: Any, length: float
    ) -> tuple[Any, float] | None:
        """The next point of the path and its distance; None if no step of a useful length raises the score."""
        steepness = float(slope.norm())
        smallest = _SMALLEST * length
        while steepness > 0 and length >= smallest:
            next_point = point + slope * (length / steepness)
            with self._torch.no_grad():
                gain = float(theta @ self.features_of(tokens, next_point)) - score
            if gain > _ARMIJO * length * steepness:
                return next_point, length
            length /= 2
        return None


@contextmanager
def replaced_embeddings(encoder: Any, embeddings: Any) -> Iterator[None]:
    """Let a transformers text encoder read ``embeddings`` (1, L, D) instead of those of its token table."""
    handle = encoder.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: embeddings.to(device=output.device, dtype=output.dtype)
    )
    try:
        yield
    finally:
        handle.remove()


def check_same_features(guide: PromptGuide, embeddings: ArrayLike, texts: Sequence[str], name: str) -> float:
    """Check that a guide embeds texts like another encoder, whatever the library and file format of that one.

    Args:
        guide: The pipeline's text encoder with its projection.
        embeddings: Embeddings of ``texts`` by the encoder of the taste, shape (n, d), unit norm.
        texts: Texts to compare, such as the prompts to be guided.
        name: Name of the other encoder.

    Returns:
        The smallest cosine of two embeddings of a text.

    Raises:
        ValueError: Other dimensions, or a cosine below 0.999.
    """
    rows = check_array(
        embeddings,
        f"embeddings by {name}",
        shape=(len(texts), guide.dimension),
        hint="the projection has another space than the taste; a taste for score guidance is learnt with the CLIP "
        "text encoder of the pipeline (for Stable Diffusion 1.4: open_clip:ViT-L-14/openai)",
    )
    cosine = float((guide.features(texts) * rows).sum(axis=1).min())
    if not cosine >= _SAME:
        raise ValueError(
            f"Expected {name} to embed the prompts as the pipeline's text encoder and the projection do, got a cosine "
            f"of {cosine:.3f} only; theta has no meaning for this pipeline: learn it with the pipeline's text encoder "
            "(for Stable Diffusion 1.4: open_clip:ViT-L-14/openai), or give the projection that belongs to it"
        )
    return cosine
