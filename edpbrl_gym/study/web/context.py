"""What all pages share: the study, its queue, and how a page is made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.web.guards import RateLimit
from edpbrl_gym.study.web.messages import load_messages
from edpbrl_gym.study.web.signing import Signer, Visitor

__all__ = ["COOKIE", "FOLDER", "Site", "see_other"]

COOKIE = "edpbrl_study"
FOLDER = Path(str(files("edpbrl_gym.study.web")))
_MONTH = 30 * 24 * 3600  # seconds that a browser keeps the cookie


class Site:
    """A study with what its pages need.

    Args:
        queue: Queue of the study; its configuration and store are those of the pages.
        public_url: Address at which people reach the study, such as "https://study.example.org"; None: as requested.

    Attributes:
        signer: Signs cookies and forms.
        participants_limit, strangers_limit: Limits of requests for each participant, and for all others together.
    """

    def __init__(self, queue: StudyQueue, *, public_url: str | None = None) -> None:
        self.queue, self.store = queue, queue.store
        self.config: StudyConfig = queue.config
        self.public_url = public_url
        self.secure = public_url is not None and public_url.startswith("https://")
        self.signer = Signer(self.store.secret)
        self.participants_limit = RateLimit(burst=60, rate=10)
        self.strangers_limit = RateLimit(burst=1000, rate=100)
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
