"""The researcher's pages: closed without the token, and showing the report of the answers."""

from __future__ import annotations

import pytest

from edpbrl_gym.study.export_rows import pseudonym
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


def test_the_pages_are_closed_without_the_token(admin, caplog):
    person = admin.person()
    assert "Token" in person.get("/admin").text and "Participants" not in person.page.text
    for address in ("/admin/figures/funnel.png", "/admin/participants/x"):
        assert person.get(address).status_code == 401
    person.get("/admin")
    assert person.post("/admin", secret="wrong").status_code == 403
    assert "researcher's token" in caplog.text
    assert "Participants" not in person.get("/admin").text
    person.client.cookies.set("edpbrl_admin", "Im9wZW4i.forged.forged")
    assert "Participants" not in person.get("/admin").text


def test_guessing_is_slowed_down(admin):
    person = admin.person()
    codes = [person.client.post("/admin", data={"secret": str(number)}).status_code for number in range(12)]
    assert codes[:10] == [403] * 10 and codes[10:] == [429] * 2


def test_a_cookie_of_another_token_opens_nothing(serve):
    first = opened(serve(TESTED, admin_token=TOKEN))
    other = serve(TESTED, admin_token=TOKEN + "2").person(cookies=dict(first.client.cookies))
    assert "Participants" not in other.get("/admin").text


def test_without_a_token_there_are_no_such_pages(served):
    assert served.person().get("/admin").status_code == 404


def test_before_anybody_came_the_page_says_so(admin):
    assert "Nobody has arrived yet" in opened(admin).page.text


@pytest.mark.needs("experiments")
def test_the_report_and_the_audit_of_the_answers_are_shown(admin):
    for name in ("prolific-1", "prolific-2", "prolific-3"):
        person = admin.person()
        person.begin(PROLIFIC_PID=name)
        person.play()
    researcher = opened(admin)
    text = researcher.page.text
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
