"""Questions as a table for a study: written before asking, read back with a ``choice`` column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.experiments.runs import write_atomically
from edpbrl_gym.features import TextEncoder

__all__ = ["read_answers", "write_questions"]


def write_questions(path: str | os.PathLike[str], questions: Sequence[tuple[int, int, list[str]]]) -> Path:
    """Write questions to a .csv or .parquet file: columns episode, step, option_1 ... option_K and an empty choice.

    A study fills in ``choice`` with the number 1..K of the option that the person likes best.

    Args:
        path: File ending in .csv or .parquet.
        questions: Entries (episode, step, K texts).
    """
    import pandas

    target = Path(path)
    rows = [
        {"episode": episode, "step": step, **{f"option_{number + 1}": text for number, text in enumerate(texts)}}
        for episode, step, texts in questions
    ]
    table = pandas.DataFrame(rows)
    table["choice"] = pandas.array([None] * len(table), dtype="Int64")
    if target.suffix == ".csv":
        write_atomically(target, lambda name: table.to_csv(name, index=False))
    elif target.suffix == ".parquet":
        write_atomically(target, lambda name: table.to_parquet(name, index=False))
    else:
        raise ValueError(f"Expected a file ending in .csv or .parquet, got {target}")
    return target


def read_answers(
    path: str | os.PathLike[str], encoder: TextEncoder, *, progress: bool = False
) -> tuple[Comparisons, int]:
    """Read a questions file whose ``choice`` column was filled in, and embed its options.

    Args:
        path: File of ``write_questions`` (.csv or .parquet).
        encoder: Embeds the options.
        progress: Show a progress bar while encoding.

    Returns:
        The answered questions, and how many were left without an answer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, no question is answered, or a choice isn't a number 1..K (the message names
            the line).
    """
    source = Path(path)
    table = _read_table(source)
    options = sorted((c for c in table.columns if _number(c) > 0), key=_number)
    if len(options) < 2 or "choice" not in table.columns:
        raise ValueError(
            f"Expected columns option_1, option_2, ... and choice in {source}, got "
            f"{', '.join(map(str, table.columns))}; start from the questions file of `edpbrl design`"
        )
    answered = table[table["choice"].notna() & (table["choice"].astype(str).str.strip() != "")]
    if not len(answered):
        raise ValueError(
            f"Expected at least one answer in the column choice of {source}, got none; fill in 1..{len(options)}"
        )
    choices = [_choice(value, index, len(options), source) for index, value in answered["choice"].items()]
    texts = answered[options].astype(str).values.tolist()
    flat = [text for question in texts for text in question]
    features = encoder.encode(flat, progress=progress).reshape(len(texts), len(options), -1)
    place = {
        name: answered[name].astype(int).to_numpy() if name in answered.columns else np.zeros(len(texts), dtype=int)
        for name in ("episode", "step")
    }
    comparisons = Comparisons(
        features=features,
        choice=np.array(choices, dtype=np.int64),
        episode=place["episode"],
        step=place["step"],
        texts=texts,
        who=source.name,
        metadata={"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "file": source.name},
    )
    return comparisons, len(table) - len(answered)


def _read_table(source: Path) -> Any:
    import pandas

    if not source.is_file():
        raise FileNotFoundError(f"Expected a file of answered questions at {source}, found none; check the path")
    try:
        if source.suffix == ".csv":
            return pandas.read_csv(source, dtype=str, keep_default_na=False)
        return pandas.read_parquet(source)
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError, OSError, ValueError) as error:
        raise ValueError(f"Expected a table of questions in {source}, could not read it: {error}") from None


def _number(column: Any) -> int:
    name, _, number = str(column).rpartition("_")
    return int(number) if name == "option" and number.isdecimal() else 0


def _choice(value: Any, index: Any, options: int, source: Path) -> int:
    try:
        number = int(str(value).strip().removesuffix(".0"))
    except ValueError:
        number = 0
    if not 1 <= number <= options:
        raise ValueError(
            f"Expected choices 1..{options} in {source}, got {value!r} in question {int(index) + 1} "
            f"(line {int(index) + 2}); write the number of the preferred option"
        )
    return number - 1
