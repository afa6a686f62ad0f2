"""Attacks on the pages of a study: each is refused and logged, and changes nothing."""

from __future__ import annotations

import itertools
import json
import time
import types
from html.parser import HTMLParser

import pytest

from edpbrl_gym.study.web import guards
from edpbrl_gym.study.web.site import COOKIE
from tests.helpers.studies import CHECKED, SMALL
from tests.helpers.study_attacks import answer_of, cookie_of, refused
from tests.helpers.study_server import dump

SQL = (
    "'; DROP TABLE answers; --",
    "' OR '1'='1",
    "1); DELETE FROM participants; --",
    '" UNION SELECT value FROM facts',
)
ODD = ("\x00", "a\r\nSet-Cookie: x=1", "\ud7ff\uffff", "x" * 5000, "%00%ff", "-1", "1e9", "٣", "../../etc/passwd", "")


@pytest.fixture
def person(served):
    """A participant who looks at the first question."""
    one = served.person()
    one.begin(PROLIFIC_PID="p1")
    return one


@pytest.fixture
def unhurried(monkeypatch):
    """A clock by which nobody is too fast."""
    ticks = itertools.count(int(time.monotonic()) + 1000, 10)
    monkeypatch.setattr(guards, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))


# forged participants


def forge_bytes(cookie, served, other):
    signed, _, signature = cookie.rpartition(".")  # not its last character, two bits of which say nothing
    return f"{signed}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"


def forge_code(cookie, served, other):
    payload, _, signature = cookie.rpartition(".")
    return f'["{other.store.participants()[0].code}",true].{signature}' if payload else ""


def entry_of(served):
    stranger = served.person()
    stranger.get("/")
    return stranger.form("/consent")["fields"]["entry"]


FORGERIES = {
    "a changed signature": forge_bytes,
    "another participant under an old signature": forge_code,
    "no signature": lambda cookie, served, other: cookie.rpartition(".")[0],
    "plain JSON": lambda cookie, served, other: json.dumps([served.store.participants()[0].code, True]),
    "the code alone": lambda cookie, served, other: served.store.participants()[0].code,
    "a cookie of another study": lambda cookie, served, other: other.cookie,
    "nothing": lambda cookie, served, other: "",
    "what the study signed for something else": lambda cookie, served, other: entry_of(served),
    "four kilobytes": lambda cookie, served, other: "." * 4096,
    "bytes that are no text": lambda cookie, served, other: b"\xff\xfe\x80".decode("latin-1"),
}


def test_a_forged_participant_is_refused(serve, served, person, caplog, unhurried):
    other = serve()
    elsewhere = other.person()
    elsewhere.begin(PROLIFIC_PID="p1")
    other.cookie = cookie_of(elsewhere)
    for what, forgery in FORGERIES.items():
        forged = f"{COOKIE}={forgery(cookie_of(person), served, other)}".encode("latin-1")
        stranger = served.person(headers={"cookie": forged})
        with refused(served, caplog, count=6):
            for address in ("/question", "/instructions", "/end"):
                assert stranger.get(address).status_code == 403, what
            for address in ("/answer", "/undo", "/withdraw"):
                assert stranger.client.post(address, data=answer_of(person)).status_code == 403, what
        assert stranger.get("/").status_code == 200 and COOKIE in stranger.page.headers["set-cookie"]
    assert person.get("/question").status_code == 200


# posts that a page of the participant did not send


def test_a_post_with_what_belongs_to_another_participant_is_refused(served, person, caplog):
    other = served.begin(PROLIFIC_PID="p2")
    mine, theirs = answer_of(person), answer_of(other)
    with refused(served, caplog, count=4):
        for fields in (
            {**mine, "key": theirs["key"]},
            {**mine, "token": theirs["token"]},
            theirs,
            {**mine, "key": "made-up"},
        ):
            assert person.client.post("/answer", data=fields).status_code == 403
    with refused(served, caplog, count=0):
        page = person.client.post("/undo", data={**mine, "undo_key": theirs["key"]})
        assert "nothing to undo" in page.text


ELSEWHERE = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://study.test.evil.example"},
    {"origin": "http://study.test@evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://study.test"},
]


def test_a_post_from_a_page_of_another_site_is_refused(served, person, caplog, unhurried):
    stranger = served.person()
    stranger.get("/")
    fields = {**stranger.form("/consent")["fields"], "agree": "yes"}
    for headers in ELSEWHERE:
        with refused(served, caplog, count=4):
            for address in ("/answer", "/undo", "/withdraw"):
                assert person.client.post(address, data=answer_of(person), headers=headers).status_code == 403
            assert stranger.client.post("/consent", data=fields, headers=headers).status_code == 403
    own = {"origin": "http://study.test", "sec-fetch-site": "same-origin"}
    key = person.key
    assert person.post("/answer", headers=own, best=0).status_code == 200 and person.key != key


def test_a_post_without_the_token_of_its_visitor_is_refused(served, person, caplog, unhurried):
    stranger = served.person()
    stranger.get("/")
    good = answer_of(person)
    other = stranger.form("/consent")["fields"]["token"]
    tokens = ("", good["token"].upper(), good["token"][:-1], good["token"] + "0", "\x00", "é", other)
    with refused(served, caplog, count=3 * len(tokens) + 2):
        fields = {**stranger.form("/consent")["fields"], "agree": "yes", "entry": cookie_of(person)}
        assert stranger.client.post("/consent", data=fields).status_code == 403
        for token, address in itertools.product(tokens, ("/answer", "/undo", "/withdraw")):
            assert person.client.post(address, data={**good, "token": token}).status_code == 403
        assert person.client.post("/answer", json=good).status_code == 403


# script in what is shown


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def check(self):
        """No code, and no element that only an injected text could have made."""
        for tag, attributes in self.found:
            assert tag not in ("img", "b", "iframe", "object", "style", "base"), (tag, attributes)
            assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
            if tag == "script":
                assert attributes["src"].startswith("/static/"), attributes
            for value in attributes.values():
                assert not (value or "").strip().lower().startswith(("javascript:", "data:")), attributes


MARKUP = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><b>&amp;",
    "{{ 7 * 7 }} javascript:alert(1)",
)


def test_script_in_prompts_and_texts_is_shown_as_text(serve):
    text = CHECKED.replace('text = "What?"', f"text = '''{MARKUP[0]}'''").replace("A small study", "<b>Study</b>")
    served = serve(text, tokens={"2-ambient": MARKUP}, consent=MARKUP[1])
    person = served.person()
    pages, seen = [person.get("/").text], ""
    person.post("/consent", agree="yes")
    pages.append(person.page.text)
    person.post("/page", **{"q-what": 1})
    for _ in range(10):
        pages.append(person.page.text)
        person.post("/answer", best=0)
    assert person.at == "/end"
    for page in [*pages, person.page.text, person.get("/nowhere").text]:
        elements = Elements(page)
        elements.check()
        seen += elements.text
    assert all(one in seen for one in (*MARKUP, "<b>Study</b>"))  # as text


def test_script_and_headers_in_parameters_go_nowhere(served, person, unhurried):
    stranger = served.person()
    for value in (*MARKUP, *SQL, *ODD):
        for name in ("lang", "PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "participant", "notice", "other", value[:50]):
            for one, address in ((stranger, "/"), (person, "/question"), (person, "/instructions")):
                page = one.client.get(address, params={name: value})
                is_refused = address == "/" and name != "lang" and page.status_code == 400
                assert is_refused or page.status_code == 200, (address, name, value)
                Elements(page.text).check()
                assert "49 javascript" not in page.text and "x" not in page.cookies


# SQL and odd values


def test_sql_in_an_identifier_is_data(served, unhurried):
    """Fields of the forms: test_fuzz.py."""
    for value in SQL:
        other = served.person()
        other.arrive(PROLIFIC_PID=value)
        assert other.at == "/instructions"
    names = [one.external.get("PROLIFIC_PID") for one in served.store.participants()]
    assert names == [*SQL]  # stored as it was sent


def test_nothing_is_asked_in_formats_or_ways_that_the_study_does_not_have(serve, caplog):
    served = serve(SMALL.replace("options = 3", "options = 3\ncant_tell = false\nundo = false"))
    person = served.begin()
    with refused(served, caplog, count=1):
        assert person.client.post("/answer", data={**answer_of(person), "cant_tell": "1"}).status_code == 400
    first = answer_of(person)["key"]
    person.post("/answer", best=0)
    before = dump(served.store)
    person.client.post("/undo", data={**answer_of(person), "undo_key": first})
    assert dump(served.store) == before
    for best in ("3", "-1", "٣", "1.0", "0x1", "", "9" * 400):
        with refused(served, caplog, count=0):
            page = person.client.post("/answer", data={**answer_of(person), "best": best})
            assert page.url.path == "/question" and "Choose an option" in page.text


# addresses, and ways to present a wrong token of the researchers
PRIVATE = [
    "/admin",
    "/admin/participants/p1",
    "/admin/participants/%27%20OR%201=1",
    "/admin/figures/answers.png",
    "/admin/../../study.db",
    "/study.toml",
    "/study.db",
    "/texts",
]
TOKEN = "the secret of the researchers"
WAYS = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": f"Bearer {TOKEN}"},  # the token opens the pages by their form only
    {"cookie": "edpbrl_admin=x"},
    {"cookie": f"edpbrl_admin={TOKEN}"},
]


def test_what_is_the_researchers_is_nobody_elses(serve, caplog, unhurried):
    served = serve(admin_token=TOKEN)
    person = served.begin(PROLIFIC_PID="prolific-1")
    before = dump(served.store)
    own = {"cookie": f"edpbrl_admin={cookie_of(person)}"}  # signed by this study for something else
    queries = [{}, {"token": TOKEN}, {"secret": "wrong"}]
    for address, headers, query in itertools.product(PRIVATE, [*WAYS, own], queries):
        page = served.person(headers=headers).client.get(address, params=query)
        if address == "/admin":  # the form that asks for the token
            assert page.status_code == 200 and "secret" in page.text
        else:
            assert page.status_code in (401, 404) and caplog.records
        assert "prolific-1" not in page.text and "adaptive" not in page.text
    assert dump(served.store) == before


# a person's pace


def test_requests_faster_than_a_person_are_refused_until_it_slows_down(served, person, caplog, monkeypatch):
    now = [time.monotonic() + 100.0]
    monkeypatch.setattr(guards, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    other = served.begin(PROLIFIC_PID="p2")
    with refused(served, caplog, count=40):
        statuses = [person.client.get("/end", follow_redirects=False).status_code for _ in range(100)]
        assert statuses == [303] * 60 + [429] * 40
    page = person.client.post("/answer", data=answer_of(person))
    assert page.status_code == 429 and int(page.headers["retry-after"]) > 0
    assert other.get("/question").status_code == 200  # another participant does not notice
    now[0] += 5.0
    assert person.get("/question").status_code == 200
    now[0] += 0.05
    statuses = []
    for _ in range(200):  # who never stops gets as much as a person, not nothing
        now[0] += 0.05
        statuses.append(person.client.get("/end", follow_redirects=False).status_code)
    assert statuses[-10:].count(303) == 5
