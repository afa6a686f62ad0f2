"""A learnt taste on disk: theta and its provenance, as safetensors.

The provenance says with which words the taste was learnt: the name of a built-in vocabulary, or all tokens of another
one, so that the file can be used where that vocabulary's folder is not.

All metadata is one entry, since safetensors writes several in arbitrary order: equal tastes give equal files. It
contains the sha256 of the file with 64 zeros in place of that sha256, so that every change is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._files import errors_naming
from edpbrl_gym._places import write_atomically
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import BUILT_IN, Vocabulary, built_in_name, load_vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation import Estimate
    from edpbrl_gym.estimation.taste_prior import TastePrior

__all__ = ["Taste", "load_taste", "provenance_of", "save_taste"]

_FORMAT = "edpbrl-gym taste 2"
_KEY = "edpbrl_gym"
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, eq=False)
class Taste:
    """A learnt taste.

    Attributes:
        theta: The estimate, shape (d,).
        provenance: Encoder and its fingerprint, number of questions, regularization and so on.
        landmarks: Of a prior that maps features (``TastePrior.landmarks``), (m, D), else None.
    """

    theta: NDArray[np.float64]
    provenance: dict[str, Any]
    landmarks: NDArray[np.float64] | None = None

    def encoder(self, encoder: TextEncoder) -> TextEncoder:
        """The encoder with which it was learnt, by the features that theta is about."""
        prior = self.mapping_prior()
        return encoder if prior is None else prior.encoder(encoder)

    def mapping_prior(self) -> TastePrior | None:
        """The prior under which it was learnt, where that maps features; None where it doesn't."""
        if self.landmarks is None:
            return None
        return make_prior(self.provenance["prior"], self.landmarks, **self.provenance.get("prior_options", {}))

    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary with which the taste was learnt; None where the file says nothing about it.

        Raises:
            ValueError: The file names a vocabulary that this version doesn't have, or knows its fingerprint only.
        """
        record, fingerprint = (self.provenance.get(key) for key in ("vocabulary", "vocabulary_fingerprint"))
        if record is None and fingerprint is None:
            return None
        names = BUILT_IN if record is None else [record] if isinstance(record, str) else []
        for vocabulary in (load_vocabulary(name) for name in names if name in BUILT_IN):
            if fingerprint in (None, vocabulary.fingerprint):
                return vocabulary
        if isinstance(record, dict):
            try:
                return Vocabulary(tuple(record["names"]), tuple(map(tuple, record["tokens"])))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"the vocabulary in its file can't be read ({error})") from None
        named = f"{record!r}" if isinstance(record, str) else "a vocabulary that its file doesn't hold"
        sha256 = "" if fingerprint is None else f" (sha256 {str(fingerprint)[:16]})"
        raise ValueError(f"it was learnt with {named}{sha256}, which is none of the built-in vocabularies here")


def save_taste(
    path: str | os.PathLike[str],
    theta: ArrayLike,
    provenance: Mapping[str, Any],
    *,
    vocabulary: Vocabulary | None = None,
    landmarks: ArrayLike | None = None,
) -> Path:
    """Write theta (d,) and its provenance, JSON values, to a safetensors file, atomically.

    Of the vocabulary with which it was learnt the fingerprint and the name, or the tokens of one that isn't built in,
    become entries of the provenance. The ``landmarks`` (m, D) of a prior that maps features lie beside theta.

    Raises:
        ValueError: If theta isn't finite.
        RunFolderError: If the file can't be written.
    """
    from safetensors.numpy import save

    target = Path(path)
    facts = {**provenance}
    if vocabulary is not None:
        tokens = {"names": vocabulary.names, "tokens": vocabulary.tokens}
        facts |= {"vocabulary": built_in_name(vocabulary) or tokens, "vocabulary_fingerprint": vocabulary.fingerprint}
    arrays = {"theta": np.ascontiguousarray(check_array(theta, "theta", shape=("d",)))}
    if landmarks is not None:
        arrays["landmarks"] = np.ascontiguousarray(check_array(landmarks, "landmarks", shape=("m", "D")))
    data = save(
        arrays,
        metadata={_KEY: json.dumps({"format": _FORMAT, "sha256": _NO_DIGEST, "provenance": facts})},
    )
    data = data.replace(_NO_DIGEST.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
    write_atomically(target, lambda name: name.write_bytes(data))
    return target


def load_taste(path: str | os.PathLike[str]) -> Taste:
    """Read a taste.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If ``save_taste`` did not write the file, or it was changed since.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a taste file at {source}, found none; make one with `edpbrl estimate`")
    try:
        with errors_naming(source):
            data = source.read_bytes()
        arrays = load(data)
        theta = arrays["theta"]
        document = _document(data)
        digest = document["sha256"]
        if hashlib.sha256(data.replace(digest.encode(), _NO_DIGEST.encode(), 1)).hexdigest() != digest:
            raise ValueError("its checksum is wrong: the file has changed since it was written")
        provenance = dict(document["provenance"])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ValueError(
            f"Expected a taste file of `edpbrl estimate`, could not read {source} as one ({error}); give the file "
            "theta.safetensors that it wrote"
        ) from None
    return Taste(check_array(theta, "theta", shape=("d",)), provenance, arrays.get("landmarks"))


def _document(data: bytes) -> dict[str, Any]:
    """The entry of this package in the metadata of a safetensors file.

    Raises:
        ValueError: If it is of another format.
        KeyError: If there is none.
    """
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    if _KEY not in metadata and "format" in metadata:
        raise ValueError(f"format {metadata['format']!r}, written by another version")
    document: dict[str, Any] = json.loads(metadata[_KEY])
    if document.get("format") != _FORMAT:
        raise ValueError(f"format {document.get('format')!r}")
    return document


def provenance_of(comparisons: Comparisons, file: Path, estimate: Estimate, facts: dict[str, Any]) -> dict[str, Any]:
    """What a taste file says about its origin: answers, their file, the estimate, and facts about its prior."""
    known = ("encoder", "encoder_fingerprint", "attributes", "vocabulary_fingerprint")
    return {
        **{key: comparisons.metadata[key] for key in known if key in comparisons.metadata},
        "answers": file.name,
        "who": comparisons.who,
        "questions": len(comparisons),
        **facts,
        "converged": bool(estimate.converged),
        "iterations": int(estimate.iterations),
        "gradient_norm": float(estimate.gradient_norm),
        "log_likelihood": float(estimate.log_likelihood),
    }
