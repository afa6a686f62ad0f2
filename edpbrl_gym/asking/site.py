"""What the pages of `edpbrl ask` are about, who may read them, and in which language."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from edpbrl_gym.asking.conversation import Conversation
from edpbrl_gym.study.web.frame import Messages, Templates, available_languages, load_messages, preferred_language
from edpbrl_gym.study.web.guards import Signer, Visitor

if TYPE_CHECKING:
    from edpbrl_gym.asking.pool_pictures import Paid, PoolPictures

__all__ = ["YOU", "Site", "messages_of"]

YOU = Visitor("you", True)
_LANGUAGES = ["en", *(code for code in available_languages() if code != "en")]


@dataclass
class Site:
    """What the pages are about; the arguments are those of ``create_asking_app``."""

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
        """What must be agreed to before the first question."""
        return None if self.pictures is None else self.pictures.paid

    @property
    def shape(self) -> str:
        """Class of the pages for the shape of the pictures."""
        return "" if self.pictures is None else f"is-{self.pictures.shape}"

    def is_open(self, request: Request) -> bool:
        """Whether a request has the cookie of this run."""
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.signer.cookie(YOU).encode())

    def picture(self, text: str) -> str:
        """The address of a picture."""
        name = self.signer.picture(YOU, text)
        self.names[name] = text
        return f"/pictures/{name}"

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page in the reader's language."""
        return self.templates.page(
            template,
            _language(request),
            status=status,
            title=self.title or messages_of(request)("ask_title"),
            form_token=self.signer.form_token(YOU),
            **values,
        )


def _language(request: Request) -> str:
    return preferred_language(request.headers.get("accept-language", ""), _LANGUAGES)


def messages_of(request: Request) -> Messages:
    """The messages in the reader's language."""
    return load_messages(_language(request))
