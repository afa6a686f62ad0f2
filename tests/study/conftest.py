"""Databases for the tests of the study: a file, and PostgreSQL where it is installed."""

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
