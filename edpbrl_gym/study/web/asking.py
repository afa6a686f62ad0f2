"""The pages of the questions: answering, undo, coming back after a break."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response as Answer

from edpbrl_gym.study.queue import AnswerReadError, NotAskingError, NotReadyError
from edpbrl_gym.study.records import StoredQuestion, StruckQuestionError, UnknownQuestionError
from edpbrl_gym.study.schedule import schedule
from edpbrl_gym.study.web.context import see_other
from edpbrl_gym.study.web.forms import FIELDS, IncompleteAnswerError, parse_response, parse_timing
from edpbrl_gym.study.web.pictures import picture_addresses
from edpbrl_gym.study.web.signing import BadTokenError
from edpbrl_gym.study.web.views import view_question
from edpbrl_gym.study.web.visits import Visit

__all__ = ["answer", "come_back", "go_on", "question", "undo"]

_RELOAD = 3  # seconds after which the page that waits for a question asks again
_BREAK = timedelta(days=1)  # after which a page says where the participant stopped
_NOTICES = frozenset({*FIELDS.values(), "already", "taken_back", "undone", "nothing_to_undo"})


def question(visit: Visit) -> Answer:
    """The question that waits for an answer."""
    site, person = visit.site, visit.person
    if person.status == "consented" and not visit.was_instructed:
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
        question=view_question(
            asked,
            site.config,
            visit.messages,
            undo_key=undo_key,
            pictures=picture_addresses(site, visit.visitor, asked.texts),
        ),
        preload=_preload(visit),
        number=asked.number + 1,
        total=len(schedule(site.config, person.number)),
        at_most=at_most,
        left=site.queue.questions_left(person, asked) if at_most else None,
        notice=visit.messages(notice) if notice in _NOTICES else None,
    )


def _preload(visit: Visit) -> list[str]:
    """Addresses of the pictures of the next question, where it is known before the answer to this one."""
    site = visit.site
    if site.queue.pictures is None:
        return []
    texts = site.queue.known_next(visit.person, site.store.history(visit.person.id))
    site.queue.pictures.ahead(texts)
    return picture_addresses(site, visit.visitor, texts) or []


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
