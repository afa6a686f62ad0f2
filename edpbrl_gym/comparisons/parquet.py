"""Comparisons and histories in parquet files: one row a question.

Columns of both: ``episode`` and ``step`` (int64), ``features`` (fixed-size list of K * d float32, option by option),
``texts`` (list of K strings, where there are texts), ``who`` (string), ``answered_at`` (timestamp in microseconds, UTC,
null where unknown). Comparisons have the ``choice`` (int32); histories have the ``kind`` of the response (string) and
its ``order`` (list of int32). The header (see ``tables``) also holds K, d, whether times are known, who, and the
metadata.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from edpbrl_gym.comparisons.history import History
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.comparisons.tables import TableFormat
from edpbrl_gym.likelihood import Response

__all__ = ["read", "read_history", "write", "write_history"]

_SHARED = ("features", "who", "answered_at")
COMPARISONS = TableFormat(
    name="edpbrl_gym.comparisons",
    version=1,
    columns=("episode", "step", "choice", *_SHARED),
    noun="comparisons",
    writer="Comparisons.to_parquet",
)
HISTORY = TableFormat(
    name="edpbrl_gym.history",
    version=1,
    columns=("episode", "step", "kind", "order", *_SHARED),
    noun="history",
    writer="History.to_parquet",
)


def _columns(record: Comparisons | History, answers: dict[str, Any]) -> dict[str, Any]:
    import pyarrow as pa

    n, num_options, dimension = record.features.shape
    flat = pa.array(np.ascontiguousarray(record.features).reshape(-1))
    times: Any = record.answered_at
    columns = {
        "episode": pa.array(record.episode),
        "step": pa.array(record.step),
        **answers,
        "features": pa.FixedSizeListArray.from_arrays(flat, num_options * dimension),
        "who": pa.array([record.who] * n, pa.string()),
        "answered_at": pa.array([None] * n if times is None else times, pa.timestamp("us")),
    }
    if record.texts is not None:
        columns["texts"] = pa.array(record.texts, pa.list_(pa.string()))
    return columns


def _header(record: Comparisons | History) -> dict[str, Any]:
    return {
        "num_options": record.num_options,
        "dimension": record.dimension,
        "times": record.answered_at is not None,
        "who": record.who,
        "metadata": record.metadata,
    }


def _shared_fields(table: Any, header: dict[str, Any]) -> dict[str, Any]:
    shape = (table.num_rows, int(header["num_options"]), int(header["dimension"]))
    flat = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    times = None
    if header["times"]:
        times = table["answered_at"].to_numpy(zero_copy_only=False).astype("datetime64[us]")
    return {
        "features": flat.reshape(shape),
        "episode": table["episode"].to_numpy(),
        "step": table["step"].to_numpy(),
        "texts": table["texts"].to_pylist() if "texts" in table.column_names else None,
        "who": header["who"],
        "answered_at": times,
        "metadata": header["metadata"],
    }


def write(comparisons: Comparisons, path: str | os.PathLike[str]) -> None:
    """Write comparisons to ``path``, whole or not at all.

    Raises:
        OSError: the folder does not exist or cannot be written; the message names the file.
    """
    import pyarrow as pa

    answers = {"choice": pa.array(comparisons.choice.astype(np.int32))}
    COMPARISONS.write(_columns(comparisons, answers), _header(comparisons), path)


def read(path: str | os.PathLike[str]) -> Comparisons:
    """Read a file that :func:`write` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no parquet, corrupted, foreign, of a newer format, or its contents are no valid comparisons.
    """
    return COMPARISONS.read(
        path, lambda table, header: Comparisons(choice=table["choice"].to_numpy(), **_shared_fields(table, header))
    )


def write_history(history: History, path: str | os.PathLike[str]) -> None:
    """Write a history to ``path``, whole or not at all.

    Raises:
        OSError: the folder does not exist or cannot be written; the message names the file.
    """
    import pyarrow as pa

    answers = {
        "kind": pa.array([response.kind for response in history.responses], pa.string()),
        "order": pa.array([list(response.order) for response in history.responses], pa.list_(pa.int32())),
    }
    HISTORY.write(_columns(history, answers), _header(history), path)


def read_history(path: str | os.PathLike[str]) -> History:
    """Read a file that :func:`write_history` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no parquet, corrupted, foreign, of a newer format, or its contents are no valid history.
    """
    return HISTORY.read(path, _make_history)


def _make_history(table: Any, header: dict[str, Any]) -> History:
    pairs = zip(table["kind"].to_pylist(), table["order"].to_pylist(), strict=True)
    responses = tuple(Response.from_json({"kind": kind, "order": order}) for kind, order in pairs)
    return History(responses=responses, **_shared_fields(table, header))
