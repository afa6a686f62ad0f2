"""Connections of a judge: a server that drips, floods, nests, redirects and lies ends in one line, in time."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zlib

import pytest

from edpbrl_gym._http.transport import MAX_BYTES
from edpbrl_gym.oracles.judge import Judge, JudgeSettings
from edpbrl_gym.oracles.judge.client import ChatClient
from edpbrl_gym.oracles.judge.settings import EndpointSettings
from tests.helpers.judge_tools import (
    RawServer,
    ask_one,
    completion,
    lines,
    local_judge,
    once,
    questions,
    requests_of,
    scripted,
    settings,
    whole,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
AZURE = "/openai/deployments/my-model"


# -- deadlines ---------------------------------------------------------------------------------------------------------


def drip(before, piece, times=120):
    """Pieces for 4.5 s or more."""

    def pieces():
        yield before
        for _ in range(times):
            time.sleep(0.05)
            yield piece

    pieces.all = len(before) + times * len(piece)
    return pieces


@pytest.mark.parametrize(
    "pieces",
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
def test_a_whole_attempt_ends_within_the_timeout_however_the_server_drips(tmp_path, pieces):
    """The server is left after half a second, long before the last of its pieces."""
    with RawServer(once(pieces)) as server:
        verdict, budget = ask_one(server, tmp_path / "l", timeout=0.5)
        assert verdict.reason == "failed" and verdict.usage.unreported == budget.tokens > 0  # it may have been billed
        assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError" and server.opened == 1
    assert server.sent < pieces.all / 2


def test_a_server_that_reads_slowly_is_left_too(tmp_path):
    """The request is larger than what the network holds, and the server takes a little of it at a time."""
    sips = []

    def sip(peer):
        while not server.stopping and peer.recv(1000):
            sips.append(time.sleep(0.05))
            yield b""

    with RawServer(sip, small_buffer=True) as server:
        verdict, _ = ask_one(server, tmp_path / "l", timeout=0.5, style="x" * 12_000_000)
    assert verdict.reason == "failed" and len(sips) < 100
    assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError"


@pytest.mark.parametrize("proxy", [False, True])
def test_an_attempt_ends_within_the_timeout_where_the_server_is_never_reached(tmp_path, monkeypatch, proxy):
    """A TLS handshake, or a proxy's answer to CONNECT, of which a byte comes now and then: nothing was sent."""
    before = HEAD[:-2] if proxy else b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"
    pieces = drip(before, b"A: b\r\n" if proxy else b"x")
    with RawServer(lambda peer: pieces()) as server:
        host = server.base_url.removeprefix("http://").removesuffix("/v1")
        if proxy:
            use_proxy(monkeypatch, HTTPS_PROXY=f"http://{host}")
        address = "https://judge.invalid/v1" if proxy else f"https://{host}/v1"
        verdict, budget = ask_one(server, tmp_path / "l", timeout=0.5, base_url=address)
    assert verdict.reason == "failed" and budget.tokens == 0 == verdict.usage.total
    assert lines(tmp_path / "l", "failed")[0]["status"] == "TimeoutError" and 0 < server.sent < pieces.all / 2


# -- connections -------------------------------------------------------------------------------------------------------


def chunked(label, size=10_000):
    """An answer in chunks."""
    body = json.dumps(completion(f'{{"preference": "{label}"}}')).encode()
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def says(label):
    return whole(completion(f'{{"preference": "{label}"}}'))


@pytest.mark.parametrize(
    ("answer", "opened"),
    [
        (says("B"), 1),
        (says("B") + says("A"), None),
        (whole(gzip.compress(json.dumps(completion(model="m" * 1_000_000)).encode()), b"Content-Encoding: gzip"), 1),
        (chunked("B"), 1),
        (chunked("B", 20), 1),
        (chunked("B") + chunked("A"), 5),
        (chunked("B") + b"x", 5),
    ],
)
def test_connections_are_kept_and_what_comes_behind_an_answer_answers_no_later_question(tmp_path, answer, opened):
    """Also what comes in the same packet."""

    def play(peer):
        for _ in requests_of(peer):
            yield answer

    with RawServer(play) as server, Judge(settings(server, concurrency=1), ledger=tmp_path / "l") as judge:
        judge.ask(questions(5))
        assert opened in (None, server.opened)
    told = [json.loads(line["text"])["preference"] for line in lines(tmp_path / "l", "answer")]
    assert told == ["B"] * 5 and all(len(line["model"]) <= 200 for line in lines(tmp_path / "l", "answer"))


@pytest.mark.parametrize("how", ["reset", "end", "unannounced"])
def test_a_kept_connection_that_dies_under_a_question_is_replaced_and_counts_as_one_attempt(tmp_path, how):
    """It is closed when the second request has come, before it is read, or right behind the answer."""

    def play(peer):
        received = requests_of(peer)
        next(received)
        yield says("B")
        if how == "reset":
            peer.recv(1)  # the rest is not read, so the system answers with a reset
        elif how == "end":
            next(received, None)

    with RawServer(play) as server:
        with Judge(settings(server, max_retries=0, concurrency=1), ledger=tmp_path / "l") as judge:
            for number in range(4):
                (verdict,) = judge.ask(questions(1, start=number))
                assert (verdict.reason, verdict.retries, verdict.usage.unreported) == ("answered", 0, 0)
                time.sleep(0.1 * (how == "unannounced"))
            assert judge.budget.questions == 4 == len(lines(tmp_path / "l", "sent")) == server.opened
            assert judge.budget.tokens == 4 * 49


@pytest.mark.parametrize("status", [301, 302, 307])
def test_redirects_are_not_followed_and_end_the_run_in_one_line(tmp_path, status):
    with local_judge() as other:
        place = b"Location: " + other.base_url.encode() + b"/chat/completions\r\n"
        answer = b"HTTP/1.1 %d Elsewhere\r\n%sContent-Length: 0\r\n\r\n" % (status, place)
        with RawServer(once([answer])) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match=rf"redirects elsewhere \({status}\).*no other address") as told:
                judge.ask(questions(30))
            assert "\n" not in str(told.value) and (judge.budget.questions, judge.budget.tokens) == (0, 0)
        assert other.requests == 0 and server.opened == 1


# -- answers that are none ---------------------------------------------------------------------------------------------


def bomb(size):
    packing = zlib.compressobj(9, wbits=31)
    return b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(size >> 20)), packing.flush()])


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FLOOD = [b" " * (1 << 20)] * 50


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([whole(b"[" * 200_000)], "no JSON"),
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
)
def test_hostile_answers_fail_in_one_short_line_without_taking_memory(tmp_path, pieces, status):
    with RawServer(once(pieces)) as server:
        tracemalloc.start()
        try:
            verdict, _ = ask_one(server, tmp_path / "l")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    (line,) = lines(tmp_path / "l", "failed")
    assert verdict.reason == "failed" and verdict.usage.unreported > 0 and peak < 40e6
    assert status in line["status"] and len(line["status"]) < 120
    assert "canary" not in (tmp_path / "l").read_text()


@pytest.mark.parametrize("count", [True, -1, 1.5, "40", None, 2**31, [1]])
def test_what_is_no_count_of_tokens_is_not_taken_for_one(tmp_path, count):
    usage = {"prompt_tokens": count, "completion_tokens": 2}
    with RawServer(once([whole(completion(usage=usage))])) as server:
        verdict, _ = ask_one(server, tmp_path / "l")
    assert verdict.reason == "answered" and verdict.usage.unreported == verdict.usage.total > 500


# -- addresses and keys ------------------------------------------------------------------------------------------------


def without_parameters(request, handler):
    handler.path = handler.path.partition("?")[0]  # as the local server reads it


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{AZURE}?api-version=2024-10-21", f"{AZURE}/chat/completions?api-version=2024-10-21"),
        (f"{AZURE}/chat/completions?api-version=2024-10-21", f"{AZURE}/chat/completions?api-version=2024-10-21"),
        (f"{AZURE}/?api-version=2024-12-01-preview", f"{AZURE}/chat/completions?api-version=2024-12-01-preview"),
        ("/v1?deployment=gpt-2024-07-18&user=a%2Fb", "/v1/chat/completions?deployment=gpt-2024-07-18&user=a%2Fb"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/my models/v1/", "/my%20models/v1/chat/completions"),
    ],
)
def test_parameters_of_an_address_go_with_every_request(tmp_path, path, expected):
    with scripted(without_parameters) as server:
        chosen = settings(server, base_url=server.base_url.removesuffix("/v1") + path)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(3))} == {"answered"}
        assert {seen[0] for seen in server.seen} == {expected} and len(server.seen) == 3


@pytest.mark.parametrize(
    ("query", "named"),
    [
        *((f"{name}=canary", f"the parameter {name!r}") for name in (
            "key", "api_key", "apikey", "api-key", "apiKey", "x-api-key", "subscription-key", "token",
            "access_token", "sig", "X-Amz-Signature", "X-Amz-Credential", "code", "client_secret", "pwd", "auth",
            "jwt", "Ocp-Apim-Subscription-Key", "session",
        )),
        ("api-version=2024-10-21&key=canary", "the parameter 'key'"),
        ("a=1;key=canary", "the parameter 'key'"),
        ("%6bey=canary", "the parameter 'key'"),
        ("key", "the parameter 'key'"),
        ("v=sk-canary", "the parameter 'v' with a value that looks like a key"),
        ("v=canary0123456789abcdef", "the parameter 'v' with a value that looks like a key"),
        ("sk-canary", "one that looks like a key itself"),
    ],
)  # fmt: skip
def test_a_parameter_that_looks_like_a_key_is_refused(query, named):
    """Others are taken, also those whose names or values are nearly such."""
    for other in ("monkeys=1", "decode=1", "model=my-task-model", "tenant=123e4567-e89b-12d3-a456-426614174000"):
        assert EndpointSettings(base_url=f"https://host/v1?{other}").address == f"https://host/v1?{other}"
    with pytest.raises(ValueError, match="Expected base_url without a key among its parameters") as caught:
        EndpointSettings(base_url=f"https://host/v1?{query}")
    told = str(caught.value)
    assert f"got {named}; put the key into an environment variable" in told and "canary" not in told


KEYS = {"OPENAI_API_KEY": "sk-openai", "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1", "OTHER": " sk-other\n"}


@pytest.mark.parametrize(
    ("path", "variable", "expected"),
    [
        ("/v1", None, {}),
        ("/v1?a=b", "OTHER", {"authorization": "Bearer sk-other"}),
        ("/azure?api-version=2024-10-21", "OTHER", {"authorization": "Bearer sk-other", "api-key": "sk-other"}),
        ("/v1", "OPENAI_API_KEY", {"authorization": "Bearer sk-openai", "openai-organization": "org-1",
                                   "openai-project": "proj-1"}),
    ],
)  # fmt: skip
def test_a_server_gets_only_the_key_whose_variable_is_named(tmp_path, monkeypatch, path, variable, expected):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)

    with scripted(without_parameters) as server:
        address = server.base_url.removesuffix("/v1") + path
        verdict, _ = ask_one(server, tmp_path / "l", base_url=address, api_key_variable=variable)
        (headers,) = [headers for _, headers, _ in server.seen]
    assert verdict.reason == "answered"
    assert {name: value for name, value in headers.items() if name.startswith(("auth", "openai", "api"))} == expected
    assert "sk-" not in (tmp_path / "l").read_text()


def test_keys_that_are_missing_or_none_are_explained_without_showing_them(monkeypatch):
    chosen = JudgeSettings(model="m", style="s", base_url="https://judge.example/v1", api_key_variable="JUDGE_KEY")
    for value, message in (
        ("", "Expected the key of the endpoint in the environment variable JUDGE_KEY, got none"),
        ("sk-a\nX-Header: b", "can have in the environment variable JUDGE_KEY"),
        ("sk-\u2026", "can have"),
    ):
        monkeypatch.setenv("JUDGE_KEY", value)
        with pytest.raises(ValueError, match=message) as told:
            ChatClient(chosen)
        assert "sk-" not in str(told.value)


def test_questions_without_encryption_to_other_machines_warn(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-canary")
    named = {"model": "m", "style": "s"}
    for url in ("http://192.0.2.1/v1", "HTTP://192.0.2.1/v1", " http://192.0.2.1/v1\n", "ht\ttp://192.0.2.1/v1"):
        with pytest.warns(UserWarning, match="the key in JUDGE_KEY go to http://192.0.2.1/v1 without enc") as on:
            ChatClient(JudgeSettings(base_url=url, api_key_variable="JUDGE_KEY", **named))
        assert "canary" not in str(on[0].message)
    with pytest.warns(UserWarning, match="Questions go to http://judge.example:8000/v1 without encryption"):
        ChatClient(JudgeSettings(base_url="http://judge.example:8000/v1", **named))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for url in ("http://localhost:1/v1", "http://127.0.0.3:1/v1", "http://[::1]:1/v1", "https://judge.example/v1"):
            ChatClient(JudgeSettings(base_url=url, **named))


# -- encryption and proxies --------------------------------------------------------------------------------------------


def use_proxy(monkeypatch, **variables):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def tunnel(listener, address, asked):
    """A proxy that connects one client to an address."""

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    peer, _ = listener.accept()
    while b"\r\n\r\n" not in (head := peer.recv(4096, socket.MSG_PEEK)):
        pass
    asked += peer.recv(len(head)).split(b"\r\n")
    peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    other = socket.create_connection(address)
    threading.Thread(target=pump, args=(other, peer), daemon=True).start()
    pump(peer, other)


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
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = server._server.server_address
            threading.Thread(target=tunnel, args=(listener, address, asked), daemon=True).start()
            use_proxy(monkeypatch, HTTPS_PROXY=f"http://me:pw%20d@127.0.0.1:{listener.getsockname()[1]}")
            verdict, _ = ask_one(server, tmp_path / "p", base_url="https://judge.invalid/v1")
        assert verdict.reason == "answered" and asked[0] == b"CONNECT judge.invalid:443 HTTP/1.1"
        assert b"Proxy-Authorization: Basic bWU6cHcgZA==" in asked
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(ValueError, match="an http proxy .* got one of the kind 'socks5'"):
        ChatClient(JudgeSettings(model="m", style="s", base_url="https://judge.invalid/v1"))


@pytest.mark.filterwarnings("ignore:Questions go to")
def test_a_proxy_is_asked_for_plain_http_but_never_between_this_machine_and_itself(tmp_path, monkeypatch):
    with local_judge() as server:
        use_proxy(monkeypatch, http_proxy=server.base_url.removesuffix("/v1"))
        assert ask_one(server, tmp_path / "l", base_url="http://judge.invalid/v1")[0].reason == "answered"
        use_proxy(monkeypatch, http_proxy="http://127.0.0.1:9", ALL_PROXY="http://127.0.0.1:9")
        assert ask_one(server, tmp_path / "m")[0].reason == "answered"


# -- the HTTP client ---------------------------------------------------------------------------------------------------


def test_other_users_of_the_http_client_keep_their_logs(tmp_path, caplog):
    import httpx2

    caplog.set_level(logging.DEBUG)
    with local_judge() as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        judge.ask(questions(3))
        assert not [one for one in caplog.records if one.name.startswith("http")]
        httpx2.post(server.base_url + "/nowhere", json={}, trust_env=False)
        assert [one for one in caplog.records if one.name == "httpcore2.http11"]


WITHOUT = """
import sys
sys.modules["httpx2"] = None  # as if it were not installed
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "httpx2" else find(name, *more)
import edpbrl_gym as eg
settings = eg.JudgeSettings(model="m", style="s", base_url="http://127.0.0.1:9/v1", show="texts")
try:
    eg.Judge(settings, ledger=sys.argv[1])
except ModuleNotFoundError as error:
    print(error)
"""


def test_without_the_extra_a_judge_names_it_before_any_work_and_settings_work(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "l")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == (
        "Expected the package 'httpx2' for a language model as judge, got no such package; run: pip install "
        '"edpbrl-gym[judge]"'
    )
    assert not (tmp_path / "l").exists()
