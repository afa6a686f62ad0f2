"""``RunFolder``: everything that an experiment leaves behind, and resuming after a kill.

RUN/config.json        kind and settings (all that decides the numbers)
RUN/provenance.json    versions, encoder, vocabulary, designs, times
RUN/parts/*.parquet    finished units of work, one file each, written atomically
RUN/results.parquet    all rows; settings and provenance are in its schema, so it stands alone
RUN/figures/           PNG and PDF
RUN/REPORT.md
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from edpbrl_gym._files import replacing

__all__ = ["Results", "RunFolder", "RunFolderError", "gather_parts", "read_results", "versions", "write_atomically"]

_KEY = b"edpbrl"
_PACKAGES = (
    "edpbrl-gym",
    "gymnasium",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "sentence-transformers",
    "open-clip-torch",
    "pandas",
    "pyarrow",
    "joblib",
    "matplotlib",
)


class RunFolderError(ValueError):
    """A run folder can't be used as asked; the message says what to do."""


class Results:
    """A results table with what made it.

    Attributes:
        table: The rows (pandas DataFrame).
        kind: Kind of the experiment, such as "synthetic".
        config: Its settings.
        provenance: Versions, encoder, vocabulary, designs, times.
    """

    def __init__(self, table: Any, *, kind: str, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
        self.table = table
        self.kind = kind
        self.config = dict(config)
        self.provenance = dict(provenance)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result; absent packages are left out."""
    found = {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary path in the same folder, then rename: readers see the whole file or none.

    Raises:
        RunFolderError: If the place can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            write(part)
    except OSError as error:
        raise RunFolderError(
            f"Expected to write {path}, got {error.strerror or error}; choose a folder that you can write to"
        ) from error


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read ``results.parquet``, given by itself or by its run folder.

    Raises:
        FileNotFoundError: If there is none.
        RunFolderError: If the file isn't one of ours.
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

    try:
        table = pyarrow.parquet.read_table(file)
        document = json.loads(table.schema.metadata[_KEY])
    except (pyarrow.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise RunFolderError(
            f"Expected a results file written by an edpbrl experiment, {file} is another file; give the run folder "
            "of `edpbrl reproduce` or `edpbrl demo`"
        ) from None
    return Results(
        table.to_pandas(), kind=document["kind"], config=document["config"], provenance=document["provenance"]
    )


class RunFolder:
    """One experiment on disk. Use ``RunFolder.open``.

    Attributes:
        path: The folder.
        kind: Kind of the experiment.
        config: Settings that decide the numbers, JSON-able.
    """

    def __init__(self, path: Path, *, kind: str, config: Mapping[str, Any]) -> None:
        self.path = path
        self.kind = kind
        self.config = dict(config)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, kind: str, config: Mapping[str, Any]) -> RunFolder:
        """Begin a run in a new or empty folder, or resume one that was begun with the same settings.

        Args:
            path: The folder; made if it isn't there.
            kind: Kind of the experiment.
            config: All settings that decide the numbers, JSON-able.

        Raises:
            RunFolderError: If the folder holds another experiment (the message names what differs), something else,
                or can't be written.
        """
        folder = cls(Path(path), kind=kind, config=json.loads(json.dumps(config)))
        file = folder.path / "config.json"
        if file.is_file():
            folder._check_same(file)
            return folder
        if folder.path.is_dir() and any(folder.path.iterdir()):
            raise RunFolderError(
                f"Expected an empty or new folder, or an earlier run, at {folder.path}; it holds other files. Choose "
                "another --out"
            )
        text = json.dumps({"kind": kind, "config": folder.config}, indent=2)
        write_atomically(file, lambda name: name.write_text(text + "\n", encoding="utf-8"))
        return folder

    def _check_same(self, file: Path) -> None:
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            kind, config = stored["kind"], dict(stored["config"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"Expected the settings of a run in {file}, could not read them ({error}); choose another --out"
            ) from None
        if kind != self.kind:
            raise RunFolderError(
                f"Expected a run of {self.kind!r} in {self.path}, it holds one of {kind!r}; choose another --out"
            )
        missing = object()
        names = sorted(
            name for name in {*config, *self.config} if config.get(name, missing) != self.config.get(name, missing)
        )
        if names:
            differences = "; ".join(
                f"{name} was {json.dumps(config.get(name))}, now {json.dumps(self.config.get(name))}" for name in names
            )
            raise RunFolderError(
                f"Expected the settings with which {self.path} was begun: {differences}. Use the same settings to go "
                "on, or choose another --out"
            )

    # -- units of work ------------------------------------------------------------------------------------------

    def part_path(self, name: str) -> Path:
        """Path of the file of one unit of work."""
        return self.path / "parts" / f"{name}.parquet"

    def has_part(self, name: str) -> bool:
        """Whether a unit is finished; a damaged file (of a failing disk) counts as unfinished and is done again."""
        file = self.part_path(name)
        if not file.is_file():
            return False
        import pyarrow
        import pyarrow.parquet

        try:
            pyarrow.parquet.read_table(file)
        except (pyarrow.ArrowException, OSError):
            return False
        return True

    def write_part(self, name: str, table: Any) -> None:
        """Write the rows of a finished unit (pandas DataFrame), atomically."""
        write_atomically(self.part_path(name), lambda path: table.to_parquet(path, index=False))

    def read_parts(self, names: list[str]) -> Any:
        """Return the rows of the named units, in that order, as one DataFrame."""
        import pandas

        return pandas.concat([pandas.read_parquet(self.part_path(name)) for name in names], ignore_index=True)

    # -- what is known about the run ----------------------------------------------------------------------------

    @property
    def provenance(self) -> dict[str, Any]:
        """Contents of provenance.json, empty before the first note."""
        file = self.path / "provenance.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def note(self, **entries: Any) -> None:
        """Add or replace entries of provenance.json."""
        text = json.dumps({**self.provenance, **entries}, indent=2)
        write_atomically(self.path / "provenance.json", lambda name: name.write_text(text + "\n", encoding="utf-8"))

    def begin(self) -> None:
        """Note the versions and the time; a resumed run gets one more session."""
        sessions = [*self.provenance.get("sessions", []), {"begun": _now(), "versions": versions()}]
        self.note(sessions=sessions)

    def finish(self) -> None:
        """Note the time at which the results were complete."""
        self.note(finished=_now())

    def write_results(self, table: Any) -> Path:
        """Write results.parquet: the rows, with settings and provenance in the schema.

        Args:
            table: pandas DataFrame.

        Returns:
            The path.
        """
        import pyarrow
        import pyarrow.parquet

        document = {"kind": self.kind, "config": self.config, "provenance": self.provenance}
        arrow = pyarrow.Table.from_pandas(table, preserve_index=False)
        arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), _KEY: json.dumps(document).encode()})
        path = self.path / "results.parquet"
        write_atomically(path, lambda name: pyarrow.parquet.write_table(arrow, name))
        return path


def gather_parts(folder: str | os.PathLike[str], *, kind: str, command: str, order: list[str]) -> Results:
    """Write results.parquet from all finished units of a run folder, and return it.

    A folder without parts is taken as it is: its results.parquet stands alone.

    Args:
        folder: The run folder.
        kind: Of the experiment.
        command: That makes such folders, for messages.
        order: Columns by which the rows are sorted.

    Raises:
        FileNotFoundError: If there are neither parts nor results.
        RunFolderError: If the folder holds another experiment.
    """
    place = Path(folder)
    parts = sorted(path.stem for path in place.glob("parts/*.parquet"))
    if not parts:
        results = read_results(place)
    else:
        try:
            stored = json.loads((place / "config.json").read_text(encoding="utf-8"))
            held, config = stored["kind"], stored["config"]
        except (OSError, ValueError, KeyError, TypeError):
            raise RunFolderError(f"Expected the settings of a run in {place / 'config.json'}, found none") from None
        if held == kind:
            found = RunFolder(place, kind=kind, config=config)
            table = found.read_parts([name for name in parts if found.has_part(name)])
            results = read_results(found.write_results(table.sort_values(order, ignore_index=True)))
        else:
            results = Results(None, kind=held, config=config, provenance={})
    if results.kind != kind:
        raise RunFolderError(f"Expected a run of `{command}` in {place}, it holds one of {results.kind!r}")
    return results


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
