"""Pipelines of many kinds, so small that a test can run them: built from configs, with random weights.

Each function gets the modules diffusers and transformers, which are slow to import.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.tiny_diffusion import UNET, _clip_config
from tests.helpers.tiny_diffusion import _tokenizer as clip_tokenizer

_WIDTH = 32  # of all text encoders
_READER = {"hidden_size": _WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_DENOISER = {"in_channels": 4, "out_channels": 4, "num_layers": 1, "attention_head_dim": 8, "num_attention_heads": 2}


@cache
def _words() -> list[str]:
    return sorted({token.lower() for step in load_vocabulary().tokens for token in step})


def _trained(pre_tokenizer: Any, alphabet: list[str], *, ending: bool = True) -> Any:
    """A tokenizer of the kind of T5's and Gemma's (Metaspace) or Qwen's (bytes), trained on the built-in words."""
    from tokenizers import Tokenizer, models, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizer
    special = ["<pad>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    bpe.train_from_iterator(_words(), trainer)
    if ending:
        bpe.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=4096
    )


def _pieces() -> Any:
    from tokenizers import pre_tokenizers

    return _trained(pre_tokenizers.Metaspace(), list("abcdefghijklmnopqrstuvwxyz,.0123456789"))


def _bytes() -> Any:
    from tokenizers import pre_tokenizers

    tokenizer = _trained(
        pre_tokenizers.ByteLevel(add_prefix_space=False), sorted(pre_tokenizers.ByteLevel.alphabet()), ending=False
    )
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}<|im_start|>assistant\n"
    )
    return tokenizer


def _t5(transformers: Any) -> Any:
    config = transformers.T5Config(vocab_size=900, d_model=_WIDTH, d_kv=8, d_ff=37, num_layers=1, num_heads=4)
    return transformers.T5EncoderModel(config)


def _vae(diffusers: Any, channels: int = 4, *, halvings: int = 1) -> Any:
    blocks = 1 + halvings
    return diffusers.AutoencoderKL(
        block_out_channels=[8] * blocks,
        down_block_types=["DownEncoderBlock2D"] * blocks,
        up_block_types=["UpDecoderBlock2D"] * blocks,
        latent_channels=channels,
        norm_num_groups=4,
        shift_factor=0.0,
        scaling_factor=1.0,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def _flux(diffusers: Any, transformers: Any, folder: Path, *, guidance_embeds: bool) -> Any:
    tokenizer = clip_tokenizer(folder / "clip")
    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(diffusers, 1, halvings=3),
        text_encoder=transformers.CLIPTextModel(_clip_config(tokenizer)),
        tokenizer=tokenizer,
        text_encoder_2=_t5(transformers),
        tokenizer_2=_pieces(),
        transformer=diffusers.FluxTransformer2DModel(
            **_DENOISER | {"attention_head_dim": 16, "guidance_embeds": guidance_embeds},
            num_single_layers=1,
            joint_attention_dim=_WIDTH,
            pooled_projection_dim=_WIDTH,
            axes_dims_rope=(4, 4, 8),
        ),
    )


def _sd3(diffusers: Any, transformers: Any, folder: Path) -> Any:
    tokenizer = clip_tokenizer(folder / "clip")
    return diffusers.StableDiffusion3Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(diffusers),
        text_encoder=transformers.CLIPTextModelWithProjection(_clip_config(tokenizer)),
        tokenizer=tokenizer,
        text_encoder_2=transformers.CLIPTextModelWithProjection(_clip_config(tokenizer)),
        tokenizer_2=clip_tokenizer(folder / "clip2"),
        text_encoder_3=_t5(transformers),
        tokenizer_3=_pieces(),
        transformer=diffusers.SD3Transformer2DModel(
            **_DENOISER,
            sample_size=32,
            patch_size=1,
            caption_projection_dim=16,
            joint_attention_dim=_WIDTH,
            pooled_projection_dim=2 * _WIDTH,
        ),
    )


def _sdxl(diffusers: Any, transformers: Any, folder: Path) -> Any:
    tokenizer = clip_tokenizer(folder / "clip")
    return diffusers.StableDiffusionXLPipeline(
        vae=_vae(diffusers),
        text_encoder=transformers.CLIPTextModel(_clip_config(tokenizer)),
        text_encoder_2=transformers.CLIPTextModelWithProjection(_clip_config(tokenizer)),
        tokenizer=tokenizer,
        tokenizer_2=clip_tokenizer(folder / "clip2"),
        unet=diffusers.UNet2DConditionModel(
            **UNET | {"sample_size": 16, "cross_attention_dim": 2 * _WIDTH},
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=_WIDTH + 6 * 8,
        ),
        scheduler=diffusers.EulerDiscreteScheduler(),
    )


def _z_image(diffusers: Any, transformers: Any, folder: Path) -> Any:
    config = transformers.Qwen3Config(**_READER, vocab_size=1000, num_key_value_heads=2, head_dim=16)
    return diffusers.ZImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(diffusers),
        text_encoder=transformers.Qwen3Model(config),
        tokenizer=_bytes(),
        transformer=diffusers.ZImageTransformer2DModel(
            in_channels=4,
            dim=32,
            n_layers=1,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=_WIDTH,
            axes_dims=[8, 4, 4],
            axes_lens=[1024, 64, 64],
        ),
    )


def _qwen_image(diffusers: Any, transformers: Any, folder: Path) -> Any:
    rope = {"mrope_section": [2, 3, 3], "rope_type": "default", "rope_theta": 1e6}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**_READER, "num_key_value_heads": 2, "rope_parameters": rope, "vocab_size": 1000},
        vision_config={"depth": 1, "num_heads": 2, "out_hidden_size": _WIDTH}
        | dict.fromkeys(("hidden_size", "intermediate_size"), 16),
    )
    return diffusers.QwenImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=8,
            z_dim=4,
            dim_mult=[1, 1],
            num_res_blocks=1,
            temperal_downsample=[False],
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
        ),
        text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(config),
        tokenizer=_bytes(),
        transformer=diffusers.QwenImageTransformer2DModel(
            **_DENOISER | {"in_channels": 16, "attention_head_dim": 16},
            patch_size=2,
            joint_attention_dim=_WIDTH,
            axes_dims_rope=(4, 6, 6),
        ),
    )


def _pixart(diffusers: Any, transformers: Any, folder: Path) -> Any:
    return diffusers.PixArtSigmaPipeline(
        scheduler=diffusers.DDIMScheduler(),
        vae=_vae(diffusers, halvings=3),
        text_encoder=_t5(transformers),
        tokenizer=_pieces(),
        transformer=diffusers.PixArtTransformer2DModel(
            **_DENOISER | {"out_channels": 8},
            sample_size=32,
            patch_size=2,
            caption_channels=_WIDTH,
            cross_attention_dim=16,
            use_additional_conditions=False,
        ),
    )


def _sana(diffusers: Any, transformers: Any, folder: Path) -> Any:
    config = transformers.Gemma2Config(**_READER, vocab_size=900, num_key_value_heads=1, head_dim=16)
    coders = {f"{name}_block_types": ("ResBlock",) * 6 for name in ("encoder", "decoder")}
    coders |= {f"{name}_block_out_channels": (4,) * 6 for name in ("encoder", "decoder")}
    coders |= {f"{name}_qkv_multiscales": ((),) * 6 for name in ("encoder", "decoder")}
    coders |= {f"{name}_layers_per_block": (1,) * 6 for name in ("encoder", "decoder")}
    return diffusers.SanaPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderDC(
            **coders, latent_channels=4, attention_head_dim=2, upsample_block_type="interpolate", scaling_factor=0.41407
        ),
        text_encoder=transformers.Gemma2Model(config),
        tokenizer=_pieces(),
        transformer=diffusers.SanaTransformer2DModel(
            **_DENOISER,
            patch_size=1,
            num_cross_attention_heads=2,
            cross_attention_head_dim=8,
            cross_attention_dim=16,
            caption_channels=_WIDTH,
            sample_size=16,
        ),
    )


PIPELINES = {
    "sdxl": _sdxl,
    "sd3": _sd3,
    "flux": partial(_flux, guidance_embeds=True),
    "flux without guidance": partial(_flux, guidance_embeds=False),
    "qwen-image": _qwen_image,
    "z-image": _z_image,
    "pixart": _pixart,
    "sana": _sana,
}


def save_tiny_pipeline(kind: str, folder: Path) -> Path:
    """Build a pipeline of ``PIPELINES`` with random weights and save it; the global generator stays as it was."""
    declare_torchvision_schemas()
    import diffusers
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pipeline = PIPELINES[kind](diffusers, transformers, folder.parent / f"{folder.name} parts")
        with torch.no_grad():  # some start at zero, where no text has an effect
            for name in ("transformer", "unet"):
                for weights in getattr(getattr(pipeline, name, None), "parameters", lambda: ())():
                    weights.add_(0.05 * torch.randn_like(weights))
    diffusers.utils.logging.disable_progress_bar()
    pipeline.save_pretrained(folder)
    return folder
