"""A tiny GPT-2 with a byte-level BPE, written to a folder and loaded through the real loading path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edpbrl_gym._compat import declare_torchvision_schemas

TEXTS = (
    "a lighthouse on a cliff at dusk, oil on canvas",
    "a city street in the rain, neon glow, cinematic",
    "portrait of an old sailor, soft light, pencil sketch",
    "a quiet forest with a river, watercolor, golden hour",
    "a castle above the clouds in the style of pixel art",
    "two dogs at the beach, overcast sky, film photo",
)
END = "<|endoftext|>"


def write_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    tokens: Sequence[str] | None = None,
    layers: int = 2,
    width: int = 32,
    spread: float = 1.0,
) -> str:
    """Write a random GPT-2 (2 layers x 32) with its tokenizer to ``folder`` and return the folder as a string.

    Args:
        folder: Where; made if missing.
        seed: Seed of the weights.
        tokens: Instead of 320 that are trained, exactly these (as text; " " begins a word), then END.
        layers: Transformer layers.
        width: Embedding width; 4 heads.
        spread: Standard deviation of the logits over tokens, which sets how uneven the distributions are.
    """
    declare_torchvision_schemas()
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    if tokens is None:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=320, special_tokens=[END], initial_alphabet=sorted(alphabet), show_progress=False
        )
        backend.train_from_iterator(TEXTS, trainer)
    else:
        written = [token.replace(" ", "\u0120") for token in tokens]  # byte-level BPE writes a space as U+0120
        vocabulary = {token: index for index, token in enumerate([*written, END])}
        backend = Tokenizer(models.BPE(vocabulary, []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=END, eos_token=END, unk_token=END)
    tokenizer.save_pretrained(folder)
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=width, n_layer=layers, n_head=4, bos_token_id=end,
        eos_token_id=end, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
        with torch.no_grad():
            model.transformer.wte.weight.normal_(0.0, 0.5)
            model.transformer.wpe.weight.normal_(0.0, 0.5)
            model.lm_head.weight.normal_(0.0, spread / width**0.5)  # not tied, or every token would foretell itself
            if tokens is None:  # a hidden unit that is always 1 makes words of a few tokens, and ends, likely
                model.transformer.ln_f.weight[0], model.transformer.ln_f.bias[0] = 0.0, 1.0
                spaced = [index for token, index in tokenizer.get_vocab().items() if token.startswith("\u0120")]
                model.lm_head.weight[[*spaced, end], 0] = 2.5
    model.save_pretrained(folder)
    return str(folder)
