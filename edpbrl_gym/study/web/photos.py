"""The pages on which participants hand in photos of their own, and say how much they like them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response as Answer

from edpbrl_gym._pictures import MAX_PIXELS
from edpbrl_gym.study.own_photos import OWN_PHOTOS, OwnPhotos, Photo, RefusedPhotoError, reencoded
from edpbrl_gym.study.photo_store import AGREED, DONE, PhotoStore, StoredPhoto, photos_wait, ratings_wait
from edpbrl_gym.study.web.form_pages import due_page
from edpbrl_gym.study.web.forms import BadFormError
from edpbrl_gym.study.web.frame import see_other
from edpbrl_gym.study.web.guards import BadTokenError, BodyTooLargeError, TooManyRequestsError, limited_chunks, refuse
from edpbrl_gym.study.web.site import PageRequest, Site

__all__ = ["Page", "decline", "go_on", "photo_endpoint", "photos_due", "rate", "remove", "show", "upload_endpoint"]

_MEGABYTE = 2**20
_MOST_AT_ONCE = 100  # megabytes of files in one form, and number of files
_FIELDS = 8  # more than the form has, without its files
_UPLOADS = 8  # at once on this server; others wait
_PATIENCE = 60.0  # seconds that they wait
_DECODING = threading.Lock()  # one photo at a time: a large one takes 150 MB
_LEVELS = 5
Page = Callable[[PageRequest], Answer]


def photos_due(request: PageRequest) -> bool:
    """Whether the participant has to hand in photos now, or to say how much they like them."""
    events = _events(request)
    settings = request.site.config.own_photos
    return events is not None and (photos_wait(settings, events) or ratings_wait(settings, events))


def _events(request: PageRequest) -> list[dict[str, Any]] | None:
    """What has happened to a participant who may be at these pages; None: it is not their time."""
    if request.site.config.own_photos is None or request.person.status != "consented":
        return None
    events = request.site.store.events(request.person.id)
    instructed = any(one["kind"] == "instructed" for one in events)
    return None if instructed or due_page(request, before_photos=True) is not None else events


def _settings(request: PageRequest) -> OwnPhotos:
    settings = request.site.config.own_photos
    assert settings is not None
    return settings


def _may_add(request: PageRequest) -> bool:
    events = _events(request)
    return events is not None and photos_wait(_settings(request), events)


def _stored(request: PageRequest) -> list[StoredPhoto]:
    return PhotoStore(request.site.store.database).of(request.person.id)


def show(request: PageRequest) -> Answer:
    """What was handed in, and the form for more; then the photos with the question how much each is liked."""
    if not photos_due(request):
        return see_other("/question")
    if not _may_add(request):
        return _ask_ratings(request)
    if getattr(request.http.state, "too_large", False):
        most = _together(_settings(request))
        return _show(request, status=413, notice=request.messages("photos_total", megabytes=most))
    return _show(request)


def _show(
    request: PageRequest, *, status: int = 200, notice: str | None = None, problems: tuple[tuple[str, str], ...] = ()
) -> Answer:
    settings, photos = _settings(request), _stored(request)
    return request.page(
        "photos.html",
        status=status,
        text_html=request.site.text(OWN_PHOTOS, request.language),
        settings=settings,
        photos=photos,
        agreed=_has_agreed(request),
        enough=len(photos) >= settings.least,
        full=len(photos) >= settings.most,
        notice=notice,
        problems=problems,
    )


def _has_agreed(request: PageRequest) -> bool:
    version = _settings(request).version
    events = request.site.store.events(request.person.id)
    return any(one["kind"] == AGREED and one["detail"].get("version") == version for one in events)


def upload(request: PageRequest) -> Answer:
    """Store the photos of a form; what can't be taken is said at its file."""
    if not _may_add(request):
        return see_other("/question")
    settings, t = _settings(request), request.messages
    files: list[UploadFile] = [one for one in request.http.state.files if one.filename or one.size]
    if not _has_agreed(request) and request.form.get("agree") != "yes":
        return _show(request, status=422, notice=t("photos_agree_needed"))
    if not files:
        return _show(request, status=422, notice=t("photos_none"))
    request.site.store.first_event(request.person.id, AGREED, {"version": settings.version}, about="version")
    photos, problems, is_full = PhotoStore(request.site.store.database), [], False
    for number, file in enumerate(files, 1):
        try:
            if is_full:
                raise RefusedPhotoError("most")
            photos.add(request.person.id, _photo(file, settings), settings.most)
        except RefusedPhotoError as error:
            is_full = is_full or error.why == "most"
            values = {"megabytes": settings.megabytes, "millions": MAX_PIXELS // 10**6, "most": settings.most}
            problems.append(((file.filename or str(number))[:80], t(f"photos_{error.why}", **values)))
    if problems:
        return _show(request, status=422, notice=t("photos_refused"), problems=tuple(problems))
    return see_other("/photos")


def _photo(file: UploadFile, settings: OwnPhotos) -> Photo:
    if (file.size or 0) > settings.megabytes * _MEGABYTE:
        raise RefusedPhotoError("large")
    with _DECODING:
        return reencoded(file.file.read())


def remove(request: PageRequest) -> Answer:
    """Delete a photo."""
    if not _may_add(request):
        return see_other("/question")
    PhotoStore(request.site.store.database).remove(request.person.id, request.form.get("remove", ""))
    return see_other("/photos")


def go_on(request: PageRequest) -> Answer:
    """Go on with the photos that there are, if they are enough."""
    if not _may_add(request):
        return see_other("/question")
    number, least = len(_stored(request)), _settings(request).least
    if number < least:
        return _show(request, status=422, notice=request.messages("photos_few", least=least, number=number))
    request.site.store.first_event(request.person.id, DONE, {"number": number})
    return see_other("/question")


def decline(request: PageRequest) -> Answer:
    """No photos: where they are required nobody takes part without them."""
    if not _may_add(request):
        return see_other("/question")
    PhotoStore(request.site.store.database).decline(request.person.id)
    if not _settings(request).required:
        return see_other("/question")
    request.site.queue.withdraw(request.person)
    return see_other("/end")


def _ask_ratings(request: PageRequest, missing: tuple[str, ...] = ()) -> Answer:
    return request.page(
        "photos_rating.html",
        status=422 if missing else 200,
        photos=_stored(request),
        missing=missing,
        typed=request.form,
        levels=[str(level) for level in range(1, _LEVELS + 1)],
    )


def rate(request: PageRequest) -> Answer:
    """Store how much each photo is liked, once; whatever is missing is asked for again."""
    if not photos_due(request) or _may_add(request):
        return see_other("/question")
    given = {one.key: request.form.get(f"like-{one.key}", "") for one in _stored(request)}
    missing = tuple(key for key, value in given.items() if value not in map(str, range(1, _LEVELS + 1)))
    if missing:
        return _ask_ratings(request, missing)
    PhotoStore(request.site.store.database).rate(request.person.id, {key: int(value) for key, value in given.items()})
    return see_other("/question")


def photo_endpoint(site: Site) -> Callable[[Request], Any]:
    """The endpoint of a participant's photos, for this participant only; no cache keeps them."""

    def find(request: Request) -> bytes | None:
        visitor = site.signer.visitor(request.cookies.get(site.cookie, ""))
        if not visitor.is_participant:
            raise BadTokenError("Expected the cookie of a participant, got that of a visitor")
        person = site.store.participant(visitor.name)
        return PhotoStore(site.store.database).jpeg(person.id, request.path_params["key"])

    async def endpoint(request: Request) -> Answer:
        jpeg = await run_in_threadpool(find, request)
        if jpeg is None:
            raise HTTPException(404)
        return Answer(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, no-store"})

    return endpoint


def upload_endpoint(
    site: Site, serve: Callable[[Page, Request, dict[str, str]], Awaitable[Answer]]
) -> Callable[[Request], Any]:
    """The endpoint of the form with files: the one form that may be large.

    Only a participant sends it, one at a time. Its files lie in unnamed temporary files until they are stored or
    refused.

    Args:
        site: The study.
        serve: Serves a page with the fields of a form: a post if there are any.
    """
    places, sending = asyncio.Semaphore(_UPLOADS), set[str]()

    @contextmanager
    def one_at_a_time(name: str) -> Iterator[None]:
        if name in sending:
            raise TooManyRequestsError("Expected one upload of a participant at a time, got a second one")
        sending.add(name)
        try:
            yield
        finally:
            sending.discard(name)

    async def endpoint(request: Request) -> Answer:
        visitor = site.signer.visitor(request.cookies.get(site.cookie, ""))
        if not visitor.is_participant:
            raise BadTokenError("Expected the cookie of a participant, got that of a visitor")
        with one_at_a_time(visitor.name):
            try:
                async with asyncio.timeout(_PATIENCE):
                    await places.acquire()
            except TimeoutError:
                raise TooManyRequestsError(f"Expected at most {_UPLOADS} uploads at once, got more") from None
            try:
                return await _received(request)
            finally:
                places.release()

    async def _received(request: Request) -> Answer:
        assert site.config.own_photos is not None
        try:
            form = await _parsed(request, _together(site.config.own_photos) * _MEGABYTE + 2**16)
        except BodyTooLargeError as error:
            refuse(request, error)
            request.state.too_large = True
            return await serve(show, request, {})
        try:
            request.state.files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
            fields = {name: one for name, one in form.multi_items() if isinstance(one, str)}
            return await serve(upload, request, {"token": "", **fields})
        finally:
            await form.close()

    return endpoint


def _together(settings: OwnPhotos) -> int:
    """Megabytes of the files of one form."""
    return min(settings.most * settings.megabytes, _MOST_AT_ONCE)


async def _parsed(request: Request, most: int) -> FormData:
    parser = MultiPartParser(request.headers, limited_chunks(request, most), max_files=_MOST_AT_ONCE,
                             max_fields=_FIELDS, max_part_size=1024)  # fmt: skip
    try:
        return await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise BadFormError(f"Expected a form with files, got another body ({error})") from None
