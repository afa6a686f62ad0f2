"""A byte-level BPE tokenizer of GPT-2's kind, trained on the prompts themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._validation import check_count

__all__ = ["END_OF_TEXT", "save_tokenizer", "train_tokenizer"]

END_OF_TEXT = "<|endoftext|>"  # begins and ends every text, as in GPT-2
_BYTES = 256


def train_tokenizer(texts: Sequence[str], vocabulary_size: int) -> Any:
    """Return a fast Hugging Face tokenizer with GPT-2's conventions.

    Byte-level byte-pair encoding: every text can be written, a word after a space begins with that space, and
    ``END_OF_TEXT`` (id 0) is the token of begin, end and padding. Merges are counted over all texts, so that their
    order doesn't matter and the same texts give the same tokenizer.

    Args:
        texts: What to learn the merges from.
        vocabulary_size: Tokens at most, the 256 bytes and ``END_OF_TEXT`` included; few texts give fewer.

    Raises:
        ValueError: A size that does not hold the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from edpbrl_gym._compat import declare_torchvision_schemas

    size = check_count(vocabulary_size, "vocabulary_size", minimum=_BYTES + 1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    declare_torchvision_schemas()
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``; transformers 4 and 5 both know its class by this name."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["tokenizer_class"] = "PreTrainedTokenizerFast"
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
