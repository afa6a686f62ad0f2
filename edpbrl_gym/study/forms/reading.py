"""Pages read from the tables ``[[pages]]`` of a configuration; what is wrong is noted, as for all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from edpbrl_gym.study.forms.conditions import Condition, Test
from edpbrl_gym.study.forms.instruments import INSTRUMENTS, load_instrument
from edpbrl_gym.study.forms.kinds import KINDS, MAX_TEXT, PageQuestion, ShortText
from edpbrl_gym.study.forms.lists import list_translations
from edpbrl_gym.study.forms.pages import PLACES, Page, Place

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table

__all__ = ["read_pages"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
_MAX_FIELDS = 55  # of a page; a form has some more
_OWN_COLUMNS = ("sent_s", "answer_ms")
_TESTS = ("is", "is_not", "at_least", "at_most")


def read_pages(table: Table, *, reserved: Sequence[str], total: int) -> tuple[Page, ...]:
    """The pages, in the order in which participants see them.

    Args:
        table: The whole document.
        reserved: Names that no page may have.
        total: Largest number of choices of a participant, with practice and checks.
    """
    found: list[tuple[Page, Table]] = []
    for one in table.tables("pages"):
        found.append((_page(one, total=total), one))
        one.refuse_others()
    found.sort(key=lambda pair: pair[0].order)
    for place, (page, one) in enumerate(found):
        if page.name in reserved:
            one.note("name", f"another name than those of the study's texts, {', '.join(reserved)}")
        elif page.name in [other.name for other, _ in found[:place]]:
            one.note("name", "a name of its own for each page", "rename one")
    below = [one for page, one in found if page.place == "instructions"]
    for one in below[1:]:
        one.note("place", "one page below the instructions", "put the questions on one page")
    return tuple(_resolved(found))


def _page(one: Table, *, total: int) -> Page:
    mistakes = one.mistakes
    place = cast(Place, one.choice("place", tuple(PLACES), "before"))
    if not one.has("place"):
        one.note("place", f"one of {', '.join(map(repr, PLACES))}", "add it")
    after = every = None
    if place == "between":
        if one.has("after") == one.has("every"):
            one.note("after", "either after = N or every = N, the number of choices before the page")
        most = max(1, total - 1)
        after = one.integer("after", 1, minimum=1, maximum=most) if one.has("after") else None
        every = one.integer("every", 1, minimum=1, maximum=most) if one.has("every") else None
    template = one.choice("template", tuple(INSTRUMENTS), "") if one.has("template") else ""
    base: dict[str, Any] = load_instrument(template) if template else {}
    questions = [_question(given) for given in type(one)(base, f"template {template}", mistakes).tables("questions")]
    left_out = one.texts("leave_out", (), of="names of questions of the template", least=1)
    unknown = sorted(set(left_out) - {question.name for question in questions if question})
    if unknown:
        one.note("leave_out", f"names among {', '.join(q.name for q in questions if q)}", f"not {unknown[0]!r}")
    questions = [question for question in questions if question and question.name not in left_out]
    tables = one.tables("questions")
    questions += [_question(given) for given in tables]
    asked = [question for question in questions if question is not None]
    translations: dict[str, dict[str, str]] = {
        language: dict(texts) for language, texts in base.get("translations", {}).items()
    }
    for question in asked:
        if isinstance(listed := getattr(question, "listed", None), str):
            for language, texts in list_translations(listed).items():
                translations.setdefault(language, {}).update(texts)
    names = [question.name for question in asked]
    for name in sorted(set(names) & set(_OWN_COLUMNS)):
        mistakes.append(f"{one.key('questions')}: expected another name than {name!r}, a column of the page; rename it")
    for name in sorted({name for name in names if names.count(name) > 1}):
        mistakes.append(f"{one.key('questions')}: expected a name of its own for each question, got {name!r} twice")
    page = Page(
        name=_name(one),
        place=place,
        title=one.text("title", base.get("title"), of="the title of the page"),
        text=one.text("text", base.get("text", ""), of="a text", empty=True),
        questions=tuple(asked),
        after=after,
        every=every,
        show_if=_conditions(one),
        attempts=one.integer("attempts", 1, minimum=1, maximum=10),
        translations=translations,
    )
    if one.has("attempts") and not page.is_check:
        one.note("attempts", "attempts only where a question has accept", "leave it out")
    if page.every is not None and page.is_check:
        one.note("every", "no question with accept on a page that comes again", "use after instead")
    fields = sum(question.fields for question in asked)
    if fields > _MAX_FIELDS:
        mistakes.append(
            f"{one.key('questions')}: expected at most {_MAX_FIELDS} fields on a page, got {fields}; make two pages"
        )
    length = sum(question.length for question in asked if isinstance(question, ShortText))
    if length > MAX_TEXT:
        mistakes.append(
            f"{one.key('questions')}: expected texts of at most {MAX_TEXT} characters on a page, got {length}; make "
            "them shorter, or two pages"
        )
    return page


def _name(one: Table) -> str:
    name = one.text("name", of="a name")
    if name and not _NAME.fullmatch(name):
        one.note("name", "a name of at most 30 small letters, digits and underscores that begins with a letter")
    return name


def _question(one: Table) -> PageQuestion | None:
    kind = one.choice("kind", tuple(KINDS), "")
    if not one.has("kind"):
        one.note("kind", f"one of {', '.join(map(repr, KINDS))}", "add it")
    common = {
        "name": _name(one),
        "text": one.text("text", of="the question"),
        "help": one.text("help", "", of="a text", empty=True),
        "required": one.flag("required", True),
        "rather_not": one.flag("rather_not_say", False),
        "show_if": _conditions(one),
        "accept": _test(one, "accept", one.value("accept")) if one.has("accept") else None,
    }
    if not kind:
        one.remaining()
        return None
    question = KINDS[kind].read(one, common)
    if question.accept is not None:
        _check(one, "accept", question.accept, question)
    one.refuse_others()
    return question


def _conditions(one: Table) -> tuple[Condition, ...]:
    """The conditions of ``show_if``, a table or a list of tables, with questions as they are written."""
    if not one.has("show_if"):
        return ()
    value = one.value("show_if")
    found = []
    for given in value if isinstance(value, list) else [value]:
        if not isinstance(given, dict) or not isinstance(given.get("question"), str):
            one.note("show_if", 'a table such as { question = "student", is = "Yes" }')
            continue
        test = _test(one, "show_if", {key: of for key, of in given.items() if key != "question"})
        if test is not None:
            found.append(Condition(given["question"], test))
    return tuple(found)


def _test(one: Table, name: str, given: Any) -> Test | None:
    if not isinstance(given, dict) or not given or not set(given) <= set(_TESTS):
        one.note(name, f"a table with at least one of the keys {', '.join(_TESTS)}")
        return None
    ends = [given.get(key) for key in ("at_least", "at_most")]
    if any(end is not None and (isinstance(end, bool) or not isinstance(end, (int, float))) for end in ends):
        one.note(name, "numbers for at_least and at_most")
        return None
    among, outside = (_values(given[key]) if key in given else None for key in ("is", "is_not"))
    return Test(among, outside, *ends)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _check(one: Table, name: str, test: Test, question: PageQuestion) -> None:
    """Note a test that no answer to the question can pass by its kind."""
    for key, value in _keys(test):
        expected = question.test_of(key, value)
        if expected is not None:
            one.note(name, f"for {key} {expected}", f"the question {question.name} is of the kind {question.kind}")


def _keys(test: Test) -> Iterator[tuple[str, Any]]:
    yield from (("is", value) for value in test.among or ())
    yield from (("is_not", value) for value in test.outside or ())
    if test.least is not None:
        yield "at_least", test.least
    if test.most is not None:
        yield "at_most", test.most


def _resolved(found: list[tuple[Page, Table]]) -> Iterator[Page]:
    """The pages with conditions about PAGE.QUESTION; they may be about questions that come before."""
    known: dict[str, PageQuestion] = {}
    for page, one in found:
        shown = _about(one, page.show_if, known, "")
        asked = []
        for question in page.questions:
            asked.append(replace(question, show_if=_about(one, question.show_if, known, page.name)))
            known[f"{page.name}.{question.name}"] = question
        yield replace(page, show_if=shown, questions=tuple(asked))


def _about(
    one: Table, conditions: tuple[Condition, ...], known: dict[str, PageQuestion], page: str
) -> tuple[Condition, ...]:
    resolved = []
    for condition in conditions:
        own = f"{page}.{condition.question}"
        full = own if own in known else condition.question
        if full not in known:
            listed = ", ".join(known) or "none"
            one.mistakes.append(
                f"{one.key('show_if')}: expected an earlier question, PAGE.QUESTION ({listed}), got "
                f"{condition.question!r}; put it before"
            )
            continue
        _check(one, "show_if", condition.test, known[full])
        resolved.append(replace(condition, question=full))
    return tuple(resolved)
