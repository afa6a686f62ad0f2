"""The pages with other questions: which one is due, how it is shown, what becomes of its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response as Answer

from edpbrl_gym.study.forms.kinds import NOT, Choice, Choices, LongText, Number, PageQuestion, Scale, ShortText
from edpbrl_gym.study.forms.lists import sort_key
from edpbrl_gym.study.forms.pages import CHECKED, Due, PageForm, due, due_among_choices, entries_of, read_form
from edpbrl_gym.study.photo_store import photos_wait, ratings_wait
from edpbrl_gym.study.web.forms import parse_timing
from edpbrl_gym.study.web.frame import see_other
from edpbrl_gym.study.web.site import PageRequest

__all__ = ["FieldView", "due_page", "send_page", "show_page"]


@dataclass(frozen=True)
class _ChoiceView:
    value: str  # in the form
    label: str
    field: str  # its name
    is_chosen: bool


@dataclass(frozen=True)
class FieldView:
    """A question of a page as it is shown."""

    drawn: str  # name of its part of the template
    field: str  # name in the form
    text: str
    help: str
    hint: str  # what may be written; "" for others
    required: bool
    value: str  # as it was typed
    choices: tuple[_ChoiceView, ...]
    low: str
    high: str
    length: int | None
    is_number: bool
    not_field: str | None  # name of the box "rather not say"; None: there is none
    says_not: bool
    problem: str  # why what was typed can't be taken; "": it can


def due_page(request: PageRequest, *, before_photos: bool = False) -> Due | None:
    """The page that the participant has to answer now; None: there is none.

    With ``before_photos`` only those that come before the photos of a participant's own.
    """
    config, person = request.site.config, request.person
    if not config.pages or person.status not in ("consented", "asking", "finished"):
        return None
    entries = entries_of(events := request.site.store.events(person.id))
    if person.status == "finished":
        return due(config.pages, "after", entries)
    if person.status == "consented" and not any(event["kind"] == "instructed" for event in events):
        first = due(config.pages, "start", entries)
        photos = config.own_photos
        if first is not None or before_photos or photos_wait(photos, events) or ratings_wait(photos, events):
            return first
        return due(config.pages, "instructions", entries)
    return due_among_choices(config.pages, entries, request.site.store.answered(person.id), config.most_choices)


def show_page(request: PageRequest) -> Answer:
    """The page that is due."""
    current = due_page(request)
    return see_other("/question") if current is None else _page(request, current)


def send_page(request: PageRequest) -> Answer:
    """Store what was answered on the page that is due; whatever can't be taken is shown again as it was typed."""
    current, form, site, person = due_page(request), request.form, request.site, request.person
    if current is None or form.get("page") != current.key:  # sent before, perhaps in another tab
        return see_other("/question")
    page = current.page
    read = read_form(page, form, current.answers)
    if read.problems or read.new:
        return _page(request, current, read)
    if page.is_check:
        left = site.queue.check_page(person, current.key, read, _attempt(request), page.attempts)
        if left == 0:
            return see_other("/end")
        if left is not None:
            return _page(request, current, read, left=left)
    site.queue.store_page(person, current.key, read.answers, parse_timing(form))
    if page.place == "instructions":
        site.store.first_event(person.id, "instructed", {})
    return see_other("/question")


def _attempt(request: PageRequest) -> int:
    """The number of the attempt that a form carries, at most that of the next one."""
    value = request.form.get("attempt", "")
    known = request.count_events(CHECKED)
    return min(known, int(value)) if value.isascii() and value.isdigit() and len(value) < 4 else known


def _page(request: PageRequest, current: Due, read: PageForm | None = None, *, left: int | None = None) -> Answer:
    site, page, language, t = request.site, current.page, request.language, request.messages
    shown = site.shown(language)
    names = [one.name for one in page.asked(current.answers)] if read is None else read.asked
    typed = {} if read is None else request.form
    fields = []
    for question in page.questions:
        if question.name in names:
            message, values = (read.problems if read else {}).get(question.name, ("", {}))
            if message and question.name not in request.form.get("shown", "").split():
                message = ""
            fields.append(_view(question, typed, shown, t, t(message, **values) if message else ""))
    notice = None
    if read is not None:
        notice = t("page_problems") if read.problems else t("page_more")
    if left is not None:
        notice = t("comprehension_wrong", left=left)
    return request.page(
        "page.html",
        status=200 if read is None else 422,
        key=current.key,
        attempt=request.count_events(CHECKED) if page.is_check else None,
        heading=shown.get(page.title, page.title),
        instructions_html=site.text("instructions", language) if page.place == "instructions" else None,
        text_html=site.page_text(page, language),
        fields=fields,
        shown=" ".join(names),
        notice=notice,
        typed=read is not None,
    )


def _view(
    question: PageQuestion, typed: Mapping[str, str], shown: Mapping[str, str], t: Any, problem: str
) -> FieldView:
    def said(text: str) -> str:
        return shown.get(text, text)

    field, hint, length = question.field, "", None
    choices: list[_ChoiceView] = []

    def choice(value: str, label: str, name: str = field) -> _ChoiceView:
        return _ChoiceView(value, label, name, typed.get(name) == value)

    if isinstance(question, Choice):
        choices = [choice(str(place), said(text)) for place, text in enumerate(question.choices)]
        if question.listed:
            choices.sort(key=lambda one: sort_key(one.label))
    elif isinstance(question, Choices):
        choices = [choice("1", said(text), f"{field}-{place}") for place, text in enumerate(question.choices)]
        hint = t("page_several")
    elif isinstance(question, Scale):
        labels = question.labels or tuple(map(str, question.points))
        choices = [choice(str(place), said(text)) for place, text in enumerate(labels)]
    elif isinstance(question, Number):
        hint = t("page_range_hint", **question.ends)
    elif isinstance(question, ShortText):
        length = question.length
        hint = t("page_length", most=length) if isinstance(question, LongText) else ""
    in_choices = question.rather_not and isinstance(question, (Choice, Scale))
    if in_choices:
        choices.append(choice(NOT, t("page_rather_not")))
    drawn = question.kind
    if isinstance(question, Choice) and question.is_opened:
        drawn = "opened"
    if isinstance(question, Scale) and question.labels:
        drawn = "choice"
    return FieldView(
        drawn=drawn,
        field=field,
        text=said(question.text),
        help=said(question.help),
        hint=hint,
        required=question.required,
        value=typed.get(field, ""),
        choices=tuple(choices),
        low=said(getattr(question, "low", "")),
        high=said(getattr(question, "high", "")),
        length=length,
        is_number=isinstance(question, Number),
        not_field=question.not_field if question.rather_not and not in_choices else None,
        says_not=bool(typed.get(question.not_field)),
        problem=problem,
    )
