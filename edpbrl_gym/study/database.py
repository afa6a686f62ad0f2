"""Connections to a study's database: SQLite that survives a power cut, or PostgreSQL; transactions; migrations."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from edpbrl_gym.study.config import check_driver

__all__ = ["Database", "DatabaseGoneError"]

_PATIENCE = 60.0  # seconds that a writer waits for others
_WITH_LOG = ("-wal",)  # what SQLite keeps beside the file, without which a kill would lose what was written last
_ROWS = "SELECT total(seq) FROM sqlite_sequence"  # which never falls
_MIGRATION_LOCK = 7_193_020  # of PostgreSQL, so that one server at a time migrates


class DatabaseGoneError(ConnectionError):
    """The database that was opened is no longer where it was: removed, renamed, dropped, or replaced by another one."""


class Database:
    """An open database with the newest tables.

    SQLite is used with a write-ahead log that is synchronised to the disk at every commit (``synchronous = FULL``), and
    a writing transaction takes its lock when it begins (``BEGIN IMMEDIATE``), so that it waits for others instead of
    failing half way. What is deleted is overwritten (``secure_delete``).

    A process can go on writing into a file that was removed or renamed, where nobody will find it, and past one that
    was overwritten. So every transaction looks before it begins, and one that writes also after its end, whether the
    file is still the same one; PostgreSQL's connections are asked for the ``identity`` when they are made.

    Args:
        url: "sqlite:///FILE" or "postgresql://USER@HOST/NAME".
        create: Create a file of SQLite that isn't there.

    Raises:
        FileNotFoundError: There is no such file, without ``create``.
        ValueError: Another URL, or tables of a newer version.
        ConnectionError: The database can't be opened.
        ModuleNotFoundError: It is one of PostgreSQL, and the extra ``postgresql`` is not installed.

    Attributes:
        identity: Value of the fact "secret", by which the database is known again; None: not known yet.
    """

    identity: str | None = None

    def __init__(self, url: str, *, create: bool = True) -> None:
        check_driver(url)
        self.url = make_url(url)
        if self.url.drivername == "postgresql":
            self.url = self.url.set(drivername="postgresql+psycopg")
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if not self.is_sqlite and self.url.drivername != "postgresql+psycopg":
            raise ValueError(f"Expected a URL sqlite:///FILE or postgresql://..., got {self.name}")
        if self.is_sqlite and not create and not Path(self.url.database or "").is_file():
            raise FileNotFoundError(f"Expected the answers of a study at {self.url.database}, found none yet")
        self._file: os.stat_result | None = None  # of SQLite, when it was last looked at
        self._rows = 0.0  # ever added until then
        self._engine = self._make_engine()
        # threads wait here in turn: where one holds SQLite's own lock, the others sleep ever longer between two tries
        self._writer = threading.Lock() if self.is_sqlite else nullcontext()
        try:
            self._migrate()
        except DBAPIError as error:
            self._engine.dispose()
            raise ConnectionError(
                f"Expected a database at {self.name}, could not open it ({error.orig}); check the URL and that it runs"
            ) from None
        except BaseException:
            self._engine.dispose()
            raise
        if self.is_sqlite and self.url.database not in (None, "", ":memory:"):
            self.url = self.url.set(database=os.path.abspath(str(self.url.database)))
            self._file = os.stat(str(self.url.database))

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    def _make_engine(self) -> Engine:
        if not self.is_sqlite:
            engine = create_engine(self.url, hide_parameters=True, pool_pre_ping=True, pool_size=10, max_overflow=20)
            event.listen(engine, "connect", self._check_identity)
            return engine
        if self.url.database not in (None, "", ":memory:"):
            with suppress(OSError):  # what is there stays; what can't be made is said by who connects
                os.close(os.open(str(self.url.database), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # for its owner
        engine = create_engine(self.url, hide_parameters=True, connect_args={"timeout": _PATIENCE})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write; when the block has ended without an error, what it wrote is on the disk."""
        with self._writer:
            self.check()
            with self._engine.begin() as connection:
                yield connection
                rows = 0.0 if self._file is None else connection.exec_driver_sql(_ROWS).scalar_one()
            self._rows = rows
            self.check(_WITH_LOG)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one state of the database and waits for no writer."""
        self.check()
        options = {"edpbrl_begin": "BEGIN"} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def check(self, beside: tuple[str, ...] = ()) -> None:
        """Raise a ``DatabaseGoneError`` unless SQLite's file is the one that was opened, and others are beside it."""
        known = self._file  # before anybody else looks: what is found now must not be older
        if known is None:
            return
        place = str(self.url.database)
        try:
            found = os.stat(place)
            for end in beside:
                os.stat(place + end)
        except OSError as error:
            raise DatabaseGoneError(
                f"Expected the study's answers at {place}, {Path(error.filename).name} was removed or renamed while "
                "they were open; put the same file back, or stop the server and look for it"
            ) from None
        is_same = (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)
        if is_same and (found.st_size, found.st_mtime_ns) != (known.st_size, known.st_mtime_ns):
            is_same = self._is_ours(place, known.st_size, found.st_size)
        if not is_same:
            raise DatabaseGoneError(
                f"Expected the study's answers at {place}, another file was put there, or written over them, while "
                "they were open; put the first one back, or start again with this one"
            )
        self._file = found

    def _is_ours(self, place: str, before: int, now: int) -> bool:
        """Whether SQLite has written into the file, at a checkpoint, and not somebody else over it.

        A new connection reads what is there, past the pages that others remember: another study has another secret, and
        an older copy fewer rows. A checkpoint makes the file as long as the database is, or a part of the way.
        """
        least = self._rows  # others may add more while these are counted
        try:
            with closing(sqlite3.connect(f"{Path(place).as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)) as connection:
                connection.execute("BEGIN")
                [whole] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
                found = connection.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
                [rows] = connection.execute(_ROWS).fetchone()
        except sqlite3.Error:
            return False
        is_known = self.identity is None or (found is not None and found[0] == self.identity)
        return is_known and rows >= least and min(before, whole[0]) <= now <= max(before, whole[0])

    def _check_identity(self, connection: Any, record: Any) -> None:
        """Refuse a connection to a database of PostgreSQL that has taken the place of the one that was opened."""
        if self.identity is None:
            return
        import psycopg

        try:
            found = connection.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
        except psycopg.ProgrammingError:  # there is no such table
            found = None
        connection.rollback()
        if found is None or found[0] != self.identity:
            connection.close()
            raise DatabaseGoneError(
                f"Expected the database of this study at {self.name}, another one has taken its place; put the first "
                "one back, or start again with this one"
            )

    def close(self) -> None:
        self._engine.dispose()

    def empty_log(self) -> None:
        """Write SQLite's log into the database and empty it, so that what was deleted is nowhere any more."""
        if self.is_sqlite:
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                busy = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if busy:
                raise RuntimeError(
                    f"The rows are deleted, but a reader of {self.name} keeps its log from being emptied; stop it and "
                    "delete again"
                )

    def _migrate(self) -> None:
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise ValueError(
                    f"Expected a database of this version of edpbrl-gym at {self.name}, got another one ({error}); "
                    "use the version that made it, or a newer one"
                ) from None


def _set_up_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not in the driver
    connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE * 1000)}")
    give_up = time.monotonic() + _PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:  # the one statement for which SQLite does not wait
            connection.execute("PRAGMA journal_mode = WAL")
        except Exception:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("edpbrl_begin", "BEGIN IMMEDIATE"))
