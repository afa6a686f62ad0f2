"""Causal language models from a hub id or a local folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._compat import Need, check_installed, require, resolve_device
from edpbrl_gym.features.base import hash_settings, hash_state_dict, hash_tokenizer, quiet_loading
from edpbrl_gym.language.words import WordRules

if TYPE_CHECKING:
    import torch

__all__ = ["SHIPPED_FOLDER", "SHIPPED_NAME", "LanguageModel", "load_language_model", "load_tokenizer"]

SHIPPED_FOLDER = Path(__file__).parent / "data" / "prompt-lm"  # the prompt model of the package
SHIPPED_NAME = "edpbrl-gym prompt-lm"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin")

Spec = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model with its tokenizer.

    ``dataclasses.replace(language, model=other)`` gives a policy with the same tokenizer and other weights.

    Attributes:
        model: A Hugging Face causal LM (or a peft model around one), called with ``input_ids`` and giving ``logits``.
        tokenizer: Its byte-level BPE tokenizer.
        name: Its source: hub id, folder, or ``SHIPPED_NAME`` for the model that ships with the package.
        fingerprint: sha256 (hex) of weights, configuration and tokenizer.
    """

    model: Any
    tokenizer: Any
    name: str
    fingerprint: str

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(iter(self.model.parameters())).device

    @property
    def start(self) -> int:
        """Token before the first: BOS, or EOS if the tokenizer has none (GPT-2's one <|endoftext|> is both)."""
        tokenizer = self.tokenizer
        return int(tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id)

    @property
    def context_length(self) -> int | None:
        """Maximum number of tokens, None if the configuration has no limit."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @cached_property
    def rules(self) -> WordRules:
        """What each token does to the words of a text.

        Raises:
            ValueError: If the tokenizer isn't byte-level BPE.
        """
        return WordRules.of_tokenizer(self.tokenizer)

    @cached_property
    def never_written(self) -> torch.Tensor:
        """Tokens that are never written, bool (V,) on the CPU: special ones other than EOS, and empty ones."""
        import torch

        never = torch.from_numpy(~self.rules.allowed)
        never[self.rules.eos] = False
        return never

    def start_tokens(self, prefix: str = "") -> tuple[int, ...]:
        """The start token and the tokens of ``prefix``."""
        return (self.start, *self.tokenizer(prefix, add_special_tokens=False)["input_ids"])

    @contextmanager
    def evaluating(self) -> Iterator[Any]:
        """The model in evaluation mode (no dropout), so that sampling and scoring see one distribution."""
        training = self.model.training
        self.model.eval()
        try:
            yield self.model
        finally:
            self.model.train(training)


def load_tokenizer(spec: Spec = None) -> Any:
    """Return the tokenizer of a language model without loading its weights; see ``load_language_model``.

    Raises:
        ValueError: Also if it has no end-of-sequence token.
    """
    source, folder = _source(spec)
    if folder is not None:
        _require_files(folder, ("tokenizer.json", "vocab.json"), "tokenizer")
    with _readable_errors(source, folder, "a tokenizer"):
        tokenizer = _tokenizer_class(folder).from_pretrained(source)
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"Expected the tokenizer of {source!r} to have an end-of-sequence token, got none; a language model "
            "can't end its prompts without one."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # GPT-2 has none; padded positions are masked
    return tokenizer


def load_language_model(spec: Spec = None, *, device: str | None = None) -> LanguageModel:
    """Return a causal language model in evaluation mode, with float32 weights.

    Args:
        spec: A hub id such as "Gustavosta/MagicPrompt-Stable-Diffusion" (the paper's), a local folder as
            ``save_pretrained`` writes it, or None for the project's own small prompt model, which ships with the
            package (docs/prompt-language-model.md). Code that comes with a model is never run.
        device: torch device; None is "cuda" where there is one, else "cpu".

    Raises:
        FileNotFoundError: If a local folder or a file in it is missing.
        ConnectionError: If the hub can't be reached or has no such model.
        ValueError: If it is no causal language model, or model and tokenizer don't fit, or the device is unknown.
    """
    source, folder = _source(spec)
    target = resolve_device(device)
    if folder is not None:
        _require_files(folder, ("config.json",), "configuration")
        _require_files(folder, _WEIGHTS, "weights")
    tokenizer = load_tokenizer(source)
    package = require("transformers", "language models")
    with _readable_errors(source, folder, "a causal language model"), quiet_loading("language models"):
        config = package.AutoConfig.from_pretrained(source)
        if getattr(config, "is_encoder_decoder", False):
            raise ValueError("it is an encoder-decoder model")
        model = package.AutoModelForCausalLM.from_pretrained(source, config=config, dtype="float32")
    rows = int(model.get_input_embeddings().weight.shape[0])
    if max(tokenizer.get_vocab().values()) >= rows:
        raise ValueError(
            f"Expected the tokenizer of {source!r} to have at most the model's {rows} tokens, got "
            f"{max(tokenizer.get_vocab().values()) + 1}; model and tokenizer belong to different models."
        )
    model = model.to(target).eval()
    name = SHIPPED_NAME if spec is None else source
    return LanguageModel(model=model, tokenizer=tokenizer, name=name, fingerprint=_fingerprint(model, tokenizer))


def _source(spec: Spec) -> tuple[str, Path | None]:
    """The name to load, and its folder if it is local."""
    if spec is None:
        return str(SHIPPED_FOLDER), SHIPPED_FOLDER
    if not isinstance(spec, str | os.PathLike) or not os.fspath(spec):
        raise TypeError(f"Expected a language model as a hub id or a folder, got {spec!r}.")
    name = os.fspath(spec)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder), folder
    path_like = isinstance(spec, os.PathLike) or name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name
    if path_like:
        raise FileNotFoundError(f"Expected a model folder at {folder}, got no such folder; check the path.")
    return name, None


def _tokenizer_class(folder: Path | None) -> Any:
    """The class that loads the tokenizer: the plain one if the folder names it, as that needs no torch (2 s)."""
    if folder is not None and (folder / "tokenizer.json").is_file() and (folder / "tokenizer_config.json").is_file():
        described = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        if described.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            check_installed(Need("transformers", "language models"))
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
    return require("transformers", "language models").AutoTokenizer


def _require_files(folder: Path, patterns: tuple[str, ...], kind: str) -> None:
    if not any(True for pattern in patterns for _ in folder.glob(pattern)):
        raise FileNotFoundError(
            f"Expected the {kind} of a language model in {folder} ({' or '.join(patterns)}), got nothing there; save "
            "model and tokenizer there with save_pretrained(folder)."
        )


@contextmanager
def _readable_errors(source: str, folder: Path | None, kind: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # the libraries raise many kinds for a damaged folder
        if folder is None and isinstance(error, OSError):
            reason = " ".join(str(error).split())[:300]
            raise ConnectionError(
                f"Expected {kind} {source!r} from the model hub, but the hub could not be reached or has no such model "
                f"({type(error).__name__}: {reason}); download it where there is a connection and give its folder, or "
                "name no model: the one of the package needs no connection."
            ) from error
        raise ValueError(f"Expected {kind} in {source!r}, got {type(error).__name__}: {error}") from error


def _fingerprint(model: Any, tokenizer: Any) -> str:
    settings = {
        "kind": "causal-lm",
        "model": type(model).__name__,
        "tokenizer": hash_tokenizer(tokenizer),
        "start": [tokenizer.bos_token_id, tokenizer.eos_token_id],
        "weights": hash_state_dict(model.state_dict()),
    }
    return hash_settings(settings)
