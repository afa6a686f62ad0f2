"""What all pages share: their texts in several languages, the study, who sent a request, how a page is made."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response as Answer

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.web.guards import RateLimit, Signer, Visitor

__all__ = [
    "COOKIE",
    "FOLDER",
    "Messages",
    "PageRequest",
    "Site",
    "available_languages",
    "has_messages",
    "load_messages",
    "preferred_language",
    "see_other",
]

_FALLBACK = "en"
COOKIE = "edpbrl_study"
FOLDER = Path(str(files("edpbrl_gym.study.web")))
_WAITING = 500  # people whose questions may be chosen at once; a thread that waits costs next to nothing
_MONTH = 30 * 24 * 3600  # seconds that a browser keeps the cookie


class Messages:
    """The texts of one language, by name: ``messages("left", number=3)``."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.direction = texts["direction"]  # "ltr" or "rtl"
        self._texts = texts

    def __call__(self, name: str, /, **values: Any) -> str:
        """The text of a name with its values; in a text from right to left they keep their own direction."""
        if self.direction == "rtl":
            values = {one: f"\u2066{value}\u2069" for one, value in values.items()}
        return self._texts[name].format(**values)


def available_languages() -> list[str]:
    """Codes of the languages in which the pages have texts."""
    folder = files("edpbrl_gym.study.web") / "messages"
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def has_messages(language: str) -> bool:
    """Whether the pages have texts in a language, or in its base language ("zh" for "zh-Hans")."""
    return _file_of(language) is not None


def _file_of(language: str) -> str | None:
    available = available_languages()
    return next((code for code in (language, language.partition("-")[0]) if code in available), None)


@cache
def load_messages(language: str) -> Messages:
    """The texts of a language, of its base language if it has none, else in English."""
    chosen = _file_of(language) or _FALLBACK
    path = files("edpbrl_gym.study.web") / "messages" / f"{chosen}.toml"
    return Messages(chosen, tomllib.loads(path.read_text(encoding="utf-8")))


def preferred_language(accepted: str, offered: Sequence[str]) -> str:
    """The offered language that a browser's Accept-Language header prefers; the first one if it names none."""
    wanted = []
    for part in accepted[:500].split(","):
        code, _, quality = part.partition(";q=")
        try:
            wanted.append((-float(quality or 1), code.strip().lower()))
        except ValueError:
            continue
    for _, code in sorted(wanted, key=lambda pair: pair[0]):
        for language in offered:
            if code and language.lower().partition("-")[0] == code.partition("-")[0]:
                return language
    return offered[0]


class Site:
    """A study with what its pages need."""

    def __init__(self, queue: StudyQueue, *, public_url: str | None = None) -> None:
        self.queue, self.store = queue, queue.store
        self.config: StudyConfig = queue.config
        self.public_url = public_url
        self.secure = public_url is not None and public_url.startswith("https://")
        self.signer = Signer(self.store.secret)  # of cookies and forms
        self.participants_limit = RateLimit(burst=60, rate=10)  # of requests for each participant
        self.strangers_limit = RateLimit(burst=1000, rate=100)  # for all others together
        self.question_threads = CapacityLimiter(
            _WAITING
        )  # that may wait for questions; other pages never wait for them
        # kinds of links without identifiers, by the names of their parameters, that are in the log
        self.noted_links: set[tuple[str, ...]] = set()
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

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
        messages = load_messages(language)
        text = self._templates.get_template(template).render(
            t=messages,
            language=language,
            title=self.config.title,
            static=static_url,
            form_token=None if visitor is None else self.signer.form_token(visitor),
            **values,
        )
        return HTMLResponse(text, status_code=status, headers=headers)

    def text(self, name: str, language: str) -> list[str]:
        """The paragraphs of a text of the study."""
        text = self.config.texts[f"{name}.{language}"]
        return [part.strip() for part in text.split("\n\n") if part.strip()]

    def language_of(self, participant: Participant) -> str:
        """The language of a participant, or the first one if the study no longer has it."""
        languages = self.config.languages
        return participant.language if participant.language in languages else languages[0]

    def set_cookie(self, response: Any, visitor: Visitor) -> None:
        """Let the browser keep the visitor's cookie."""
        response.set_cookie(
            COOKIE, self.signer.cookie(visitor), max_age=_MONTH, httponly=True, samesite="lax", secure=self.secure
        )


@cache
def static_url(name: str) -> str:
    """The address of a file of the pages; it changes with the file, so browsers may keep it."""
    digest = hashlib.sha256((FOLDER / "static" / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def see_other(address: str) -> RedirectResponse:
    """The answer to a post: the browser gets another page, and reloading it posts nothing."""
    return RedirectResponse(address, status_code=303)


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
        return load_messages(self.language)

    def count_events(self, kind: str) -> int:
        """How often something happened to the participant."""
        return sum(event["kind"] == kind for event in self.site.store.events(self.person.id))

    @property
    def was_instructed(self) -> bool:
        return self.count_events("instructed") > 0

    def page(self, template: str, **values: Any) -> Answer:
        return self.site.page(template, self.language, visitor=self.visitor, **values)
