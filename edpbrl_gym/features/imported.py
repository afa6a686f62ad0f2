"""A user's own text encoder, named by an import string."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import import_string
from edpbrl_gym._validation import check_count
from edpbrl_gym.features.base import check_fingerprint, check_texts, normalise

__all__ = ["ImportedEncoder"]


class ImportedEncoder:
    """The encoder that "package.module:Class" creates without arguments; every row that it returns is checked.

    Args:
        spec: Import string of a class, or of a function that returns an encoder. The encoder needs ``dimension``,
            ``fingerprint`` and ``encode(texts) -> (n, d)``; rows are divided by their norm. The fingerprint names the
            encoder's cache: change it whenever the embeddings change.

    Raises:
        ImportError: The module or the class can't be found.
        TypeError: It can't be called without arguments, or the encoder lacks a part of the protocol.
        ValueError: The dimension is below 1, or the fingerprint can't name a folder of the cache.
    """

    def __init__(self, spec: str) -> None:
        factory = import_string(spec, "encoder")
        if not callable(factory):
            raise TypeError(f"Expected {spec!r} to be a class that makes an encoder, got {factory!r}")
        try:
            inspect.signature(factory).bind()
        except TypeError as error:
            raise TypeError(f"Expected {spec!r} to make an encoder without arguments, got: {error}") from error
        except ValueError:
            pass  # written in C without a signature: the call itself reports missing arguments
        encoder = factory()
        missing = [attribute for attribute in ("dimension", "fingerprint", "encode") if not hasattr(encoder, attribute)]
        if missing:
            raise TypeError(
                f"Expected {spec!r} to make an encoder with dimension, fingerprint and encode, got "
                f"{type(encoder).__name__} without {', '.join(missing)}"
            )
        self.name = spec  # written to files, from which it is loaded again
        self.encoder: Any = encoder
        self.dimension = check_count(encoder.dimension, f"the dimension of {spec!r}")
        check_fingerprint(encoder.fingerprint, f"fingerprint of {spec!r}")
        self.fingerprint: str = encoder.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d), float32, unit norm.

        Args:
            texts: n strings.
            progress: Ignored; not part of a user's encoder.

        Raises:
            TypeError: The texts are not a list of strings.
            ValueError: The encoder returned another shape, NaN, infinity or a row of norm zero.
        """
        checked_texts = check_texts(texts)
        if not checked_texts:
            return np.empty((0, self.dimension), np.float32)
        return normalise(self.encoder.encode(checked_texts), checked_texts, self.dimension, self.name)
