"""The pages of `edpbrl ask`, for one person on this machine: the token in the address opens them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from edpbrl_gym.asking.conversation import Conversation
from edpbrl_gym.asking.ending import PAGE, PAIRS, PROMPTS, TASTE, WILDCARDS
from edpbrl_gym.asking.views import BestView, in_words, view_best, view_question
from edpbrl_gym.likelihood import Response as Said
from edpbrl_gym.study.web.forms import BadFormError, IncompleteAnswerError, parse_form, parse_response
from edpbrl_gym.study.web.frame import (
    Messages,
    StaticPages,
    Templates,
    available_languages,
    load_messages,
    preferred_language,
    see_other,
)
from edpbrl_gym.study.web.guards import (
    AllowedHosts,
    BadTokenError,
    BodyTooLargeError,
    BrokenBodyError,
    RefusalLog,
    SecurityHeaders,
    Signer,
    Visitor,
    is_cross_site,
    limited_body,
    refuse,
)

if TYPE_CHECKING:
    from edpbrl_gym.asking.pool_pictures import Paid, PoolPictures

__all__ = ["LOOPBACK", "create_asking_app"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names by which the server may be called."""
_YOU = Visitor("you", True)
_LANGUAGES = ["en", *(code for code in available_languages() if code != "en")]
_KEEP = {"Cache-Control": "private, max-age=86400"}
_NOTICES = ("already", "taken_back", "undone", "nothing_to_undo", "ask_wait", "ask_failed")
_FILES = {
    "page": PAGE,
    "prompts": PROMPTS,
    "wildcards": f"{WILDCARDS}/prompt.txt",
    "taste": TASTE,
    "pairs": f"{PAIRS}/pairs.parquet",
}
"""Files of the last page, by the names of their messages."""


@dataclass
class Site:
    """What the pages are about."""

    conversation: Conversation
    pictures: PoolPictures | None
    token: str
    title: str
    folder: Path
    num_options: int
    names: dict[str, str] = field(default_factory=dict)  # of pictures, to their texts
    sent: int = 0  # pictures

    def __post_init__(self) -> None:
        self.signer = Signer(self.token)
        self.cookie = f"edpbrl_ask_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"  # of no other run here
        self.templates = Templates()

    @property
    def paid(self) -> Paid | None:
        return None if self.pictures is None else self.pictures.paid

    @property
    def shape(self) -> str:
        return "" if self.pictures is None else self.pictures.shape

    def is_open(self, request: Request) -> bool:
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.signer.cookie(_YOU).encode())

    def picture(self, text: str) -> str:
        """The address of a picture."""
        name = self.signer.picture(_YOU, text)
        self.names[name] = text
        return f"/pictures/{name}"

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        return self.templates.page(
            template,
            _language(request),
            status=status,
            title=self.title or _messages(request)("ask_title"),
            form_token=self.signer.form_token(_YOU),
            **values,
        )


def create_asking_app(
    conversation: Conversation,
    *,
    token: str,
    folder: Path,
    pictures: PoolPictures | None = None,
    title: str = "",
    num_options: int = 1,
) -> ASGIApp:
    """The web application of a conversation.

    Args:
        conversation: Who is asked; it is started, and stays open when the application stops.
        token: Secret of the address ``/?token=...``, without which nothing is served.
        folder: Where the files of the last page are.
        pictures: PoolPictures of the options; None: texts are shown.
        title: What is asked about; empty: the person's taste.
        num_options: Options of a question.
    """
    site = Site(conversation, pictures, token, title, folder, num_options)
    pages: list[tuple[str, str, Callable[[Site, Request, dict[str, str]], Response]]] = [
        ("GET", "/question", _question),
        ("POST", "/answer", _answer),
        ("POST", "/undo", _undo),
        ("GET", "/state", _state),
        ("GET", "/start", _start),
        ("POST", "/start", _agree),
        ("POST", "/finish", _finish),
        ("GET", "/end", _end),
        ("GET", "/files/{kind}", _file),
    ]
    application = Starlette(
        routes=[
            Route("/", _enter(site), methods=["GET"]),
            *(Route(path, _endpoint(site, page, method), methods=[method]) for method, path, page in pages),
            Route("/pictures/{name}", _picture(site)),
            Mount("/static", StaticPages()),
        ],
        middleware=[Middleware(AllowedHosts, hosts=LOOPBACK)],
        exception_handlers=_handlers(site),
    )
    application.router.redirect_slashes = False
    return RefusalLog(SecurityHeaders(application))


# -- who may read -----------------------------------------------------------------------------------------------------


def _enter(site: Site) -> Callable[[Request], Any]:
    """The address that the command prints: its token becomes a cookie."""

    async def endpoint(request: Request) -> Response:
        given = request.query_params.get("token", "")
        if not given and site.is_open(request):
            return see_other("/question")
        if not hmac.compare_digest(given.encode(), site.token.encode()):
            raise BadTokenError("Expected the token of this run of the command, got another one or none")
        response = see_other("/question")
        response.set_cookie(site.cookie, site.signer.cookie(_YOU), httponly=True, samesite="strict")
        return response

    return endpoint


def _endpoint(site: Site, page: Callable[..., Response], method: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        if not site.is_open(request):
            raise BadTokenError("Expected the cookie of this run of the command, got another one or none")
        form: dict[str, str] = {}
        if method == "POST":
            if is_cross_site(request.headers, []):
                raise BadTokenError("Expected a post from a page of `edpbrl ask`, got one from another site")
            form = parse_form(await limited_body(request))
            if not site.signer.is_form_token(_YOU, form.get("token", "")):
                raise BadTokenError("Expected a form of this run of the command, got a post without its token")
        response = await run_in_threadpool(page, site, request, form)
        if isinstance(response, RedirectResponse) and request.headers.get("accept") == "application/json":
            return JSONResponse({"next": response.headers["location"]})
        return response

    return endpoint


_ERRORS: dict[type[Exception], tuple[int, str]] = {
    BadTokenError: (403, "ask_error_token"),
    BodyTooLargeError: (413, "error_large"),
    BrokenBodyError: (408, "error_form"),
    BadFormError: (400, "error_form"),
}
"""By type: status and name of the message."""


def _handlers(site: Site) -> dict[Any, Any]:
    def known(request: Request, error: Exception) -> Response:
        status, name = next(_ERRORS[kind] for kind in type(error).__mro__ if kind in _ERRORS)
        refuse(request, error)
        return site.page(request, "error.html", status=status, message=name)

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refuse(request, error.detail)
        name = "error_not_found" if error.status_code in (404, 405) else "error_form"
        return site.page(request, "error.html", status=error.status_code, message=name)

    def unexpected(request: Request, error: Exception) -> Response:
        refuse(request, f"{type(error).__name__}: {error}")
        return site.page(request, "error.html", status=500, message="ask_error")

    return {**{kind: known for kind in _ERRORS}, HTTPException: http, Exception: unexpected}


def _language(request: Request) -> str:
    return preferred_language(request.headers.get("accept-language", ""), _LANGUAGES)


def _messages(request: Request) -> Messages:
    return load_messages(_language(request))


# -- questions --------------------------------------------------------------------------------------------------------


def _question(site: Site, request: Request, form: dict[str, str]) -> Response:
    """The question that waits for an answer."""
    if site.paid is not None:
        return see_other("/start")
    if site.conversation.enough:
        return see_other("/end")
    asked = site.conversation.asked()
    if asked is None:
        return site.page(request, "waiting.html", headers={"Refresh": "1"})
    messages = _messages(request)
    notice = request.query_params.get("notice", "")
    known = (*_NOTICES, site.conversation.format.texts.incomplete)
    shown = view_question(site, asked, messages)
    if site.pictures is None:
        site.conversation.start()
    elif asked.following:
        site.pictures.soon(asked.following)
    immediate = len(shown.inputs) == 1 and (shown.drawn == "option" or len(shown.options) == 1)
    _, certainty = site.conversation.certainty
    return site.page(
        request,
        "ask_question.html",
        question=shown,
        preload=[] if site.pictures is None else [site.picture(text) for text in asked.following],
        number=asked.number + 1,
        sure=in_words(certainty, messages),
        share=0 if certainty is None else max(0.0, round(2 * certainty.accuracy - 1, 3)),
        notice=messages(notice) if notice in known else None,
        immediate=immediate,
        shape=site.shape,
        swipe=immediate and shown.inputs[0].levels == 2,
    )


def _answer(site: Site, request: Request, form: dict[str, str]) -> Response:
    """Store an answer, then go on to the next question."""
    conversation = site.conversation
    format = conversation.format
    asked = conversation.asked()
    if asked is None:
        return see_other("/question")
    key, pictures = form.get("key", ""), site.pictures
    if key == asked.key and not asked.ready:
        return see_other("/question?notice=ask_wait")
    try:
        response = parse_response(form, format, len(asked.texts))
    except IncompleteAnswerError:
        return see_other(f"/question?notice={format.texts.incomplete}")
    failed = key == asked.key and pictures is not None and any(map(pictures.failed, asked.texts))
    if response.kind == "tie":
        response = Said("skip" if failed else format.unsure)
    elif failed:  # after it was seen, such as before a restart
        return see_other("/question?notice=ask_failed")
    return see_other("/question" if conversation.answer(key, response) else "/question?notice=already")


def _undo(site: Site, request: Request, form: dict[str, str]) -> Response:
    """Take back the last answer."""
    done = site.conversation.undo(form.get("undo_key", ""))
    return see_other(f"/question?notice={'undone' if done else 'nothing_to_undo'}")


def _state(site: Site, request: Request, form: dict[str, str]) -> Response:
    """How sure the session is; ``settled``: by all answers."""
    settled, certainty = site.conversation.certainty
    share = 0.0 if certainty is None else max(0.0, 2 * certainty.accuracy - 1)
    return JSONResponse({"said": in_words(certainty, _messages(request)), "share": share, "settled": settled})


def _start(site: Site, request: Request, form: dict[str, str]) -> Response:
    """What a service will be asked for."""
    paid = site.paid
    if paid is None:
        return see_other("/question")
    price = "" if paid.price is None else f"{paid.price:g}"
    total = "" if paid.price is None else f"{paid.price * paid.number:g}"
    return site.page(request, "ask_start.html", renderer=paid.renderer, number=paid.number, price=price, total=total)


def _agree(site: Site, request: Request, form: dict[str, str]) -> Response:
    if site.pictures is not None:
        site.pictures.agree()
    return see_other("/question")


# -- pictures and the end ---------------------------------------------------------------------------------------------


def _picture(site: Site) -> Callable[[Request], Any]:
    """The endpoint of pictures; it waits until one is drawn, and says why there is none."""

    async def endpoint(request: Request) -> Response:
        if not site.is_open(request):
            raise BadTokenError("Expected the cookie of this run of the command, got another one or none")
        text = site.names.get(request.path_params["name"])
        if text is None or site.pictures is None or site.paid is not None:
            raise HTTPException(404)
        waited = asyncio.wrap_future(site.pictures.get(text))
        try:
            png = await asyncio.shield(waited)
        except Exception as error:
            refuse(request, error)
            return PlainTextResponse(str(error)[:300], 424)
        if png is None:  # withheld
            return PlainTextResponse("", 424)
        site.sent += 1
        if site.sent == site.num_options:  # the first question is on the screen
            site.conversation.start()
        return Response(png, media_type="image/svg+xml" if site.pictures.at_once else "image/png", headers=_KEEP)

    return endpoint


def _finish(site: Site, request: Request, form: dict[str, str]) -> Response:
    site.conversation.finish()
    return see_other("/end")


def _end(site: Site, request: Request, form: dict[str, str]) -> Response:
    """What was learnt."""
    done, ending = site.conversation.ending
    if not done:
        site.conversation.finish()
    messages = _messages(request)
    best: Sequence[BestView] = ()
    if ending is not None:
        best = [view_best(site, one.text, one.share, messages) for one in ending.best]
    _, certainty = site.conversation.certainty
    sure = "" if certainty is None else messages("ask_sure", percent=f"{100 * certainty.accuracy:.0f}")
    words = [] if ending is None else [step for step in ending.words if step.liked or step.disliked]
    return site.page(
        request,
        "ask_end.html",
        pending=not done,
        ending=ending,
        best=best,
        words=words,
        sure=sure,
        files=[kind for kind, name in _FILES.items() if (site.folder / name).is_file()] if done else [],
        shape=site.shape,
        later=not site.conversation.published,
        folder=str(site.folder),
    )


def _file(site: Site, request: Request, form: dict[str, str]) -> Response:
    name = _FILES.get(request.path_params["kind"])
    if name is None or not (site.folder / name).is_file():
        raise HTTPException(404)
    file = site.folder / name
    return FileResponse(file, filename=name.replace("/", "-"), content_disposition_type="attachment")
