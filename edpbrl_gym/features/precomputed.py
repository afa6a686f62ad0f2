"""Precomputed embeddings: a file of texts and vectors as an encoder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._files import reading, replacing
from edpbrl_gym._validation import check_array
from edpbrl_gym.features.base import hash_arrays, hash_settings, normalise
from edpbrl_gym.features.notices import check_texts

__all__ = ["PrecomputedEncoder", "save_precomputed"]

_FORM = "an .npz with the arrays texts (n,) and embeddings (n, d), or a .safetensors as save_precomputed writes it"


def save_precomputed(path: str | os.PathLike[str], texts: Sequence[str], embeddings: ArrayLike) -> None:
    """Write n distinct texts and embeddings (n, d) for ``load_encoder("precomputed:<path>")``.

    Args:
        path: File name ending in .npz (arrays ``texts`` and ``embeddings``) or .safetensors (tensor ``embeddings``, and
            the texts as a JSON list in the metadata entry ``texts``).
        texts: Distinct strings.
        embeddings: Finite, without zero rows.

    Raises:
        ValueError: The file has another ending, or texts and embeddings do not match.
    """
    target = Path(path)
    encoder = PrecomputedEncoder.from_arrays(texts, embeddings, name=str(target))
    stored_texts = list(encoder.index)
    if target.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"Expected a file name ending in .npz or .safetensors, got {target.name!r}")
    with replacing(target) as temporary, open(temporary, "wb") as file:
        if target.suffix == ".npz":
            np.savez(file, texts=np.array(stored_texts), embeddings=encoder.rows)
        else:
            from safetensors.numpy import save

            file.write(save({"embeddings": encoder.rows}, metadata={"texts": json.dumps(stored_texts)}))


def _read(path: Path) -> tuple[Any, Any]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return file["texts"].tolist(), file["embeddings"]
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return json.loads((file.metadata() or {})["texts"]), file.get_tensor("embeddings")


class PrecomputedEncoder:
    """Looks up texts in a file of ``save_precomputed``.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: Another file ending, missing arrays, a damaged file, NaN, zero rows, or a text with two vectors.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        source = Path(path).expanduser()
        if source.suffix not in (".npz", ".safetensors"):
            raise ValueError(f"Expected {_FORM}, got {source.name!r}")
        if not source.is_file():
            raise FileNotFoundError(f"Expected precomputed embeddings at {source}, got no such file; check the path")
        with reading(_FORM, source):
            texts, embeddings = _read(source)
            self._fill(texts, embeddings, str(path))

    @classmethod
    def from_arrays(cls, texts: Sequence[str], embeddings: ArrayLike, *, name: str = "arrays") -> PrecomputedEncoder:
        """Return an encoder over arrays in memory: n texts and embeddings of shape (n, d)."""
        encoder = cls.__new__(cls)
        encoder._fill(texts, embeddings, name)
        return encoder

    def _fill(self, texts: Any, embeddings: Any, source: str) -> None:
        self.name = f"precomputed:{source}"
        checked_texts = check_texts(texts)
        raw = check_array(
            embeddings, f"embeddings in {source}", shape=(len(checked_texts), "d"), hint="give one row per text"
        )
        if not checked_texts or raw.shape[1] == 0:
            raise ValueError(f"Expected at least one text and one feature in {self.name}, got shape {raw.shape}")
        self.rows: NDArray[np.float32] = normalise(raw, checked_texts, raw.shape[1], self.name)
        self.index: dict[str, int] = {}
        for row, text in enumerate(checked_texts):
            if text in self.index:
                raise ValueError(
                    f"Expected distinct texts in {self.name}, got {text!r} in rows {self.index[text]} and {row}"
                )
            self.index[text] = row
        self.dimension = int(raw.shape[1])
        arrays = {"embeddings": self.rows}
        self.fingerprint = hash_settings({"kind": "precomputed", "texts": checked_texts, "rows": hash_arrays(arrays)})

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``, looked up; a text that is not in the file is a ValueError that names it."""
        checked_texts = check_texts(texts)
        missing = [text for text in dict.fromkeys(checked_texts) if text not in self.index]
        if missing:
            raise ValueError(
                f"Expected texts that {self.name} holds, got {missing[0]!r} ({len(missing)} unknown text(s)); "
                "add them to the file or use an encoder with a model such as 'minilm'"
            )
        return self.rows[np.array([self.index[text] for text in checked_texts], dtype=np.int64)]
