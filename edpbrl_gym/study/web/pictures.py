"""Pictures of options, for the participants whose questions show them; their addresses tell nothing about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from edpbrl_gym.study.web.context import COOKIE, FOLDER, Site
from edpbrl_gym.study.web.signing import BadTokenError

__all__ = ["picture_endpoint"]

_KEEP = {"Cache-Control": "private, max-age=86400"}
_GROUPS = ("style-0", "style-1")


def picture_endpoint(site: Site) -> Callable[[Request], Any]:
    """The endpoint of the pictures: by a question's key and an option, or by a group of the last question.

    It waits until the picture is drawn, without a thread; a picture that the model's safety checker flagged is replaced
    by a sign.
    """

    async def endpoint(request: Request) -> Response:
        text = await run_in_threadpool(_text, site, request)
        if text is None or site.queue.pictures is None:
            raise HTTPException(404)
        png = await asyncio.shield(asyncio.wrap_future(site.queue.pictures.get(text)))
        if png is None:
            return FileResponse(FOLDER / "static" / "withheld.svg", headers=_KEEP)
        return Response(png, media_type="image/png", headers=_KEEP)

    return endpoint


def _text(site: Site, request: Request) -> str | None:
    """The text of a picture; None: the participant is shown no such picture."""
    visitor = site.signer.visitor(request.cookies.get(COOKIE, ""))
    if not visitor.is_participant:
        raise BadTokenError("Expected the cookie of a participant, got that of a visitor")
    participant = site.store.participant(visitor.name)
    name, option = request.path_params["name"], request.path_params["option"]
    if name in _GROUPS:
        style = site.queue.style(participant)
        texts = () if style is None else style.groups[_GROUPS.index(name)][1]
    else:
        question = site.store.question(participant.id, name)
        texts = () if question is None or question.shown_at is None else tuple(question.texts)
    return {str(number): text for number, text in enumerate(texts)}.get(option)
