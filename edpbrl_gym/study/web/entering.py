"""The pages before the questions: consent and instructions."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response as Answer

from edpbrl_gym.study.queue import NotAskingError
from edpbrl_gym.study.web.context import see_other
from edpbrl_gym.study.web.forms import BadFormError
from edpbrl_gym.study.web.messages import load_messages
from edpbrl_gym.study.web.signing import Visitor
from edpbrl_gym.study.web.visits import Visit

__all__ = ["IDENTIFIERS", "agree", "enter", "instructions", "pass_instructions"]

IDENTIFIERS = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "participant")
"""Parameters of the study's link that are kept; others are ignored."""

_MAX_IDENTIFIER = 128  # characters


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
    pending = visit.person.status == "consented" and not visit.was_instructed
    wrong = visit.request.query_params.get("notice") == "wrong"
    attempt = visit.count_events("comprehension")
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
    if visit.person.status != "consented" or visit.was_instructed:
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
        if not (attempt.isascii() and attempt.isdigit() and int(attempt[:3]) <= visit.count_events("comprehension")):
            raise BadFormError("Expected the number of the next attempt or of one before, got another one")
        try:
            passed = visit.site.queue.check_comprehension(visit.person, answers, int(attempt[:3]))
        except NotAskingError:  # the last attempt, sent twice
            return see_other("/end")
        if not passed:
            return see_other("/instructions?notice=wrong")
    visit.site.store.add_event(visit.person.id, "instructed")
    return see_other("/question")
