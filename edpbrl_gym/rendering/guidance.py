"""Score guidance: move a prompt's token embeddings up the gradient of theta . phi, and draw the moved prompt.

phi(prompt) = P h / |P h|, with h the CLIP text encoder's state at the end-of-text token and P its text projection. The
encoder sees the prompt as token embeddings E (one row a token), so s(E) = theta . phi(E) has a gradient. We follow

    dE / dt = grad s / |grad s|,    E(0) = the prompt's own embeddings,

up to the path length t = strength * |E(0)|. Then s rises along the path, |E(t) - E(0)| <= t is a trust region, and a
smaller strength is an earlier point of the same path. A diffusion pipeline is conditioned on the states of the same
encoder for the moved embeddings.

theta lives in the projected space of one text encoder. Only with that encoder in the pipeline (the paper's Stable
Diffusion 1.4 has the text tower of CLIP ViT-L/14) and with its projection does the gradient mean anything;
``check_same_features`` says whether this holds.
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
_ARMIJO = 0.1  # a step must bring this share of what the gradient promises
_SMALLEST = 1e-3  # share of a step below which the way up counts as ended
_SAME = 0.999  # least cosine of two embeddings of a text by what is the same encoder, half precision included


@dataclass(frozen=True, eq=False)
class GuidedPrompt:
    """A prompt whose token embeddings were moved towards a taste.

    Attributes:
        prompt: The text.
        strength: Greatest path length, as a share of the norm of the prompt's own embeddings.
        embeddings: The moved token embeddings, torch tensor (1, L, D); equal to the prompt's own for strength 0.
        features: phi of the moved prompt, shape (d,), unit norm.
        before: theta . phi of the prompt itself.
        after: theta . phi of the moved prompt.
        moved: Distance from the prompt's own embeddings as a share of their norm; at most ``strength``.
        steps: Gradient steps taken.
    """

    prompt: str
    strength: float
    embeddings: Any
    features: Floats
    before: float
    after: float
    moved: float
    steps: int


@dataclass(frozen=True, eq=False)
class Projection:
    """The text projection of a CLIP model.

    Attributes:
        name: Where it came from.
        weight: The matrix P, torch tensor (d, D).
    """

    name: str
    weight: Any


def load_projection(source: str) -> Projection:
    """Load a CLIPTextModelWithProjection (or the CLIP model that holds one) by hub id or folder, in float32.

    Raises:
        FileNotFoundError: A path to no folder.
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
        with quiet():  # transformers prints a table where weights are missing; the error below says it in a line
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
    if missing:  # transformers would go on with random weights
        raise ValueError(
            f"Expected a CLIP text model with projection in {source}, its weights lack {missing[0]} "
            f"({len(missing)} in all); give a CLIPTextModelWithProjection, such as openai/clip-vit-large-patch14"
        )
    return Projection(source, model.text_projection.weight.detach())


@dataclass(frozen=True, eq=False)
class _Tokens:
    """A prompt as a pipeline's tokenizer makes it: ids (1, L), attention mask or None, and which are its words."""

    ids: Any
    mask: Any
    words: Any


class PromptGuide:
    """theta . phi as a function of a prompt's token embeddings, and the way up.

    Args:
        text_encoder: A transformers CLIPTextModel or CLIPTextModelWithProjection, such as a pipeline's.
        tokenizer: Its tokenizer.
        projection: The text projection P, shape (d, D); None takes the encoder's own.
        dtype: "float32" or "float64" of the mathematics; an encoder of another type is copied.

    Raises:
        TypeError: The encoder is no CLIP text model.
        ValueError: There is no projection, or it doesn't fit the encoder's width.
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
        """Return the prompt's tokens as a pipeline makes them: cut and padded to the length that the encoder reads."""
        found = self.tokenizer(
            [prompt],
            padding="max_length",
            max_length=self.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        ids = found.input_ids.to(self.encoder.device)
        marks = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        ends = int((ids[0] == marks[1]).int().argmax())
        place = self._torch.arange(ids.shape[1], device=ids.device)[None]
        masked = getattr(self.encoder.config, "use_attention_mask", False)
        mask = found.attention_mask.to(ids.device) if masked else None
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
        """Return phi of prompts, shape (n, d), unit norm, as a pipeline's encoder and the projection see them."""
        rows = np.empty((len(prompts), self.dimension))
        with self._torch.no_grad():
            for row, prompt in zip(rows, prompts, strict=True):
                tokens = self.tokens(prompt)
                row[:] = self.features_of(tokens, self.embed(tokens)).cpu().double().numpy()
        return rows

    def gradient(self, tokens: _Tokens, embeddings: Any, theta: Any) -> tuple[float, Any]:
        """Return theta . phi and its gradient in the token embeddings, (1, L, D), zero for tokens that are no words."""
        with self._torch.enable_grad():
            moving = embeddings.detach().requires_grad_(True)
            score = theta @ self.features_of(tokens, moving)
            (slope,) = self._torch.autograd.grad(score, moving)
        return float(score.detach()), slope * tokens.words[..., None]

    def ascend(self, prompt: str, theta: ArrayLike, strength: float) -> GuidedPrompt:
        """Follow the gradient of theta . phi for a path of length ``strength`` times the norm of the embeddings.

        Every step raises the score by at least a tenth of what the gradient promises (it is halved until it does), so
        the score rises with the strength; the path ends early where no step does.

        Args:
            prompt: The text; begin, end and padding tokens stay where they are.
            theta: The taste, shape (d,), other than 0.
            strength: At least 0; 0 leaves the prompt as it is, 1 moves by up to the embeddings' own norm.

        Raises:
            ValueError: theta's dimension isn't the projection's, theta is 0, the strength is negative, or the prompt
                has no words.
        """
        strength = check_number(strength, "strength", minimum=0.0)
        taste = check_array(theta, "theta", shape=(self.dimension,), hint="it must be of the projection's space")
        if not taste.any():
            raise ValueError("Expected a taste theta other than 0, got 0: it has no direction to guide to")
        wanted = self._torch.as_tensor(taste, device=self.projection.device).to(self.projection.dtype)
        tokens = self.tokens(prompt)
        start = self.embed(tokens)
        if strength > 0 and not bool(tokens.words.any()):
            raise ValueError("Expected a prompt with words to guide, got an empty one")
        norm = float((start * tokens.words[..., None]).norm())
        here, taken, left = start, 0, strength * norm
        score, slope = self.gradient(tokens, here, wanted)
        before = score
        while left > 1e-9 * norm:
            step = self._step(tokens, here, wanted, score, slope, min(_STEP * norm, left))
            if step is None:
                break
            here, length = step
            left -= length
            taken += 1
            score, slope = self.gradient(tokens, here, wanted)
        with self._torch.no_grad():
            reached = self.features_of(tokens, here).cpu().double().numpy()
            moved = float((here - start).norm()) / norm if norm else 0.0
        return GuidedPrompt(prompt, strength, here, reached, before, score, moved, taken)

    def _step(
        self, tokens: _Tokens, here: Any, theta: Any, score: float, slope: Any, length: float
    ) -> tuple[Any, float] | None:
        """The next point of the path and its distance; None where no step of a useful length raises the score."""
        steepness = float(slope.norm())
        smallest = _SMALLEST * length
        while steepness > 0 and length >= smallest:
            there = here + slope * (length / steepness)
            with self._torch.no_grad():
                gained = float(theta @ self.features_of(tokens, there)) - score
            if gained > _ARMIJO * length * steepness:
                return there, length
            length /= 2
        return None


@contextmanager
def replaced_embeddings(encoder: Any, embeddings: Any) -> Iterator[None]:
    """Let a transformers text encoder read ``embeddings`` (1, L, D) in place of what its token table would give."""
    handle = encoder.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: embeddings.to(device=output.device, dtype=output.dtype)
    )
    try:
        yield
    finally:
        handle.remove()


def check_same_features(guide: PromptGuide, other: ArrayLike, texts: Sequence[str], name: str) -> float:
    """Check that a guide embeds texts as another encoder does, whatever library and file format that one has.

    Args:
        guide: The pipeline's text encoder with its projection.
        other: Embeddings of ``texts`` by the encoder of the taste, shape (n, d), unit norm.
        texts: Texts to compare on, such as the prompts that are to be guided.
        name: What the other encoder is called.

    Returns:
        The least cosine of two embeddings of a text.

    Raises:
        ValueError: Other dimensions, or a cosine below 0.999.
    """
    rows = check_array(
        other,
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
