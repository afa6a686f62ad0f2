"""The researcher's preview link: the whole study, in a database that is thrown away."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edpbrl_gym.study.platforms import parameters_of
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.web.frame import see_other
from edpbrl_gym.study.web.guards import Signer

__all__ = ["PREVIEW_COOKIE", "Preview", "preview_address"]

PREVIEW_COOKIE = "edpbrl_preview"
_FOLDER = "/preview/"
_NAME = "preview-"  # begins the identifiers of whoever looks at a preview
_REAL = ("/admin", "/static", "/health")


def preview_address(secret: str) -> str:
    """The path of the preview link of the study whose database holds a secret."""
    return _FOLDER + Signer(secret).preview_key


class Preview:
    """In front of a study: whoever came by the preview link sees a second one, with its own database, until they stop.

    The second study begins when it is first asked for, ends with the queue of the first one, and shares what is loaded
    and drawn with it. It has no quotas and no times, and sends nobody away by itself. The browser remembers that it
    shows a preview until it is closed, or opens the study by another link.

    Args:
        app: The study.
        queue: Its queue.
        make: Makes the application of the second one.
        secure: Whether the study is reached over TLS only.
    """

    def __init__(self, app: ASGIApp, queue: StudyQueue, make: Callable[[StudyQueue], ASGIApp], *, secure: bool) -> None:
        self.app = app
        self._queue, self._make, self._secure = queue, make, secure
        self._address = preview_address(queue.store.secret)
        self._lock = threading.Lock()
        self._second: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            request = Request(scope)
            if request.method == "GET" and _same(request.url.path, self._address):
                await self._begin()(scope, receive, send)
                return
            if _same(_FOLDER + request.cookies.get(PREVIEW_COOKIE, ""), self._address):
                if request.url.path == "/" and not any(
                    value.startswith(_NAME) for value in request.query_params.values()
                ):
                    send = _leaving(send)
                elif not request.url.path.startswith(_REAL):
                    app = await run_in_threadpool(self._opened)
        await app(scope, receive, send)

    def _begin(self) -> Response:
        """A new person, whose identifiers are as those of the platform."""
        name = _NAME + secrets.token_hex(4)
        platform = self._queue.config.recruitment.platform
        wanted = parameters_of(platform) if platform != "none" else ("participant",)
        response = see_other("/?" + "&".join(f"{one}={name}" for one in wanted))
        key = self._address.removeprefix(_FOLDER)
        response.set_cookie(PREVIEW_COOKIE, key, httponly=True, samesite="lax", secure=self._secure)
        return response

    def _opened(self) -> ASGIApp:
        with self._lock:
            if self._second is None:
                first = self._queue
                opening = replace(
                    first.config.recruitment,
                    opens=None,
                    closes=None,
                    people=None,
                    arms={},
                    time_out=None,
                    redirect=False,
                )
                config = replace(first.config, recruitment=opening)
                folder = Path(first.resources.enter_context(TemporaryDirectory(prefix="edpbrl-preview-")))
                store = Store(f"sqlite:///{folder / 'preview.db'}", config=config.fingerprint)
                first.resources.callback(store.close)
                second = StudyQueue(config, store, first.materials.copied(config), pictures=first.pictures)
                first.resources.callback(second.close)
                self._second = self._make(second)
            return self._second


def _leaving(send: Send) -> Send:
    """Let the browser forget that it shows a preview."""
    forget = Response()
    forget.delete_cookie(PREVIEW_COOKIE)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("set-cookie", forget.headers["set-cookie"])
        await send(message)

    return sending


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
