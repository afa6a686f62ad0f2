"""Comparisons in parquet files: one row per question; written atomically, checked when read.

Columns: ``episode`` and ``step`` (int64), the ``kind`` of the response (string) and its ``order`` (list of int32), with
``levels`` (list of int32) where there are ratings,
``features`` (list of K * d float32, option by option), ``texts`` (list of K strings, if there are texts),
``who`` (string), ``answered_at`` (timestamp in microseconds, UTC, null if unknown). The JSON under the schema's key
``edpbrl_gym`` has the format and its version, K, d, whether times are known, who, and the metadata. Version 2 has the
same K in all rows, and features in lists of fixed size; in version 3, which is written only where it is needed, each
row has its own K. Pages have checksums, so that a flipped bit is an error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._files import replacing
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.likelihood import Response

__all__ = ["read", "write"]

_KEY, _FORMAT, _VERSION, _UNEVEN = b"edpbrl_gym", "edpbrl_gym.comparisons", 2, 3
_COLUMNS = ("episode", "step", "kind", "order", "features", "who", "answered_at")


def write(comparisons: Comparisons, path: str | os.PathLike[str]) -> None:
    """Write comparisons to ``path`` atomically.

    Raises:
        OSError: The folder does not exist or can't be written; the message names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Expected the folder {target.parent} for {target.name} to exist; create it first")
    n, num_options, dimension = comparisons.features.shape
    flat = pa.array(comparisons.features[comparisons.present].reshape(-1))
    if comparisons.even:
        features = pa.FixedSizeListArray.from_arrays(flat, num_options * dimension)
    else:
        ends = np.concatenate([[0], comparisons.sizes.cumsum() * dimension])
        features = pa.LargeListArray.from_arrays(pa.array(ends), flat)
    times: Any = comparisons.answered_at
    columns = {
        "episode": pa.array(comparisons.episode),
        "step": pa.array(comparisons.step),
        "kind": pa.array([response.kind for response in comparisons.responses], pa.string()),
        "order": pa.array([list(response.order) for response in comparisons.responses], pa.list_(pa.int32())),
        "features": features,
        "who": pa.array([comparisons.who] * n, pa.string()),
        "answered_at": pa.array([None] * n if times is None else times, pa.timestamp("us")),
    }
    if any(response.levels for response in comparisons.responses):
        columns["levels"] = pa.array(
            [list(response.levels) for response in comparisons.responses], pa.list_(pa.int32())
        )
    if comparisons.texts is not None:
        columns["texts"] = pa.array(comparisons.texts, pa.list_(pa.string()))
    header = {
        "format": _FORMAT,
        "version": _VERSION if comparisons.even else _UNEVEN,
        "num_options": num_options,
        "dimension": dimension,
        "times": times is not None,
        "who": comparisons.who,
        "metadata": comparisons.metadata,
    }
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(header).encode()})
    with replacing(target) as temporary, open(temporary, "wb") as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)


def read(path: str | os.PathLike[str]) -> Comparisons:
    """Read a file that :func:`write` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not a parquet file of this package and version, is corrupted, or has invalid contents.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a comparisons file at {source}, found none; check the path")
    try:
        table = pq.read_table(source, page_checksum_verification=True, memory_map=False, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Expected a parquet file in {source}, got a corrupted or other one: {error}") from None
    header = _header(table, source)
    try:
        return _comparisons(table, header)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise ValueError(f"Expected comparisons in {source}, got contents that do not fit: {error}") from None


def _header(table: Any, source: Path) -> dict[str, Any]:
    raw = (table.schema.metadata or {}).get(_KEY)
    try:
        header = {} if raw is None else json.loads(raw)
    except ValueError:
        header = {}
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ValueError(
            f"Expected a file written by Comparisons.to_parquet, got {source} with columns {table.column_names} and no "
            f"{_FORMAT} header"
        )
    if header.get("version") not in (_VERSION, _UNEVEN):
        raise ValueError(
            f"Expected {_FORMAT} version {_VERSION} or {_UNEVEN} in {source}, got version {header.get('version')}; use "
            "the version of edpbrl-gym that wrote it"
        )
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(f"Expected the columns {', '.join(_COLUMNS)} in {source}, it lacks {', '.join(missing)}")
    return header


def _comparisons(table: Any, header: dict[str, Any]) -> Comparisons:
    import pyarrow.compute

    shape = (table.num_rows, int(header["num_options"]), int(header["dimension"]))
    flat = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    features: Any = flat
    sizes: Any = None
    if header["version"] == _UNEVEN:
        lengths = pyarrow.compute.list_value_length(table["features"]).fill_null(0).to_numpy().astype(np.int64)
        sizes = lengths // shape[2]
        if (sizes * shape[2] != lengths).any() or sizes.max(initial=0) > shape[1]:
            raise ValueError(f"features that are no 1 to {shape[1]} options of {shape[2]} numbers each")
        features = np.zeros(shape, dtype=np.float32)
        features[np.arange(shape[1]) < sizes[:, None]] = flat.reshape(-1, shape[2])
    times = None
    if header["times"]:
        times = table["answered_at"].to_numpy(zero_copy_only=False).astype("datetime64[us]")
    names = [name for name in ("kind", "order", "levels") if name in table.column_names]
    answers = zip(*(table[name].to_pylist() for name in names), strict=True)
    return Comparisons(
        features=features.reshape(shape),
        sizes=sizes,
        responses=tuple(Response.from_json(dict(zip(names, answer, strict=True))) for answer in answers),
        episode=table["episode"].to_numpy(),
        step=table["step"].to_numpy(),
        texts=table["texts"].to_pylist() if "texts" in table.column_names else None,
        who=header["who"],
        answered_at=times,
        metadata=header["metadata"],
    )
