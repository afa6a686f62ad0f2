"""Text encoders: their protocol, the common base of those that run a model, one's own, and their fingerprints."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._compat import import_string, require
from edpbrl_gym._pictures import check_pictures
from edpbrl_gym._validation import check_count
from edpbrl_gym.features.notices import Notices, check_texts, tell_notices

__all__ = [
    "BatchedEncoder",
    "Encoder",
    "OwnEncoder",
    "OwnImageEncoder",
    "TextEncoder",
    "as_encoder",
    "check_fingerprint",
    "hash_arrays",
    "hash_file",
    "hash_settings",
    "hash_state_dict",
    "hash_tokenizer",
    "imported_encoder",
    "normalise",
    "quiet_loading",
]

Embeddings = NDArray[np.float32]


class Encoder(Protocol):
    """Identity of a text or image encoder: name, dimension and fingerprint."""

    @property
    def name(self) -> str:
        """Spec of the encoder, as a user would write it."""

    @property
    def dimension(self) -> int:
        """Number of features d."""

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the weights and of the settings on which the embeddings depend."""


@runtime_checkable
class TextEncoder(Encoder, Protocol):
    """Anything that turns n texts into an (n, d) array of unit-norm float32 rows."""

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Embeddings:
        """Return the embeddings, shape (n, d), float32, unit norm, row i for ``texts[i]``; (0, d) for no texts.

        Args:
            texts: n strings; the empty string is allowed.
            progress: Show a progress bar over the distinct texts that are not known yet, where the encoder can.

        Raises:
            TypeError: The texts are not a list of strings.
            ValueError: The model returned another shape, NaN, infinity or a zero vector.
        """


def check_fingerprint(value: object, name: str = "fingerprint") -> None:
    """Check that a fingerprint can name a folder of the cache.

    Raises:
        ValueError: It is not a string of 8 to 128 letters, digits, - and _.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_-]{8,128}", value):
        raise ValueError(f"Expected a {name} of 8 to 128 letters and digits such as a sha256, got {value!r}")


def normalise(raw: ArrayLike, texts: Sequence[str], dimension: int, name: str) -> Embeddings:
    """Return a model's output as unit-norm float32 rows, shape (n, d).

    Raises:
        ValueError: Wrong shape, NaN, infinity, or a row of norm zero; the message names encoder and text.
    """
    rows = np.asarray(raw, dtype=np.float64)
    if rows.shape != (len(texts), dimension):
        raise ValueError(f"Expected embeddings of shape {(len(texts), dimension)} from {name}, got {rows.shape}")
    norms = np.linalg.norm(rows, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms) | (norms <= np.finfo(np.float32).tiny))
    if bad.size:
        kind = "a zero vector" if np.isfinite(norms[bad[0]]) else "NaN or infinity"
        raise ValueError(
            f"Expected finite, non-zero embeddings from {name}, got {kind} for {texts[bad[0]]!r} "
            f"({bad.size} of {len(texts)} texts); check the weights of this encoder"
        )
    return (rows / norms[:, None]).astype(np.float32)


class BatchedEncoder(ABC):
    """Base of the encoders that run a model: deduplication, batches of similar length, unit norm.

    A batch of ``batch_size`` texts at most is closed early if its padding would exceed ``PADDING_SLACK`` tokens.
    """

    PADDING_SLACK: float = 64

    name: str
    dimension: int
    fingerprint: str
    notices: Notices | None = None  # of what it does not read; None: it is not known, or not to be said

    def __init__(self, *, batch_size: int) -> None:
        self.batch_size = check_count(batch_size, "batch_size")

    def _prepare(self, texts: list[str]) -> Sequence[Any]:
        """Return each text in the form that the other methods take, such as token ids."""
        return texts

    @abstractmethod
    def _lengths(self, prepared: Sequence[Any]) -> Sequence[int]:
        """Return the length of each text in the model; it affects only the batches."""

    @abstractmethod
    def _encode_batch(self, prepared: Sequence[Any]) -> ArrayLike:
        """Return raw embeddings of one batch, shape (n, d)."""

    def _batches(self, prepared: Sequence[Any]) -> list[list[int]]:
        """Return indices in batches of similar length, long texts first."""
        lengths = np.asarray(self._lengths(prepared))
        batches: list[list[int]] = []
        padding = longest = 0
        for index in np.argsort(-lengths, kind="stable").tolist():
            length = int(lengths[index])
            padding += longest - length
            if not batches or len(batches[-1]) == self.batch_size or padding > self.PADDING_SLACK:
                batches.append([])
                longest, padding = length, 0
            batches[-1].append(index)
        return batches

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Embeddings:
        """As ``TextEncoder.encode``; a warning tells of texts that are not read in full (``notices``)."""
        from tqdm.auto import tqdm

        checked_texts = check_texts(texts)
        unique = list(dict.fromkeys(checked_texts))
        tell_notices(self, unique)
        rows = np.empty((len(unique), self.dimension), dtype=np.float32)
        with tqdm(total=len(unique), desc=f"encode ({self.name})", unit="text", disable=not progress) as bar:
            prepared = self._prepare(unique) if unique else []
            for batch in self._batches(prepared) if unique else []:
                raw = self._encode_batch([prepared[i] for i in batch])
                rows[batch] = normalise(raw, [unique[i] for i in batch], self.dimension, self.name)
                bar.update(len(batch))
        position = {text: i for i, text in enumerate(unique)}
        return rows[[position[text] for text in checked_texts]]


@contextmanager
def quiet_loading(purpose: str) -> Iterator[None]:
    """Turn off transformers' progress bar for loading weights."""
    logging = require("transformers.utils.logging", purpose)
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


class _Own:
    """What a user's own encoders of texts and of pictures share; ``_method`` is the name of what encodes."""

    _method: ClassVar[str]

    def __init__(self, encoder: Any, name: str | None = None) -> None:
        cls = type(encoder)
        parts = ("dimension", "fingerprint", self._method)
        missing = [part for part in parts if not hasattr(encoder, part)]
        if missing or isinstance(encoder, type):
            what = f"the class {encoder.__name__}" if isinstance(encoder, type) else cls.__name__
            origin = "" if name is None else f"{name!r} to make "
            raise TypeError(
                f"Expected {origin}an encoder with dimension, fingerprint and {self._method}, got {what}"
                + (f" without {', '.join(missing)}" if missing else "; make an instance of it")
            )
        own = getattr(encoder, "name", None)
        self.name = name or (own if isinstance(own, str) and own else f"{cls.__module__}:{cls.__qualname__}")
        self.encoder: Any = encoder
        self.dimension = check_count(encoder.dimension, f"the dimension of {self.name!r}")
        check_fingerprint(encoder.fingerprint, f"fingerprint of {self.name!r}")
        self.fingerprint: str = encoder.fingerprint


class OwnEncoder(_Own):
    """A user's own encoder in the form of all others: every row that it returns is checked and divided by its norm.

    Args:
        encoder: Anything with ``dimension``, ``fingerprint`` and ``encode(texts) -> (n, d)``. The fingerprint names the
            encoder's cache: change it whenever the embeddings change.
        name: In files, from which the encoder is loaded again; None: its ``name`` if it has one, else the import string
            of its class.

    Raises:
        TypeError: It lacks one of the three.
        ValueError: The dimension is below 1, or the fingerprint can't name a folder of the cache.
    """

    _method = "encode"

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``; ``progress`` is no part of a user's encoder, and ignored."""
        checked_texts = check_texts(texts)
        if not checked_texts:
            return np.empty((0, self.dimension), np.float32)
        return normalise(self.encoder.encode(checked_texts), checked_texts, self.dimension, self.name)


class OwnImageEncoder(_Own):
    """The same for an encoder of pictures, with ``encode_images(images) -> (n, d)`` in the place of ``encode``."""

    _method = "encode_images"

    def encode_images(self, images: Sequence[Any]) -> NDArray[np.float32]:
        """As ``ImageEncoder.encode_images``."""
        check_pictures(images)
        if not len(images):
            return np.empty((0, self.dimension), np.float32)
        labels = [f"picture {number}" for number in range(len(images))]
        return normalise(self.encoder.encode_images(images), labels, self.dimension, self.name)


def as_encoder(encoder: Any) -> TextEncoder:
    """Return an encoder with all parts of ``TextEncoder`` as it is, any other one in an ``OwnEncoder``.

    Raises:
        TypeError, ValueError: As for ``OwnEncoder``.
    """
    if isinstance(encoder, TextEncoder) and not isinstance(encoder, type) and _shows_progress(encoder.encode):
        return encoder
    return OwnEncoder(encoder)


def _shows_progress(encode: Any) -> bool:
    try:
        parameters = inspect.signature(encode).parameters
    except (TypeError, ValueError):
        return True  # written in C, without a signature
    return "progress" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def imported_encoder(spec: str, kind: type[_Own] = OwnEncoder) -> Any:
    """Return the encoder that "package.module:Class", or a function, makes without arguments; of texts by default.

    Raises:
        ImportError: The module or the class can't be found.
        TypeError: It can't be called without arguments.
    """
    factory = import_string(spec, "encoder")
    if not callable(factory):
        raise TypeError(f"Expected {spec!r} to be a class that makes an encoder, got {factory!r}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise TypeError(f"Expected {spec!r} to make an encoder without arguments, got: {error}") from error
    except ValueError:
        pass  # written in C without a signature: the call itself reports missing arguments
    return kind(factory(), spec)


@lru_cache(maxsize=1 << 16)  # a folder of pictures has thousands
def _hash_version(path: str, size: int, modified: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_file(path: Path) -> str:
    """Return the sha256 (hex) of a file, which is read once as long as it stays the same."""
    status = path.stat()
    return _hash_version(str(path.resolve()), status.st_size, status.st_mtime_ns)


def hash_settings(settings: Any) -> str:
    """Return the sha256 (hex) of an object as JSON; other types enter by their repr."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the sha256 (hex) of named arrays: names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def hash_state_dict(state: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of a torch state dict, whatever its device."""
    import torch

    arrays = {}
    for name, tensor in state.items():
        if isinstance(tensor, torch.Tensor):
            # bytes, not values: numpy has no bfloat16
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            arrays[f"{name} {tensor.dtype} {tuple(tensor.shape)}"] = flat
    return hash_arrays(arrays)


def hash_tokenizer(tokenizer: Any) -> str:
    """Return the sha256 (hex) of a tokenizer of transformers, or of another one's vocabulary, else of its type."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        tokens = json.loads(backend.to_str())
        return hash_settings({name: part for name, part in tokens.items() if name not in ("padding", "truncation")})
    vocabulary = getattr(tokenizer, "get_vocab", None)
    return hash_settings(type(tokenizer).__name__ if vocabulary is None else vocabulary())
