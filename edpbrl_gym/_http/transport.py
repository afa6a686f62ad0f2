"""Requests to one server: httpx2's transport, with one deadline for a whole attempt and a limit on its bytes.

httpx2 limits the time of one read or write, not of an attempt; takes what a server sends behind an answer for the
answer to the next request; and logs the headers of a server. A network backend under its connections sees every byte
and mends the first two, a filter on its loggers the third. Only the transport is used, not the client above it: it
follows no redirect, keeps no cookie and reads no .netrc.
"""

from __future__ import annotations

import gzip
import io
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

__all__ = ["MAX_BYTES", "HttpAnswer", "NoAnswerError", "Poster", "is_loopback", "is_private"]

MAX_BYTES = 4_000_000  # of an answer, before and after decompression, where nothing else is said
_CHUNK = 1 << 16
_MAX_HEADERS = 100
_LONGEST_IDLE = 60.0  # seconds; connections that are older are likely to be forgotten by a firewall on the way


class NoAnswerError(Exception):
    """No complete answer arrived."""

    def __init__(self, status: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(status)
        self.status = status  # short description of the error, without any text of the server
        self.sent = sent  # whether the request may have arrived
        self.final = final  # whether another attempt would fail for the same reason


@dataclass(frozen=True)
class HttpAnswer:
    """A complete answer; without its body if that can't be decompressed or is too large."""

    status: int
    headers: Any
    body: bytes | None


class _TooLargeError(Exception):
    """The answer exceeds the size limit."""


@dataclass
class _Attempt:
    """What is known of the attempt that this thread makes."""

    deadline: float  # its end, by ``time.monotonic``
    before_sending: Callable[[], None]  # callback before the first sending
    most: int = MAX_BYTES  # bytes of an answer
    begun: bool = False  # whether sending has begun
    abandoned: BaseException | None = None  # what ``before_sending`` raised
    uses: int = 0  # number of requests on the connection, with this one
    received: int = 0  # number of bytes received
    start: bytearray = field(default_factory=bytearray)  # the first of them
    length: int | None = None  # length of the answer with its head, once its Content-Length has come
    ended: bool = False  # whether the server closed the connection

    def seconds_left(self) -> float:
        """Seconds to the deadline."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def send(self, uses: int) -> None:
        """Begin to send the request; repeated on another connection, it is the same attempt."""
        self.uses, self.received, self.length, self.ended = uses, 0, None, False
        self.start.clear()
        if self.begun:
            return
        try:
            self.before_sending()
        except BaseException as error:
            self.abandoned = error
            raise
        self.begun = True

    def take(self, data: bytes) -> int:
        """Count bytes of the server; return how many of them came behind the answer, as far as that is known."""
        self.received += len(data)
        self.ended = not data
        if len(self.start) <= _CHUNK:
            self.start += data
        if self.length is None:
            self.length = _length(self.start)
        if self.received > self.most + _CHUNK:  # including the head
            raise _TooLargeError
        return 0 if self.length is None else max(0, self.received - self.length)

    def violation(self) -> str:
        """What is wrong with an answer that breaks the protocol, in the words of ``http.client``."""
        if not self.received:
            return "RemoteDisconnected"
        if not self.start.startswith(b"HTTP/"):
            return "BadStatusLine"
        return "LineTooLong" if b"\n" not in self.start[:_CHUNK] else "HTTPException"


def _length(start: bytes | bytearray) -> int | None:
    """Length of an answer with its head; None if its end is not known or not told by Content-Length."""
    place = 0
    while (end := start.find(b"\r\n\r\n", place)) >= 0:
        head = bytes(start[place : end + 2]).lower()
        place = end + 4
        if head.startswith(b"http/1.1 1"):  # 100 Continue and the like: the answer is still to come
            continue
        told = re.search(rb"\ncontent-length: *(\d{1,10}) *\r", head)
        return None if told is None or b"\ntransfer-encoding" in head else place + int(told[1])
    return None


_this_thread = threading.local()


def _attempt() -> _Attempt:
    attempt: _Attempt = _this_thread.attempt
    return attempt


def _is_loggable(record: logging.LogRecord) -> bool:
    """Whether a record of httpcore2 is not about our requests."""
    return getattr(_this_thread, "attempt", None) is None


for _name in ("connection", "http11", "proxy"):
    logging.getLogger(f"httpcore2.{_name}").addFilter(_is_loggable)


class _Stream(httpcore2.NetworkStream):
    """A connection on which each operation ends at the deadline of the attempt.

    What comes behind an answer is dropped where the head of the answer tells its length. Elsewhere the last byte is
    held back until more is wanted: if it is still there when the answer is complete, the connection counts as readable,
    as one that the server has closed, and is not used again.
    """

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self._held = b""
        self._uses = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            return data
        attempt = _attempt()
        data = self._stream.read(max_bytes, attempt.seconds_left())
        surplus = attempt.take(data)
        data = data[: len(data) - surplus]
        if attempt.length is None and len(data) > 1:
            data, self._held = data[:-1], data[-1:]
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        attempt = _attempt()
        if buffer.startswith((b"POST ", b"GET ")):
            self._uses += 1
            attempt.send(self._uses)
        for start in range(0, len(buffer), _CHUNK):
            self._stream.write(buffer[start : start + _CHUNK], attempt.seconds_left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _attempt().seconds_left()))

    def get_extra_info(self, info: str) -> Any:
        return (info == "is_readable" and bool(self._held)) or self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


class _Network(httpcore2.SyncBackend):
    """Connections within the deadline of the attempt."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        addresses = list(
            dict.fromkeys(found[4][0] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        )
        while True:
            seconds = _attempt().seconds_left() / len(addresses)
            address = str(addresses.pop(0))
            try:
                return _Stream(super().connect_tcp(address, port, seconds, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if not addresses:
                    raise


class _Transport(httpx2.HTTPTransport):
    """httpx2's transport over connections of ours, for which it has no argument itself."""

    def __init__(self, proxy: httpcore2.Proxy | None, is_encrypted: bool) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context() if is_encrypted else None,
            proxy=proxy,
            max_connections=None,
            keepalive_expiry=_LONGEST_IDLE,
            network_backend=_Network(),
        )


class Poster:
    """Posts to one address, and gets what is on the same server.

    Proxies of the environment (HTTPS_PROXY, NO_PROXY, ...) are used, but never between this machine and itself. The
    timeout, in seconds, is that of a whole attempt; only the time of a name lookup is up to the system. An answer has
    at most ``most`` bytes.

    Raises:
        ValueError: The address has no usable host, or the proxy is not an http proxy.
    """

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float, most: int = MAX_BYTES) -> None:
        try:
            self._url = httpx2.URL(address)
        except httpx2.InvalidURL:
            host = urlsplit(address).hostname
            raise ValueError(f"Expected an address with the name of a host, got the name {host!r}") from None
        self.timeout, self.most = timeout, most
        self._headers = {"Accept-Encoding": "identity", **headers}
        self._transport = _Transport(_proxy(address), self._url.scheme == "https")

    def get(self, path: str) -> HttpAnswer:
        """Read what is at a path, with its parameters, of the same server; raises as ``post``."""
        url = self._url.join(path)
        return self._send(httpx2.Request("GET", url, headers=self._headers), lambda: None)

    def post(
        self,
        body: bytes,
        before_sending: Callable[[], None],
        headers: Mapping[str, str] = MappingProxyType({}),
        path: str | None = None,
    ) -> HttpAnswer:
        """Post a body, to another ``path`` of the same server if one is given, and read the whole answer.

        A kept connection that turns out to be closed before a byte of the answer has come is replaced within the same
        attempt. ``before_sending`` is called when the server has been reached.

        Raises:
            NoAnswerError: The server could not be reached, or no complete answer arrived in time.
        """
        headers = {"Content-Type": "application/json", **self._headers, **headers}
        url = self._url if path is None else self._url.join(path)
        return self._send(httpx2.Request("POST", url, headers=headers, content=body), before_sending)

    def _send(self, request: httpx2.Request, before_sending: Callable[[], None]) -> HttpAnswer:
        attempt = _this_thread.attempt = _Attempt(time.monotonic() + self.timeout, before_sending, self.most)
        try:
            while True:
                try:
                    return self._exchange(request, attempt)
                except (httpx2.NetworkError, httpx2.RemoteProtocolError):
                    if attempt.uses < 2 or attempt.received:
                        raise
        except (httpx2.HTTPError, OSError) as error:
            if attempt.abandoned is not None:
                raise
            raise _no_answer(error, attempt) from None
        finally:
            _this_thread.attempt = None

    def _exchange(self, request: httpx2.Request, attempt: _Attempt) -> HttpAnswer:
        response = None
        try:
            response = self._transport.handle_request(request)
            if len(response.headers.raw) > _MAX_HEADERS or attempt.violation() == "LineTooLong":
                raise NoAnswerError(attempt.violation(), sent=True)
            raw = bytearray()
            for piece in response.iter_raw():
                raw += piece
                if len(raw) > self.most:
                    raise _TooLargeError
            encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
            return HttpAnswer(response.status_code, response.headers, _unpack(bytes(raw), encoding, self.most))
        except _TooLargeError:
            return HttpAnswer(200 if response is None else response.status_code, httpx2.Headers(), None)
        except httpx2.RemoteProtocolError:
            is_larger = response is None and len(attempt.start) > _CHUNK and b"\n" in attempt.start
            is_garbled = response is not None and not attempt.ended
            if not (is_larger or is_garbled):
                raise
            return HttpAnswer(200 if response is None else response.status_code, httpx2.Headers(), None)
        finally:
            if response is not None:
                response.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_private(address: str) -> bool:
    """Whether an address is a number of this machine or of its networks, or names this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


def _no_answer(error: Exception, attempt: _Attempt) -> NoAnswerError:
    """The error for an attempt, without any text of the server."""
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return NoAnswerError("TimeoutError", sent=attempt.begun)
    if isinstance(error, httpx2.RemoteProtocolError):
        return NoAnswerError(attempt.violation(), sent=attempt.begun)
    origin: BaseException = error  # of the system, which httpcore2 keeps as the only argument of its own
    while origin.__cause__ is not None or (origin.args and isinstance(origin.args[0], BaseException)):
        origin = origin.__cause__ or origin.args[0]
    if isinstance(origin, ssl.SSLCertVerificationError):
        return NoAnswerError("a certificate that is not trusted", sent=False, final=True)
    return NoAnswerError(type(origin).__name__, sent=attempt.begun)


def _unpack(body: bytes, encoding: str, most: int) -> bytes | None:
    """The decompressed body; None if it is too large, broken, or has an encoding that nobody asked for."""
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "x-gzip"):
        return None
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            plain = packed.read(most + 1)
    except (OSError, EOFError, zlib.error):
        return None
    return plain if len(plain) <= most else None


def _proxy(address: str) -> httpcore2.Proxy | None:
    url, proxies = urlsplit(address), getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or is_loopback(address) or proxy_bypass(url.hostname or ""):
        return None
    proxy = httpx2.URL(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.host:
        raise ValueError(
            f"Expected an http proxy in the environment ({url.scheme.upper()}_PROXY or ALL_PROXY), got one of the "
            f"kind {proxy.scheme!r}; name another, or except {url.hostname} by NO_PROXY"
        )
    auth = (proxy.username.encode(), proxy.password.encode()) if proxy.userinfo else None
    return httpcore2.Proxy(httpcore2.URL(scheme=b"http", host=proxy.raw_host, port=proxy.port, target=b"/"), auth)
