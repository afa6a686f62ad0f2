"""``RunFolder``: the files of an experiment, resumable after a kill, for one process at a time.

config.json holds kind and settings, provenance.json versions and times, parts/ the rows of finished units, and
results.parquet all rows, with settings and provenance in its schema: figures/ and REPORT.md are made from it alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import versions
from edpbrl_gym._files import reading, sweep
from edpbrl_gym._places import LOCK, RunFolderError, hold_folder, write_atomically

__all__ = ["Results", "RunFolder", "RunFolderError", "read_results", "write_atomically"]

_KEY = b"edpbrl"


@dataclass(frozen=True, eq=False)
class Results:
    """A results table with its settings and provenance."""

    table: Any  # pandas DataFrame
    kind: str  # of the experiment, such as "synthetic"
    config: dict[str, Any]  # its settings
    provenance: dict[str, Any]  # versions, encoder, vocabulary, designs, times


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read ``results.parquet`` from its path or its run folder.

    Raises:
        FileNotFoundError: If there is none.
        RunFolderError: If the file holds no results of an experiment.
    """
    source = Path(path)
    file = source / "results.parquet" if source.is_dir() else source
    if not file.is_file():
        raise FileNotFoundError(
            f"Expected a run folder with results.parquet (or that file) at {source}, found none; run the experiment "
            "to its end first, or check the path"
        )
    import pyarrow
    import pyarrow.parquet

    with reading(
        "a results file written by an edpbrl experiment",
        file,
        advice="give the run folder of `edpbrl reproduce` or `edpbrl demo`",
        error=RunFolderError,
    ):
        table = pyarrow.parquet.read_table(file)
        document = json.loads(table.schema.metadata[_KEY])
        return Results(
            table.to_pandas(),
            kind=str(document["kind"]),
            config=dict(document["config"]),
            provenance=dict(document["provenance"]),
        )


class RunFolder:
    """One experiment on disk, of ``RunFolder.open``; constructed directly it only reads and writes units."""

    def __init__(self, path: Path, *, kind: str, config: Mapping[str, Any]) -> None:
        self.path = path
        self.kind = kind
        self.config = dict(config)  # what decides the numbers, JSON-able
        self._lock: object = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, kind: str, config: Mapping[str, Any]) -> RunFolder:
        """Start a run in a new or empty folder, or resume one with the same settings.

        Other processes are kept out as long as this process holds the result. Partial files of killed runs are removed.

        Raises:
            RunFolderError: If the folder holds another experiment (the message names what differs), something else,
                can't be written, or another process runs in it.
        """
        folder = cls(Path(path), kind=kind, config=json.loads(json.dumps(config)))
        file = folder.path / "config.json"
        if file.is_file():
            folder._check_same(file)
        else:
            folder._check_free()
        folder._lock = hold_folder(folder.path)
        sweep(folder.path)
        if file.is_file():  # another process may have started it just now
            folder._check_same(file)
            return folder
        text = json.dumps({"kind": kind, "config": folder.config}, indent=2)
        write_atomically(file, lambda name: name.write_text(text + "\n", encoding="utf-8"))
        return folder

    def _check_free(self) -> None:
        """Refuse a folder with other files than those of a run that was killed at its start."""
        found = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        if any(name != LOCK and not name.startswith(".config.json.") for name in found):
            raise RunFolderError(
                f"Expected an empty or new folder, or an earlier run, at {self.path}; it holds other files. Choose "
                "another --out"
            )

    def _check_same(self, file: Path) -> None:
        with reading("the settings of a run", file, advice="choose another --out", error=RunFolderError):
            document = json.loads(file.read_text(encoding="utf-8"))
            kind, config = document["kind"], dict(document["config"])
        if kind != self.kind:
            raise RunFolderError(
                f"Expected a run of {self.kind!r} in {self.path}, it holds one of {kind!r}; choose another --out"
            )
        names = sorted(name for name in {*config, *self.config} if config.get(name) != self.config.get(name))
        if names:
            differences = "; ".join(
                f"{name} was {json.dumps(config.get(name))}, now {json.dumps(self.config.get(name))}" for name in names
            )
            raise RunFolderError(
                f"Expected the settings of the run in {self.path}: {differences}. Use the same settings to resume "
                "it, or choose another --out"
            )

    # -- units of work ------------------------------------------------------------------------------------------

    def part_path(self, name: str) -> Path:
        """Path of the file of one unit of work."""
        return self.path / "parts" / f"{name}.parquet"

    def has_part(self, name: str) -> bool:
        """Whether a unit is finished; a damaged file (of a failing disk) counts as unfinished."""
        if not self.part_path(name).is_file():
            return False
        try:
            self._read_part(name)
        except (RunFolderError, OSError):
            return False
        return True

    def _read_part(self, name: str) -> Any:
        import pandas

        path, advice = self.part_path(name), "delete the file to compute it again"
        with reading("the rows of a unit", path, advice=advice, error=RunFolderError):
            return pandas.read_parquet(path)

    def write_part(self, name: str, table: Any) -> None:
        """Write the rows of a finished unit (pandas DataFrame), atomically."""
        write_atomically(self.part_path(name), lambda path: table.to_parquet(path, index=False))

    def read_parts(self, names: list[str]) -> Any:
        """Return the rows of the named units, in that order, as one DataFrame."""
        import pandas

        return pandas.concat([self._read_part(name) for name in names], ignore_index=True)

    # -- provenance of the run ----------------------------------------------------------------------------------

    @property
    def provenance(self) -> dict[str, Any]:
        """Contents of provenance.json, empty before the first note."""
        file = self.path / "provenance.json"
        if not file.is_file():
            return {}
        advice = "restore the file, or delete it to continue without it"
        with reading("the provenance of a run", file, advice=advice, error=RunFolderError):
            found = dict(json.loads(file.read_text(encoding="utf-8")))
            if not isinstance(found.get("sessions", []), list):
                raise ValueError(f"Expected a list of sessions, got {found['sessions']!r}")
            return found

    def note(self, **entries: Any) -> None:
        """Add or replace entries of provenance.json.

        Raises:
            RuntimeError: If the folder was not opened: another process may be writing the file.
        """
        if self._lock is None:
            raise RuntimeError(f"Expected a folder of RunFolder.open to write the provenance of {self.path}")
        text = json.dumps({**self.provenance, **entries}, indent=2)
        write_atomically(self.path / "provenance.json", lambda name: name.write_text(text + "\n", encoding="utf-8"))

    def begin(self) -> None:
        """Note the versions and the time; a resumed run adds a session."""
        sessions = [*self.provenance.get("sessions", []), {"begun": _now(), "versions": versions()}]
        self.note(sessions=sessions)

    def finish(self) -> None:
        """Note the time at which the results were complete."""
        self.note(finished=_now())

    def write_results(self, table: Any) -> Path:
        """Write results.parquet: the rows (pandas DataFrame), with settings and provenance in the schema."""
        import pyarrow
        import pyarrow.parquet

        document = {"kind": self.kind, "config": self.config, "provenance": self.provenance}
        arrow = pyarrow.Table.from_pandas(table, preserve_index=False)
        arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), _KEY: json.dumps(document).encode()})
        path = self.path / "results.parquet"
        write_atomically(path, lambda name: pyarrow.parquet.write_table(arrow, name))
        return path


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
