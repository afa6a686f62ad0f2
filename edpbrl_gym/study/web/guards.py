"""What every request passes: limits of size and rate, allowed hosts, headers of security, signed cookies and tokens."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edpbrl_gym._addresses import host_of, origin

__all__ = [
    "MAX_BODY",
    "MAX_PAGE",
    "AllowedHosts",
    "BadTokenError",
    "BodyTooLargeError",
    "BrokenBodyError",
    "RateLimit",
    "RefusalLog",
    "SecurityHeaders",
    "TooManyRequestsError",
    "Signer",
    "Visitor",
    "is_cross_site",
    "limited_body",
    "limited_chunks",
    "refuse",
]

_log = logging.getLogger(__name__)
MAX_BODY = 16 * 1024  # bytes; the largest form, a ranking of twelve, has about 600
MAX_PAGE = 60 * 1024  # of a page with texts
_BODY_TIME = 20.0  # seconds until it must have arrived
_SLOWEST = 32 * 1024  # bytes a second of a body with files: each gives it a moment more
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
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                status, reason = message["status"], scope.get(_REASON, "")
                if status != _INCOMPLETE:
                    method, path = ascii(scope["method"])[:20], ascii(scope["path"])[:80]
                    more = {"event": "refused", "status": status}
                    _log.warning("Refused %s %s (%d): %s", method, path, status, reason, extra=more)
            await send(message)

        await self.app(scope, receive, noting)


_REASON = "edpbrl.refused"
_INCOMPLETE = 422  # a form in which something was forgotten


class TooManyRequestsError(RuntimeError):
    """A visitor sends more requests than a person can."""


def refuse(request: Request, reason: object) -> None:
    """Note why a request is refused, for the log."""
    request.scope[_REASON] = ascii(str(reason))[1:-1][:200]


class AllowedHosts:
    """Refuses requests that call the server by another name, against DNS rebinding."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self._hosts = None if "*" in hosts else {host_of(host) for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts is not None and not self._is_allowed(Headers(scope=scope)):
            scope[_REASON] = "a request for another host"
            await PlainTextResponse("Invalid host header\n", status_code=400)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        named = headers.get("host", "")
        try:
            if not named.isascii():  # sent as UTF-8 by clients that know nothing of IDNA
                named = named.encode("latin-1").decode("utf-8")
            return self._hosts is None or host_of(named) in self._hosts
        except ValueError:
            return False


class SecurityHeaders:
    """Adds the headers of security to every response, and forbids caches to keep what does not allow it itself."""

    def __init__(self, app: ASGIApp, *, secure: bool = False) -> None:
        self.app = app
        self._headers = dict(_HEADERS)
        if secure:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


async def limited_body(request: Request, most: int = MAX_BODY) -> bytes:
    """The body of a request, at most so many bytes."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIME):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise BodyTooLargeError(f"Expected a form of at most {most} bytes, got a larger one")
    except ClientDisconnect:
        raise BrokenBodyError(f"Expected a form, the connection ended after {len(body)} bytes of it") from None
    except TimeoutError:
        raise BrokenBodyError(f"Expected a form within {_BODY_TIME:g} s, got {len(body)} bytes of it") from None
    return bytes(body)


async def limited_chunks(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The body of a request with files, piece by piece, at most so many bytes and not slower than ``_SLOWEST``.

    A larger one is read to its end, up to twice the size, before it is refused: browsers that still send show no page.
    """
    received, began, stream = 0, time.monotonic(), request.stream()
    while True:
        left = began + _BODY_TIME + received / _SLOWEST - time.monotonic()
        try:
            async with asyncio.timeout(left):
                chunk = await anext(stream)
        except StopAsyncIteration:
            break
        except ClientDisconnect:
            raise BrokenBodyError(f"Expected files, the connection ended after {received} bytes of them") from None
        except TimeoutError:
            raise BrokenBodyError(f"Expected files at a steady pace, got {received} bytes in time") from None
        received += len(chunk)
        if received > 2 * most:
            break
        if received <= most:
            yield chunk
    if received > most:
        raise BodyTooLargeError(f"Expected files of at most {most} bytes together, got more")


class RateLimit:
    """A limit of requests for each visitor: so many at once, then so many a second (a token bucket)."""

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

    The study's own are ``origins``, such as "https://study.example.org", and the request's host.
    """
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return True
    named = headers.get("origin")
    if named is None:
        return False  # an old browser: the form's token decides
    host = headers.get("host", "")
    for own in (*origins, f"http://{host}", f"https://{host}"):
        with suppress(ValueError):  # no address: another site's
            if origin(named) == origin(own):
                return False
    return True


class BadTokenError(ValueError):
    """A cookie or a token that this study did not sign, or that it signed for someone else."""


@dataclass(frozen=True)
class Visitor:
    """Who sent a request, by their signed cookie."""

    name: str  # random name of the browser until consent, then the code of the participant
    is_participant: bool  # whether it is the code of a participant


class Signer:
    """Signs with the secret of the study, which its database holds, so that several servers know it."""

    def __init__(self, secret: str) -> None:
        self._cookies = URLSafeSerializer(secret, salt="edpbrl study cookie")
        self._entries = URLSafeSerializer(secret, salt="edpbrl study entry")
        self._key = hashlib.sha256(f"edpbrl study csrf {secret}".encode()).digest()

    def new_visitor(self) -> Visitor:
        return Visitor(secrets.token_urlsafe(16), False)

    def cookie(self, visitor: Visitor) -> str:
        return str(self._cookies.dumps([visitor.name, visitor.is_participant]))

    def visitor(self, cookie: str) -> Visitor:
        try:
            name, is_participant = self._cookies.loads(cookie)
            return Visitor(str(name), bool(is_participant))
        except (BadData, ValueError, TypeError):
            raise BadTokenError("Expected a cookie that this study signed, got another one") from None

    def form_token(self, visitor: Visitor) -> str:
        """The token that every form of the visitor carries; another site cannot know it."""
        return hmac.new(self._key, visitor.name.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, visitor: Visitor, token: str) -> bool:
        return hmac.compare_digest(self.form_token(visitor).encode(), token.encode())

    def picture(self, visitor: Visitor, text: str) -> str:
        """The name of a text's picture for a visitor; it tells nothing about the text."""
        return hmac.new(self._key, f"{visitor.name} {text}".encode(), hashlib.sha256).hexdigest()[:32]

    @property
    def preview_key(self) -> str:
        """The end of the preview link, which nobody can guess."""
        return hmac.new(self._key, b"preview", hashlib.sha256).hexdigest()[:32]

    def entry(self, visitor: Visitor, external: Mapping[str, str]) -> str:
        """The identifiers with which a visitor arrived, for the form that enrols them."""
        return str(self._entries.dumps([visitor.name, dict(external)]))

    def external(self, visitor: Visitor, entry: str) -> dict[str, str]:
        try:
            loaded: Any = self._entries.loads(entry)
            name, external = loaded
        except (BadData, ValueError, TypeError):
            raise BadTokenError("Expected an entry that this study signed, got another one") from None
        if name != visitor.name:
            raise BadTokenError("Expected the entry of this visitor, got that of another one")
        return {str(key): str(value) for key, value in external.items()}
