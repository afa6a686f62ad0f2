"""Answers as the forms of the pages send them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from edpbrl_gym.likelihood import AnswerFormat, Input, Response
from edpbrl_gym.study.records import Timing

__all__ = ["BadFormError", "IncompleteAnswerError", "parse_form", "parse_response", "parse_timing"]

_MAX_FIELDS = 64


class BadFormError(ValueError):
    """Fields that no form of the study sends."""


class IncompleteAnswerError(ValueError):
    """A form in which something was not chosen, or chosen twice."""


def parse_form(body: bytes) -> dict[str, str]:
    """The fields of a form; of a field that occurs twice the last one."""
    text = body.decode("utf-8", errors="replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise BadFormError(f"Expected at most {_MAX_FIELDS} fields in a form, got more") from None
    return {name[:64]: value.replace("\x00", "\ufffd") for name, value in pairs}


def parse_response(
    form: Mapping[str, str], format: AnswerFormat, num_options: int, *, cant_tell: bool = True
) -> Response:
    """The answer of a form, by the inputs of the format: see ``_given``."""
    if "cant_tell" in form:
        if not cant_tell:
            raise BadFormError('Expected an answer, got "can\'t tell" in a study without it')
        return Response.tie()
    given = [number for wanted in format.inputs for number in _given(form, wanted, num_options)]
    try:
        return format.response(given, num_options)
    except ValueError as error:
        raise IncompleteAnswerError(str(error)) from None


def _given(form: Mapping[str, str], wanted: Input, num_options: int) -> list[int]:
    """What fields say of an input: its name the option, name-0 to name-(K-1) places or levels."""
    if wanted.kind == "option":
        return [_number(form.get(wanted.name, ""), 0, num_options - 1)]
    if wanted.kind == "levels":
        fields = [form.get(f"{wanted.name}-{option}", "") for option in range(num_options)]
        return [_number(field, 0, wanted.levels - 1) for field in fields]
    places: dict[int, int] = {}
    for option in range(num_options):
        value = form.get(f"{wanted.name}-{option}", "")
        if value:
            place = _number(value, 1, num_options)
            if place in places:
                raise IncompleteAnswerError(f"Expected different places, got place {place} twice")
            places[place] = option
    if sorted(places) != list(range(1, len(places) + 1)):
        raise IncompleteAnswerError(f"Expected places from 1 on without gaps, got {sorted(places)}")
    return [places[place] for place in sorted(places)]


def _number(value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 3 and least <= int(value) <= most):
        raise IncompleteAnswerError(f"Expected a number in {least}..{most}, got {value[:20]!r}")
    return int(value)


def parse_timing(form: Mapping[str, str]) -> Timing:
    """What the script measured; a field that is missing or is no such measurement is None."""
    viewport = (_measured(form, "viewport_width"), _measured(form, "viewport_height"))
    return Timing(
        first_input_ms=_measured(form, "first_input_ms"),
        answer_ms=_measured(form, "answer_ms"),
        visibility_changes=_measured(form, "visibility_changes"),
        viewport=None if viewport[0] is None or viewport[1] is None else (viewport[0], viewport[1]),
    )


def _measured(form: Mapping[str, str], name: str) -> int | None:
    value = form.get(name, "")
    if not (value.isascii() and value.isdigit() and len(value) <= 8) or int(value) > 86_400_000:
        return None
    return int(value)
