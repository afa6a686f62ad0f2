"""A private PostgreSQL cluster on a loopback port, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSTALL = "apt-get install postgresql"


def find_initdb() -> Path | None:
    """The program initdb: Debian keeps it off the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve()
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return places[-1] if places else None


def missing() -> str:
    """Why no cluster can be started; empty if one can."""
    if find_initdb() is None:
        return f"needs PostgreSQL's initdb: {INSTALL}"
    if os.geteuid() == 0 and not (shutil.which("runuser") and _postgres_exists()):
        return f"PostgreSQL refuses to run as root, and there is no user postgres: {INSTALL}"
    return ""


def _postgres_exists() -> bool:
    return subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode == 0


def _command(*words: str | Path) -> list[str]:
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    return [*prefix, *map(str, words)]


@contextmanager
def cluster() -> Iterator[str]:
    """Start a cluster; yield the URL of its server, without a database's name."""
    programs = find_initdb()
    assert programs is not None
    place = Path(tempfile.mkdtemp(prefix="edpbrl-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(place, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = place / "data"
    try:
        initialise = _command(programs, "-D", data, "-U", "edpbrl", "-A", "trust", "-E", "UTF8", "--locale=C")
        subprocess.run(initialise, check=True, capture_output=True, cwd="/")
        server = _command(programs.with_name("postgres"), "-D", data, "-p", str(port), "-c",
                          "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={place}",
                          "-c", "max_connections=60", "-c", "fsync=off")  # fmt: skip
        with open(place / "server.log", "wb") as log:
            process = subprocess.Popen(server, stdout=log, stderr=log, cwd="/", start_new_session=True)
        try:
            url = f"postgresql://edpbrl@127.0.0.1:{port}"
            _wait(url, process, place / "server.log")
            yield url
        finally:
            os.killpg(process.pid, signal.SIGQUIT)  # at once: nothing of it is kept
            os.killpg(process.pid, signal.SIGCONT)  # runuser stops itself when a test has stopped the server
            process.wait(60)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    import psycopg

    for _ in range(600):
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        try:
            psycopg.connect(f"{url}/postgres", connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise AssertionError("PostgreSQL did not start")


def new_database(url: str, name: str) -> str:
    """Create an empty database; return its URL."""
    import psycopg

    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{url}/{name}"
