"""A judge's server that drips, floods, nests, redirects and lies: every answer of its ends in one line, in time."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
import warnings
import zlib
from email.message import Message

import pytest

from edpbrl_gym.oracles.judge import Judge, JudgeSettings
from edpbrl_gym.oracles.judge.client import ChatClient, _wait
from edpbrl_gym.oracles.judge.transport import MAX_BYTES, HttpAnswer
from tests.helpers.judge_tools import lines, local_judge, questions, settings

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def completion(content='{"preference": "B"}', **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 40, "completion_tokens": 2}
    return {"id": "1", "model": "m", "choices": [choice], "usage": usage, **more}


def whole(body, *headers):
    """An answer with this body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEAD + b"".join(h + b"\r\n" for h in headers) + b"Content-Length: %d\r\n\r\n" % len(data) + data


class RawServer:
    """Plays the same bytes to everybody who asks; ``sent`` counts them."""

    def __init__(self, play, read=True):
        self.play, self.read, self.sent, self.requests, self.stopping = play, read, 0, 0, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        if not read:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def _accept(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(peer,), daemon=True))
            self._threads[-1].start()

    def _serve(self, peer):
        with peer:
            peer.settimeout(20)
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    byte = peer.recv(1)
                    if not byte:
                        return
                    head += byte
                self.requests += 1
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                while self.read and length > 0:
                    length -= len(peer.recv(length))
                for piece in self.play(peer):
                    peer.sendall(piece)
                    self.sent += len(piece)
            except OSError:
                pass

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def ask_one(server, path, **options):
    """The verdict on one question without retries, and the judge's budget."""
    with Judge(settings(server, **{"max_retries": 0, **options}), ledger=path) as judge:
        return judge.ask(questions(1))[0], judge.budget


def drip(before, piece, times=120):
    """Plays for 4.5 s or more."""

    def play(peer):
        yield before
        for _ in range(times):
            time.sleep(0.05)
            yield piece

    play.all = len(before) + times * len(piece)
    return play


@pytest.mark.parametrize(
    "play",
    [
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(HEAD[:17], b"x"),
        drip(HEAD, b"A: b\r\n", 90),
        drip(HEAD + b"Content-Length: 5000\r\n\r\n", b" "),
        drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        drip(HEAD + b"\r\n", b" "),
    ],
    ids=["continue", "status", "headers", "length", "chunks", "until closed"],
)
def test_a_whole_attempt_ends_within_the_timeout_however_the_server_drips(tmp_path, play):
    """The server is left after half a second, long before the last of its pieces."""
    with RawServer(play) as server:
        verdict, budget = ask_one(server, tmp_path / "l", timeout=0.5)
        assert verdict.reason == "failed" and verdict.usage.unreported == budget.tokens > 0  # it may have been billed
        assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError" and server.requests == 1
    assert server.sent < play.all / 2


def test_a_server_that_reads_slowly_is_left_too(tmp_path):
    """The request is larger than what the network holds, and the server takes a little of it at a time."""
    sips = []

    def sip(peer):
        while not server.stopping and peer.recv(1000):
            sips.append(time.sleep(0.05))
            yield b""

    with RawServer(sip, read=False) as server:
        with Judge(
            settings(server, max_retries=0, timeout=0.5, style="x" * 12_000_000), ledger=tmp_path / "l"
        ) as judge:
            verdict = judge.ask(questions(1))[0]
    assert verdict.reason == "failed" and len(sips) < 100
    assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError"


class TalkingServer(RawServer):
    """Hands the connection to ``play`` as soon as it is open."""

    def _serve(self, peer):
        with peer, contextlib.suppress(OSError):
            peer.settimeout(20)
            for piece in self.play(peer):
                peer.sendall(piece)
                self.sent += len(piece)


@pytest.mark.parametrize("proxy", [False, True])
def test_an_attempt_ends_within_the_timeout_where_the_server_is_never_reached(tmp_path, monkeypatch, proxy):
    """A TLS handshake, or a proxy's answer to CONNECT, of which a byte comes now and then: nothing was sent."""
    play = drip(HEAD[:-2] if proxy else b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03", b"A: b\r\n" if proxy else b"x")
    with TalkingServer(play) as server:
        place = server.base_url.removeprefix("http://").removesuffix("/v1")
        if proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{place}")
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.delenv(name, raising=False)
        address = "https://judge.invalid/v1" if proxy else f"https://{place}/v1"
        verdict, budget = ask_one(server, tmp_path / "l", timeout=0.5, base_url=address)
    assert verdict.reason == "failed" and budget.tokens == 0 == verdict.usage.total
    assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError" and 0 < server.sent < play.all / 2


def requests_of(peer):
    """The bodies of the requests that come over a connection, one after the other."""
    with peer.makefile("rb") as stream:
        head = b""
        while line := stream.readline():
            head += line.lower()
            if line == b"\r\n":
                yield stream.read(int(head.partition(b"content-length: ")[2].split()[0]))
                head = b""


def test_an_answer_that_comes_behind_another_answers_no_later_question(tmp_path):
    """A server that answers the first question twice; the second answer is not taken for one to the next question."""

    def play(peer):
        for number, _ in enumerate(requests_of(peer)):
            said = [whole(completion(f'{{"preference": "{label}"}}')) for label in "ABCD"]
            yield said[1] + said[0] if number == 0 else said[2]

    with TalkingServer(play) as server, Judge(settings(server, concurrency=1), ledger=tmp_path / "l") as judge:
        assert all(verdict.reason == "answered" for verdict in judge.ask(questions(4)))
    told = [json.loads(line["text"])["preference"] for line in lines(tmp_path / "l", "answer")]
    assert "A" not in told and told.count("C") >= 2


def test_a_connection_that_the_server_closed_in_the_meantime_costs_no_attempt(tmp_path):
    with RawServer(lambda peer: [whole(completion())]) as server:  # closes after every answer, unannounced
        with Judge(settings(server, max_retries=0), ledger=tmp_path / "l") as judge:
            for number in range(3):
                assert judge.ask(questions(1, start=number))[0].reason == "answered"
                time.sleep(0.1)
            assert server.requests == judge.budget.questions == 3 and judge.usage.unreported == 0


def test_connections_are_kept(tmp_path):
    opened = []

    def play(peer):
        opened.append(peer)
        for _ in requests_of(peer):
            yield whole(completion())

    with TalkingServer(play) as server, Judge(settings(server, concurrency=1), ledger=tmp_path / "l") as judge:
        assert all(verdict.reason == "answered" for verdict in judge.ask(questions(5))) and len(opened) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_and_end_the_run_in_one_line(tmp_path, status):
    with local_judge() as other:
        place = b"Location: " + other.base_url.encode() + b"/chat/completions\r\n"
        with RawServer(
            lambda peer: [b"HTTP/1.1 %d Elsewhere\r\n%sContent-Length: 0\r\n\r\n" % (status, place)]
        ) as server:
            with Judge(settings(server), ledger=tmp_path / "l") as judge:
                with pytest.raises(
                    ConnectionError, match=rf"redirects elsewhere \({status}\).*no other address"
                ) as told:
                    judge.ask(questions(30))
                assert "\n" not in str(told.value) and (judge.budget.questions, judge.budget.tokens) == (0, 0)
        assert other.requests == 0 and server.requests == 1


def bomb(size):
    packing = zlib.compressobj(9, wbits=31)
    return b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(size >> 20)), packing.flush()])


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FLOOD = [b" " * (1 << 20)] * 50


@pytest.mark.parametrize(
    ("play", "status"),
    [
        ([whole(b"[" * 200_000)], "no JSON"),
        ([whole(b'{"choices":' + b"[" * 50_000 + b"]" * 50_000 + b"}")], "no JSON"),
        ([whole(b'{"a":' * 100_000)], "no JSON"),
        ([whole(b'{"usage":' + b"9" * 10_000 + b"}")], "no JSON"),
        ([whole(b"\xff\xfe{")], "no JSON"),
        ([whole(bomb(100 << 20), b"Content-Encoding: gzip")], "a body above"),
        ([whole(b"no gzip", b"Content-Encoding: gzip")], "packed in a way"),
        ([whole(gzip.compress(b"{}")[:-9], b"Content-Encoding: gzip")], "packed in a way"),
        ([whole(b"xx", b"Content-Encoding: br")], "packed in a way"),
        ([whole(b" " * (MAX_BYTES + 1))], "a body above"),
        ([HEAD + b"\r\n", *FLOOD], "a body above"),
        ([CHUNKED + b"-1\r\n", *FLOOD], "a body above"),
        ([CHUNKED + b"fffffffff\r\n", *FLOOD], "a body above"),
        ([HEAD, *[b"A: " + b"x" * 60_000 + b"\r\n"] * 90], "a body above"),
        ([HEAD, *[b"A: b\r\n"] * 200, b"\r\n"], "HTTPException"),
        ([b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"], "LineTooLong"),
        ([b"220 mail.example.org canary\r\n"], "BadStatusLine"),
        ([b""], "RemoteDisconnected"),
        ([whole(completion())[:-20]], "HTTPException"),
    ],
)  # fmt: skip
def test_hostile_answers_fail_in_one_short_line_without_taking_memory(tmp_path, play, status):
    with RawServer(lambda peer: play) as server:
        chosen = settings(server, max_retries=0)
        tracemalloc.start()
        try:
            with Judge(chosen, ledger=tmp_path / "l") as judge:
                verdict = judge.ask(questions(1))[0]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    (line,) = lines(tmp_path / "l", "failed")
    assert verdict.reason == "failed" and verdict.usage.unreported > 0 and peak < 40e6
    assert status in line["status"] and len(line["status"]) < 120
    assert "canary" not in (tmp_path / "l").read_text()


@pytest.mark.parametrize("count", [True, -1, 1.5, "40", None, 2**31, 10**30, [1]])
def test_what_is_no_count_of_tokens_is_not_taken_for_one(tmp_path, count):
    usage = {"prompt_tokens": count, "completion_tokens": 2}
    with RawServer(lambda peer: [whole(completion(usage=usage))]) as server:
        verdict, _ = ask_one(server, tmp_path / "l")
    assert verdict.reason == "answered" and verdict.usage.unreported == verdict.usage.total > 500


def test_the_name_of_a_model_is_cut_and_a_packed_answer_is_read(tmp_path):
    body = gzip.compress(json.dumps(completion(model="m" * 1_000_000)).encode())
    with RawServer(lambda peer: [whole(body, b"Content-Encoding: gzip")]) as server:
        verdict, _ = ask_one(server, tmp_path / "l")
    assert verdict.reason == "answered" and verdict.usage.total == 42
    assert lines(tmp_path / "l", "answer")[0]["model"] == "m" * 200


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "3600"}, 120, 120),
        ({"Retry-After": "120.5"}, 120, 120),
        ({"Retry-After": "7"}, 7, 7),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5, 1.5),
        ({"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}, 120, 120),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.3, 0.5),
        ({"Retry-After": "-5"}, 0.3, 0.5),
        ({"Retry-After": "nan"}, 0.3, 0.5),
        ({"Retry-After": "1e999"}, 0.3, 0.5),
        ({"Retry-After": "soon"}, 0.3, 0.5),
        ({}, 0.3, 0.5),
    ],
)
def test_a_long_retry_after_is_cut_at_two_minutes_and_then_tried_again(headers, least, most):
    told = Message()
    for name, value in headers.items():
        told[name] = value
    for status in (408, 409, 429, 500, 503):
        assert least <= _wait(HttpAnswer(status, told, b""), 0) <= most
    assert _wait(HttpAnswer(418, told, b""), 0) is None
    told["x-should-retry"] = "false"
    assert _wait(HttpAnswer(503, told, b""), 0) is None


KEYS = {"OPENAI_API_KEY": "sk-openai", "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1", "OTHER": " sk-other\n"}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, {}),
        ("OTHER", {"Authorization": "Bearer sk-other"}),
        (
            "OPENAI_API_KEY",
            {"Authorization": "Bearer sk-openai", "OpenAI-Organization": "org-1", "OpenAI-Project": "proj-1"},
        ),
    ],
)
def test_a_server_of_ones_own_gets_no_key_unless_its_variable_is_named(tmp_path, monkeypatch, variable, expected):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    seen = []
    with local_judge() as server:
        handler = server._server.RequestHandlerClass
        serve = handler.serve
        handler.serve = lambda self, request: (seen.append(dict(self.headers)), serve(self, request))
        verdict, _ = ask_one(server, tmp_path / "l", api_key_variable=variable)
    assert verdict.reason == "answered"
    assert {name: value for name, value in seen[0].items() if name.startswith(("Auth", "OpenAI"))} == expected
    assert not any(key in json.dumps(seen) for key in KEYS.values() if key.strip() not in str(expected))


def test_keys_that_are_missing_or_none_are_explained_without_showing_them(monkeypatch):
    chosen = JudgeSettings(model="m", style="s", base_url="https://judge.example/v1", api_key_variable="JUDGE_KEY")
    for value, message in (
        ("", "variable JUDGE_KEY, got none"),
        ("sk-a\nX-Header: b", "can have in the environment variable JUDGE_KEY"),
        ("sk-\u2026", "can have"),
    ):
        monkeypatch.setenv("JUDGE_KEY", value)
        with pytest.raises(ValueError, match=message) as told:
            ChatClient(chosen)
        assert "sk-" not in str(told.value)


def test_a_server_that_wants_a_key_gets_none_that_was_not_named(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
    with local_judge(api_key="sk-right") as server:
        with pytest.raises(ConnectionError, match=r"to need no key, it answered 401.*--api-key-variable"):
            ask_one(server, tmp_path / "l")
        assert ask_one(server, tmp_path / "l", api_key_variable="OPENAI_API_KEY")[0].reason == "answered"


def test_questions_without_encryption_to_other_machines_warn(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-canary")
    named = {"model": "m", "style": "s"}
    with pytest.warns(
        UserWarning, match="Questions and the key in JUDGE_KEY go to http://192.0.2.1/v1 without enc"
    ) as on:
        ChatClient(JudgeSettings(base_url="http://192.0.2.1/v1", api_key_variable="JUDGE_KEY", **named))
    assert "canary" not in str(on[0].message)
    for url in ("HTTP://192.0.2.1/v1", "Http://192.0.2.1/v1", " http://192.0.2.1/v1\n", "ht\ttp://192.0.2.1/v1"):
        with pytest.warns(UserWarning, match="the key in JUDGE_KEY go to http://192.0.2.1/v1 without enc"):
            ChatClient(JudgeSettings(base_url=url, api_key_variable="JUDGE_KEY", **named))
    with pytest.warns(UserWarning, match="Questions go to http://judge.example:8000/v1 without encryption"):
        ChatClient(JudgeSettings(base_url="http://judge.example:8000/v1", **named))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for url in ("http://localhost:1/v1", "http://127.0.0.3:1/v1", "http://[::1]:1/v1", "https://judge.example/v1"):
            ChatClient(JudgeSettings(base_url=url, **named))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl to make a certificate")
def test_https_needs_a_trusted_certificate_and_goes_through_a_proxy(tmp_path, monkeypatch):
    subject = ["-subj", "/CN=judge.invalid", "-addext", "subjectAltName=DNS:judge.invalid,IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *made, *subject], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with local_judge() as server:
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        server._server.handle_error = lambda *_: None  # of handshakes that the client ends
        direct = server.base_url.replace("http:", "https:")
        with pytest.raises(ConnectionError, match="certificate that is not trusted.*SSL_CERT_FILE"):
            ask_one(server, tmp_path / "l", base_url=direct)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert ask_one(server, tmp_path / "l", base_url=direct)[0].reason == "answered"

        asked = []

        def tunnel(listener):
            peer, _ = listener.accept()
            while b"\r\n\r\n" not in (head := peer.recv(4096, socket.MSG_PEEK)):
                pass
            asked.append(peer.recv(len(head)).split(b"\r\n"))
            peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            other = socket.create_connection(server._server.server_address)
            back = threading.Thread(target=pump, args=(other, peer), daemon=True)
            back.start()
            pump(peer, other)

        def pump(source, sink):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=tunnel, args=(listener,), daemon=True).start()
            proxy = f"http://me:pw%20d@127.0.0.1:{listener.getsockname()[1]}"
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            verdict, _ = ask_one(server, tmp_path / "p", base_url="https://judge.invalid/v1")
        assert verdict.reason == "answered" and asked[0][0] == b"CONNECT judge.invalid:443 HTTP/1.1"
        assert b"Proxy-Authorization: Basic bWU6cHcgZA==" in asked[0]
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(ValueError, match="an http proxy .* got one of the kind 'socks5'"):
        ChatClient(JudgeSettings(model="m", style="s", base_url="https://judge.invalid/v1"))


@pytest.mark.filterwarnings("ignore:Questions go to")
def test_a_proxy_of_the_environment_is_asked_for_plain_http(tmp_path, monkeypatch):
    with local_judge() as server:
        monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert ask_one(server, tmp_path / "l", base_url="http://judge.invalid/v1")[0].reason == "answered"
