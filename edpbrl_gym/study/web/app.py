"""The web application of a study, and whether it can serve."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from anyio import to_thread
from sqlalchemy.exc import OperationalError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from edpbrl_gym._addresses import origin
from edpbrl_gym.study.database import DatabaseGoneError
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import NotAskingError, UnknownParticipantError
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.watching import Watch
from edpbrl_gym.study.web import form_pages, pages, photos
from edpbrl_gym.study.web.admin import admin_routes
from edpbrl_gym.study.web.forms import BadFormError, parse_form
from edpbrl_gym.study.web.frame import StaticPages, preferred_language, see_other
from edpbrl_gym.study.web.guards import (
    MAX_BODY,
    MAX_PAGE,
    AllowedHosts,
    BadTokenError,
    BodyTooLargeError,
    BrokenBodyError,
    RefusalLog,
    SecurityHeaders,
    TooManyRequestsError,
    is_cross_site,
    limited_body,
    refuse,
)
from edpbrl_gym.study.web.preview import Preview, preview_address
from edpbrl_gym.study.web.site import PageRequest, Site
from edpbrl_gym.study.web.views import image_endpoint, picture_endpoint

__all__ = ["Health", "create_app"]

# seconds; a network that swallows packets, or a pool without a free connection, says nothing for long
_DATABASE_TIME = 2.0
Page = Callable[[PageRequest], Response]
# for everyone: method, path and page; then those for participants only
_OPEN: list[tuple[str, str, Page]] = [("GET", "/", pages.enter), ("POST", "/consent", pages.agree),
                                      ("POST", "/decline", pages.decline)]  # fmt: skip
_PERSONAL: list[tuple[str, str, Page]] = [
    ("GET", "/instructions", pages.instructions),
    ("POST", "/instructions", pages.pass_instructions),
    ("GET", "/page", form_pages.show_page),
    ("POST", "/page", form_pages.send_page),
    ("GET", "/question", pages.question),
    ("POST", "/answer", pages.answer),
    ("POST", "/undo", pages.undo),
    ("GET", "/welcome-back", pages.come_back),
    ("POST", "/welcome-back", pages.go_on),
    ("GET", "/withdraw", pages.ask_to_withdraw),
    ("POST", "/withdraw", pages.withdraw),
    ("GET", "/end", pages.end),
    ("POST", "/prefer", pages.prefer),
]
_PHOTOS: list[tuple[str, str, Page]] = [
    ("GET", "/photos", photos.show),
    ("POST", "/photos/remove", photos.remove),
    ("POST", "/photos/next", photos.go_on),
    ("POST", "/photos/decline", photos.decline),
    ("POST", "/photos/rating", photos.rate),
]


class Health:
    """The endpoint /health: 200 while the database answers, 503 when it cannot be reached or not in time.

    The database is asked by one thread at a time, which a request does not wait for longer than two seconds: a flood of
    requests, or a connection that hangs, costs one thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: tuple[float, Future[str]] | None = None  # when, and what is wrong

    async def answer(self, request: Request) -> Response:
        if self._asked is None or self._asked[1].done():  # a question that waits for its answer is not repeated
            self._asked = time.monotonic(), Future()
            threading.Thread(target=self._look, args=(self._asked[1],), daemon=True).start()
        began, asked = self._asked
        left = max(0.0, began + _DATABASE_TIME - time.monotonic())
        done, _ = await asyncio.wait({asyncio.wrap_future(asked)}, timeout=left)
        wrong = asked.result() if done else f"no answer within {_DATABASE_TIME:g} s"
        if not wrong:
            return PlainTextResponse("ok\n")
        refuse(request, f"Expected the database to answer, got {wrong}")
        return PlainTextResponse("The database can't be reached\n", 503, {"Retry-After": "5"})

    def _look(self, asked: Future[str]) -> None:
        wrong = ""
        try:
            self._store.counts()
        except Exception as error:
            wrong = " ".join(f"{type(error).__name__}: {error}".split())
        finally:
            asked.set_result(wrong)


def create_app(
    queue: StudyQueue,
    *,
    public_url: str | None = None,
    hosts: tuple[str, ...] = ("*",),
    admin_token: str | None = None,
    watch: Watch | None = None,
) -> ASGIApp:
    """The web application of a study, for any ASGI server.

    Args:
        queue: The queue of the study; it stays open when the application stops.
        public_url: Address at which people reach the study; with https cookies are sent over TLS only.
        hosts: Names by which requests may call the server, against DNS rebinding.
        admin_token: Secret of the researcher's pages; None: there are none.
        watch: Counts what fails, for these pages; None: nobody does.
    """
    address = None if public_url is None else origin(public_url)
    site = Site(queue, public_url=address, watch=watch)

    def second(other: StudyQueue) -> ASGIApp:
        return _application(Site(other, public_url=address, preview=preview_address(queue.store.secret)), [])

    study = _application(site, [*admin_routes(site, admin_token), Route("/health", Health(queue.store).answer)])
    both = Preview(study, queue, second, secure=site.secure)
    # around the whole application, so that the pages of its own errors pass them too
    return RefusalLog(SecurityHeaders(AllowedHosts(both, hosts=hosts), secure=site.secure))


def _application(site: Site, others: list[Route]) -> Starlette:
    """The pages of a study, and other routes."""
    routes = [Route(path, _endpoint(site, page, method, False), methods=[method]) for method, path, page in _OPEN]
    personal = _PERSONAL if site.config.own_photos is None else [*_PERSONAL, *_PHOTOS]
    routes += [Route(path, _endpoint(site, page, method, True), methods=[method]) for method, path, page in personal]
    if site.config.own_photos is not None:
        routes += _photo_routes(site)
    application = Starlette(
        routes=[
            *routes,
            Route("/pictures/{name}.png", picture_endpoint(site)),
            Route("/images/{name}", image_endpoint(site)),
            *others,
            Mount("/static", StaticPages()),
        ],
        exception_handlers=_handlers(site),
    )
    application.router.redirect_slashes = False  # it would redirect to whatever host a request names
    return application


def _photo_routes(site: Site) -> list[Route]:
    """Those whose bodies, or answers, are photos."""

    async def serve(page: Page, request: Request, form: dict[str, str]) -> Response:
        return await to_thread.run_sync(_serve, site, page, request, form, "POST" if form else "GET", True)

    take = photos.upload_endpoint(site, serve)

    async def upload(request: Request) -> Response:
        _check_origin(site, request)
        return await take(request)

    return [
        Route("/photos", upload, methods=["POST"]),
        Route("/photos/{key}.jpg", photos.photo_endpoint(site), methods=["GET"]),
    ]


def _check_origin(site: Site, request: Request) -> None:
    if is_cross_site(request.headers, [site.public_url] if site.public_url else []):
        raise BadTokenError(f"Expected a post from a page of the study, got one from {_origin(request)}")


def _endpoint(site: Site, page: Page, method: str, personal: bool) -> Callable[[Request], Any]:
    """The endpoint of a page: who sent the request, whether it may be served, then the page in a worker thread."""

    async def endpoint(request: Request) -> Response:
        form: dict[str, str] = {}
        if method == "POST":
            _check_origin(site, request)
            form = parse_form(await limited_body(request, MAX_PAGE if page is form_pages.send_page else MAX_BODY))
        threads = site.question_threads if page is pages.question else None
        response = await to_thread.run_sync(_serve, site, page, request, form, method, personal, limiter=threads)
        if isinstance(response, RedirectResponse) and request.headers.get("accept") == "application/json":
            # the script learns at once that the form is stored, whatever the next page waits for
            return JSONResponse({"next": response.headers["location"]})
        return response

    return endpoint


def _serve(site: Site, page: Page, request: Request, form: dict[str, str], method: str, personal: bool) -> Response:
    cookie = request.cookies.get(site.cookie)
    visitor = site.signer.new_visitor()
    participant = None
    if cookie is not None:
        try:
            visitor = site.signer.visitor(cookie)
        except BadTokenError:
            if personal or method == "POST":
                raise
    limit = site.participants_limit if visitor.is_participant else site.strangers_limit
    if not limit.allows(visitor.name if visitor.is_participant else "strangers"):
        raise TooManyRequestsError("Expected a person's pace, got more requests")
    if visitor.is_participant:
        try:
            participant = site.store.participant(visitor.name)
        except UnknownParticipantError:  # deleted on request
            if personal or method == "POST":
                raise
            visitor = site.signer.new_visitor()
    if participant is not None:
        participant = site.queue.in_time(participant)
    if personal and participant is None:
        raise UnknownParticipantError("Expected a participant, got a request without a cookie")
    if page is pages.agree and participant is not None:  # the form was sent twice; it carries the token of before
        return see_other("/question")
    if method == "POST" and not site.signer.is_form_token(visitor, form.get("token", "")):
        raise BadTokenError("Expected a form of the study, got a post without the token of its visitor")
    return page(PageRequest(site, request, visitor, participant, form))


# errors

# by type: status and name of the message
_ERRORS: dict[type[Exception], tuple[int, str]] = {
    DatabaseGoneError: (503, "error_database"),
    OperationalError: (503, "error_database"),  # of the database: it is down, locked or full
    BadTokenError: (403, "error_forbidden"),
    UnknownParticipantError: (403, "error_unknown"),
    NotAskingError: (409, "error_form"),
    BodyTooLargeError: (413, "error_large"),
    BrokenBodyError: (408, "error_form"),
    TooManyRequestsError: (429, "error_fast"),
    BadFormError: (400, "error_form"),
}


def _handlers(site: Site) -> dict[Any, Any]:
    def page(request: Request, status: int, name: str, headers: dict[str, str] | None = None) -> Response:
        language = preferred_language(request.headers.get("accept-language", ""), site.config.languages)
        return site.page("error.html", language, status=status, message=name, headers=headers)

    def known(request: Request, error: Exception) -> Response:
        status, name = next(_ERRORS[kind] for kind in type(error).__mro__ if kind in _ERRORS)
        refuse(request, error)
        return page(request, status, name, {"Retry-After": "5"} if status in (429, 503) else None)

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = "error_not_found" if error.status_code in (404, 405) else "error_form"
        refuse(request, error.detail)
        return page(request, error.status_code, name, dict(error.headers or {}))

    def unexpected(request: Request, error: Exception) -> Response:
        refuse(request, f"{type(error).__name__}: {error}")  # the server logs its traceback
        return page(request, 500, "error_server", {"Retry-After": "5"})

    return {**{kind: known for kind in _ERRORS}, HTTPException: http, Exception: unexpected}


def _origin(request: Request) -> str:
    return repr(request.headers.get("origin", "another site"))[:100]
