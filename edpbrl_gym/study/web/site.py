"""What all pages of a study share: the study, who sent a request, how a page is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.responses import Response as Answer

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.forms.pages import Page
from edpbrl_gym.study.prose import render
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.watching import Watch
from edpbrl_gym.study.web.frame import Messages, Templates, preferred_language
from edpbrl_gym.study.web.guards import RateLimit, Signer, Visitor
from edpbrl_gym.study.wording import messages_with

__all__ = ["COOKIE", "PageRequest", "Site"]

COOKIE = "edpbrl_study"
_WAITING = 500  # people whose questions may be chosen at once; a thread that waits costs next to nothing
_MONTH = 30 * 24 * 3600  # seconds that a browser keeps the cookie


class Site:
    """A study with what its pages need.

    Args:
        queue: The study.
        public_url: Address at which people reach it; None: whatever a request names.
        preview: Path of the preview link, if this is a preview of a study.
        watch: Counts what fails; None: nobody does.
    """

    def __init__(
        self, queue: StudyQueue, *, public_url: str | None = None, preview: str = "", watch: Watch | None = None
    ) -> None:
        self.queue, self.store, self.watch = queue, queue.store, watch
        self.config: StudyConfig = queue.config
        self.public_url = public_url
        self.preview, self.cookie = preview, f"{COOKIE}_preview" if preview else COOKIE
        self.secure = public_url is not None and public_url.startswith("https://")
        self.signer = Signer(self.store.secret)  # of cookies and forms
        self.participants_limit = RateLimit(burst=60, rate=10)  # of requests for each participant
        self.strangers_limit = RateLimit(burst=1000, rate=100)  # for all others together
        self.question_threads = CapacityLimiter(
            _WAITING
        )  # that may wait for questions; other pages never wait for them
        # kinds of links without identifiers, by the names of their parameters, that are in the log
        self.noted_links: set[tuple[str, ...]] = set()
        self._templates = Templates(self.messages)
        self._html: dict[str, Markup] = {}  # by Markdown
        self._shown: dict[str, Mapping[str, str]] = {}
        self._messages: dict[str, Messages] = {}

    def page(
        self,
        template: str,
        language: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        visitor: Visitor | None = None,
        **values: Any,
    ) -> HTMLResponse:
        """A page made of a template; with a visitor, its forms carry the visitor's token."""
        return self._templates.page(
            template,
            language,
            status=status,
            headers=headers,
            title=self.shown(language).get(self.config.title, self.config.title),
            preview=self.preview,
            form_token=None if visitor is None else self.signer.form_token(visitor),
            **values,
        )

    def text(self, name: str, language: str) -> Markup:
        """A text of the study as HTML."""
        return self._rendered(self.config.texts[f"{name}.{language}"])

    def page_text(self, page: Page, language: str) -> Markup:
        """The text of a page of questions as HTML: its file's where there is one, else what the configuration says."""
        text = self.config.texts.get(f"{page.name}.{language}")
        return self._rendered(self.shown(language).get(page.text, page.text) if text is None else text)

    def _rendered(self, text: str) -> Markup:
        if text not in self._html:
            self._html[text] = Markup(render(text, lambda address: f"/images/{self.config.images[address]}"))
        return self._html[text]

    def shown(self, language: str) -> Mapping[str, str]:
        """What is shown in a language for texts that are stored as they are."""
        if language not in self._shown:
            self._shown[language] = self.config.shown_in(language)
        return self._shown[language]

    def messages(self, language: str) -> Messages:
        """The texts of the pages in a language, with those that the study has itself."""
        if language not in self._messages:
            self._messages[language] = messages_with(language, self.config.messages.get(language, {}))
        return self._messages[language]

    def language_of(self, participant: Participant) -> str:
        """The language of a participant, or the first one if the study no longer has it."""
        languages = self.config.languages
        return participant.language if participant.language in languages else languages[0]

    def set_cookie(self, response: Any, visitor: Visitor) -> None:
        """Let the browser keep the visitor's cookie."""
        response.set_cookie(
            self.cookie, self.signer.cookie(visitor), max_age=_MONTH, httponly=True, samesite="lax", secure=self.secure
        )


@dataclass(frozen=True)
class PageRequest:
    """A request to a page."""

    site: Site
    http: Request  # the request itself
    visitor: Visitor  # who sent it
    participant: Participant | None  # the visitor, if a participant
    form: Mapping[str, str]  # fields of the form that was posted; empty for others

    @property
    def person(self) -> Participant:
        """The participant; pages that read it are served to participants only."""
        assert self.participant is not None
        return self.participant

    @property
    def language(self) -> str:
        if self.participant is not None:
            return self.site.language_of(self.participant)
        offered = self.site.config.languages
        wanted = self.form.get("language") or self.http.query_params.get("lang", "")
        if wanted in offered:
            return wanted
        return preferred_language(self.http.headers.get("accept-language", ""), offered)

    @property
    def messages(self) -> Messages:
        return self.site.messages(self.language)

    def count_events(self, kind: str) -> int:
        """How often something happened to the participant."""
        return sum(event["kind"] == kind for event in self.site.store.events(self.person.id))

    @property
    def was_instructed(self) -> bool:
        return self.count_events("instructed") > 0

    def page(self, template: str, **values: Any) -> Answer:
        return self.site.page(template, self.language, visitor=self.visitor, **values)
