"""Signed cookies, and tokens against posts from other pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

__all__ = ["BadTokenError", "Signer", "Visitor"]


class BadTokenError(ValueError):
    """A cookie or a token that this study did not sign, or that it signed for someone else."""


@dataclass(frozen=True)
class Visitor:
    """Who sent a request, by their signed cookie.

    Attributes:
        name: Random name of the browser until consent, then the code of the participant.
        is_participant: Whether it is the code of a participant.
    """

    name: str
    is_participant: bool


class Signer:
    """Signs with the secret of the study, which its database holds, so that several servers know it.

    Args:
        secret: The secret.
    """

    def __init__(self, secret: str) -> None:
        self._cookies = URLSafeSerializer(secret, salt="edpbrl study cookie")
        self._entries = URLSafeSerializer(secret, salt="edpbrl study entry")
        self._key = hashlib.sha256(f"edpbrl study csrf {secret}".encode()).digest()

    def new_visitor(self) -> Visitor:
        """A visitor with a new random name."""
        return Visitor(secrets.token_urlsafe(16), False)

    def cookie(self, visitor: Visitor) -> str:
        """The value of the visitor's cookie."""
        return str(self._cookies.dumps([visitor.name, visitor.is_participant]))

    def visitor(self, cookie: str) -> Visitor:
        """The visitor of a cookie.

        Raises:
            BadTokenError: This study did not sign it.
        """
        try:
            name, is_participant = self._cookies.loads(cookie)
            return Visitor(str(name), bool(is_participant))
        except (BadData, ValueError, TypeError):
            raise BadTokenError("Expected a cookie that this study signed, got another one") from None

    def form_token(self, visitor: Visitor) -> str:
        """The token that every form of the visitor carries; another site cannot know it."""
        return hmac.new(self._key, visitor.name.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, visitor: Visitor, token: str) -> bool:
        """Whether it is the visitor's token."""
        return hmac.compare_digest(self.form_token(visitor).encode(), token.encode())

    def picture(self, visitor: Visitor, text: str) -> str:
        """The name of a text's picture for a visitor; it tells nothing about the text."""
        return hmac.new(self._key, f"{visitor.name} {text}".encode(), hashlib.sha256).hexdigest()[:32]

    def entry(self, visitor: Visitor, external: Mapping[str, str]) -> str:
        """The identifiers with which a visitor arrived, for the form that enrols them."""
        return str(self._entries.dumps([visitor.name, dict(external)]))

    def external(self, visitor: Visitor, entry: str) -> dict[str, str]:
        """The identifiers of an entry.

        Raises:
            BadTokenError: This study did not sign it for this visitor.
        """
        try:
            loaded: Any = self._entries.loads(entry)
            name, external = loaded
        except (BadData, ValueError, TypeError):
            raise BadTokenError("Expected an entry that this study signed, got another one") from None
        if name != visitor.name:
            raise BadTokenError("Expected the entry of this visitor, got that of another one")
        return {str(key): str(value) for key, value in external.items()}
