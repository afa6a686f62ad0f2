"""Parquet tables with a JSON header in their schema: written whole or not at all, checked when read.

Pages carry checksums, so that a flipped bit is an error. The header, under the schema's key ``edpbrl_gym``, names the
format and its version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edpbrl_gym._files import replacing

__all__ = ["TableFormat"]

_KEY = b"edpbrl_gym"

Record = TypeVar("Record")


@dataclass(frozen=True)
class TableFormat:
    """A kind of file.

    Attributes:
        name: of the format, in the header.
        version: of the format.
        columns: that a file must have.
        noun: what the file holds, for messages ("comparisons").
        writer: what writes it, for messages ("Comparisons.to_parquet").
    """

    name: str
    version: int
    columns: tuple[str, ...]
    noun: str
    writer: str

    def write(self, columns: dict[str, Any], header: dict[str, Any], path: str | os.PathLike[str]) -> None:
        """Write to ``path`` through a temporary file beside it, so that a kill leaves the old file or none.

        Raises:
            OSError: the folder does not exist or cannot be written; the message names the file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        if not target.parent.is_dir():
            raise FileNotFoundError(f"Expected the folder {target.parent} for {target.name} to exist; create it first")
        full = json.dumps({"format": self.name, "version": self.version, **header})
        table = pa.table(columns).replace_schema_metadata({_KEY: full.encode()})
        with replacing(target) as part, open(part, "wb") as stream:
            pq.write_table(table, stream, compression="zstd", write_page_checksum=True)

    def read(self, path: str | os.PathLike[str], make: Callable[[Any, dict[str, Any]], Record]) -> Record:
        """Read a file that :meth:`write` wrote; ``make`` builds the record from the table and the header.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no parquet, corrupted, foreign, of another version, or its contents make no valid record.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(f"Expected a {self.noun} file at {source}, found none; check the path")
        try:
            table = pq.read_table(source, page_checksum_verification=True, memory_map=False, partitioning=None)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"Expected a parquet file in {source}, got a corrupted or other one: {error}") from None
        header = self._header(table, source)
        try:
            return make(table, header)
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            raise ValueError(f"Expected {self.noun} in {source}, got contents that do not fit: {error}") from None

    def _header(self, table: Any, source: Path) -> dict[str, Any]:
        raw = (table.schema.metadata or {}).get(_KEY)
        try:
            header = {} if raw is None else json.loads(raw)
        except ValueError:
            header = {}
        if not isinstance(header, dict) or header.get("format") != self.name:
            raise ValueError(
                f"Expected a file written by {self.writer}, got {source} with columns {table.column_names} and no "
                f"{self.name} header"
            )
        if header.get("version") != self.version:
            raise ValueError(
                f"Expected {self.name} version {self.version} in {source}, got version {header.get('version')}; "
                f"update edpbrl-gym"
            )
        missing = [name for name in self.columns if name not in table.column_names]
        if missing:
            raise ValueError(
                f"Expected the columns {', '.join(self.columns)} in {source}, it lacks {', '.join(missing)}"
            )
        return header
