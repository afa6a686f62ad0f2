"""Damaged copies of a file, by seed: cut, flipped, other encodings, and changes that know what kind of file it is."""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

Damage = tuple[str, bytes]  # what was done, the file's new contents

# what a value of a JSON document becomes
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "x", "\x00", "\ud800", [], {}, [[]],
    {"a": {"b": []}}, "é" * 40,
)  # fmt: skip


def damages(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    """``count`` kinds of random bytes, and a few times as many changes that fit the kind of file."""
    yield "empty", b""
    yield "zeros", bytes(len(data))
    yield "only a line end", b"\n"
    yield "another kind of file", b"\x89PNG\r\n\x1a\n" + bytes(40)
    yield "a deep document", b"[" * 50_000
    yield "UTF-16", data.decode("utf-8", "replace").encode("utf-16")
    yield "Latin-1 byte", data[: len(data) // 2] + b"\xe9\xff" + data[len(data) // 2 :]
    yield "more behind it", data + b"\x00garbage\xff"
    yield "twice", data + data
    for _ in range(count):
        cut = int(rng.integers(0, max(1, len(data))))
        yield f"cut at {cut}", data[:cut]
        yield f"bit flipped, {(place := _places(data, rng, 1))[0]}", _changed(data, place, rng, bits=True)
        yield f"bytes changed, {(place := _places(data, rng, 8))[0]}", _changed(data, place, rng, bits=False)
        start, stop = sorted(int(place) for place in rng.integers(0, len(data) + 1, size=2))
        yield f"without {start}:{stop}", data[:start] + data[stop:]
    for kind in (_json, _lines, _arrays, _safetensors, _parquet):
        yield from kind(data, rng, count)


def _places(data: bytes, rng: np.random.Generator, count: int) -> list[int]:
    return [int(place) for place in rng.integers(0, max(1, len(data)), size=count)]


def _changed(data: bytes, places: list[int], rng: np.random.Generator, *, bits: bool) -> bytes:
    changed = bytearray(data)
    for place in places if data else ():
        changed[place] = changed[place] ^ (1 << int(rng.integers(8))) if bits else int(rng.integers(256))
    return bytes(changed)


def _spots(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all values of a document, the whole first."""
    yield path
    items = document if isinstance(document, dict) else dict(enumerate(document)) if isinstance(document, list) else {}
    for key, value in items.items():
        yield from _spots(value, (*path, key))


def changed_documents(document: Any, rng: np.random.Generator, count: int) -> Iterator[tuple[str, Any]]:
    """Copies of a document, each with one value changed, left out or added."""
    spots = list(_spots(document))
    yield from ((f"a document that is {value!r}"[:60], value) for value in WRONG)
    if len(spots) > 4 * count:
        spots = [(), *(spots[1 + i] for i in rng.integers(len(spots) - 1, size=4 * count))]
    for path in spots[1:]:
        for wrong in [WRONG[i] for i in rng.integers(len(WRONG), size=2)]:
            new = copy.deepcopy(document)
            _parent(new, path)[path[-1]] = wrong
            yield f"{'/'.join(map(str, path))} = {wrong!r}", new
        new = copy.deepcopy(document)
        del _parent(new, path)[path[-1]]
        yield f"without {'/'.join(map(str, path))}", new
    if isinstance(document, dict):
        yield "an entry more", {**document, "more": [1, 2]}


def _parent(document: Any, path: tuple) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _json(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    try:
        document = json.loads(data)
    except (ValueError, UnicodeDecodeError):
        return
    for name, new in changed_documents(document, rng, count):
        yield name, _encoded(new)


def _lines(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    """Text files (tables, lists, settings): lines and cells left out, doubled, emptied or replaced."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return
    if len(lines) < 2 or "\x00" in data.decode("utf-8"):
        return
    cells = ("", "x", "-1", "nan", "1e400", "9" * 21, '"', "=1+1", "\u202e", "a" * 2000, "é", "[", "true")
    for _ in range(2 * count):
        at = int(rng.integers(len(lines)))
        yield f"without line {at}", "\n".join(lines[:at] + lines[at + 1 :]).encode()
        yield f"line {at} twice", "\n".join(lines[:at] + [lines[at]] + lines[at:]).encode()
        for separator in (",", "=", " "):
            parts = lines[at].split(separator)
            part, cell = int(rng.integers(len(parts))), cells[int(rng.integers(len(cells)))]
            new = separator.join([*parts[:part], cell, *parts[part + 1 :]])
            yield f"line {at}: {new[:40]!r}", "\n".join([*lines[:at], new, *lines[at + 1 :]]).encode()


def _wrong_arrays(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """An array of other types, shapes and values."""
    yield "empty", array.reshape(-1)[:0]
    yield "one dimension more", array[None]
    yield "a number", np.array(1.0)
    yield "flat", array.reshape(-1)
    yield "texts", np.full(array.shape, "x")
    yield "complex", np.zeros(array.shape, dtype=complex)
    yield "times", np.zeros(array.shape, dtype="datetime64[s]")
    yield "records", np.zeros(array.shape, dtype=[("a", "<f8")])
    yield "booleans", np.ones(array.shape, dtype=bool)
    if array.dtype.kind in "fiu":
        yield "negative", -np.abs(array.astype(np.float64)) - 1.0
        yield "large integers", np.full(array.shape, 2**62, dtype=np.int64)
        for value in (np.nan, np.inf, 1e300, 0.5):
            yield str(value), np.full(array.shape, value)
    if array.ndim and len(array) > 1:
        yield "a row less", array[1:]
        yield "the last row twice", np.concatenate([array, array[-1:]])
    if array.ndim > 1 and array.shape[-1] > 1:
        yield "a column less", np.ascontiguousarray(array[..., 1:])


def _archive(arrays: dict[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def _arrays(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if isinstance(archive[name], np.ndarray)}
    except Exception:
        return
    for name, array in arrays.items():
        others = {key: value for key, value in arrays.items() if key != name}
        yield f"without {name}", _archive(others)
        for kind, wrong in _wrong_arrays(array):
            yield f"{name}: {kind}", _archive({**others, name: wrong})
        yield f"{name}: huge", _huge(data, name)
        if array.dtype.kind == "U" and array.ndim == 0:
            try:
                document = json.loads(str(array))
            except ValueError:
                continue
            for kind, new in changed_documents(document, rng, count):
                if "\\ud800" not in (text := json.dumps(new)):
                    yield f"{name}/{kind}", _archive({**others, name: np.array(text)})
    yield "an array more", _archive({**arrays, "more": np.zeros(3)})


def _huge(data: bytes, name: str) -> bytes:
    """The archive with an array that says it is of 10^15 numbers."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == f"{name}.npy":
                header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000, 1000), }"
                header += b" " * (-(len(header) + 11) % 64) + b"\n"
                content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
            new.writestr(member, content)
    return stream.getvalue()


def _safetensors(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= len(data) - 8:
        return
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, UnicodeDecodeError):
        return
    body = data[8 + length :]

    def packed(new: Any) -> bytes:
        text = _encoded(new)
        return len(text).to_bytes(8, "little") + text + body

    for size in (0, length - 1, length + 1, 2**40, 2**63):
        yield f"header of {size} bytes", size.to_bytes(8, "little") + data[8:]
    for kind, new in changed_documents(header, rng, count):
        yield f"header: {kind}", packed(new)
    for key, text in header.get("__metadata__", {}).items():
        try:
            document = json.loads(text)
        except ValueError:
            continue
        for kind, new in changed_documents(document, rng, count):
            metadata = {**header["__metadata__"], key: json.dumps(new)}
            yield f"{key}/{kind}", packed({**header, "__metadata__": metadata})
    from safetensors.numpy import load, save

    tensors = load(data)
    for name, array in tensors.items():
        others = {key: value for key, value in tensors.items() if key != name}
        yield f"without {name}", save(others, metadata=header.get("__metadata__"))
        for kind, wrong in _wrong_arrays(array):
            if wrong.dtype.kind in "fiub":
                changed = {**others, name: np.ascontiguousarray(wrong)}
                yield f"{name}: {kind}", save(changed, metadata=header.get("__metadata__"))


def _parquet(data: bytes, rng: np.random.Generator, count: int) -> Iterator[Damage]:
    if not (data.startswith(b"PAR1") and data.endswith(b"PAR1")):
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))

    def written(new: Any) -> bytes:
        stream = io.BytesIO()
        pq.write_table(new, stream)
        return stream.getvalue()

    yield "no rows", written(table[:0])
    yield "no columns", written(pa.table({}))
    yield "no metadata", written(table.replace_schema_metadata(None))
    yield "another table", written(pa.table({"a": [1, 2, 3]}))
    for place, name in enumerate(table.column_names):
        rest = table.remove_column(place)
        yield f"without {name}", written(rest)
        for kind, values in (
            ("nothing", pa.nulls(len(table), table.schema.field(name).type)),
            ("texts", pa.array(["x"] * len(table))),
            ("NaN", pa.array([float("nan")] * len(table))),
            ("large", pa.array([2**62] * len(table))),
            ("negative", pa.array([-1] * len(table))),
            ("lists", pa.array([[1]] * len(table))),
            ("bytes", pa.array([b"\xff"] * len(table))),
        ):
            yield f"{name}: {kind}", written(rest.add_column(place, name, values))
    for key, text in (table.schema.metadata or {}).items():
        try:
            document = json.loads(text)
        except (ValueError, UnicodeDecodeError):
            continue
        if key == b"pandas":
            continue  # pandas' own
        for kind, new in changed_documents(document, rng, count):
            metadata = {**table.schema.metadata, key: _encoded(new)}
            yield f"{key.decode()}/{kind}", written(table.replace_schema_metadata(metadata))
