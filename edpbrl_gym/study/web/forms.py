"""Answers as the forms of the pages send them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.records import Timing

__all__ = ["FIELDS", "BadFormError", "IncompleteAnswerError", "parse_form", "parse_response", "parse_timing"]

_MAX_FIELDS = 64
FIELDS = {
    "best": "choose_first",
    "best_worst": "choose_two",
    "ranking": "choose_all",
    "partial": "choose_some",
}
"""By format, the name of the message that says what an answer needs."""


class BadFormError(ValueError):
    """Fields that no form of the study sends."""


class IncompleteAnswerError(ValueError):
    """A form in which something was not chosen, or chosen twice."""


def parse_form(body: bytes) -> dict[str, str]:
    """The fields of a form; of a field that occurs twice the last one.

    Raises:
        BadFormError: Too many fields.
    """
    text = body.decode("utf-8", errors="replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise BadFormError(f"Expected at most {_MAX_FIELDS} fields in a form, got more") from None
    return {name[:64]: value.replace("\x00", "\ufffd") for name, value in pairs}


def parse_response(form: Mapping[str, str], format: str, num_options: int, *, cant_tell: bool = True) -> Response:
    """The answer of a form: field "best", fields "best" and "worst", or fields "place-0" to "place-(K-1)".

    Args:
        form: The fields.
        format: "best", "best_worst", "ranking" or "partial".
        num_options: Number of options K.
        cant_tell: Whether "can't tell" is an answer.

    Raises:
        BadFormError: It says "can't tell" where that is no answer.
        IncompleteAnswerError: Something is missing, or chosen twice.
    """
    if "cant_tell" in form:
        if not cant_tell:
            raise BadFormError('Expected an answer, got "can\'t tell" in a study without it')
        return Response.tie()
    if format == "best":
        return Response.best(_option(form, "best", num_options))
    if format == "best_worst":
        best, worst = _option(form, "best", num_options), _option(form, "worst", num_options)
        if best == worst:
            raise IncompleteAnswerError("Expected a best and a worst option that differ, got the same one twice")
        return Response.best_worst(best, worst)
    places = {}
    for option in range(num_options):
        value = form.get(f"place-{option}", "")
        if value:
            place = _number(value, 1, num_options)
            if place in places:
                raise IncompleteAnswerError(f"Expected different places, got place {place} twice")
            places[place] = option
    if sorted(places) != list(range(1, len(places) + 1)) or not places:
        raise IncompleteAnswerError(f"Expected places from 1 on without gaps, got {sorted(places)}")
    order = [places[place] for place in sorted(places)]
    if format == "ranking":
        if len(order) != num_options:
            raise IncompleteAnswerError(f"Expected places of all {num_options} options, got {len(order)}")
        return Response.ranking(order)
    return Response.partial(order)


def _option(form: Mapping[str, str], name: str, num_options: int) -> int:
    return _number(form.get(name, ""), 0, num_options - 1)


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
