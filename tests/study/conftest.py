"""For the tests of the study: databases (a file, and PostgreSQL where it is installed), and servers without pages."""

from __future__ import annotations

import uuid

import pytest

from tests.helpers.extras import skip_without


@pytest.fixture(scope="session")
def postgres():
    """URL of a PostgreSQL server of the tests' own."""
    from tests.helpers.postgres import cluster, missing

    skip_without("postgresql")
    why = missing()
    if why:
        pytest.skip(why)
    with cluster() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    from tests.helpers.postgres import new_database

    return new_database(request.getfixturevalue("postgres"), f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def serve():
    """Start servers without pages; those of a test are stopped after it."""
    from tests.helpers.oracle_studies import Server

    started = []

    def start(config, url=""):
        started.append(Server(config, url))
        return started[-1]

    yield start
    for server in started:
        server.close()
