"""Small encoders and models that the encoder tests share."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np


class CountingEncoder:
    """A deterministic encoder without a model that counts what it was asked for."""

    def __init__(self, dimension: int = 8, fingerprint: str = "c0ffee00" * 8) -> None:
        self.name = "counting"
        self.dimension = dimension
        self.fingerprint = fingerprint
        self.calls: list[list[str]] = []

    def encode(self, texts, *, progress=False):
        self.calls.append(list(texts))
        rows = np.empty((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")
            row[:] = np.random.default_rng(seed).normal(size=self.dimension)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    @property
    def encoded(self) -> list[str]:
        return [text for call in self.calls for text in call]


def save_tiny_sentence_model(folder: Path, *, seed: int = 0, mean_pooling: bool = True) -> Path:
    """Save a 2-layer BERT with a word tokenizer and a pooling module as sentence-transformers does."""
    from edpbrl_gym._compat import declare_torchvision_schemas

    declare_torchvision_schemas()
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    bert = folder / "bert"
    bert.mkdir(parents=True)
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *"0123456789"]
    entries += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] + [","]
    (bert / "vocab.txt").write_text("\n".join(entries))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(entries), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    BertModel(config).save_pretrained(bert)
    BertTokenizerFast(vocab=str(bert / "vocab.txt")).save_pretrained(bert)
    pooling = Pooling(32, pooling_mode="mean" if mean_pooling else "cls")
    model = SentenceTransformer(modules=[Transformer(str(bert), max_seq_length=64), pooling], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


TINY_CLIP = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def save_tiny_clip(folder: Path, *, seed: int = 0, **changes) -> Path:
    """Save a tiny CLIP as an open_clip folder: open_clip_config.json and open_clip_model.safetensors."""
    from edpbrl_gym._compat import declare_torchvision_schemas

    declare_torchvision_schemas()
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = {**TINY_CLIP, **changes}
    architecture = folder / f"tiny-{folder.name}.json"
    architecture.write_text(json.dumps(config))
    open_clip.add_model_config(architecture)
    torch.manual_seed(seed)
    model = open_clip.create_model(architecture.stem)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    return folder


class OwnEncoder(CountingEncoder):
    """An encoder of one's own, "tests.helpers.encoders:OwnEncoder"; its rows have no unit norm."""

    def encode(self, texts, *, progress=False):
        return 3.0 * super().encode(texts).astype(np.float64)


class RaggedEncoder(OwnEncoder):
    """Returns a column too few."""

    def encode(self, texts, *, progress=False):
        return super().encode(texts)[:, :-1]


class NamelessEncoder:
    """Lacks a fingerprint."""

    dimension = 3

    def encode(self, texts):
        return np.ones((len(texts), 3))


class NeverEncoder(OwnEncoder):
    """Fails when it is asked for an embedding: nothing may be encoded yet."""

    def encode(self, texts, *, progress=False):
        raise AssertionError("something was encoded")


class BatchEncoder(CountingEncoder):
    """An encoder whose rows depend a little on the texts that are encoded with them, as those of models do."""

    def __init__(self) -> None:
        super().__init__(dimension=16, fingerprint="ba7c4000" * 8)
        self.name = "tests.helpers.encoders:BatchEncoder"

    def encode(self, texts, *, progress=False):
        rows = super().encode(texts) + np.float32(1e-3) * super().encode(["|".join(texts)])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class OwnImages:
    """An image encoder of three features that counts the pictures that it was given."""

    dimension = 3
    fingerprint = "0b1ec701" * 8
    seen = 0

    def encode_images(self, images):
        from edpbrl_gym._pictures import converted

        self.seen += len(images)
        return np.stack([1.0 + np.asarray(converted(image, "RGB"), dtype=float).mean((0, 1)) for image in images])
