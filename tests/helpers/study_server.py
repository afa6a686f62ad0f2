"""A study behind the real server, in a thread of the test; what its database holds; requests byte by byte."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from edpbrl_gym.study.tables import answers, events, metadata, participants
from edpbrl_gym.study.web import make_server
from edpbrl_gym.study.web.server import listen


def dump(store: Any) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, but for the events that keep what was refused."""
    with store.database.reading() as connection:
        return {
            table.name: [
                dict(row)
                for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
                if row.get("kind") != "refused"
            ]
            for table in metadata.sorted_tables
        }


def silent(store: Any, participant: int, minutes: int = 31) -> None:
    """Everything that a participant has done was so many minutes ago."""
    past = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="microseconds")
    with store.database.writing() as connection:
        for table, column, whose in (
            (participants, "consented_at", participants.c.id),
            (answers, "answered_at", answers.c.participant),
            (events, "at", events.c.participant),
        ):
            connection.execute(update(table).where(whose == participant).values({column: past}))


@contextmanager
def listening(app: Any) -> Iterator[int]:
    """Serve an application at a free port of this machine; yield the port."""
    server = make_server(app)
    with listen("127.0.0.1", 0) as place:
        place.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server ended"
                time.sleep(0.01)
            yield place.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


def exchange(port: int, *parts: bytes, pause: float = 0.0, source: str = "127.0.0.1", patience: float = 30.0) -> bytes:
    """Send bytes to a server, part by part, and return all that it answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience, source_address=(source, 0)) as connection:
        answer = b""
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # the server has closed its side; its answer can still be read
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except (ConnectionError, TimeoutError):
            pass
        return answer


def status_of(answer: bytes) -> int:
    """The status of an answer; 0: the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0
