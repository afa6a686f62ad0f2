"""What pages show: questions, groups of prompts, and pictures, whose addresses tell nothing about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from edpbrl_gym.rendering import NotDrawn, RenderingError
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.prose import IMAGES
from edpbrl_gym.study.records import NotReadyError, StoredQuestion
from edpbrl_gym.study.style import Style
from edpbrl_gym.study.web.frame import FOLDER, Messages
from edpbrl_gym.study.web.guards import BadTokenError, Visitor
from edpbrl_gym.study.web.questions import LABELS, OptionView, QuestionView, shown_question
from edpbrl_gym.study.web.site import Site
from edpbrl_gym.vocabulary import SEPARATOR

__all__ = [
    "GroupView",
    "image_endpoint",
    "picture_addresses",
    "picture_endpoint",
    "view_groups",
    "view_question",
]

_SHOWN = 2  # questions back whose pictures a page may still load
_KEEP = {"Cache-Control": "private, max-age=86400"}


def view_question(
    question: StoredQuestion,
    config: StudyConfig,
    messages: Messages,
    *,
    undo_key: str | None,
    shown: Mapping[str, str],
    pictures: list[str] | None = None,
) -> QuestionView:
    """What a page shows of a question; ``shown`` says it in the participant's language."""
    format = config.questions.answers
    options = tuple(
        OptionView(
            option,
            LABELS[position],
            shown_parts(question.texts[option], shown),
            None if pictures is None else pictures[option],
        )
        for position, option in enumerate(question.positions)
    )
    heading = messages(format.texts.question)
    if question.expected is not None:
        label = LABELS[question.positions.index(question.expected)]
        heading = messages(format.texts.attention, number=label)
    return shown_question(
        format,
        options,
        key=question.key,
        undo_key=undo_key,
        heading=heading,
        cant_tell=config.questions.cant_tell,
        practice=question.kind == "practice",
    )


def shown_parts(text: str, shown: Mapping[str, str]) -> tuple[str, ...]:
    """The tokens of an option in the language of the page."""
    return tuple(shown.get(part, part) for part in shown.get(text, text).split(SEPARATOR))


@dataclass(frozen=True)
class GroupView:
    """A group of prompts of the last question."""

    label: str  # "A" or "B"
    is_learnt: bool  # whether they are those of the learnt taste; shown after the choice only
    prompts: tuple[tuple[str, ...], ...]  # the prompts, token by token
    pictures: tuple[str, ...] | None  # addresses of their pictures; None: the prompts are shown


def view_groups(
    style: Style, pictures: Callable[[Sequence[str]], list[str] | None], shown: Mapping[str, str]
) -> list[GroupView]:
    """What the last page shows of a learnt taste; ``pictures`` gives the addresses of the pictures of prompts."""
    views = []
    for label, (name, prompts) in zip("AB", style.groups, strict=True):
        addresses = pictures(prompts)
        parts = tuple(shown_parts(text, shown) for text in prompts)
        views.append(GroupView(label, name == "learnt", parts, None if addresses is None else tuple(addresses)))
    return views


def picture_addresses(site: Site, visitor: Visitor, texts: Sequence[str]) -> list[str] | None:
    """Addresses of the pictures of texts for a visitor; None: texts are shown."""
    if site.queue.pictures is None:
        return None
    return [f"/pictures/{site.signer.picture(visitor, text)}.png" for text in texts]


def picture_endpoint(site: Site) -> Callable[[Request], Any]:
    """The endpoint of the pictures that a participant is shown, or will be shown next.

    It waits until the picture is drawn, without a thread; a picture that the model's safety checker flagged, or that
    the renderer could not draw, is replaced by a sign.
    """

    async def endpoint(request: Request) -> Response:
        text, is_last = await run_in_threadpool(_text, site, request)
        if text is None or site.queue.pictures is None:
            raise HTTPException(404)
        try:
            png = await asyncio.shield(asyncio.wrap_future(site.queue.pictures.get(text, is_last=is_last)))
        except (NotDrawn, RenderingError):  # tried again when the page is opened again
            return FileResponse(FOLDER / "static" / "withheld.svg", headers={"Cache-Control": "no-store"})
        if png is None:
            return FileResponse(FOLDER / "static" / "withheld.svg", headers=_KEEP)
        return Response(png, media_type="image/png", headers=_KEEP)

    return endpoint


def image_endpoint(site: Site) -> Callable[[Request], Any]:
    """The endpoint of the images in the study's texts."""
    files = {name: site.config.folder / address for address, name in site.config.images.items()}

    async def endpoint(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, media_type=IMAGES[path.suffix.lower()], headers=_KEEP)

    return endpoint


def _text(site: Site, request: Request) -> tuple[str | None, bool]:
    """The text of a picture, None if the participant is shown no such picture; and whether the last page shows it."""
    visitor = site.signer.visitor(request.cookies.get(site.cookie, ""))
    if not visitor.is_participant:
        raise BadTokenError("Expected the cookie of a participant, got that of a visitor")
    participant, history = site.store.situation(visitor.name)
    shown = [text for question, _ in history[-_SHOWN:] for text in question.texts]
    shown += site.queue.known_next(participant, history)
    name = request.path_params["name"]
    found = _named(site, visitor, shown, name)
    if found is not None or participant.status != "finished":
        return found, False
    try:
        style = site.queue.style(participant)
    except NotReadyError:
        style = None
    return None if style is None else _named(site, visitor, [*style.learnt, *style.random], name), True


def _named(site: Site, visitor: Visitor, texts: Sequence[str], name: str) -> str | None:
    return next((text for text in texts if site.signer.picture(visitor, text) == name), None)
