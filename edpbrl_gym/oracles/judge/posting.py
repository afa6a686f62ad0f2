"""The only place that knows HTTP: one POST to one address, over kept connections, with one deadline and a size limit.

Standard library alone: what a server sends may be anything, and every byte of it is read here. httpcore2 2.16
limits a single read or write and not an attempt, logs the headers of a server, and takes what comes behind an answer
for the answer to the next question.
"""

from __future__ import annotations

import base64
import io
import ipaddress
import selectors
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["MOST_BYTES", "NoAnswerError", "Poster", "Posted", "is_loopback"]

MOST_BYTES = 4_000_000  # of an answer, on the wire and unpacked; a verdict has a few thousand
_CHUNK = 1 << 16


class NoAnswerError(Exception):
    """No whole answer came.

    Attributes:
        status: What went wrong, in a few words that hold nothing of the server's.
        sent: Whether the request may have arrived.
        final: Whether it would fail again for the same reason.
    """

    def __init__(self, status: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(status)
        self.status, self.sent, self.final = status, sent, final


@dataclass(frozen=True)
class Posted:
    """A whole answer.

    Attributes:
        status: HTTP status.
        headers: As sent.
        body: Unpacked; None where it can't be unpacked or is too large.
    """

    status: int
    headers: Message
    body: bytes | None


class _TooLargeError(HTTPException):
    """More came than an answer may have."""


class _Bytes(io.RawIOBase):
    """What comes over a connection, until a deadline and up to a number of bytes."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._left = MOST_BYTES + _CHUNK  # with the head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        connection = self._connection
        connection.socket.settimeout(connection.left())
        number = connection.socket.recv_into(buffer)
        self._left -= number
        if self._left < 0:
            raise _TooLargeError
        return number


class _Connection:
    """A socket on which all that is done shares one deadline."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.socket: socket.socket

    def left(self) -> float:
        """Seconds to the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def reach(self, host: str, port: int) -> None:
        """Connect to the first address of a host that answers."""
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, place) in enumerate(places):
            self.socket = socket.socket(family, kind, protocol)
            try:
                self.socket.settimeout(self.left() / (len(places) - number))
                self.socket.connect(place)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except OSError:
                self.socket.close()
                if number == len(places) - 1:
                    raise

    def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on."""
        self.socket.settimeout(self.left())  # of the whole handshake
        self.socket = context.wrap_socket(self.socket, server_hostname=host)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        while rest:
            self.socket.settimeout(self.left())
            rest = rest[self.socket.send(rest[:_CHUNK]) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What ``HTTPResponse`` reads from."""
        return io.BufferedReader(_Bytes(self))

    def answer(self, method: str) -> HTTPResponse:
        """The answer, read up to the end of its head."""
        answer = HTTPResponse(cast(socket.socket, self), method=method)
        answer.begin()
        return answer

    def is_stale(self) -> bool:
        """Whether there is something to read between two requests: the server has hung up, or is out of step."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        self.socket.close()


class Poster:
    """Posts to one address.

    Proxies of the environment (HTTPS_PROXY, NO_PROXY, ...) are used, but never between this machine and itself.

    Args:
        address: http or https.
        headers: Sent with every request, ASCII.
        timeout: Seconds for a whole attempt: connecting, sending, and the answer up to its last byte. Only the look-up
            of a host's name is left to the system.

    Raises:
        ValueError: A proxy of another kind than http.
    """

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urlsplit(address)
        self.timeout = timeout
        self._host = (parts.hostname or "").encode("idna").decode("ascii")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._where = name if parts.port is None else f"{name}:{parts.port}"
        self._tls = _tls() if parts.scheme == "https" else None
        self._proxy = _proxy(parts)
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        told = {"Host": self._where, "Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
        if self._proxy is not None and self._tls is None:
            target = f"http://{self._where}{target}"
            told |= _proxy_key(self._proxy)
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._head = f"POST {target} HTTP/1.1\r\n{lines}".encode("ascii")
        self._idle: list[_Connection] | None = []
        self._lock = threading.Lock()

    def post(self, body: bytes, before_sending: Callable[[], None]) -> Posted:
        """Post, and read the whole answer.

        Args:
            body: JSON.
            before_sending: Called once the server is reached; what it raises ends the attempt unsent.

        Raises:
            NoAnswerError: The server could not be reached, or no whole answer came in time.
        """
        deadline = time.monotonic() + self.timeout
        connection = self._reach(deadline)
        try:
            before_sending()
        except BaseException:
            self._keep(connection)
            raise
        keep, answer = False, None
        try:
            connection.send(self._head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = connection.answer("POST")
            raw = _read(answer)
            keep = not answer.will_close
            encoding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
            return Posted(answer.status, answer.headers, _unpack(raw, encoding))
        except _TooLargeError:
            return Posted(200 if answer is None else answer.status, Message(), None)
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswerError(type(error).__name__, sent=True) from None
        finally:
            if keep:
                self._keep(connection)
            else:
                connection.close()

    def _reach(self, deadline: float) -> _Connection:
        """A connection on which nothing has been sent: one that was kept, or a new one."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                break
            if not kept.is_stale():
                kept.deadline = deadline
                return kept
            kept.close()
        connection = _Connection(deadline)
        try:
            if self._proxy is None:
                connection.reach(self._host, self._port)
            else:
                connection.reach(self._proxy.hostname or "", self._proxy.port or 80)
            if self._tls is not None:
                try:
                    if self._proxy is not None:
                        self._tunnel(connection, self._proxy)
                    connection.encrypt(self._tls, self._host)
                except BaseException:
                    connection.close()
                    raise
        except ssl.SSLCertVerificationError:
            raise NoAnswerError("a certificate that is not trusted", sent=False, final=True) from None
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswerError(type(error).__name__, sent=False) from None
        return connection

    def _tunnel(self, connection: _Connection, proxy: SplitResult) -> None:
        place = f"{self._where.removesuffix(f':{self._port}')}:{self._port}"
        told = {"Host": place, **_proxy_key(proxy)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        connection.send(f"CONNECT {place} HTTP/1.1\r\n{lines}\r\n".encode("ascii"))
        if connection.answer("CONNECT").status != 200:
            raise ConnectionRefusedError

    def _keep(self, connection: _Connection) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            idle, self._idle = self._idle or [], None
        for connection in idle:
            connection.close()


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(answer: HTTPResponse) -> bytes:
    """The whole body as it was sent."""
    pieces = []
    while piece := answer.read(_CHUNK):
        pieces.append(piece)
    if answer.length:
        raise HTTPException  # cut off
    body = b"".join(pieces)
    if len(body) > MOST_BYTES:
        raise _TooLargeError
    return body


def _unpack(body: bytes, encoding: str) -> bytes | None:
    """The body without its encoding, None where it is too large, broken, or in one that was not asked for."""
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    unpacking = zlib.decompressobj(wbits=47)  # gzip or zlib, by its head
    try:
        plain = unpacking.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        return None
    return plain if unpacking.eof and len(plain) <= MOST_BYTES else None


def _tls() -> ssl.SSLContext:
    """The system's certificates and, where it is installed, those of certifi: some systems come without."""
    context = ssl.create_default_context()
    try:
        import certifi
    except ModuleNotFoundError:
        return context
    context.load_verify_locations(certifi.where())
    return context


def _proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address."""
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or is_loopback(parts.geturl()) or proxy_bypass(parts.hostname or ""):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(
            f"Expected an http proxy in the environment ({parts.scheme.upper()}_PROXY or ALL_PROXY), got one of the "
            f"kind {proxy.scheme!r}; name another, or except {parts.hostname} by NO_PROXY"
        )
    return proxy


def _proxy_key(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    name = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(name.encode()).decode("ascii")}
