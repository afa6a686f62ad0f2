"""A small study behind its pages, played by clients that know no JavaScript."""

from __future__ import annotations

import pytest

from tests.helpers.extras import reason

if why := reason(["study"]):
    pytest.skip(why, allow_module_level=True)

from starlette.testclient import TestClient

from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.web import create_app
from edpbrl_gym.study.web.context import COOKIE, Site
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_client import Person


class Served:
    """A study that is served inside the process of the test."""

    def __init__(self, folder, text=SMALL, pictures=None, languages=(), *, tokens=None, consent=None, **options):
        write_study(folder, text, languages=languages)
        for name, more in (tokens or {}).items():  # in the place of the first tokens of a step
            path = folder / "words" / f"{name}.txt"
            path.write_text("\n".join([*more, *path.read_text().splitlines()[len(more) :]]) + "\n")
        if consent is not None:
            (folder / "texts" / "consent.en.txt").write_text(consent)
        self.config = read_config(folder)
        self.store = Store(self.config.database_url, config=self.config.fingerprint)
        materials = Materials(self.config, encoder=CountingEncoder())
        self.queue = StudyQueue(self.config, self.store, materials, pictures=pictures)
        self.app = create_app(self.queue, **options)

    def person(self, **options):
        """A person with a browser of their own."""
        return Person(TestClient(self.app, base_url="http://study.test", raise_server_exceptions=False, **options))

    def token(self, person):
        """The token of a person's forms."""
        signer = Site(self.queue).signer
        return signer.form_token(signer.visitor(person.client.cookies[COOKIE]))

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
