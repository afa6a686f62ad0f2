"""What tests of attacks on a study share."""

from contextlib import contextmanager

from edpbrl_gym.study.web.site import COOKIE
from tests.helpers.study_server import dump


@contextmanager
def refused(served, caplog, *, count=None):
    """What happens inside is refused, logged, and changes nothing in the database."""
    before = dump(served.store)
    caplog.clear()
    yield
    assert dump(served.store) == before
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Refused ")]
    assert lines if count is None else len(lines) == count, caplog.text
    assert all(line.isascii() and line.isprintable() for line in lines)


def cookie_of(person):
    return person.client.cookies[COOKIE]


def answer_of(person):
    """The fields of a complete answer to the question on the page."""
    return {**person.form("/answer")["fields"], "best": "0"}
