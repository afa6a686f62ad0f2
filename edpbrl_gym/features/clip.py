"""CLIP text encoders through open_clip: by model and pretrained tag, weights file, hub id or local folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym.features.base import BatchedEncoder, hash_settings, hash_state_dict
from edpbrl_gym.features.notices import Notices

__all__ = ["OpenClipEncoder", "open_clip_model"]

_LOCAL = "local-dir:"
_HUB = "hf-hub:"


def _split_source(source: str, package: Any) -> tuple[str, str | None]:
    """Return open_clip's (model name, pretrained) after all checks that need no weights."""
    if source.startswith(_LOCAL):
        folder = Path(source.removeprefix(_LOCAL)).expanduser()
        if not source.removeprefix(_LOCAL) or not folder.is_dir():
            raise FileNotFoundError(f"Expected an open_clip model folder at {str(folder)!r}, got no such folder")
        if not (folder / "open_clip_config.json").is_file():
            raise FileNotFoundError(
                f"Expected open_clip_config.json in {folder}, got no such file; save the model's config there "
                "as open_clip's push_to_hf_hub does"
            )
        return f"{_LOCAL}{folder}", None
    if source.startswith(_HUB):
        return source, None
    model, _, pretrained = source.partition("/")
    model_names = package.list_models()
    if model not in model_names:
        near = [name for name in model_names if name.lower().startswith(model.lower()[:5])][:8]
        hint = f" (similar: {', '.join(near)})" if near else ""
        raise ValueError(
            f"Expected an open_clip model name, got {model!r}{hint}; open_clip.list_models() has all, and "
            "'open_clip:local-dir:<folder>' loads your own"
        )
    tags = package.list_pretrained_tags_by_model(model)
    if os.path.isfile(os.path.expanduser(pretrained)):
        return model, os.path.expanduser(pretrained)
    if pretrained not in tags:
        raise ValueError(
            f"Expected open_clip:{model}/<pretrained> with one of the tags {', '.join(tags) or '(none)'} or a "
            f"weights file, got {pretrained or 'no tag'!r}; without weights the model would be random"
        )
    return model, pretrained


def _load(package: Any, model: str, pretrained: str | None, device: str) -> Any:
    try:
        # require_pretrained: otherwise open_clip only warns if it finds no weights, and uses random ones
        return package.create_model(
            model, pretrained=pretrained, precision="fp32", device=device, require_pretrained=True
        )
    except Exception as error:  # open_clip wraps everything, network errors included, into RuntimeError
        local = model.startswith(_LOCAL) or (pretrained is not None and os.path.isfile(pretrained))
        source = model if pretrained is None else f"{model}/{pretrained}"
        if local:
            raise ValueError(
                f"Expected a loadable open_clip model at {source}, got {type(error).__name__}: {error}; check that the "
                "config fits the weights and that the folder holds a .safetensors, .bin or .pth file"
            ) from error
        raise ConnectionError(
            f"Expected the weights of open_clip:{source} from the model hub, but they could not be loaded "
            f"({type(error).__name__}: {error}); download them where there is a connection and use "
            f"'open_clip:local-dir:<folder>' or 'open_clip:{model}/<weights file>'"
        ) from error


def open_clip_model(source: str, device: str | None) -> tuple[Any, str, Any, str]:
    """The package, a model's name in it, the model with both towers, in float32 and evaluation mode, and the device."""
    package = require("open_clip", "CLIP encoders")
    target = resolve_device(device)
    model, pretrained = _split_source(source, package)
    return package, model, _load(package, model, pretrained, target).eval(), target


class OpenClipEncoder(BatchedEncoder):
    """The text tower of an open_clip model, in float32. The paper uses ViT-L-14/openai (d = 768).

    The image tower is dropped after loading. Texts are cut at the model's context length (77 tokens for CLIP).
    The fingerprint covers the text tower's weights, the tokenizer and the context length, but not the model's origin.
    The source is ``<model>/<pretrained tag>``, ``<model>/<weights file>``, ``hf-hub:<id>`` or ``local-dir:<folder>``;
    the other arguments are those of ``load_encoder``.

    Raises:
        ValueError: The model or tag is unknown, there is no tag, or the weights do not match the config.
        ModuleNotFoundError, FileNotFoundError: The package, or the folder or its config, is missing.
        ConnectionError: The hub can't be reached.
    """

    def __init__(self, source: str, *, batch_size: int = 256, device: str | None = None) -> None:
        super().__init__(batch_size=batch_size)
        self.name = f"open_clip:{source}"
        package, model, self.model, self.device = open_clip_model(source, device)
        if hasattr(self.model, "visual"):
            self.model.visual = None
        self.tokenizer = package.get_tokenizer(model)
        self.fingerprint = hash_settings(
            {
                "kind": "open_clip",
                "model": type(self.model).__name__,
                # the same weights with another activation are another encoder
                "activations": sorted({type(module).__name__ for module in self.model.modules()}),
                "tokenizer": type(self.tokenizer).__name__,
                "context_length": self.tokenizer.context_length,
                "probe": np.asarray(self.tokenizer([_PROBE])).tolist(),
                "weights": hash_state_dict(self.model.state_dict()),
            }
        )
        self._causal = _is_causal(self.model)
        self.dimension = int(np.asarray(self._encode_batch(self._prepare(["dimension"]))).shape[1])
        self.notices = Notices(self.name, int(self.tokenizer.context_length), "tokens", self._pieces)

    def _pieces(self, texts: list[str]) -> list[tuple[int, int]]:
        """Numbers of tokens with the two marks, and of unknown ones among them: none by bytes, as in CLIP's own."""
        inner = getattr(self.tokenizer, "tokenizer", None)
        if inner is None:
            return [(len(self.tokenizer.encode(text)) + 2, 0) for text in texts]
        ids = inner([self.tokenizer.clean_fn(text) for text in texts], verbose=False)["input_ids"]
        return [(len(one), one.count(inner.unk_token_id)) for one in ids]

    def _prepare(self, texts: list[str]) -> Any:
        return self.tokenizer(texts)

    def _lengths(self, prepared: Any) -> Sequence[int]:
        tokens = np.asarray(prepared)  # padded to the context length
        if not self._causal:
            return [0] * len(tokens)
        return [int(end) + 1 for end in tokens.argmax(axis=1)]  # the token of the end has the highest id

    def _encode_batch(self, prepared: Sequence[Any]) -> ArrayLike:
        import torch

        tokens = torch.stack(list(prepared)).to(self.device)
        with torch.inference_mode():
            if self._causal:
                rows = _encode_to_the_end(self.model, tokens[:, : max(self._lengths(prepared))])
            else:
                rows = self.model.encode_text(tokens)
        return rows.float().cpu().numpy()


def _is_causal(model: Any) -> bool:
    """Whether a text tower is CLIP's own: each token sees those before it, and the state at the end is the feature."""
    return (
        type(model).__name__ == "CLIP"
        and getattr(model, "text_pool_type", None) == "argmax"
        and getattr(model, "attn_mask", None) is not None
    )


def _encode_to_the_end(model: Any, tokens: Any) -> Any:
    """``encode_text`` of a causal tower on the first tokens only (n, length), as far as the longest text goes."""
    length = tokens.shape[1]
    hidden = model.token_embedding(tokens) + model.positional_embedding[:length]
    hidden = model.ln_final(model.transformer(hidden, attn_mask=model.attn_mask[:length, :length]))
    ends = hidden[range(len(tokens)), tokens.argmax(dim=1)]
    projection = model.text_projection
    if projection is None:
        return ends
    return projection(ends) if callable(projection) else ends @ projection


_PROBE = "A half-open window, Zurich 1920s; it's 25% off!"  # its tokens distinguish tokenizers
