"""The researcher's pages: closed without the token, and showing the report of the answers."""

from __future__ import annotations

import pytest

from edpbrl_gym.study.export_tables import pseudonym
from tests.helpers.studies import SMALL

TOKEN = "a-secret-of-researchers"
TESTED = SMALL.replace("repeated = 2", "repeated = 2\ntest = 2")


@pytest.fixture
def admin(serve):
    return serve(TESTED, admin_token=TOKEN)


def opened(served):
    person = served.person()
    person.get("/admin")
    person.post("/admin", secret=TOKEN)
    assert person.at == "/admin" and person.page.status_code == 200
    return person


def test_wrong_tokens_are_limited_and_the_right_one_works_meanwhile(admin, caplog):
    person, other = admin.person(), admin.person()
    headers = {"origin": "https://evil.example"}
    assert person.client.post("/admin", data={"secret": TOKEN}, headers=headers).status_code == 403
    secrets = ["", TOKEN.upper(), TOKEN + " ", TOKEN[:-1], "' OR '1'='1", "\x00", "x" * 5000, *map(str, range(33))]
    codes = [person.client.post("/admin", data={"secret": secret}).status_code for secret in secrets]
    assert codes == [403] * 10 + [429] * 30 and "edpbrl_admin" not in person.client.cookies
    page = person.client.post("/admin", data={"secret": "wrong"})
    assert int(page.headers["retry-after"]) > 0 and "too many requests" in page.text
    assert "wrong ones too fast" in caplog.text
    for researcher in (person, other):
        assert researcher.client.post("/admin", data={"secret": TOKEN}).url.path == "/admin"
        assert "What needs doing" in researcher.get("/admin").text
        assert person.client.post("/admin", data={"secret": TOKEN + " "}).status_code == 429


def test_a_cookie_of_another_token_opens_nothing(serve):
    first = opened(serve(TESTED, admin_token=TOKEN))
    other = serve(TESTED, admin_token=TOKEN + "2").person(cookies=dict(first.client.cookies))
    for address in ("/admin", "/admin/report"):
        assert "doing" not in other.get(address).text and "Participants" not in other.page.text


def test_without_a_token_there_are_no_such_pages(served):
    assert served.person().get("/admin").status_code == 404


@pytest.mark.needs("experiments")
def test_the_report_and_the_audit_of_the_answers_are_shown(admin):
    for name in ("prolific-1", "prolific-2", "prolific-3"):
        person = admin.person()
        person.begin(PROLIFIC_PID=name)
        person.play()
    researcher = opened(admin)
    now = " ".join(researcher.page.text.split())
    assert "<dt>Finished</dt><dd>3</dd>" in now and "<p>Nothing.</p>" in now and "prolific" not in now
    text = researcher.get("/admin/report").text
    for words in ("3 participants arrived and 3 finished; 18 answers count", "adaptive", "random", "Agreement"):
        assert words in text
    assert "prolific" not in text  # people are named by pseudonyms
    for name in ("funnel", "times", "arms"):
        figure = researcher.client.get(f"/admin/figures/{name}.png")
        assert figure.status_code == 200 and figure.content.startswith(b"\x89PNG")
    assert researcher.client.get("/admin/figures/nothing.png").status_code == 404
    [first, *_] = admin.store.participants()
    name = pseudonym(admin.store.secret, first)
    page = researcher.get(f"/admin/participants/{name}")
    assert page.status_code == 200 and "questions are asked again" in page.text
    assert researcher.get("/admin/participants/nobody").status_code == 404
