"""The pages: consent and instructions, questions, stopping for good, thanks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from starlette.responses import Response as Answer

from edpbrl_gym.likelihood import FORMATS
from edpbrl_gym.study.identifiers import VISIT, read_link
from edpbrl_gym.study.quotas import GIVES_BACK, NoPlaceError
from edpbrl_gym.study.records import (
    HistoryChangedError,
    NotAskingError,
    NotReadyError,
    StoredQuestion,
    UnknownQuestionError,
)
from edpbrl_gym.study.recruitment import ENDS
from edpbrl_gym.study.schedule import schedule
from edpbrl_gym.study.style import STYLE_CHOICE
from edpbrl_gym.study.web.form_pages import due_page
from edpbrl_gym.study.web.forms import IncompleteAnswerError, parse_response, parse_timing
from edpbrl_gym.study.web.frame import see_other
from edpbrl_gym.study.web.guards import BadTokenError, Visitor, refuse
from edpbrl_gym.study.web.questions import left_in_words
from edpbrl_gym.study.web.site import PageRequest
from edpbrl_gym.study.web.views import GroupView, picture_addresses, view_groups, view_question

__all__ = [
    "agree",
    "answer",
    "ask_to_withdraw",
    "come_back",
    "decline",
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

_log = logging.getLogger(__name__)
_NOTED = 20  # kinds of links that are logged; somebody may make them up
_RELOAD = 3  # seconds after which the page that waits for a question asks again
_BREAK = timedelta(days=1)  # after which a page says where the participant stopped
_INCOMPLETE = frozenset(one.texts.incomplete for one in FORMATS.values())
_NOTICES = frozenset({*_INCOMPLETE, "already", "taken_back", "undone", "nothing_to_undo"})
_RELOAD_TASTE = 5  # seconds after which a page without JavaScript asks for the learnt taste again


def enter(request: PageRequest) -> Answer:
    """The page that the study's link opens: the text to agree to, or where the participant stopped.

    A link with an identifier that can't be taken, or of a task that nobody has accepted, opens a page that says so, and
    nobody is stored.
    """
    link = read_link(request.http.query_params.multi_items(), request.site.config.recruitment.platform)
    if link.is_preview:
        return request.page("preview.html", text_html=request.site.text("consent", request.language))
    if link.problem is not None:
        refuse(request.http, link.problem)
        return request.page("link.html", status=400, problem=link.problem)
    external = link.external
    if link.unknown and not external:
        names = ascii(", ".join(link.unknown))[1:-1][:200]
        _note(
            request,
            link.unknown,
            f"A link without an identifier that a study knows has {names}; who uses it is anonymous",
        )
    if request.participant is not None:
        known = request.participant.external
        if all(known.get(name) == value for name, value in external.items() if name not in VISIT):
            return see_other("/question")
    why = request.site.queue.why_closed(external)
    if why is not None:
        return _ended(request, why, external)
    visitor = request.site.signer.new_visitor() if request.participant is not None else request.visitor
    fresh = PageRequest(request.site, request.http, visitor, None, {})
    return _consent_page(fresh, external, request.site.signer.entry(visitor, external))


def _note(request: PageRequest, kind: tuple[str, ...], text: str) -> None:
    """Write to the log, once for each kind of link, that somebody comes without an identifier."""
    noted = request.site.noted_links
    if kind not in noted and len(noted) < _NOTED:
        noted.add(kind)
        _log.warning("%s", text)


def _consent_page(
    request: PageRequest, external: Mapping[str, str], entry: str, *, status: int = 200, notice: str | None = None
) -> Answer:
    site = request.site
    languages = [(code, site.messages(code)("language")) for code in site.config.languages]
    response = request.page(
        "consent.html",
        status=status,
        text_html=site.text("consent", request.language),
        languages=languages,
        address=list(external.items()),
        entry=entry,
        notice=notice,
    )
    site.set_cookie(response, request.visitor)
    return response


def agree(request: PageRequest) -> Answer:
    """Consent: from here on the visitor is a participant."""
    site, entry = request.site, request.form.get("entry", "")
    external = site.signer.external(request.visitor, entry)
    if request.form.get("agree") != "yes":
        return _consent_page(request, external, entry, status=422, notice="consent_needed")
    if not external:
        _note(request, (), "A participant without an identifier is stored; for identifiers the link must carry them")
    # a consent that is sent twice by a browser that was told of no cookie yet is one participant all the same
    identity = external or {"visitor": request.visitor.name}
    try:
        enrolled = site.queue.enrol(identity, language=request.language)
    except NoPlaceError as error:  # since the text was opened
        return _ended(request, error.why, external)
    participant = site.queue.consent(enrolled)
    response = see_other("/instructions" if participant.status == "consented" else "/question")
    site.set_cookie(response, Visitor(participant.code, True))
    return response


def decline(request: PageRequest) -> Answer:
    """Somebody does not consent: nothing is stored."""
    entry = request.form.get("entry", "")
    return _ended(request, "declined", request.site.signer.external(request.visitor, entry))


def _ended(request: PageRequest, how: str, external: Mapping[str, str], code: str = "") -> Answer:
    """The page of somebody who is asked nothing any more: how it ended is a key of ``ENDS``, or "not_open"."""
    recruitment = request.site.config.recruitment
    opens = "" if recruitment.opens is None else f"{recruitment.opens.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    back = recruitment.way_back(ENDS[how], external) if how in ENDS else None
    return request.page("ended.html", how=how, code=code, opens=opens, back=back, platform=recruitment.preset.title)


def instructions(request: PageRequest) -> Answer:
    """What the participant is asked to do; first the pages that come before it, or that have questions about it."""
    site = request.site
    pending = request.person.status == "consented" and not request.was_instructed
    if request.person.status in GIVES_BACK:
        return see_other("/end")
    if pending and due_page(request) is not None:
        return see_other("/page")
    return request.page("instructions.html", text_html=site.text("instructions", request.language), pending=pending)


def pass_instructions(request: PageRequest) -> Answer:
    """The participant has read the instructions."""
    if request.person.status == "consented" and not request.was_instructed and due_page(request) is None:
        request.site.store.add_event(request.person.id, "instructed")
    return see_other("/question")


def question(request: PageRequest) -> Answer:
    """The question that waits for an answer."""
    site, person = request.site, request.person
    if person.status == "consented" and not request.was_instructed:
        return see_other("/instructions")
    if person.status != "finished" and due_page(request) is not None:
        return see_other("/page")
    try:
        asked = site.queue.next_question(person)
    except NotAskingError:
        return see_other("/end")
    except NotReadyError:
        return request.page("waiting.html", headers={"Refresh": str(_RELOAD)})
    if asked is None:
        return see_other("/end")
    if _is_back_after_a_break(request, asked):
        return see_other("/welcome-back")
    notice = request.http.query_params.get("notice", "")
    undo_key = site.store.last_key(person.id) if site.config.questions.undo and asked.number else None
    at_most = site.config.questions.stopping is not None
    left = site.queue.questions_left(person, asked) if at_most else None
    preload: list[str] = []  # the pictures of the next question, where it is known before the answer to this one
    if site.queue.pictures is not None:
        texts = site.queue.known_next(person, site.store.history(person.id))
        site.queue.pictures.ahead(texts)
        preload = picture_addresses(site, request.visitor, texts) or []
    return request.page(
        "question.html",
        question=view_question(
            asked,
            site.config,
            request.messages,
            undo_key=undo_key,
            shown=site.shown(request.language),
            pictures=picture_addresses(site, request.visitor, asked.texts),
        ),
        shape=None if site.queue.pictures is None else site.queue.pictures.shape,
        preload=preload,
        number=asked.number + 1,
        total=len(schedule(site.config, person.number)),
        at_most=at_most,
        left=None if left is None else left_in_words(left, request.messages),
        notice=request.messages(notice) if notice in _NOTICES else None,
    )


def answer(request: PageRequest) -> Answer:
    """Store an answer, then go on to the next question."""
    site, form = request.site, request.form
    questions = site.config.questions
    if request.person.status not in ("asking", "finished"):  # finished: the last answer, sent again
        return see_other("/question")
    try:
        response = parse_response(form, questions.answers, questions.options, cant_tell=questions.cant_tell)
    except IncompleteAnswerError:
        return see_other(f"/question?notice={questions.answers.texts.incomplete}")
    try:
        receipt = site.queue.answer(request.person, form.get("key", ""), response, parse_timing(form))
    except HistoryChangedError:
        return see_other("/question?notice=taken_back")
    except UnknownQuestionError:
        raise BadTokenError("Expected an answer to a question of this participant, got another key") from None
    if not receipt.first and receipt.answer.response != response:
        return see_other("/question?notice=already")
    return see_other("/question")


def undo(request: PageRequest) -> Answer:
    """Take back the last answer, as long as it is not the very last one: after it the taste is shown."""
    if request.person.status == "finished":
        return see_other("/end")
    try:
        request.site.queue.undo(request.person, request.form.get("undo_key", ""))
    except UnknownQuestionError:
        return see_other("/question?notice=nothing_to_undo")
    except NotAskingError:
        return see_other("/end")
    return see_other("/question?notice=undone")


def _is_back_after_a_break(request: PageRequest, asked: StoredQuestion) -> bool:
    """Whether a day has passed since the participant did something; the question was prepared at the last answer."""
    now = datetime.now(UTC)
    if now - datetime.fromisoformat(asked.created_at) < _BREAK:
        return False
    events = request.site.store.events(request.person.id)
    return all(now - datetime.fromisoformat(one["at"]) >= _BREAK for one in events if one["kind"] == "came back")


def come_back(request: PageRequest) -> Answer:
    """The page that a participant sees after a break of a day."""
    history = request.site.store.history(request.person.id)
    answered = [given.answered_at for _, given in history if given is not None]
    last = max(answered, default=request.person.consented_at or request.person.created_at)
    return request.page(
        "welcome_back.html",
        number=len(answered),
        date=datetime.fromisoformat(last).date().isoformat(),
        text_html=request.site.text("instructions", request.language),
    )


def go_on(request: PageRequest) -> Answer:
    """Go on after a break."""
    request.site.store.add_event(request.person.id, "came back")
    return see_other("/question")


def ask_to_withdraw(request: PageRequest) -> Answer:
    """Ask whether the participant wants to stop for good."""
    return request.page("withdraw.html")


def withdraw(request: PageRequest) -> Answer:
    """The participant stops for good."""
    request.site.queue.withdraw(request.person, asked_on=due_page(request) is not None)
    return see_other("/end")


def end(request: PageRequest) -> Answer:
    """The last page: what was learnt, thanks and the completion code, or why there are no more questions."""
    status = request.person.status
    if status == "finished":
        return _thanks(request) if due_page(request) is None else see_other("/page")
    if status in GIVES_BACK:
        how = "screened" if status == "failed" and request.site.queue.is_screened(request.person) else status
        return _ended(request, how, request.person.external, request.person.code)
    return see_other("/question")


def _thanks(request: PageRequest) -> Answer:
    site = request.site
    style, pending = None, False
    try:
        style = site.queue.style(request.person)
    except NotReadyError:
        pending = True
    groups: list[GroupView] = []
    chosen = None
    if style is not None:
        chosen = next((one["detail"]["chosen"] for one in site.store.events(request.person.id)
                       if one["kind"] == STYLE_CHOICE), None)  # fmt: skip
        groups = view_groups(style, lambda texts: picture_addresses(site, request.visitor, texts),
                             site.shown(request.language))  # fmt: skip
    recruitment = site.config.recruitment
    back = recruitment.way_back(ENDS[request.person.status], request.person.external)
    return request.page(
        "thanks.html",
        text_html=site.text("thanks", request.language),
        back=back,
        platform=recruitment.preset.title,
        leave=bool(recruitment.redirect and back.address and not pending and (chosen or not groups)),
        reload=_RELOAD_TASTE if pending else None,
        groups=groups,
        chosen=chosen,
    )


def prefer(request: PageRequest) -> Answer:
    """Store the answer to the last question: which group of prompts the participant prefers."""
    queue, choice = request.site.queue, request.form.get("group", "")
    try:
        style = queue.style(request.person)
        if style is not None and choice in ("0", "1"):
            queue.prefer(request.person, "learnt" if style.groups[int(choice)][0] == "learnt" else "random")
        elif style is not None and choice == "tie":
            queue.prefer(request.person, "tie")
    except NotReadyError:  # nobody was shown the groups yet
        pass
    return see_other("/end")
