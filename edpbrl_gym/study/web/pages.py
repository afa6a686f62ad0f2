"""The pages of a participant: consent, instructions, questions, the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response as Answer

from edpbrl_gym.study.queue import AnswerReadError, NotAskingError, NotReadyError
from edpbrl_gym.study.records import Participant, StoredQuestion, StruckQuestionError, UnknownQuestionError
from edpbrl_gym.study.schedule import schedule
from edpbrl_gym.study.style import STYLE_CHOICE
from edpbrl_gym.study.web.context import Site, see_other
from edpbrl_gym.study.web.forms import FIELDS, BadFormError, IncompleteAnswerError, parse_response, parse_timing
from edpbrl_gym.study.web.messages import Messages, load_messages, preferred_language
from edpbrl_gym.study.web.signing import BadTokenError, Visitor
from edpbrl_gym.study.web.views import GroupView, view_groups, view_question

__all__ = [
    "IDENTIFIERS",
    "Visit",
    "agree",
    "answer",
    "ask_to_withdraw",
    "come_back",
    "end",
    "enter",
    "go_on",
    "instructions",
    "pass_instructions",
    "prefer",
    "question",
    "undo",
    "withdraw",
]

IDENTIFIERS = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "participant")
"""Parameters of the study's link that are kept; others are ignored."""

_RELOAD = 3  # seconds after which the page that waits for a question asks again
_MAX_IDENTIFIER = 128  # characters
_BREAK = timedelta(days=1)  # after which a page says where the participant stopped
_NOTICES = frozenset({*FIELDS.values(), "already", "taken_back", "undone", "nothing_to_undo"})


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

    def page(self, template: str, **values: Any) -> Answer:
        """A page for this visitor."""
        return self.site.page(template, self.language, visitor=self.visitor, **values)


# before the questions


def enter(visit: Visit) -> Answer:
    """The page that the study's link opens: the text to agree to, or where the participant stopped."""
    external = _external(visit.request.query_params)
    if visit.participant is not None:
        known = visit.participant.external
        if not external or all(known.get(name) == value for name, value in external.items() if name != "SESSION_ID"):
            return see_other("/question")
    visitor = visit.site.signer.new_visitor() if visit.participant is not None else visit.visitor
    fresh = Visit(visit.site, visit.request, visitor, None, {})
    return _consent_page(fresh, visit.site.signer.entry(visitor, external))


def _consent_page(visit: Visit, entry: str, *, status: int = 200, notice: str | None = None) -> Answer:
    site = visit.site
    languages = [(code, load_messages(code)("language")) for code in site.config.languages]
    response = visit.page(
        "consent.html",
        status=status,
        paragraphs=site.text("consent", visit.language),
        languages=languages,
        address=[(name, value) for name, value in visit.request.query_params.items() if name in IDENTIFIERS],
        entry=entry,
        notice=notice,
    )
    site.set_cookie(response, visit.visitor)
    return response


def _external(parameters: Mapping[str, str]) -> dict[str, str]:
    """The identifiers in a link."""
    found = {name: parameters[name].strip() for name in IDENTIFIERS if name in parameters}
    return {
        name: value
        for name, value in found.items()
        if value and len(value) <= _MAX_IDENTIFIER and value.isprintable() and value.isascii()
    }


def agree(visit: Visit) -> Answer:
    """Consent: from here on the visitor is a participant."""
    site, entry = visit.site, visit.form.get("entry", "")
    external = site.signer.external(visit.visitor, entry)
    if visit.form.get("agree") != "yes":
        return _consent_page(visit, entry, status=422, notice="consent_needed")
    # a consent that is sent twice by a browser that was told of no cookie yet is one participant all the same
    identity = external or {"visitor": visit.visitor.name}
    participant = site.queue.consent(site.queue.enrol(identity, language=visit.language))
    response = see_other("/instructions" if participant.status == "consented" else "/question")
    site.set_cookie(response, Visitor(participant.code, True))
    return response


def instructions(visit: Visit) -> Answer:
    """What the participant is asked to do, with questions about it."""
    site, practice = visit.site, visit.site.config.practice
    pending = visit.person.status == "consented" and not _was_instructed(visit)
    wrong = visit.request.query_params.get("notice") == "wrong"
    attempt = _count_events(visit, "comprehension")
    left = practice.attempts - attempt
    if visit.person.status == "failed":
        return see_other("/end")
    notice = None
    if wrong and 0 < left < practice.attempts:
        notice = visit.messages("comprehension_wrong", left=left)
    elif visit.request.query_params.get("notice") == "missing":
        notice = visit.messages("comprehension_missing")
    return visit.page(
        "instructions.html",
        paragraphs=site.text("instructions", visit.language),
        comprehension=practice.comprehension if pending else (),
        pending=pending,
        attempt=attempt,
        notice=notice,
    )


def pass_instructions(visit: Visit) -> Answer:
    """The participant has read the instructions and answered the questions about them."""
    if visit.person.status != "consented" or _was_instructed(visit):
        return see_other("/question")
    asked = visit.site.config.practice.comprehension
    answers = []
    for number, one in enumerate(asked):
        value = visit.form.get(f"check-{number}", "")
        if not (value.isascii() and value.isdigit() and len(value) <= 3 and int(value) < len(one.choices)):
            return see_other("/instructions?notice=missing")
        answers.append(int(value))
    if asked:
        attempt = visit.form.get("attempt", "")
        if not (attempt.isascii() and attempt.isdigit() and int(attempt[:3]) <= _count_events(visit, "comprehension")):
            raise BadFormError("Expected the number of the next attempt or of one before, got another one")
        try:
            passed = visit.site.queue.check_comprehension(visit.person, answers, int(attempt[:3]))
        except NotAskingError:  # the last attempt, sent twice
            return see_other("/end")
        if not passed:
            return see_other("/instructions?notice=wrong")
    visit.site.store.add_event(visit.person.id, "instructed")
    return see_other("/question")


def _was_instructed(visit: Visit) -> bool:
    events = visit.site.store.events(visit.person.id)
    passed = (one["detail"]["correct"] for one in events if one["kind"] == "comprehension")
    return any(passed) or any(one["kind"] == "instructed" for one in events)


def _count_events(visit: Visit, kind: str) -> int:
    return sum(event["kind"] == kind for event in visit.site.store.events(visit.person.id))


# questions


def question(visit: Visit) -> Answer:
    """The question that waits for an answer."""
    site, person = visit.site, visit.person
    if person.status == "consented" and not _was_instructed(visit):
        return see_other("/instructions")
    try:
        asked = site.queue.next_question(person)
    except NotAskingError:
        return see_other("/end")
    except NotReadyError:
        return visit.page("waiting.html", headers={"Refresh": str(_RELOAD)})
    if asked is None:
        return see_other("/end")
    if _is_back_after_a_break(visit, asked):
        return see_other("/welcome-back")
    notice = visit.request.query_params.get("notice", "")
    undo_key = site.store.last_key(person.id) if site.config.questions.undo and asked.number else None
    at_most = site.config.questions.stopping is not None
    return visit.page(
        "question.html",
        question=view_question(asked, site.config, visit.messages, undo_key=undo_key, pictures=_pictures(site, asked)),
        number=asked.number + 1,
        total=len(schedule(site.config, person.number)),
        at_most=at_most,
        left=site.queue.questions_left(person, asked) if at_most else None,
        notice=visit.messages(notice) if notice in _NOTICES else None,
    )


def _pictures(site: Site, asked: StoredQuestion) -> list[str] | None:
    """Addresses of the pictures of the options, which tell nothing about them."""
    if site.queue.pictures is None:
        return None
    return [f"/pictures/{asked.key}/{option}.png" for option in range(len(asked.texts))]


def answer(visit: Visit) -> Answer:
    """Store an answer, then go on to the next question."""
    site, form = visit.site, visit.form
    questions = site.config.questions
    if visit.person.status not in ("asking", "finished"):  # finished: the last answer, sent again
        return see_other("/question")
    try:
        response = parse_response(form, questions.format, questions.options, cant_tell=questions.cant_tell)
    except IncompleteAnswerError:
        return see_other(f"/question?notice={FIELDS[questions.format]}")
    try:
        receipt = site.queue.answer(visit.person, form.get("key", ""), response, parse_timing(form))
    except StruckQuestionError:
        return see_other("/question?notice=taken_back")
    except UnknownQuestionError:
        raise BadTokenError("Expected an answer to a question of this participant, got another key") from None
    if not receipt.first and receipt.answer.response != response:
        return see_other("/question?notice=already")
    return see_other("/question")


def undo(visit: Visit) -> Answer:
    """Take back the last answer, as long as it is not the very last one: after it the taste is shown."""
    if visit.person.status == "finished":
        return see_other("/end")
    try:
        visit.site.queue.undo(visit.person, visit.form.get("undo_key", ""))
    except (UnknownQuestionError, AnswerReadError):
        return see_other("/question?notice=nothing_to_undo")
    except NotAskingError:
        return see_other("/end")
    return see_other("/question?notice=undone")


def _is_back_after_a_break(visit: Visit, asked: StoredQuestion) -> bool:
    """Whether a day has passed since the participant did something; the question was prepared at the last answer."""
    now = datetime.now(UTC)
    if now - datetime.fromisoformat(asked.created_at) < _BREAK:
        return False
    events = visit.site.store.events(visit.person.id)
    return all(now - datetime.fromisoformat(one["at"]) >= _BREAK for one in events if one["kind"] == "came back")


def come_back(visit: Visit) -> Answer:
    """The page that a participant sees after a break of a day."""
    history = visit.site.store.history(visit.person.id)
    answered = [given.answered_at for _, given in history if given is not None]
    last = max(answered, default=visit.person.consented_at or visit.person.created_at)
    return visit.page(
        "welcome_back.html",
        number=len(answered),
        date=datetime.fromisoformat(last).date().isoformat(),
        paragraphs=visit.site.text("instructions", visit.language),
    )


def go_on(visit: Visit) -> Answer:
    """Go on after a break."""
    visit.site.store.add_event(visit.person.id, "came back")
    return see_other("/question")


# the end


def ask_to_withdraw(visit: Visit) -> Answer:
    """Ask whether the participant wants to stop for good."""
    return visit.page("withdraw.html")


def withdraw(visit: Visit) -> Answer:
    """The participant stops for good."""
    if visit.person.status not in ("finished", "failed"):
        visit.site.store.set_status(visit.person.id, "withdrawn")
    return see_other("/end")


def end(visit: Visit) -> Answer:
    """The last page: what was learnt, thanks and the completion code, or why there are no more questions."""
    status = visit.person.status
    if status == "finished":
        return _thanks(visit)
    if status in ("failed", "withdrawn"):
        return visit.page("ended.html", status_name=status, code=visit.person.code)
    return see_other("/question")


def _thanks(visit: Visit) -> Answer:
    site = visit.site
    style = site.queue.style(visit.person)
    groups: list[GroupView] = []
    chosen = None
    if style is not None:
        chosen = next((one["detail"]["chosen"] for one in site.store.events(visit.person.id)
                       if one["kind"] == STYLE_CHOICE), None)  # fmt: skip
        groups = view_groups(style, pictures=site.queue.pictures is not None)
    return visit.page(
        "thanks.html",
        paragraphs=site.text("thanks", visit.language),
        code=site.config.completion_code,
        groups=groups,
        chosen=chosen,
    )


def prefer(visit: Visit) -> Answer:
    """Store the answer to the last question: which group of prompts the participant prefers."""
    style = visit.site.queue.style(visit.person)
    choice = visit.form.get("group", "")
    if style is not None and choice in ("0", "1"):
        visit.site.queue.prefer(visit.person, "learnt" if style.groups[int(choice)][0] == "learnt" else "random")
    elif style is not None and choice == "tie":
        visit.site.queue.prefer(visit.person, "tie")
    return see_other("/end")
