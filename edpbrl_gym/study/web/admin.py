"""The researcher's pages, behind a token: the state of the study, its report, and the audit of a participant."""

from __future__ import annotations

import hashlib
import hmac
import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from edpbrl_gym.reporting.report import Picture, Report, Text
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.export_tables import StudyTables, facts_of, of_study, pseudonym, tables_of
from edpbrl_gym.study.overview import overview
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.web.forms import parse_form
from edpbrl_gym.study.web.guards import BadTokenError, RateLimit, TooManyRequestsError, is_cross_site, limited_body
from edpbrl_gym.study.web.preview import preview_address
from edpbrl_gym.study.web.site import Site

__all__ = ["ADMIN_COOKIE", "Admin", "admin_routes"]

ADMIN_COOKIE = "edpbrl_admin"
_HOURS = 12  # after which the token is asked for again
_FRESH = 5.0  # seconds for which a report is shown again without being made anew
_LANGUAGE = "en"  # of the researcher's pages


def admin_routes(site: Site, token: str | None) -> list[Route]:
    """The routes of the researcher's pages; none without a token."""
    if token is None:
        return []
    admin = Admin(site, token)
    return [
        Route("/admin", admin.page(admin.now), methods=["GET"]),
        Route("/admin/report", admin.page(admin.report), methods=["GET"]),
        Route("/admin", admin.sign_in, methods=["POST"]),
        Route("/admin/figures/{name}.png", admin.page(admin.figure), methods=["GET"]),
        Route("/admin/participants/{name}", admin.page(admin.participant), methods=["GET"]),
    ]


@dataclass(frozen=True, eq=False)
class _State:
    """The study at a time."""

    made: float
    tables: StudyTables
    report: Report


class Admin:
    """The researcher's pages."""

    def __init__(self, site: Site, token: str) -> None:
        self._site = site
        self._token = hashlib.sha256(token.encode()).digest()
        secret = hmac.new(self._token, site.store.secret.encode(), hashlib.sha256).hexdigest()
        self._cookies = URLSafeTimedSerializer(secret, salt="edpbrl study admin")  # another token closes all pages
        self._wrong = RateLimit(burst=10, rate=0.2)
        self._last: _State | None = None
        self._lock = threading.Lock()

    def page(self, show: Callable[[Request], Response]) -> Callable[[Request], Any]:
        """The endpoint of a page that is shown with a valid cookie; otherwise the form that asks for the token."""

        async def endpoint(request: Request) -> Response:
            if not self._is_open(request):
                return self._site.page(
                    "admin_form.html", _LANGUAGE, status=401 if request.url.path != "/admin" else 200
                )
            return await run_in_threadpool(show, request)

        return endpoint

    def _is_open(self, request: Request) -> bool:
        try:
            self._cookies.loads(request.cookies.get(ADMIN_COOKIE, ""), max_age=_HOURS * 3600)
        except BadData:
            return False
        return True

    async def sign_in(self, request: Request) -> Response:
        """Open the pages with the token, which works however many wrong ones are being tried.

        Nobody can be told apart without addresses, so a limit of all tries would lock everybody out. What makes guesses
        hopeless is a random token; wrong ones are limited so that they cost little.
        """
        site = self._site
        if is_cross_site(request.headers, [site.public_url] if site.public_url else []):
            raise BadTokenError("Expected the researcher's token from a page of the study, got it from another site")
        form = parse_form(await limited_body(request))
        if not hmac.compare_digest(hashlib.sha256(form.get("secret", "").encode()).digest(), self._token):
            if not self._wrong.allows("all"):
                raise TooManyRequestsError("Expected the researcher's token, got wrong ones too fast")
            raise BadTokenError("Expected the researcher's token, got another one")
        response = RedirectResponse("/admin", status_code=303)
        response.set_cookie(
            ADMIN_COOKIE,
            str(self._cookies.dumps("open")),
            max_age=_HOURS * 3600,
            path="/admin",
            httponly=True,
            samesite="strict",
            secure=site.secure,
        )
        return response

    def now(self, request: Request) -> Response:
        """Who comes, who waits, what fails, what needs doing: one screen."""
        site = self._site
        failures = {} if site.watch is None else site.watch.failures()
        return site.page(
            "admin_state.html",
            _LANGUAGE,
            state=overview(site.queue, failures),
            preview_link=preview_address(site.store.secret),
        )

    # the report

    def report(self, request: Request) -> Response:
        """The report of the study as it stands, without predictions of the test answers, which take long."""
        state = self._state()
        return self._site.page(
            "admin.html",
            _LANGUAGE,
            sections=[_section(one) for one in state.report.sections],
            people=state.tables.participants,
            has_tests=self._site.config.checks.test > 0,
        )

    def figure(self, request: Request) -> Response:
        sections = self._state().report.sections
        name = request.path_params["name"]
        figure = next((one.figure for one in sections if isinstance(one, Picture) and one.name == name), None)
        if figure is None:
            raise HTTPException(404)
        image = io.BytesIO()
        with self._lock:  # a figure is drawn by one thread
            figure.savefig(image, format="png", dpi=144)
        return Response(image.getvalue(), media_type="image/png")

    def _state(self) -> _State:
        with self._lock:
            if self._last is None or time.monotonic() - self._last.made > _FRESH:
                site, store = self._site, self._site.store
                pilot = site.config.recruitment.pilot
                facts = facts_of(site.config, deleted=store.counts()["deleted"], pilot=pilot)
                tables = tables_of(of_study(store.records(), pilot=pilot), store.secret, facts)
                self._last = _State(time.monotonic(), tables, make_report(tables))
            return self._last

    # one participant

    def participant(self, request: Request) -> Response:
        name, store = request.path_params["name"], self._site.store
        record = next((one for one in store.records() if pseudonym(store.secret, one.participant) == name), None)
        if record is None:
            raise HTTPException(404)
        return self._site.page(
            "admin_participant.html", _LANGUAGE, audit=audit(name, record, self._site.queue.materials)
        )


def _section(section: Any) -> dict[str, Any]:
    """A section of the report for the template: a table, a figure, or paragraphs with code in backticks."""
    if isinstance(section, Picture):
        return {"kind": "figure", "name": section.name, "caption": section.caption}
    if not isinstance(section, Text):
        return {"kind": "table", "table": section}
    lines = [line for line in section.lines if line.strip()]
    items = [line.removeprefix("- ").replace("**", "") for line in lines]
    return {
        "kind": "text",
        "title": section.title,
        "is_list": all(line.startswith("- ") for line in lines),
        "lines": [line.split("`") for line in items],  # every second part is code
    }
