"""A small study behind its pages, played by clients that know no JavaScript."""

from __future__ import annotations

import threading

import pytest

from tests.helpers.extras import reason

if why := reason(["study"]):
    pytest.skip(why, allow_module_level=True)

from starlette.testclient import TestClient

from edpbrl_gym.study.style import make_style
from edpbrl_gym.study.web import create_app
from edpbrl_gym.study.web.site import COOKIE, Site
from tests.helpers.oracle_studies import Server
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_client import Person


class Served(Server):
    """A study that is served inside the process of the test."""

    def __init__(self, folder, text=SMALL, pictures=None, languages=(), *, tokens=None, consent=None, **options):
        write_study(folder, text, languages=languages)
        for name, more in (tokens or {}).items():  # in the place of the first tokens of a step
            path = folder / "words" / f"{name}.txt"
            path.write_text("\n".join([*more, *path.read_text().splitlines()[len(more) :]]) + "\n")
        if consent is not None:
            (folder / "texts" / "consent.en.txt").write_text(consent)
        super().__init__(folder, pictures=pictures)
        self.app = create_app(self.queue, **options)

    def person(self, **options):
        """A person with a browser of their own."""
        return Person(TestClient(self.app, base_url="http://study.test", raise_server_exceptions=False, **options))

    def begin(self, **external):
        """A person who looks at the first question."""
        person = self.person()
        person.begin(**external)
        return person

    def history(self):
        """Questions and answers of the only participant."""
        [participant] = self.store.participants()
        return self.store.history(participant.id)

    def token(self, person):
        """The token of a person's forms."""
        signer = Site(self.queue).signer
        return signer.form_token(signer.visitor(person.client.cookies[COOKIE]))


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


@pytest.fixture
def gate(monkeypatch):
    """No learnt taste is made before the gate is opened."""
    opened = threading.Event()

    def wait(*arguments):
        assert opened.wait(60)
        return make_style(*arguments)

    monkeypatch.setattr("edpbrl_gym.study.planning.make_style", wait)
    yield opened
    opened.set()
