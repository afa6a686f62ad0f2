"""HTTP: POST requests to one address over persistent connections, with one deadline and a size limit.

It uses only the standard library, since a server may send anything and every byte is handled here. httpcore2 2.16
limits the time of a single read or write rather than of an attempt, logs the headers of a server, and interprets bytes
after an answer as the answer to the next question.
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
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["MAX_BYTES", "NoAnswerError", "Poster", "HttpAnswer", "is_loopback"]

MAX_BYTES = 4_000_000  # of an answer, before and after decompression; a verdict has a few thousand
_CHUNK = 1 << 16


class NoAnswerError(Exception):
    """No complete answer arrived.

    Attributes:
        status: Short description of the error, without any text of the server.
        sent: Whether the request may have arrived.
        final: Whether another attempt would fail for the same reason.
    """

    def __init__(self, status: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(status)
        self.status, self.sent, self.final = status, sent, final


@dataclass(frozen=True)
class HttpAnswer:
    """A complete answer.

    Attributes:
        status: HTTP status.
        headers: Headers as sent.
        body: Decompressed body; None if it can't be decompressed or is too large.
    """

    status: int
    headers: Message
    body: bytes | None


class _TooLargeError(HTTPException):
    """The answer exceeds the size limit."""


class _LimitedReader(io.RawIOBase):
    """The bytes of a connection, up to its deadline and the size limit."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._remaining = MAX_BYTES + _CHUNK  # including the head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        connection = self._connection
        connection.socket.settimeout(connection.seconds_left())
        number = connection.socket.recv_into(buffer)
        self._remaining -= number
        if self._remaining < 0:
            raise _TooLargeError
        return number


class _Connection:
    """A socket with one deadline for all its operations."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.socket: socket.socket

    def seconds_left(self) -> float:
        """Seconds to the deadline."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def reach(self, host: str, port: int) -> None:
        """Connect to the first responding address of a host."""
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            self.socket = socket.socket(family, kind, protocol)
            try:
                self.socket.settimeout(self.seconds_left() / (len(addresses) - number))
                self.socket.connect(address)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except OSError:
                self.socket.close()
                if number == len(addresses) - 1:
                    raise

    def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Switch to TLS."""
        self.socket.settimeout(self.seconds_left())  # of the whole handshake
        self.socket = context.wrap_socket(self.socket, server_hostname=host)

    def send(self, data: bytes) -> None:
        """Send all data."""
        remaining = memoryview(data)
        while remaining:
            self.socket.settimeout(self.seconds_left())
            remaining = remaining[self.socket.send(remaining[:_CHUNK]) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The stream for ``HTTPResponse``."""
        return io.BufferedReader(_LimitedReader(self))

    def answer(self, method: str) -> HTTPResponse:
        """The answer, read up to the end of its head."""
        answer = HTTPResponse(cast(socket.socket, self), method=method)
        answer.begin()
        return answer

    def is_stale(self) -> bool:
        """Whether there is data between two requests: the server has closed the connection, or is out of sync."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        self.socket.close()


class Poster:
    """Posts to one address.

    Proxies of the environment (HTTPS_PROXY, NO_PROXY, ...) are used, but never between this machine and itself.

    Args:
        address: Http or https address.
        headers: Headers of every request, ASCII.
        timeout: Seconds for a whole attempt: connecting, sending, and the answer up to its last byte. Only the time of
            a name lookup is up to the system.

    Raises:
        ValueError: The proxy is not an http proxy.
    """

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float) -> None:
        url = urlsplit(address)
        self.timeout = timeout
        self._host = (url.hostname or "").encode("idna").decode("ascii")
        self._port = url.port or (443 if url.scheme == "https" else 80)
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if url.port is None else f"{name}:{url.port}"
        self._tls = _tls() if url.scheme == "https" else None
        self._proxy = _proxy(url)
        target = quote(url.path or "/", safe="/%:@!$&'()*+,;=~")
        all_headers = {
            "Host": self._authority,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **headers,
        }
        if self._proxy is not None and self._tls is None:
            target = f"http://{self._authority}{target}"
            all_headers |= _proxy_credentials(self._proxy)
        lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
        self._head = f"POST {target} HTTP/1.1\r\n{lines}".encode("ascii")
        self._idle: list[_Connection] | None = []
        self._lock = threading.Lock()

    def post(
        self, body: bytes, before_sending: Callable[[], None], headers: Mapping[str, str] = MappingProxyType({})
    ) -> HttpAnswer:
        """Post a body, and read the whole answer.

        Args:
            body: JSON.
            before_sending: Callback, called when the server has been reached; an exception ends the attempt unsent.
            headers: Of this request, ASCII.

        Raises:
            NoAnswerError: The server could not be reached, or no complete answer arrived in time.
        """
        deadline = time.monotonic() + self.timeout
        connection = self._reach(deadline)
        try:
            before_sending()
        except BaseException:
            self._release(connection)
            raise
        keep, answer = False, None
        try:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")
            connection.send(self._head + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = connection.answer("POST")
            raw = _read_body(answer)
            keep = not answer.will_close
            encoding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
            return HttpAnswer(answer.status, answer.headers, _unpack(raw, encoding))
        except _TooLargeError:
            return HttpAnswer(200 if answer is None else answer.status, Message(), None)
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswerError(type(error).__name__, sent=True) from None
        finally:
            if keep:
                self._release(connection)
            else:
                connection.close()

    def _reach(self, deadline: float) -> _Connection:
        """A connection ready for a request: an idle one, or a new one."""
        while True:
            with self._lock:
                idle_connection = self._idle.pop() if self._idle else None
            if idle_connection is None:
                break
            if not idle_connection.is_stale():
                idle_connection.deadline = deadline
                return idle_connection
            idle_connection.close()
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
        target = f"{self._authority.removesuffix(f':{self._port}')}:{self._port}"
        headers = {"Host": target, **_proxy_credentials(proxy)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.send(f"CONNECT {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii"))
        if connection.answer("CONNECT").status != 200:
            raise ConnectionRefusedError

    def _release(self, connection: _Connection) -> None:
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


def _read_body(answer: HTTPResponse) -> bytes:
    """The whole body as it was sent."""
    pieces = []
    while piece := answer.read(_CHUNK):
        pieces.append(piece)
    if answer.length:
        raise HTTPException  # truncated
    body = b"".join(pieces)
    if len(body) > MAX_BYTES:
        raise _TooLargeError
    return body


def _unpack(body: bytes, encoding: str) -> bytes | None:
    """The decompressed body; None if it is too large, broken, or has an unknown encoding."""
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    unpacking = zlib.decompressobj(wbits=47)  # gzip or zlib, by its head
    try:
        plain = unpacking.decompress(body, MAX_BYTES + 1)
    except zlib.error:
        return None
    return plain if unpacking.eof and len(plain) <= MAX_BYTES else None


def _tls() -> ssl.SSLContext:
    """A context with the system's certificates and, if installed, those of certifi: some systems have none."""
    context = ssl.create_default_context()
    try:
        import certifi
    except ModuleNotFoundError:
        return context
    context.load_verify_locations(certifi.where())
    return context


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy of the environment for an address."""
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or is_loopback(url.geturl()) or proxy_bypass(url.hostname or ""):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(
            f"Expected an http proxy in the environment ({url.scheme.upper()}_PROXY or ALL_PROXY), got one of the "
            f"kind {proxy.scheme!r}; name another, or except {url.hostname} by NO_PROXY"
        )
    return proxy


def _proxy_credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    name = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(name.encode()).decode("ascii")}
