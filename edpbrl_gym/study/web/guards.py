"""What every request passes: limits of size and rate, allowed hosts, and headers of security."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "MAX_BODY",
    "BodyTooLargeError",
    "BrokenBodyError",
    "RateLimit",
    "RefusalLog",
    "SecurityHeaders",
    "is_cross_site",
    "limited_body",
    "refuse",
]

_log = logging.getLogger(__name__)

MAX_BODY = 16 * 1024  # bytes; the largest form, a ranking of twelve, has about 600
_BODY_TIME = 20.0  # seconds until it must have arrived
_NAMES = 10_000  # visitors that a rate limit remembers

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class RefusalLog:
    """Writes every request that is refused to the log, with the reason that ``refuse`` noted.

    A log is read line by line, perhaps on a terminal: what a visitor sent is ASCII without control characters there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                status, reason = message["status"], scope.get(_REASON, "")
                if status != _INCOMPLETE:
                    method, path = ascii(scope["method"])[:20], ascii(scope["path"])[:80]
                    _log.warning("Refused %s %s (%d): %s", method, path, status, reason)
            await send(message)

        await self.app(scope, receive, noting)


_REASON = "edpbrl.refused"
_INCOMPLETE = 422  # a form in which something was forgotten


def refuse(request: Request, reason: object) -> None:
    """Note why a request is refused, for the log."""
    request.scope[_REASON] = ascii(str(reason))[1:-1][:200]


class SecurityHeaders:
    """Adds the headers of security to every response, and forbids caches to keep what does not allow it itself."""

    def __init__(self, app: ASGIApp, *, secure: bool = False) -> None:
        self.app = app
        self._headers = dict(_HEADERS)
        if secure:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers)


class BodyTooLargeError(ValueError):
    """A request with more bytes than any form of a study has."""


class BrokenBodyError(ValueError):
    """A request whose body did not arrive, or not in time."""


async def limited_body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        BodyTooLargeError: It has more than ``MAX_BODY`` bytes; the rest is not read.
        BrokenBodyError: It did not arrive, or not in time.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIME):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise BodyTooLargeError(f"Expected a form of at most {MAX_BODY} bytes, got a larger one")
    except ClientDisconnect:
        raise BrokenBodyError(f"Expected a form, the connection ended after {len(body)} bytes of it") from None
    except TimeoutError:
        raise BrokenBodyError(f"Expected a form within {_BODY_TIME:g} s, got {len(body)} bytes of it") from None
    return bytes(body)


class RateLimit:
    """A limit of requests for each visitor: so many at once, then so many a second (a token bucket).

    Args:
        burst: Requests at once.
        rate: Requests a second after them.
    """

    def __init__(self, burst: float, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, name: str) -> bool:
        """Count a request; False: it is one too many."""
        now = time.monotonic()
        with self._lock:
            left, then = self._buckets.pop(name, (self._burst, now))
            left = min(self._burst, left + (now - then) * self._rate)
            allowed = left >= 1.0
            self._buckets[name] = (left - 1.0 if allowed else left, now)  # what is refused uses nothing up
            while len(self._buckets) > _NAMES:
                self._buckets.popitem(last=False)
        return allowed


def is_cross_site(headers: Headers, origins: Sequence[str]) -> bool:
    """Whether a browser says that a post comes from a page of another site.

    Args:
        headers: Of the request.
        origins: The study's own origins, such as "https://study.example.org"; the request's host counts too.
    """
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False  # an old browser: the form's token decides
    host = headers.get("host", "")
    return origin not in (*origins, f"http://{host}", f"https://{host}")
