"""Sentence encoders: any model that sentence-transformers loads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym.features._hashing import hash_settings, hash_state_dict
from edpbrl_gym.features.base import BatchedEncoder, quiet_loading

__all__ = ["SentenceTransformerEncoder"]


def _load_model(source: str, device: str | None) -> Any:
    """Return a SentenceTransformer in float32, in evaluation mode."""
    package = require("sentence_transformers", "sentence encoders")
    target = resolve_device(device)
    with quiet_loading("sentence encoders"):
        model = package.SentenceTransformer(source, device=target)
    return model.float().eval()


def _token_counts(model: Any, texts: list[str]) -> Sequence[int]:
    """Return the number of tokens of each text up to the model's limit, or of characters if it has no tokenizer."""
    from transformers import PreTrainedTokenizerBase

    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return [len(text) for text in texts]
    limit = model.max_seq_length or np.iinfo(np.int32).max
    return [min(len(ids), limit) for ids in tokenizer(texts, verbose=False)["input_ids"]]


def _run(model: Any, texts: list[str]) -> ArrayLike:
    """Return raw embeddings; ``SentenceTransformer.encode`` runs under torch.inference_mode."""
    return model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)


def _looks_like_path(source: str) -> bool:
    return source.startswith(("/", "./", "../", "~", "\\")) or source.count("/") > 1 or "\\" in source


def _load_source(source: str, device: str | None) -> Any:
    folder = Path(source).expanduser()
    if folder.is_dir():
        try:
            return _load_model(str(folder), device)
        except ImportError:
            raise
        except Exception as error:  # the libraries raise many kinds for a damaged folder
            if isinstance(error, ValueError) and str(error).startswith("Expected"):
                raise
            raise ValueError(
                f"Expected a sentence-transformers model in {folder}, got {type(error).__name__}: {error}; "
                "save one there with SentenceTransformer.save(folder)"
            ) from error
    if _looks_like_path(source):
        raise FileNotFoundError(f"Expected a model folder at {folder}, got no such folder; check the path")
    try:
        return _load_model(source, device)
    except OSError as error:
        raise ConnectionError(
            f"Expected the model {source!r} from the model hub, but the hub could not be reached or has no such model "
            f"({type(error).__name__}); download it where there is a connection and use "
            f"'sentence-transformers:<local folder>', or use 'minilm', which needs none"
        ) from error


class SentenceTransformerEncoder(BatchedEncoder):
    """Any sentence-transformers model, by hub id or local folder, in float32.

    The fingerprint covers the weights and settings of all modules and the tokenizer, but not the model's origin: a hub
    id and a folder with the same model share their cache.

    Args:
        source: Hub id such as "sentence-transformers/all-mpnet-base-v2", or a folder.
        batch_size: Maximum number of texts per call of the model.
        device: Torch device; None: "cuda" if available, else "cpu".

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

    def _lengths(self, prepared: Sequence[str]) -> Sequence[int]:
        return _token_counts(self.model, list(prepared))

    def _encode_batch(self, prepared: Sequence[str]) -> ArrayLike:
        return _run(self.model, list(prepared))


def _model_fingerprint(model: Any) -> str:
    tokenizer = getattr(model, "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        tokens = json.loads(backend.to_str())
        tokens = {key: value for key, value in tokens.items() if key not in ("padding", "truncation")}  # set per call
    else:
        vocabulary = getattr(tokenizer, "get_vocab", None)
        tokens = type(tokenizer).__name__ if vocabulary is None else vocabulary()
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
        "tokenizer": hash_settings(tokens),
        "weights": hash_state_dict(model.state_dict()),
    }
    return hash_settings(settings)
