"""A picture moved towards a taste
===============================

Move a prompt's token embeddings up the gradient of a learnt taste, without adding words, and draw what comes of it.

The taste must be of the CLIP text encoder that conditions the pipeline (for Stable Diffusion 1.4:
`edpbrl estimate ... --encoder open_clip:ViT-L-14/openai`). The path whose direction is that of
the gradient of the score s(E) = theta . phi(E) is followed up to a share (the strength) of the norm of the prompt's own
embeddings E.

On the command line::

    python examples/score_guided.py theta.safetensors "a lighthouse" --model CompVis/stable-diffusion-v1-4
"""
# sphinx_gallery_thumbnail_path = "diffusion-blocks.png"

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

import edpbrl_gym as eg
from edpbrl_gym.rendering import RenderSettings
from edpbrl_gym.rendering.diffusers import load_pipeline


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    theta: Annotated[Path, tyro.conf.Positional]
    """taste file"""
    prompt: Annotated[str, tyro.conf.Positional]
    """what is drawn"""
    model: str = "CompVis/stable-diffusion-v1-4"
    """Stable Diffusion 1.x, by hub id or folder"""
    projection: str = "openai/clip-vit-large-patch14"
    """the CLIP model whose text encoder the pipeline uses"""
    strengths: tuple[float, ...] = (0.0, 0.1, 0.3)
    """lengths of the path, as shares of the norm of the prompt's embeddings"""
    num_steps: int = 50
    """denoising steps"""
    seed: int = 0
    """seed of the noise, the same for all pictures"""
    out: Path = Path("runs/guided")
    """folder for the pictures"""


# %%
# The text encoder reads moved embeddings in place of those of its token table.
def encode(clip: Any, ids: Any, embeddings: Any) -> tuple[Any, Any]:
    """Return the states that condition the pipeline, and phi, of token embeddings (1, L, D)."""
    hook = clip.get_input_embeddings().register_forward_hook(lambda module, given, output: embeddings)
    try:
        output = clip(ids)
    finally:
        hook.remove()
    return output.last_hidden_state, torch.nn.functional.normalize(output.text_embeds[0], dim=0)


# %%
# Steps of a hundredth of the norm; one that gains less than a tenth of what the gradient promises is halved.
def ascend(clip: Any, ids: Any, words: Any, theta: Any, strength: float) -> tuple[Any, float]:
    """Return the moved embeddings and their score."""
    point = clip.get_input_embeddings()(ids).detach()
    norm = float((point * words).norm())
    remaining = strength * norm
    while True:
        point.requires_grad_(True)
        score = theta @ encode(clip, ids, point)[1]
        slope = torch.autograd.grad(score, point)[0] * words  # begin, end and padding stay
        point, length = point.detach(), min(0.01 * norm, remaining)
        while length > 1e-5 * norm:
            there = point + slope * (length / slope.norm())
            with torch.no_grad():
                gain = float(theta @ encode(clip, ids, there)[1] - score)
            if gain > 0.1 * length * float(slope.norm()):
                break
            length /= 2
        else:  # the end of the path, or a summit
            return point, float(score.detach())
        point, remaining = there, remaining - length


# %%
# One picture for each strength.
def main(args: Args) -> list[float]:
    """Draw the pictures, print their scores and return them."""
    pipeline = load_pipeline(RenderSettings(model=args.model)).pipeline
    from transformers import CLIPTextModelWithProjection

    clip: Any = CLIPTextModelWithProjection.from_pretrained(args.projection).to(pipeline.device)
    taste = torch.as_tensor(eg.load_taste(args.theta).theta, dtype=torch.float32, device=pipeline.device)
    tokenizer = pipeline.tokenizer
    size = tokenizer.model_max_length
    ids = tokenizer(args.prompt, padding="max_length", max_length=size, truncation=True, return_tensors="pt").input_ids
    places = torch.arange(size)[None]
    words = (places > 0) & (places < (ids == tokenizer.eos_token_id).int().argmax())
    ids, words = ids.to(pipeline.device), words.to(pipeline.device)[..., None]
    args.out.mkdir(parents=True, exist_ok=True)
    scores = []
    for strength in args.strengths:
        moved, score = ascend(clip, ids, words, taste, strength)
        with torch.no_grad():
            states, _ = encode(clip, ids, moved)
        noise = torch.Generator("cpu").manual_seed(args.seed)
        picture = pipeline(prompt_embeds=states, generator=noise, num_inference_steps=args.num_steps).images[0]
        picture.save(args.out / f"{strength:g}.png")
        scores.append(score)
        print(f"strength {strength:g}: theta . phi = {score:.4f}, {args.out / f'{strength:g}.png'}")
    return scores


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
