"""Pools: a fixed set of items that may be asked about, as a vocabulary of one step.

Sessions, planners, estimates and rankings work on a pool as on any vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edpbrl_gym._pictures import read_picture
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.folder import name_pictures, told
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["PicturePool", "load_pictures", "prompt_pool"]

_THREADS = 4  # pictures are decoded outside of Python's lock; each may take 300 MB for a moment


@dataclass(frozen=True)
class PicturePool:
    """The pictures of a folder that may be asked about.

    Attributes:
        folder: The folder, or the table of files and prompts in it; ``load_renderer(f"folder:{folder}")`` finds the
            pictures of the texts.
        vocabulary: One step, "picture", whose tokens are the texts of the pictures.
        files: Their files, in the order of the tokens.
        left_out: Every other file, relative to the folder -> why it is not in the pool.
    """

    folder: Path
    vocabulary: Vocabulary
    files: tuple[Path, ...]
    left_out: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.files)


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
            label = os.fsencode(file.relative_to(named.folder).as_posix()).decode("utf-8", "replace")
            if digest is None:
                left_out[label] = problem
            elif digest in first:
                left_out[label] = f"the same picture as {first[digest]}"
            else:
                first[digest] = label
                texts.append(text)
                files.append(file)
            if progress is not None:
                progress(number, len(named.files))
    if not texts:
        raise ValueError(f"Expected pictures in {folder}, got none that can be read; {told(left_out)}")
    vocabulary = Vocabulary(("picture",), (tuple(texts),))
    return PicturePool(Path(folder).expanduser(), vocabulary, tuple(files), left_out)


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
        subject: What every prompt begins with; it takes the place of a first step "subject".

    Returns:
        One step, "prompt", of ``count`` tokens: the texts of the prompts.

    Raises:
        ValueError: The vocabulary has fewer prompts.
    """
    count = check_count(count, "count")
    steps = dict(zip(vocabulary.names, vocabulary.tokens, strict=True))
    if subject is not None:
        steps = {"subject": (subject,), **{name: step for name, step in steps.items() if name != "subject"}}
    full = Vocabulary(tuple(steps), tuple(steps.values()))
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
