"""A small study behind its pages, played by clients that know no JavaScript."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="needs the extra study: pip install 'edpbrl-gym[study]'")
pytest.importorskip("alembic", reason="needs the extra study: pip install 'edpbrl-gym[study]'")

from starlette.testclient import TestClient

from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.web import create_app
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_client import Person


class Served:
    """A study that is served inside the process of the test."""

    def __init__(self, folder, text=SMALL, **options):
        self.config = read_config(write_study(folder, text))
        self.store = Store(self.config.database_url, config=self.config.fingerprint)
        self.queue = StudyQueue(self.config, self.store, Materials(self.config, encoder=CountingEncoder()))
        self.app = create_app(self.queue, **options)

    def person(self, **options):
        """A person with a browser of their own."""
        return Person(TestClient(self.app, base_url="http://study.test", raise_server_exceptions=False, **options))

    def close(self):
        self.queue.close()
        self.store.close()


@pytest.fixture
def serve(tmp_path):
    """Serve studies; they are stopped after the test."""
    started = []

    def start(text=SMALL, **options):
        started.append(Served(tmp_path / f"study{len(started)}", text, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def served(serve):
    """The small study."""
    return serve()
