"""Attacks byte by byte on the real server; headers of all answers; no address of anybody is kept."""

from __future__ import annotations

import logging
import time

import pytest
from starlette.testclient import TestClient

from edpbrl_gym.study.web import guards
from edpbrl_gym.study.web.context import COOKIE
from tests.helpers.study_attacks import answer_of, cookie_of, refused
from tests.helpers.study_server import dump, exchange, listening, status_of

HOST = b"Host: study.test\r\n"
CLOSE = HOST + b"Connection: close\r\n\r\n"


@pytest.fixture
def person(serve):
    """A participant who looks at the first question, of a study served for one name only."""
    served = serve(hosts=("study.test",))
    one = served.person()
    one.served = served
    one.begin(PROLIFIC_PID="p1")
    return one


@pytest.fixture
def port(person):
    """Port of the study's server."""
    with listening(person.served.app) as number:
        yield number


def post(person, address=b"/answer", *, length=None, body=None, more=b""):
    """The bytes of a post of a complete answer."""
    fields = "&".join(f"{name}={value}" for name, value in answer_of(person).items()).encode()
    body = fields if body is None else body
    size = b"" if length is False else b"Content-Length: %d\r\n" % (len(body) if length is None else length)
    cookie = f"Cookie: {COOKIE}={cookie_of(person)}\r\n".encode()
    kind = b"Content-Type: application/x-www-form-urlencoded\r\n"
    head = b"POST " + address + b" HTTP/1.1\r\n" + cookie + kind + size + more + HOST + b"Connection: close\r\n\r\n"
    return head, body


TRAVERSALS = [
    b"/static/../app.py",
    b"/static/../../../../../../../../etc/passwd",
    b"/static/%2e%2e/app.py",
    b"/static/..%2f..%2fconfig.py",
    b"/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
    b"/static//etc/passwd",
    b"/static/%2fetc%2fpasswd",
    b"/static/..\\app.py",
    b"/static/..%5capp.py",
    b"/static/....//app.py",
    b"/static/%00",
    b"/static/study.css%00.png",
    b"/static/%c0%ae%c0%ae/app.py",
    b"/static/%ff%fe",
    b"/static/" + b"a" * 5000,
    b"/static/.",
    b"/static",
    b"/pictures/../../etc/passwd",
    b"//etc/passwd",
    b"/../etc/passwd",
]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_files_beside_those_of_the_pages_are_not_served(person, port, caplog, path):
    with refused(person.served, caplog, count=1):
        answer = exchange(port, b"GET " + path + b" HTTP/1.1\r\n" + CLOSE)
        assert status_of(answer) == 404 and b"root:" not in answer and b"import" not in answer


def test_a_file_of_the_pages_is_served(person, port):
    answer = exchange(port, b"GET /static/study.css HTTP/1.1\r\n" + CLOSE)
    assert status_of(answer) == 200 and b"immutable" in answer


BAD = {
    "another host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    "a host with credentials": (
        b"GET / HTTP/1.1\r\nHost: study.test@evil.example\r\nConnection: close\r\n\r\n",
        (400,),
    ),
    "no host": (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: study.test\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 40 + b"\r\n\r\n", (400,)),
    "a header without end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n" + CLOSE, (400, 431)),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 50_000 + CLOSE, (400, 431)),
    "a bare line feed in a header": (b"GET / HTTP/1.1\r\nX: a\nCookie: b\x00c\r\n" + CLOSE, (400,)),
    "two lengths": (b"POST /answer HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 9\r\n" + CLOSE + b"a=b", (400,)),
    "a negative length": (b"POST /answer HTTP/1.1\r\nContent-Length: -1\r\n" + CLOSE + b"a=b", (400,)),
    "an unknown coding": (b"POST /answer HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + CLOSE + b"a=b", (400, 501)),
    "a broken chunk": (
        b"POST /answer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + CLOSE + b"zz\r\na=b\r\n",
        (400, 408),
    ),
    "a web socket": (
        b"GET /question HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + HOST + b"\r\n",
        (403,),
    ),
}


@pytest.mark.parametrize(("request_bytes", "statuses"), BAD.values(), ids=BAD.keys())
def test_requests_that_no_browser_sends_are_refused(person, port, request_bytes, statuses):
    before = dump(person.served.store)
    assert status_of(exchange(port, request_bytes, patience=8)) in statuses
    assert dump(person.served.store) == before
    assert status_of(exchange(port, b"GET /health HTTP/1.1\r\n" + CLOSE)) == 200


def test_a_second_request_hidden_in_a_first_one_is_not_served(person, port, caplog):
    hidden = b"".join(post(person))
    body = b"0\r\n\r\n" + hidden
    with refused(person.served, caplog):
        smuggled = post(person, b"/undo", body=body, more=b"Transfer-Encoding: chunked\r\n")
        assert exchange(port, *smuggled).count(b"HTTP/1.1 ") == 1


def chunks(size, count):
    return [b"%x\r\n" % size + b"a" * size + b"\r\n" for _ in range(count)]


def test_a_body_is_read_up_to_a_size_also_without_a_length(person, port, caplog):
    head, _ = post(person, length=False, more=b"Transfer-Encoding: chunked\r\n")
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, *chunks(4096, 200))) == 413
    head, _ = post(person, length=50_000_000)
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, b"a" * 200_000)) == 413


def test_a_body_that_comes_too_slowly_or_not_at_all_is_refused(person, port, caplog, monkeypatch):
    monkeypatch.setattr(guards, "_BODY_TIME", 0.5)
    head, body = post(person)
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, *[body[i : i + 1] for i in range(20)], pause=0.05)) == 408
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head)) == 408


def test_a_connection_that_ends_in_a_body_changes_nothing_and_is_no_error(person, port, caplog):
    head, body = post(person)
    with refused(person.served, caplog, count=1):
        exchange(port, head, body[:-1], patience=0.01)
        time.sleep(0.3)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert status_of(exchange(port, head, body)) == 303


def test_parameters_and_cookies_add_no_header(person, port):
    for path in (
        b"/?lang=a%0d%0aX-Injected:1&PROLIFIC_PID=b%0d%0aX-Injected:1",
        b"/%0d%0aX-Injected:1",
        b"/question%0aX",
    ):
        answer = exchange(port, b"GET " + path + b" HTTP/1.1\r\nAccept-Language: de%0d%0aX-Injected:1\r\n" + CLOSE)
        assert b"x-injected" not in answer.partition(b"\r\n\r\n")[0].lower() and status_of(answer) in (200, 404)


# headers of every answer


def assert_safe(answer):
    """The headers of security are there, and nothing may be kept or shown elsewhere."""
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["referrer-policy"] == "same-origin"
    kept = answer.headers["cache-control"]
    assert kept == "no-store" or "/static/" in str(answer.url)
    assert "server" not in answer.headers


def test_every_answer_has_the_headers_of_security(person, monkeypatch):
    served, client = person.served, person.client
    fields = answer_of(person)
    answers = [client.get(path, follow_redirects=False) for path in ("/", "/question", "/end", "/nowhere", "/answer")]
    answers += [client.get("/static/study.css"), client.get("/static/study.js"), client.get("/health")]
    answers += [client.post("/answer", data={}), client.post("/answer", content=b"a" * 99_999)]
    answers += [client.post("/answer", data=fields, follow_redirects=False)]
    answers += [TestClient(served.app, base_url="http://evil.example").get("/")]
    monkeypatch.setattr(served.queue, "next_question", lambda participant: 1 / 0)
    answers.append(client.get("/question"))
    assert [one.status_code for one in answers] == [303, 200, 303, 404, 405, 200, 200, 200, 403, 413, 303, 400, 500]
    for one in answers:
        assert_safe(one)
    assert "ZeroDivision" not in answers[-1].text and "Traceback" not in answers[-1].text
    for page in (one.text for one in answers if "text/html" in one.headers.get("content-type", "")):
        assert "<style" not in page and " style=" not in page and " onclick" not in page


@pytest.mark.parametrize(("url", "secure"), [("https://study.test", True), ("http://study.test", False), (None, False)])
def test_cookies_are_out_of_reach_of_scripts_and_other_sites(serve, url, secure):
    served = serve(public_url=url)
    person = served.person()
    person.client.base_url = url or "http://study.test"
    answers = [person.get("/")]
    fields = {**person.form("/consent")["fields"], "agree": "yes"}
    answers.append(person.client.post("/consent", data=fields, follow_redirects=False))
    for one in answers:
        parts = {part.strip().lower().partition("=")[0] for part in one.headers["set-cookie"].split(";")}
        assert {"httponly", "samesite"} <= parts and "samesite=lax" in one.headers["set-cookie"].lower()
        assert ("secure" in parts) == secure == ("strict-transport-security" in one.headers)


def test_no_address_of_anybody_is_kept(person, port, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    addresses = [b"127.83.61.7", b"203.0.113.99", b"2001:db8::77"]
    forwarded = b"X-Forwarded-For: 203.0.113.99\r\nForwarded: for=203.0.113.99\r\nX-Real-IP: 2001:db8::77\r\n"
    requests = [
        (b"GET /?PROLIFIC_PID=p2 HTTP/1.1\r\n" + forwarded + CLOSE,),
        post(person, more=forwarded),
        post(person, more=forwarded, body=b"token=wrong"),
        post(person, more=forwarded, body=b"a" * 99_999),
        (b"GET /nowhere HTTP/1.1\r\n" + forwarded + CLOSE,),
        (b"no request\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",),
    ]
    statuses = [status_of(exchange(port, *parts, source="127.83.61.7", patience=5)) for parts in requests]
    assert statuses == [200, 303, 403, 413, 404, 400, 400]
    person.served.store.database.empty_log()
    printed = capfd.readouterr()
    kept = [printed.out.encode(), printed.err.encode(), caplog.text.encode()]
    kept += [path.read_bytes() for path in person.served.config.folder.iterdir() if path.is_file()]
    for address in addresses:
        assert not any(address in one for one in kept), address
    assert any(b"p1" in one for one in kept)  # the search finds what is there
