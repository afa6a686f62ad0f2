"""Pictures of options, for the participants whose questions show them; their addresses tell nothing about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from edpbrl_gym.study.web.context import COOKIE, FOLDER, Site
from edpbrl_gym.study.web.signing import BadTokenError, Visitor

__all__ = ["picture_addresses", "picture_endpoint"]

_SHOWN = 2  # questions back whose pictures a page may still load
_KEEP = {"Cache-Control": "private, max-age=86400"}


def picture_addresses(site: Site, visitor: Visitor, texts: Sequence[str]) -> list[str] | None:
    """Addresses of the pictures of texts for a visitor; None: texts are shown."""
    if site.queue.pictures is None:
        return None
    return [f"/pictures/{site.signer.picture(visitor, text)}.png" for text in texts]


def picture_endpoint(site: Site) -> Callable[[Request], Any]:
    """The endpoint of the pictures that a participant is shown, or will be shown next.

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
    participant, history = site.store.situation(visitor.name)
    shown = [text for question, _ in history[-_SHOWN:] for text in question.texts]
    shown += site.queue.known_next(participant, history)
    name = request.path_params["name"]
    found = _named(site, visitor, shown, name)
    if found is None and participant.status == "finished":
        style = site.queue.style(participant)
        found = None if style is None else _named(site, visitor, [*style.learnt, *style.random], name)
    return found


def _named(site: Site, visitor: Visitor, texts: Sequence[str], name: str) -> str | None:
    """The text whose picture has a name."""
    return next((text for text in texts if site.signer.picture(visitor, text) == name), None)
