"""The web application of a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from edpbrl_gym.study.queue import NotAskingError, StudyQueue
from edpbrl_gym.study.records import UnknownParticipantError
from edpbrl_gym.study.web import asking, ending, entering
from edpbrl_gym.study.web.admin import admin_routes
from edpbrl_gym.study.web.context import COOKIE, FOLDER, Site, see_other
from edpbrl_gym.study.web.forms import BadFormError, parse_form
from edpbrl_gym.study.web.guards import (
    BodyTooLargeError,
    BrokenBodyError,
    RefusalLog,
    SecurityHeaders,
    is_cross_site,
    limited_body,
    refuse,
)
from edpbrl_gym.study.web.messages import preferred_language
from edpbrl_gym.study.web.pictures import picture_endpoint
from edpbrl_gym.study.web.signing import BadTokenError
from edpbrl_gym.study.web.visits import Visit

__all__ = ["create_app"]

Page = Callable[[Visit], Response]

# for everyone: method, path and page; then those for participants only
_OPEN: list[tuple[str, str, Page]] = [("GET", "/", entering.enter), ("POST", "/consent", entering.agree)]
_PERSONAL: list[tuple[str, str, Page]] = [
    ("GET", "/instructions", entering.instructions),
    ("POST", "/instructions", entering.pass_instructions),
    ("GET", "/question", asking.question),
    ("POST", "/answer", asking.answer),
    ("POST", "/undo", asking.undo),
    ("GET", "/welcome-back", asking.come_back),
    ("POST", "/welcome-back", asking.go_on),
    ("GET", "/withdraw", ending.ask_to_withdraw),
    ("POST", "/withdraw", ending.withdraw),
    ("GET", "/end", ending.end),
    ("POST", "/prefer", ending.prefer),
]


class TooManyRequestsError(RuntimeError):
    """A visitor sends more requests than a person can."""


class _Static(StaticFiles):
    """Files of the pages, which browsers keep: their addresses change with them."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def create_app(
    queue: StudyQueue,
    *,
    public_url: str | None = None,
    hosts: tuple[str, ...] = ("*",),
    admin_token: str | None = None,
) -> ASGIApp:
    """The web application of a study, for any ASGI server.

    Args:
        queue: The queue of the study; it stays open when the application stops.
        public_url: Address at which people reach the study; with https cookies are sent over TLS only.
        hosts: Names by which requests may call the server, against DNS rebinding.
        admin_token: Secret of the researcher's pages; None: there are none.

    Returns:
        The application.
    """
    site = Site(queue, public_url=public_url)
    routes = [Route(path, _endpoint(site, page, method, False), methods=[method]) for method, path, page in _OPEN]
    routes += [Route(path, _endpoint(site, page, method, True), methods=[method]) for method, path, page in _PERSONAL]
    application = Starlette(
        routes=[
            *routes,
            Route("/pictures/{name}.png", picture_endpoint(site)),
            *admin_routes(site, admin_token),
            Route("/health", _health),
            Mount("/static", _Static(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers=_handlers(site),
    )
    application.router.redirect_slashes = False  # it would redirect to whatever host a request names
    # around the whole application, so that the pages of its own errors pass them too
    return RefusalLog(SecurityHeaders(application, secure=site.secure))


def _health(request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _endpoint(site: Site, page: Page, method: str, personal: bool) -> Callable[[Request], Any]:
    """The endpoint of a page: who sent the request, whether it may be served, then the page in a worker thread."""

    async def endpoint(request: Request) -> Response:
        form: dict[str, str] = {}
        if method == "POST":
            if is_cross_site(request.headers, [site.public_url] if site.public_url else []):
                raise BadTokenError(f"Expected a post from a page of the study, got one from {_origin(request)}")
            form = parse_form(await limited_body(request))
        return await run_in_threadpool(_serve, site, page, request, form, method, personal)

    return endpoint


def _serve(site: Site, page: Page, request: Request, form: dict[str, str], method: str, personal: bool) -> Response:
    cookie = request.cookies.get(COOKIE)
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
    if personal and participant is None:
        raise UnknownParticipantError("Expected a participant, got a request without a cookie")
    if page is entering.agree and participant is not None:  # the form was sent twice; it carries the token of before
        return see_other("/question")
    if method == "POST" and not site.signer.is_form_token(visitor, form.get("token", "")):
        raise BadTokenError("Expected a form of the study, got a post without the token of its visitor")
    return page(Visit(site, request, visitor, participant, form))


# errors

# by type: status and name of the message
_ERRORS: dict[type[Exception], tuple[int, str]] = {
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
        return page(request, status, name, {"Retry-After": "5"} if status == 429 else None)

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
