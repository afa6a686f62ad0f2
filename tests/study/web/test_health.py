"""/health: 503 as long as the database can't be reached, quickly, and 200 again afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from tests.helpers.studies import SMALL


def status(served, caplog):
    caplog.clear()
    page = served.person().client.get("/health")
    if page.status_code == 503:
        assert int(page.headers["retry-after"]) > 0 and "database" in page.text
        [line] = [record.getMessage() for record in caplog.records if "/health" in record.getMessage()]
        assert "Expected the database to answer" in line and "Traceback" not in line
    return page.status_code


def test_a_file_that_is_gone_is_noticed_and_also_that_it_is_back(served, caplog):
    assert status(served, caplog) == 200
    place = served.config.folder / "study.db"
    place.rename(place.with_name("elsewhere"))
    assert status(served, caplog) == 503 == status(served, caplog)
    place.with_name("elsewhere").rename(place)
    assert status(served, caplog) == 200
    served.config.folder.rename(served.config.folder.with_name("moved"))
    assert status(served, caplog) == 503


def test_a_server_that_says_nothing_is_noticed_and_also_that_it_is_back(serve, caplog, postgres):
    """No request waits for PostgreSQL longer than two seconds, and what hangs is waited for once."""
    import psycopg

    from tests.helpers.postgres import new_database

    url = new_database(postgres, "health")
    served = serve(f'database = "{url}"\n{SMALL}')
    assert status(served, caplog) == 200
    with psycopg.connect(url) as connection:
        [place] = connection.execute("SHOW data_directory").fetchone()
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = 'health'").fetchall()
    server = os.getpgid(int((Path(place) / "postmaster.pid").read_text().split()[0]))
    groups = [server, *(pid for (pid,) in rows if Path(f"/proc/{pid}").exists())]  # each of its processes has its own
    for group in groups:
        os.killpg(group, signal.SIGSTOP)
    try:
        threads = threading.active_count()
        assert [status(served, caplog) for _ in range(20)] == [503] * 20
        assert threading.active_count() <= threads + 3 and "no answer within" in caplog.text
    finally:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):  # a process of a connection that has ended meanwhile
                os.killpg(group, signal.SIGCONT)
    deadline = time.monotonic() + 60
    while status(served, caplog) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
