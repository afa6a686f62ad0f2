"""Attacks byte by byte on the real server; headers of all answers; no address of anybody is kept."""

from __future__ import annotations

import logging
import socket
import time

import pytest
from starlette.testclient import TestClient

from edpbrl_gym.study.web import guards
from edpbrl_gym.study.web.site import COOKIE
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
    b"/static/../../../../../../../../etc/passwd",
    b"/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
    b"/static/..%5capp.py",
    b"/static/study.css%00.png",
    b"/static/" + b"a" * 5000,
    b"/static",
    b"/pictures/../../etc/passwd",
]


def test_files_beside_those_of_the_pages_are_not_served(person, port, caplog):
    for path in TRAVERSALS:
        with refused(person.served, caplog, count=1):
            answer = exchange(port, b"GET " + path + b" HTTP/1.1\r\n" + CLOSE)
            assert status_of(answer) == 404 and b"root:" not in answer and b"import" not in answer, path


BAD = {
    "another host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    "no host": (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: study.test\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 40 + b"\r\n\r\n", (400,)),
    "a header without end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n" + CLOSE, (400, 431)),
    "a web socket": (
        b"GET /question HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + HOST + b"\r\n",
        (403,),
    ),
}


def test_requests_that_no_browser_sends_are_refused(person, port):
    before = dump(person.served.store)
    for what, (request_bytes, statuses) in BAD.items():
        assert status_of(exchange(port, request_bytes, patience=8)) in statuses, what
    assert dump(person.served.store) == before
    assert status_of(exchange(port, b"GET /health HTTP/1.1\r\n" + CLOSE)) == 200


HALF = [
    [],
    [b"GET / HT"],
    [b"GET / HTTP/1.1\r\n" + HOST],
    [b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / HTTP/1.1\r\n" + HOST],
    [b"POST /health HTTP/1.1\r\nContent-Length: 9\r\n" + HOST + b"\r\n", b"a"],  # a body that nobody reads
    [b"GET / HTTP/1.1\r\nContent-Length: 9\r\n" + HOST + b"\r\n", b"a"],
]


def test_a_request_that_does_not_come_to_an_end_is_closed(person, port, monkeypatch):
    monkeypatch.setattr("edpbrl_gym.study.web.server._HEAD_TIME", 0.5)
    for parts in HALF:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.1)
            while connection.recv(65536):  # raises TimeoutError if the server leaves it open
                pass
    assert status_of(exchange(port, b"GET /health HTTP/1.1\r\n" + CLOSE)) == 200


def chunks(size, count):
    return [b"%x\r\n" % size + b"a" * size + b"\r\n" for _ in range(count)]


def test_a_body_is_read_up_to_a_size_also_without_a_length(person, port, caplog):
    head, _ = post(person, length=False, more=b"Transfer-Encoding: chunked\r\n")
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, *chunks(4096, 200))) == 413
    many = f"token={answer_of(person)['token']}&" + "a=&" * 100
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, *post(person, body=many.encode()))) == 400
    head, _ = post(person, length=50_000_000)
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, b"a" * 200_000)) == 413


def test_a_body_that_comes_too_slowly_or_only_in_part_is_refused(person, port, caplog, monkeypatch):
    monkeypatch.setattr(guards, "_BODY_TIME", 0.5)
    head, body = post(person)
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head, *[body[i : i + 1] for i in range(20)], pause=0.05)) == 408
    with refused(person.served, caplog, count=1):
        assert status_of(exchange(port, head)) == 408
    with refused(person.served, caplog, count=1):
        exchange(port, head, body[:-1], patience=0.01)
        time.sleep(0.3)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert status_of(exchange(port, head, body)) == 303


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


BUECHER = "bücher.example"
CODED = "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("url", "names"),
    [
        (f"HTTPS://{BUECHER.upper()}.:443/", [CODED, CODED.upper(), f"{CODED}.", f"{CODED}:443", BUECHER]),
        ("http://[2001:DB8:0::1]:8000", ["[2001:db8::1]:8000", "[2001:DB8::0001]", "[2001:db8:0:0:0:0:0:1]"]),
    ],
)
def test_a_study_is_reached_by_every_form_of_its_name(serve, url, names):
    """Which forms are the same: tests/test_addresses.py."""
    served = serve(public_url=url, hosts=(url.partition("//")[2].rstrip("/"), "localhost"))
    with listening(served.app) as port:
        for name in [*names, "localhost:8000"]:
            host = b"Host: " + name.encode() + b"\r\n"
            answer = exchange(port, b"GET / HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n")
            assert status_of(answer) == 200, name
        for name in ("xn--bcher-kva.evil", "xn--999999", "[2001:db8::2]", "\xff", f"{CODED}@evil.example"):
            host = b"Host: " + name.encode("latin-1") + b"\r\n"
            assert status_of(exchange(port, b"GET / HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n")) == 400, name


@pytest.mark.parametrize(
    ("public", "named", "status"),
    [
        (f"https://{BUECHER}", f"https://{CODED}", 303),
        (f"https://{BUECHER}", "https://xn--bcher-kva.evil", 403),
        ("https://study.example.org", "https://study.example.org:8443", 403),
        ("https://study.example.org", "null", 403),
    ],
)
def test_a_post_comes_from_the_study_if_its_origin_is_the_same_host(serve, public, named, status):
    """Behind a proxy that changes the host of requests, so that the public address alone decides."""
    person = serve(public_url=public).person()
    person.client.base_url = "https://127.0.0.1:8000"  # the cookie may be for TLS only
    person.get("/")
    fields = {**person.form("/consent")["fields"], "agree": "yes"}
    headers = {"origin": named}
    assert person.client.post("/consent", data=fields, headers=headers, follow_redirects=False).status_code == status


@pytest.mark.parametrize(("url", "secure"), [("https://study.test", True), (None, False)])
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
