"""Sentence encoders: any model that sentence-transformers loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym.features.base import BatchedEncoder, hash_settings, hash_state_dict, hash_tokenizer, quiet_loading
from edpbrl_gym.features.notices import Notices

__all__ = ["SentenceTransformerEncoder"]


def _load_model(source: str, device: str | None) -> Any:
    package = require("sentence_transformers", "sentence encoders")
    with quiet_loading("sentence encoders"):
        return package.SentenceTransformer(source, device=resolve_device(device)).float().eval()


def _tokenizer(model: Any) -> Any:
    """The tokenizer of transformers that a model, or its processor of texts and pictures, has; else None."""
    from transformers import PreTrainedTokenizerBase

    tokenizer = getattr(model, "tokenizer", None)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    return tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None


def _limit(model: Any) -> int | None:
    """The number of tokens that a model reads of a text; None without a limit."""
    length = model.max_seq_length
    return int(length) if length is not None and 0 < length < np.iinfo(np.int32).max else None


def _run(model: Any, texts: list[str]) -> ArrayLike:
    """Return raw embeddings; ``SentenceTransformer.encode`` runs under torch.inference_mode."""
    return model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)


def _load_source(source: str, device: str | None) -> Any:
    folder = Path(source).expanduser()
    if folder.is_dir():
        try:
            return _load_model(str(folder), device)
        except Exception as error:  # the libraries raise many kinds for a damaged folder
            if isinstance(error, ImportError) or str(error).startswith("Expected"):
                raise
            raise ValueError(
                f"Expected a sentence-transformers model in {folder}, got {type(error).__name__}: {error}; "
                "save one there with SentenceTransformer.save(folder)"
            ) from error
    if source.startswith(("/", "./", "../", "~")) or source.count("/") > 1 or "\\" in source:  # no hub id
        raise FileNotFoundError(f"Expected a model folder at {folder}, got no such folder; check the path")
    try:
        return _load_model(source, device)
    except OSError as error:
        reason = " ".join(str(error).split())[:300]
        raise ConnectionError(
            f"Expected the model {source!r} from the model hub, but the hub could not be reached or has no such model "
            f"({type(error).__name__}: {reason}); download it where there is a connection and use "
            f"'sentence-transformers:<local folder>', or use 'minilm', which needs none"
        ) from error


class SentenceTransformerEncoder(BatchedEncoder):
    """Any sentence-transformers model, by hub id or local folder (the source), in float32.

    The fingerprint covers the weights and settings of all modules and the tokenizer, but not the model's origin: a hub
    id and a folder with the same model share their cache. The other arguments are those of ``load_encoder``.

    Raises:
        FileNotFoundError: The folder does not exist.
        ConnectionError: The hub can't be reached or has no such model.
        ValueError: The folder has no loadable model, or the device is unknown.
    """

    def __init__(self, source: str, *, batch_size: int = 256, device: str | None = None) -> None:
        super().__init__(batch_size=batch_size)
        self.name = f"sentence-transformers:{source}"
        self.model = _load_source(source, device)
        self.fingerprint = _model_fingerprint(self.model)
        self.dimension = int(np.asarray(_run(self.model, ["dimension"])).shape[1])
        self.tokenizer = _tokenizer(self.model)
        if self.tokenizer is not None:
            self.notices = Notices(self.name, _limit(self.model), "tokens", self._pieces)

    def _pieces(self, texts: list[str]) -> list[tuple[int, int]]:
        tokenizer = self.tokenizer
        prompt = (self.model.prompts or {}).get(self.model.default_prompt_name) or ""
        ids = tokenizer([prompt + text for text in texts], verbose=False)["input_ids"]
        return [(len(one), one.count(tokenizer.unk_token_id)) for one in ids]

    def _lengths(self, prepared: Sequence[str]) -> Sequence[int]:
        if self.tokenizer is None:
            return [len(text) for text in prepared]
        limit = _limit(self.model) or np.iinfo(np.int32).max
        return [min(len(ids), limit) for ids in self.tokenizer(list(prepared), verbose=False)["input_ids"]]

    def _encode_batch(self, prepared: Sequence[str]) -> ArrayLike:
        return _run(self.model, list(prepared))


def _model_fingerprint(model: Any) -> str:
    modules = [
        [type(module).__name__, module.get_config_dict() if hasattr(module, "get_config_dict") else repr(module)]
        for module in model
    ]
    settings = {
        "kind": "sentence-transformers",
        "modules": modules,
        "max_seq_length": model.max_seq_length,
        "prompt": (model.prompts or {}).get(model.default_prompt_name),
        "truncate_dim": model.truncate_dim,
        "tokenizer": hash_tokenizer(getattr(model, "tokenizer", None)),
        "weights": hash_state_dict(model.state_dict()),
    }
    return hash_settings(settings)
