"""Which setting of a judge to change where its server refuses a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edpbrl_gym._http.errors import ServerError
from edpbrl_gym._http.errors import read_error as read_any_error
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["LIMIT_PARAMETERS", "JudgeError", "read_error"]

LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens")
_PARAMETERS = ("temperature", *LIMIT_PARAMETERS, "response_format", "json_schema")
# what servers call a parameter, or a value of it, that no question can be sent with
_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't|only|no longer) (?:be )?(?:support|permit|allow|accept|recogni)\w*|unrecogni[sz]ed|"
    r"unknown|unexpected|extra (?:inputs|fields|params)|extra_forbidden|deprecated|must be|"
    r"should be|invalid|does not accept",
    re.IGNORECASE,
)
_ONE_QUESTION = re.compile(r"context.?(?:length|window|size)|too long|input tokens|prompt is", re.IGNORECASE)
_BAD_KEY = re.compile(r"invalid_api_key|api_key_invalid|api key not valid|incorrect api key", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|modelnotfound|deploymentnotfound|unsupported_model|invalid_model", re.IGNORECASE
)
_SCHEMA = re.compile(r"response_format|json_?\s?schema|structured.?output|grammar|guided", re.IGNORECASE)
_NO_PICTURES = re.compile(
    r"(?:image|vision|multi-?modal)\w*.{0,60}(?:not |n't |only |unsupported|at most 0)|"
    r"(?:not |n't |only |unsupported|at most 0).{0,60}(?:image|vision|multi-?modal)",
    re.IGNORECASE | re.DOTALL,
)


class JudgeError(ServerError):
    """The error in the body of an answer of a judge's server."""

    @property
    def blames_schema(self) -> bool:
        """Whether it is about the JSON schema of the answer."""
        return self.param in ("response_format", "json_schema") or bool(_SCHEMA.search(self.message))

    @property
    def unsupported(self) -> str:
        """The parameter that the server takes from nobody, "" if it names none."""
        if self.status not in (400, 422) or _ONE_QUESTION.search(self.message):
            return ""
        return self.param if self.param in _PARAMETERS else ""

    def wrong_name(self, parameter: str) -> bool:
        """Whether the server wants a limit on tokens under another name than this."""
        other = LIMIT_PARAMETERS[parameter == LIMIT_PARAMETERS[0]]
        is_name = any("unsupported_parameter" in one or "extra_forbidden" in one for one in self.types)
        told = rf"{other}\W{{1,3}}instead|unsupported parameter|extra.(?:inputs|fields|forbidden)|unrecogni|"
        told += "unknown|unexpected|not (?:supported|permitted|allowed)"
        return self.unsupported == parameter and (is_name or bool(re.search(told, self.message, re.IGNORECASE)))

    def remedy(self, settings: JudgeSettings, sent: Mapping[str, Any]) -> str:
        """What to change so that the server takes what is sent; "" if it may take the next question as it is."""
        if self.status not in (400, 403, 422, 500):
            return ""
        if self.types and any(map(_BAD_KEY.fullmatch, self.types)) or _BAD_KEY.search(self.message):
            return f"check the key in the environment variable {settings.key_variable}"
        if any(map(_NO_MODEL.fullmatch, self.types)):
            return "check the name of the model"
        if settings.show == "images" and _NO_PICTURES.search(self.message):
            return "this model reads no pictures: name another, or show texts (show='texts')"
        parameter = self.unsupported
        if parameter not in sent and not (parameter == "json_schema" and "response_format" in sent):
            return ""
        if parameter == "temperature":
            return "leave the temperature to the server: temperature=None (--temperature None)"
        if parameter in LIMIT_PARAMETERS:
            if self.wrong_name(parameter):
                return f"choose another limit_parameter (--limit-parameter) than {parameter}"
            return "change max_answer_tokens (--max-answer-tokens)"
        if self.code:  # a message alone may be about one question's schema
            return "let it answer in words: structured='text' (--structured text), or 'auto'"
        return ""


def read_error(status: int, body: bytes | None) -> JudgeError:
    """The error that a body tells of, which may be anything."""
    error = read_any_error(status, body, _named)
    return JudgeError(**{one.name: getattr(error, one.name) for one in fields(error)})


def _named(message: str) -> str:
    """The first of our parameters in a message that says that something is not supported."""
    if not _UNSUPPORTED.search(message):
        return ""
    places = {name: found.start() for name in _PARAMETERS if (found := re.search(rf"\b{name}\b", message))}
    return min(places, key=places.__getitem__) if places else ""
