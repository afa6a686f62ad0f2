"""Answers about pictures as pairs of a winner and a loser, for preference training of image models.

The table has the columns of Pick-a-Pic (huggingface.co/datasets/yuvalkirstain/pickapic_v2) that trainers read, such as
diffusers' ``train_diffusion_dpo.py`` and Diffusion-DPO's ``train.py``: ``caption``, ``jpg_0`` and ``jpg_1`` (the files'
bytes, of any format), ``label_0`` and ``label_1`` (1 the winner, 0 the loser). Its README.md tells ``load_dataset``
that this table is the data set, not the pictures beside it.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from string import Template

from edpbrl_gym._places import write_atomically
from edpbrl_gym.likelihood import Response

__all__ = ["PAIRS", "preferred_options", "write_pairs"]

PAIRS = "pairs.parquet"
_LATEST = 5  # pictures rated one at a time that the next one is paired with: scales drift, and all would be too many
_GROUP = 100  # rows; within them each picture is stored once
_MOST_DICTIONARY = 1 << 30  # bytes
_ENDINGS = ((b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"RIFF", ".webp"))


def preferred_options(response: Response, num_options: int) -> list[tuple[int, int]]:
    """Which options an answer puts above which others: pairs (better, worse) of option numbers; none for ties.

    The best option is better than every other; of the best and the worst also all others than the worst; of a ranking
    each than all after it; of levels those with a higher one. What was left unordered gives no pair.
    """
    if response.levels:
        levels = response.levels
        return [(a, b) for a in range(num_options) for b in range(num_options) if levels[a] > levels[b]]
    if response.kind == "best_worst":
        best, worst = response.order
        others = [option for option in range(num_options) if option not in response.order]
        return [(best, worst), *((best, option) for option in others), *((option, worst) for option in others)]
    rest = [option for option in range(num_options) if option not in response.order]
    return [*combinations(response.order, 2), *((better, worse) for better in response.order for worse in rest)]


def _preferences(
    questions: Sequence[Sequence[str]], responses: Sequence[Response]
) -> Iterator[tuple[int, str, str, bool]]:
    """Question, the text shown first and that shown second, and whether the first is the better one."""
    latest: deque[tuple[str, int]] = deque(maxlen=_LATEST)
    for number, (texts, response) in enumerate(zip(questions, responses, strict=True)):
        for better, worse in preferred_options(response, len(texts)):
            first, second = sorted((better, worse))
            yield number, texts[first], texts[second], first == better
        if len(texts) == 1 and response.levels:
            yield from ((number, text, texts[0], level > response.levels[0]) for text, level in latest
                        if level != response.levels[0])  # fmt: skip
            latest.append((texts[0], response.levels[0]))


def write_pairs(
    folder: str | os.PathLike[str],
    questions: Sequence[Sequence[str]],
    responses: Sequence[Response],
    pictures: Mapping[str, bytes],
    *,
    caption: str | None = None,
) -> int:
    """Write the pairs of all answers: pairs.parquet, README.md and the pictures in ``pictures/``.

    Ties, skips, pairs of equal pictures and of those without a picture are left out. Pictures that were rated one at
    a time are paired with the five before them that got another level.

    Args:
        folder: Folder of the files, created where it isn't there.
        questions: Texts of the options of each question, (n,).
        responses: Their answers, (n,).
        pictures: File of the picture (PNG, JPEG, WebP) by text.
        caption: What both pictures of every pair show, such as the subject that all prompts share; None: the prompt of
            the better one.

    Returns:
        The number of pairs; without any no file is written.

    Raises:
        RunFolderError: A file can't be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = Path(folder)
    names = {text: _name(data) for text, data in pictures.items()}
    found = [
        (number, first, second, best)
        for number, first, second, best in _preferences(questions, responses)
        if first in names and second in names and names[first] != names[second]
    ]
    if not found:
        return 0
    for text in dict.fromkeys(text for _, *both, _ in found for text in both):
        target = place / "pictures" / names[text]
        if not target.exists():  # named by its contents
            write_atomically(target, lambda part, data=pictures[text]: part.write_bytes(data))  # type: ignore[misc]
    text, number = pa.string(), pa.float64()
    schema = pa.schema({
        "caption": text, "jpg_0": pa.binary(), "jpg_1": pa.binary(), "label_0": number, "label_1": number,
        "prompt_0": text, "prompt_1": text, "image_0_uid": text, "image_1_uid": text, "best_image_uid": text,
        "ranking_id": pa.int64(),
    })  # fmt: skip

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema, dictionary_pagesize_limit=_MOST_DICTIONARY) as writer:
            for start in range(0, len(found), _GROUP):
                rows = [
                    {
                        "caption": caption or (first if best else second),
                        "jpg_0": pictures[first], "jpg_1": pictures[second],
                        "label_0": float(best), "label_1": float(not best),
                        "prompt_0": first, "prompt_1": second,
                        "image_0_uid": names[first], "image_1_uid": names[second],
                        "best_image_uid": names[first if best else second], "ranking_id": question,
                    }
                    for question, first, second, best in found[start : start + _GROUP]
                ]  # fmt: skip
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))

    write_atomically(place / PAIRS, write)
    shared = "what both pictures show" if caption else "the prompt of the better picture"
    about = Template(Path(__file__).with_name("pairs.txt").read_text(encoding="utf-8"))
    readme = about.substitute(count=len(found), caption=shared)
    write_atomically(place / "README.md", lambda part: part.write_text(readme, encoding="utf-8"))
    return len(found)


def _name(data: bytes) -> str:
    ending = next((ending for begin, ending in _ENDINGS if data.startswith(begin)), None)
    if ending is None:
        raise ValueError(f"Expected pictures as the bytes of PNG, JPEG or WebP files, got {data[:12]!r}")
    return hashlib.sha256(data).hexdigest()[:16] + ending
