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

from edpbrl_gym.asking.conversation import Asked, Certainty, Conversation
from edpbrl_gym.asking.ending import PAGE, PAIRS, PROMPTS, TASTE, WILDCARDS
from edpbrl_gym.likelihood import Input
from edpbrl_gym.likelihood import Response as Said
from edpbrl_gym.study.web.forms import BadFormError, IncompleteAnswerError, parse_form, parse_response
from edpbrl_gym.study.web.frame import (
    FOLDER,
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
from edpbrl_gym.study.web.questions import LABELS, OptionView, QuestionView, shown_question
from edpbrl_gym.vocabulary import SEPARATOR

if TYPE_CHECKING:
    from edpbrl_gym.asking.pool_pictures import Paid, PoolPictures

__all__ = ["LOOPBACK", "create_asking_app"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names by which the server may be called."""
_YOU = Visitor("you", True)
_KEEP = {"Cache-Control": "private, max-age=86400"}
_LANGUAGES = ["en", *(code for code in available_languages() if code != "en")]
_NOTICES = ("already", "taken_back", "undone", "nothing_to_undo")
_FILES = {
    "page": PAGE,
    "prompts": PROMPTS,
    "wildcards": f"{WILDCARDS}/prompt.txt",
    "taste": TASTE,
    "pairs": f"{PAIRS}/pairs.parquet",
}
"""Files of the last page, by the names of their messages."""
_HINTS = {"option": "ask_keys_best", "levels": "ask_keys_levels"}


@dataclass
class _Site:
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

    def is_open(self, request: Request) -> bool:
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.signer.cookie(_YOU).encode())

    def picture(self, text: str) -> str:
        name = self.signer.picture(_YOU, text)
        self.names[name] = text
        return f"/pictures/{name}.png"

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
    site = _Site(conversation, pictures, token, title, folder, num_options)
    pages: list[tuple[str, str, Callable[[_Site, Request, dict[str, str]], Response]]] = [
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
            Route("/pictures/{name}.png", _picture(site)),
            Mount("/static", StaticPages()),
        ],
        middleware=[Middleware(AllowedHosts, hosts=LOOPBACK)],
        exception_handlers=_handlers(site),
    )
    application.router.redirect_slashes = False
    return RefusalLog(SecurityHeaders(application))


# -- who may read -----------------------------------------------------------------------------------------------------


def _enter(site: _Site) -> Callable[[Request], Any]:
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


def _endpoint(site: _Site, page: Callable[..., Response], method: str) -> Callable[[Request], Any]:
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


def _handlers(site: _Site) -> dict[Any, Any]:
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


def _question(site: _Site, request: Request, form: dict[str, str]) -> Response:
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
    shown = _shown(site, asked, messages)
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
        sure=_in_words(certainty, messages),
        share=0 if certainty is None else max(0.0, round(2 * certainty.accuracy - 1, 3)),
        notice=messages(notice) if notice in known else None,
        immediate=immediate,
        shape=_shape(site),
        swipe=immediate and shown.inputs[0].levels == 2,
    )


def _shape(site: _Site) -> str:
    return "" if site.pictures is None else f"is-{site.pictures.shape}"


def _shown(site: _Site, asked: Asked, messages: Messages) -> QuestionView:
    """What a page shows of a question; its pictures are drawn before all others."""
    format = site.conversation.format
    options = []
    for option, text in enumerate(asked.texts):
        parts, label = tuple(text.split(SEPARATOR)), LABELS[option]
        if site.pictures is None:
            options.append(OptionView(option, label, parts, None))
            continue
        coming, failed = _drawing(site.pictures, text, messages)
        alt = f"{messages('picture', number=label)}: {text}"
        options.append(OptionView(option, label, parts, site.picture(text), coming, alt, failed))
    view = shown_question(
        format, options, key=asked.key, undo_key=asked.undo_key, heading=messages(format.texts.question)
    )
    return _with_hint(view, view.inputs[0])


def _with_hint(view: QuestionView, wanted: Input) -> QuestionView:
    from dataclasses import replace

    if len(view.inputs) > 1 or wanted.kind not in _HINTS or (wanted.kind == "levels" and len(view.options) > 1):
        return view
    return replace(view, hint="ask_keys_like" if wanted.levels == 2 else _HINTS[wanted.kind])


def _drawing(pictures: PoolPictures, text: str, messages: Messages) -> tuple[bool, str | None]:
    """Whether a picture is being drawn, and why there will be none."""
    future = pictures.get(text)
    if not future.done():
        return True, None
    error = future.exception()
    if error is not None:
        return False, str(error)[:300] or messages("ask_failed")
    return False, messages("ask_failed") if future.result() is None else None


def _answer(site: _Site, request: Request, form: dict[str, str]) -> Response:
    """Store an answer, then go on to the next question."""
    conversation = site.conversation
    format = conversation.format
    asked = conversation.asked()
    if asked is None:
        return see_other("/question")
    key, count = form.get("key", ""), len(asked.texts)
    try:
        response = parse_response(form, format, count)
        if response.kind == "tie":
            response = Said(format.unsure)
        elif key == asked.key and any(_has_failed(site, asked.texts[option]) for option in response.order):
            raise IncompleteAnswerError("Expected a picture that was drawn")
    except IncompleteAnswerError:
        return see_other(f"/question?notice={format.texts.incomplete}")
    return see_other("/question" if conversation.answer(key, response) else "/question?notice=already")


def _has_failed(site: _Site, text: str) -> bool:
    return site.pictures is not None and site.pictures.failed(text)


def _undo(site: _Site, request: Request, form: dict[str, str]) -> Response:
    """Take back the last answer."""
    done = site.conversation.undo(form.get("undo_key", ""))
    return see_other(f"/question?notice={'undone' if done else 'nothing_to_undo'}")


def _state(site: _Site, request: Request, form: dict[str, str]) -> Response:
    """How sure the session is; ``settled``: by all answers."""
    settled, certainty = site.conversation.certainty
    share = 0.0 if certainty is None else max(0.0, 2 * certainty.accuracy - 1)
    return JSONResponse({"said": _in_words(certainty, _messages(request)), "share": share, "settled": settled})


def _in_words(certainty: Certainty | None, messages: Messages) -> str:
    if certainty is None:
        return ""
    sure = messages("ask_sure", percent=f"{100 * certainty.accuracy:.0f}")
    if certainty.left is None:
        return f"{sure}, {messages('ask_more_than', number=certainty.most)}"
    return f"{sure}, {messages('left', number=certainty.left) if certainty.left else messages('ask_enough')}"


def _start(site: _Site, request: Request, form: dict[str, str]) -> Response:
    """What a service will be asked for."""
    paid = site.paid
    if paid is None:
        return see_other("/question")
    price = "" if paid.price is None else f"{paid.price:g}"
    total = "" if paid.price is None else f"{paid.price * paid.number:g}"
    return site.page(request, "ask_start.html", renderer=paid.renderer, number=paid.number, price=price, total=total)


def _agree(site: _Site, request: Request, form: dict[str, str]) -> Response:
    if site.pictures is not None:
        site.pictures.agree()
    return see_other("/question")


# -- pictures and the end ---------------------------------------------------------------------------------------------


def _picture(site: _Site) -> Callable[[Request], Any]:
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
        if png is None:
            return FileResponse(FOLDER / "static" / "withheld.svg", headers=_KEEP)
        site.sent += 1
        if site.sent == site.num_options:  # the first question is on the screen
            site.conversation.start()
        return Response(png, media_type="image/png", headers=_KEEP)

    return endpoint


def _finish(site: _Site, request: Request, form: dict[str, str]) -> Response:
    site.conversation.finish()
    return see_other("/end")


@dataclass(frozen=True)
class _Best:
    """A prompt of the last page."""

    parts: tuple[str, ...]
    share: int  # of 100 random ones
    picture: str | None
    coming: bool
    failed: str | None


def _end(site: _Site, request: Request, form: dict[str, str]) -> Response:
    """What was learnt."""
    done, ending = site.conversation.ending
    if not done:
        site.conversation.finish()
    messages = _messages(request)
    best: Sequence[_Best] = ()
    if ending is not None:
        best = [_best(site, one.text, one.share, messages) for one in ending.best]
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
        shape=_shape(site),
        later=not site.conversation.published,
        folder=str(site.folder),
    )


def _best(site: _Site, text: str, share: float, messages: Messages) -> _Best:
    own = text.removeprefix(f"{site.title}{SEPARATOR}") if site.title else text  # all are of the same subject
    parts, rounded = tuple(own.split(SEPARATOR)), min(99, int(100 * share))
    if site.pictures is None:
        return _Best(parts, rounded, None, False, None)
    coming, failed = _drawing(site.pictures, text, messages)
    return _Best(parts, rounded, site.picture(text), coming, failed)


def _file(site: _Site, request: Request, form: dict[str, str]) -> Response:
    name = _FILES.get(request.path_params["kind"])
    if name is None or not (site.folder / name).is_file():
        raise HTTPException(404)
    file = site.folder / name
    return FileResponse(file, filename=name.replace("/", "-"), content_disposition_type="attachment")
