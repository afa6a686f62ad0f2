"""A Stable Diffusion so small that a test can run it: built from configs, random weights, saved as real models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym.rendering import CachedRenderer, RenderSettings, load_renderer
from edpbrl_gym.vocabulary import load_vocabulary

_START, _END = "<|startoftext|>", "<|endoftext|>"
_CONTEXT = 77  # tokens that the text encoder reads, as in CLIP
_VOCABULARY = 1200
UNET = {
    **{"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8, "attention_head_dim": 8},
    **{"sample_size": 8, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 32},
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}


def _tokenizer(folder: Path) -> Any:
    """A byte-level BPE tokenizer of CLIP's kind, its merges learnt from the built-in words."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    bpe = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    words = sorted({token.lower() for step in load_vocabulary().tokens for token in step})
    bpe.train_from_iterator(words, trainer)
    merges = json.loads(bpe.to_str())["model"]["merges"]
    # CLIP's order: bytes, bytes that end a word, merges, the two marks; whatever the trainer left out is there too
    names = [*alphabet, *(f"{letter}</w>" for letter in alphabet), *("".join(pair) for pair in merges), _START, _END]
    vocab = {name: number for number, name in enumerate(dict.fromkeys(names))}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges), encoding="utf-8"
    )
    return CLIPTokenizer.from_pretrained(folder, model_max_length=_CONTEXT)


def _clip_config(tokenizer: Any) -> Any:
    from transformers import CLIPTextConfig

    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=_CONTEXT,
        projection_dim=32,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _safety_checker(flagging: bool) -> Any:
    """A checker of images: its thresholds flag every image, or none."""
    import torch
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPTextConfig, CLIPVisionConfig

    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    checker = StableDiffusionSafetyChecker(
        CLIPConfig(vision_config=vision.to_dict(), text_config=CLIPTextConfig().to_dict(), projection_dim=8)
    )
    with torch.no_grad():
        threshold = -2.0 if flagging else 2.0  # a cosine is above the one and below the other
        checker.concept_embeds_weights.fill_(threshold)
        checker.special_care_embeds_weights.fill_(2.0)
    return checker


def save_tiny_stable_diffusion(
    folder: Path,
    *,
    safety_checker: bool = False,
    flagging: bool = True,
    scheduler: str = "PNDMScheduler",
) -> Path:
    """Build a StableDiffusionPipeline with random weights and save it; images have 64 x 64 pixels unless asked.

    Args:
        folder: where ``save_pretrained`` writes; it is returned.
        safety_checker: ship one.
        flagging: the checker flags every image (True) or none (False).
        scheduler: class name of a diffusers scheduler; PNDM is Stable Diffusion 1.4's.
    """
    declare_torchvision_schemas()
    import diffusers
    import torch
    from transformers import CLIPImageProcessor, CLIPTextModel
    from transformers.utils import logging

    tokenizer = _tokenizer(folder / "tokenizer")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the global generator stays as it was
        text_encoder = CLIPTextModel(_clip_config(tokenizer))
        unet = diffusers.UNet2DConditionModel(**UNET)
        vae = diffusers.AutoencoderKL(
            block_out_channels=[8, 8, 16, 16],
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
            latent_channels=4,
            norm_num_groups=4,
        )
        checker = _safety_checker(flagging) if safety_checker else None
    noise = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
    steps = getattr(diffusers, scheduler)(**noise, **({"skip_prk_steps": True} if "PNDM" in scheduler else {}))
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=steps,
        safety_checker=checker,
        feature_extractor=CLIPImageProcessor(crop_size=32, size=32) if safety_checker else None,
        requires_safety_checker=safety_checker,
    )
    logging.disable_progress_bar()
    pipeline.save_pretrained(folder)
    return folder


# names of diffusers, as regular expressions, and of Stable Diffusion's own checkpoints, applied in this order
_BLOCKS = (
    *((rf"^down_blocks\.{i}\.resnets\.0", f"input_blocks.{2 * i + 1}.0") for i in (0, 1)),
    *((rf"^down_blocks\.{i}\.attentions\.0", f"input_blocks.{2 * i + 1}.1") for i in (0, 1)),
    (r"^down_blocks\.0\.downsamplers\.0\.conv", "input_blocks.2.0.op"),
    *((rf"^up_blocks\.{i}\.resnets\.{j}", f"output_blocks.{2 * i + j}.0") for i in (0, 1) for j in (0, 1)),
    *((rf"^up_blocks\.0\.attentions\.{j}", f"output_blocks.{j}.1") for j in (0, 1)),
    (r"^up_blocks\.0\.upsamplers\.0", "output_blocks.1.2"),
    *((rf"^mid_block\.resnets\.{j}", f"middle_block.{2 * j}") for j in (0, 1)),
    (r"^mid_block\.attentions\.0", "middle_block.1"),
    (r"^conv_in", "input_blocks.0.0"), (r"^conv_norm_out", "out.0"), (r"^conv_out", "out.2"),
    (r"^time_embedding\.linear_1", "time_embed.0"), (r"^time_embedding\.linear_2", "time_embed.2"),
    *((rf"^([a-z_]+\.\d+(?:\.0)?)\.{name}", rf"\1.{other}")
      for name, other in (("norm1", "in_layers.0"), ("conv1", "in_layers.2"), ("norm2", "out_layers.0"),
                          ("conv2", "out_layers.3"))),
    (r"time_emb_proj", "emb_layers.1"), (r"conv_shortcut", "skip_connection"),
)  # fmt: skip
_AUTOENCODER = (
    (r"^encoder\.down_blocks\.(\d)\.resnets", r"encoder.down.\1.block"),
    (r"^encoder\.down_blocks\.(\d)\.downsamplers\.0", r"encoder.down.\1.downsample"),
    *((rf"^decoder\.up_blocks\.{i}\.resnets", f"decoder.up.{3 - i}.block") for i in range(4)),
    *((rf"^decoder\.up_blocks\.{i}\.upsamplers\.0", f"decoder.up.{3 - i}.upsample") for i in range(4)),
    *((rf"mid_block\.resnets\.{j}", f"mid.block_{j + 1}") for j in (0, 1)),
    (r"mid_block\.attentions\.0", "mid.attn_1"), (r"group_norm", "norm"), (r"to_out\.0", "proj_out"),
    (r"\.to_([qkv])\.", r".\1."), (r"conv_norm_out", "norm_out"), (r"conv_shortcut", "nin_shortcut"),
)  # fmt: skip


def save_single_checkpoint(model: Path, path: Path) -> Path:
    """Save the weights of a pipeline of ``save_tiny_stable_diffusion`` as one file with Stable Diffusion's names."""
    import re

    from safetensors.numpy import load_file, save_file

    weights = {}
    for part, file, prefix, names in (
        ("unet", "diffusion_pytorch_model", "model.diffusion_model.", _BLOCKS),
        ("vae", "diffusion_pytorch_model", "first_stage_model.", _AUTOENCODER),
        ("text_encoder", "model", "cond_stage_model.transformer.text_model.", ((r"^text_model\.", ""),)),
    ):
        for name, value in load_file(model / part / f"{file}.safetensors").items():
            for own, other in names:
                name = re.sub(own, other, name)
            weights[prefix + name] = value
    save_file(weights, path)
    return path


DIMENSION = 12  # of the projection


def save_projection(model, folder):
    """Save a CLIPTextModelWithProjection whose text tower is that of the pipeline in ``model``."""
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    tower = CLIPTextModel.from_pretrained(model / "text_encoder")
    config = CLIPTextConfig(**{**tower.config.to_dict(), "projection_dim": DIMENSION})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        whole = CLIPTextModelWithProjection(config)
    whole.text_model.load_state_dict(tower.state_dict())
    whole.save_pretrained(folder)
    return folder


def renderer_of(settings: RenderSettings, cache_folder: Path, **options: Any) -> CachedRenderer:
    """The renderer of a model of diffusers with settings."""
    given = settings.as_dict()
    return load_renderer(f"diffusers:{given.pop('model')}", cache_folder=cache_folder, **given, **options)
