"""Pools: a fixed set of items that may be asked about, as a vocabulary of one step.

Sessions, planners, estimates and rankings work on a pool as on any vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._pictures import read_picture
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_count
from edpbrl_gym.comparisons.picture_answers import PICTURE_ENCODER
from edpbrl_gym.features import ImageEncoder, JoinedEncoder, TextEncoder, load_image_encoder
from edpbrl_gym.features.base import hash_settings
from edpbrl_gym.features.images import PICTURE_FEATURES, encode_files
from edpbrl_gym.rendering.folder import label, name_pictures, told
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["PicturePool", "PoolEncoder", "load_pictures", "prompt_pool"]

_BATCH = 32  # pictures in memory at a time
_THREADS = 4  # pictures are decoded outside of Python's lock; each may take 300 MB for a moment


@dataclass(frozen=True)
class PicturePool:
    """The pictures of a folder that may be asked about.

    Attributes:
        folder: The folder, or the table of files and prompts in it; ``load_renderer(f"folder:{folder}")`` finds the
            pictures of the texts.
        vocabulary: One step, "picture", whose tokens are the texts of the pictures.
        files: Their files, in the order of the tokens.
        names: The paths of the files, relative to the folder, as texts.
        left_out: Every other file, relative to the folder -> why it is not in the pool.
        fingerprint: sha256 (hex) of the texts and of what is seen in the pictures.
    """

    folder: Path
    vocabulary: Vocabulary
    files: tuple[Path, ...]
    names: tuple[str, ...]
    left_out: Mapping[str, str]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.files)

    def encoder(self, *image_encoders: ImageEncoder) -> TextEncoder:
        """What encodes the texts of the pool by their pictures; several encoders are joined.

        Args:
            *image_encoders: Encode the pictures (none: those of ``PICTURE_FEATURES``).
        """
        encoders = image_encoders or tuple(load_image_encoder(name) for name in PICTURE_FEATURES.split("+"))
        parts = [PoolEncoder(self, one) for one in encoders]
        return parts[0] if len(parts) == 1 else JoinedEncoder(parts)


class PoolEncoder:
    """A ``TextEncoder`` of the texts of a pool: the features of their pictures, each read once, without a copy of it.

    Args:
        pool: The pictures.
        image_encoder: Encodes them.
    """

    def __init__(self, pool: PicturePool, image_encoder: ImageEncoder) -> None:
        self.files = dict(zip(pool.vocabulary.all_tokens, pool.files, strict=True))
        self.image_encoder = image_encoder
        self.name, self.dimension = PICTURE_ENCODER + image_encoder.name, image_encoder.dimension
        self.fingerprint = hash_settings({"kind": "pool", "parts": [pool.fingerprint, image_encoder.fingerprint]})
        self._rows: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``.

        Raises:
            ValueError: A text has no picture, or its file can't be read any more.
        """
        from tqdm.auto import tqdm

        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        for text in missing:
            if text not in self.files:
                raise ValueError(f"Expected a text of the pool of {len(self.files)} pictures, got {text[:80]!r}")
        with tqdm(total=len(missing), desc=f"encode ({self.name})", unit="picture", disable=not progress) as bar:
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                rows = encode_files(self.image_encoder, [self.files[text] for text in batch])
                self._rows.update(zip(batch, rows, strict=True))
                bar.update(len(batch))
        return np.stack([self._rows[text] for text in texts]) if len(texts) else np.empty((0, self.dimension), "f4")


def load_pictures(folder: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> PicturePool:
    """The pictures of a folder and its sub-folders, each opened once; the same folder gives the same pool.

    A picture is asked about under its prompt, if there is a table with a column of files and one of prompts beside the
    pictures, else under the name of its file. What can't be read as a picture, and pictures that are equal to an
    earlier one, are left out with the reason. Hidden files are ignored.

    Args:
        folder: The folder, or the table in it.
        progress: Callback of (files opened, all files).

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: Several tables of prompts, a damaged one, or no picture that can be read.
    """
    named = name_pictures(folder)
    left_out = dict(named.left_out)
    texts, files = [], []
    first: dict[str, str] = {}
    with ThreadPoolExecutor(_THREADS) as threads:
        seen = threads.map(_look, named.files.values())
        for number, ((text, file), (digest, problem)) in enumerate(zip(named.files.items(), seen, strict=True), 1):
            name = label(named.folder, file)
            if digest is None:
                left_out[name] = problem
            elif digest in first:
                left_out[name] = f"the same picture as {first[digest]}"
            else:
                first[digest] = name
                texts.append(text)
                files.append(file)
            if progress is not None:
                progress(number, len(named.files))
    if not texts:
        raise ValueError(f"Expected pictures in {folder}, got none that can be read; {told(left_out)}")
    vocabulary = Vocabulary(("picture",), (tuple(texts),))
    fingerprint = hash_settings([vocabulary.fingerprint, list(first)])
    names, left_out = tuple(first.values()), dict(sorted(left_out.items()))
    return PicturePool(Path(folder).expanduser(), vocabulary, tuple(files), names, left_out, fingerprint)


def _look(file: Path) -> tuple[str | None, str]:
    """A digest of what is seen in a file, or None and why it can't be read."""
    try:
        picture = read_picture(file)
    except (OSError, ValueError) as error:
        reason = os.fsencode(str(error)).decode("utf-8", "replace")
        return None, reason.partition(", but ")[2] or reason
    return hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).hexdigest(), ""


def prompt_pool(vocabulary: Vocabulary, count: int, seed: int, subject: str | None = None) -> Vocabulary:
    """A random pool of complete prompts of a vocabulary, in which the tokens of a step occur about equally often.

    Args:
        vocabulary: Its prompts are the items.
        count: Number of prompts, all of them different.
        seed: Seed of the draw.
        subject: What every prompt begins with (``Vocabulary.with_subject``).

    Returns:
        One step, "prompt", of ``count`` tokens: the texts of the prompts.

    Raises:
        ValueError: The vocabulary has fewer prompts.
    """
    count = check_count(count, "count")
    full = vocabulary if subject is None else vocabulary.with_subject(subject)
    if math.prod(full.sizes) < count:
        raise ValueError(
            f"Expected a pool of at most {math.prod(full.sizes):,} prompts, which is all that the vocabulary has, got "
            f"{count:,}; ask for fewer, or add tokens"
        )
    rng = generator(check_count(seed, "seed", minimum=0), "prompt pool")
    orders = [rng.permutation(size) for size in full.sizes]
    sizes = np.array(full.sizes)
    # all prompts fall into cycles, in each of which every step goes through its tokens in turn; whole random cycles
    # use every token equally often, and two of them are equal or have no prompt in common
    cycle = math.lcm(*full.sizes)
    taken: set[tuple[int, ...]] = set()
    texts: dict[str, str] = {}
    total = math.prod(full.sizes)
    while len(texts) < count and len(taken) < total:
        start = rng.integers(sizes)
        if tuple(start.tolist()) in taken:
            continue
        for turn in range(cycle):
            place = tuple(((start + turn) % sizes).tolist())
            taken.add(place)
            text = SEPARATOR.join(full.tokens[h][orders[h][index]] for h, index in enumerate(place))
            texts.setdefault(fold(text), text)
            if len(texts) == count:
                break
    if len(texts) < count:  # tokens with separators: several prompts have the same text
        raise ValueError(f"Expected a pool of at most {len(texts):,} different texts, got {count:,}; ask for fewer")
    chosen = list(texts.values())
    return Vocabulary(("prompt",), (tuple(chosen[index] for index in rng.permutation(count)),))
