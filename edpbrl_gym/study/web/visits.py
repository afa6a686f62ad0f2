"""A request to a page of a study, and who sent it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response as Answer

from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.web.context import Site
from edpbrl_gym.study.web.messages import Messages, load_messages, preferred_language
from edpbrl_gym.study.web.signing import Visitor

__all__ = ["Visit"]


@dataclass(frozen=True)
class Visit:
    """A request to a page.

    Attributes:
        site: The site.
        request: The request.
        visitor: Who sent it.
        participant: The visitor, if a participant.
        form: Fields of the form that was posted; empty for others.
    """

    site: Site
    request: Request
    visitor: Visitor
    participant: Participant | None
    form: Mapping[str, str]

    @property
    def person(self) -> Participant:
        """The participant; pages that read it are served to participants only."""
        assert self.participant is not None
        return self.participant

    @property
    def language(self) -> str:
        """The language of the page."""
        if self.participant is not None:
            return self.site.language_of(self.participant)
        offered = self.site.config.languages
        wanted = self.form.get("language") or self.request.query_params.get("lang", "")
        if wanted in offered:
            return wanted
        return preferred_language(self.request.headers.get("accept-language", ""), offered)

    @property
    def messages(self) -> Messages:
        """The texts of the page."""
        return load_messages(self.language)

    def count_events(self, kind: str) -> int:
        """How often something happened to the participant."""
        return sum(event["kind"] == kind for event in self.site.store.events(self.person.id))

    @property
    def was_instructed(self) -> bool:
        """Whether the participant has passed the instructions."""
        return self.count_events("instructed") > 0

    def page(self, template: str, **values: Any) -> Answer:
        """A page for this visitor."""
        return self.site.page(template, self.language, visitor=self.visitor, **values)
