"""Which model judges, what it is shown, and how much it may cost."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["OPENAI_KEY", "OPENAI_URL", "JudgeSettings"]

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Everything that decides what a judge is asked and how; JSON-able, and never holds a key.

    The defaults are those of the paper's simulated user: images, temperature 0, one look at each question.

    Attributes:
        model: name of the model at the endpoint, such as "gpt-4.1-mini".
        style: the guidance by which the judge chooses, such as "Futuristic style with advanced technologies".
        base_url: address of an OpenAI-compatible endpoint, such as "http://127.0.0.1:8399/v1"; None is OpenAI's own.
            Kept without spaces around it and with its scheme in small letters.
        api_key_variable: name of the environment variable that holds the key. None: OPENAI_API_KEY for OpenAI's own
            endpoint, and no key at all for one given by ``base_url``.
        show: "images" shows the K pictures alone (the paper), "texts" the K texts.
        structured: "schema" asks the server for JSON by schema, "text" reads validated text, "auto" tries the schema
            and falls to text once the server has refused it.
        second_look: ask every question again with each option under another label; see ``Verdict.consistent``.
        concurrency: most requests under way at once.
        timeout: seconds for a whole attempt (connecting, sending, the answer up to its last byte) before it counts as
            lost.
        max_retries: how often one question is sent again after a lost connection, a timeout, 408, 409, 429 or 5xx.
        temperature: of the model; None leaves it to the server (some models refuse the parameter).
        image_size: most pixels of the longer side; larger pictures are scaled down. None sends them as they are.
        tokens_per_image: most tokens that the server counts for a picture; set aside before a question is asked and
            replaced by what the server reports. For ``max_tokens`` only.
        seed: of the order in which options are labelled.
        price_per_million_input: price of a million input tokens, None where it is not known.
        price_per_million_output: price of a million output tokens, None where it is not known.
        max_questions: hard limit on questions put to the model (a second look is one more); None has none.
        max_tokens: hard limit on input and output tokens together; None has none.
        max_answer_tokens: most tokens of one answer. Models that think before they answer need thousands.
        limit_parameter: name under which ``max_answer_tokens`` is sent; "auto" is "max_completion_tokens" for
            OpenAI's own endpoint and "max_tokens" for others.

    Raises:
        TypeError: a value of the wrong kind.
        ValueError: an empty model or style, an unknown name, a number out of its range, a ``base_url`` that is
            not an http or https address, or that holds a password.
    """

    model: str
    style: str
    base_url: str | None = None
    api_key_variable: str | None = None
    show: Literal["texts", "images"] = "images"
    structured: Literal["auto", "schema", "text"] = "auto"
    second_look: bool = False
    concurrency: int = 8
    timeout: float = 60.0
    max_retries: int = 5
    temperature: float | None = 0.0
    image_size: int | None = 512
    tokens_per_image: int = 8500
    seed: int = 0
    price_per_million_input: float | None = None
    price_per_million_output: float | None = None
    max_questions: int | None = None
    max_tokens: int | None = None
    max_answer_tokens: int = 64
    limit_parameter: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"

    def __post_init__(self) -> None:
        for name in ("model", "style"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Expected {name} as a text that is not empty, got {value!r}")
        check_choice_of(self.show, "show", ("texts", "images"))
        check_choice_of(self.structured, "structured", ("auto", "schema", "text"))
        check_choice_of(self.limit_parameter, "limit_parameter", ("auto", "max_tokens", "max_completion_tokens"))
        check_count(self.concurrency, "concurrency")
        check_number(self.timeout, "timeout (seconds)", minimum=0.0, exclusive=True)
        check_count(self.max_retries, "max_retries", minimum=0)
        check_count(self.max_answer_tokens, "max_answer_tokens")
        check_count(self.tokens_per_image, "tokens_per_image", minimum=0)
        check_count(self.seed, "seed", minimum=0)
        for name in ("temperature", "price_per_million_input", "price_per_million_output"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, minimum=0.0)
        for name, least in (("image_size", 16), ("max_questions", 0), ("max_tokens", 0)):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name, minimum=least)
        self._check_address()

    def _check_address(self) -> None:
        name = self.api_key_variable
        if name is not None and not (isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w{0,99}", name)):
            # the value is not shown: somebody may have put the key itself here
            raise ValueError(
                "Expected api_key_variable as the name of an environment variable (letters, digits and _), got "
                "something else; put the key into that variable, never into the settings"
            )
        if self.base_url is None:
            return
        try:
            parts = urlsplit(self.base_url.strip())
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            (parts.hostname or "").encode("idna")
        except (ValueError, TypeError, AttributeError):
            right = False
        if not right:
            got = "one with a password" if "@" in str(self.base_url) else repr(self.base_url)  # not to be shown
            raise ValueError(
                f"Expected base_url as an http or https address such as 'http://127.0.0.1:8399/v1', got {got}"
            )
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(
                "Expected base_url without a password and without '?' and '#' parts, since it is written to the run "
                f"folder; put the key into an environment variable ({name or OPENAI_KEY}) and name that"
            )
        object.__setattr__(self, "base_url", parts.geturl())  # one spelling: what is parsed is what is sent to

    @property
    def address(self) -> str:
        """Where questions are sent."""
        return OPENAI_URL if self.base_url is None else self.base_url

    @property
    def key_variable(self) -> str | None:
        """The environment variable whose key is sent, None where none is."""
        return OPENAI_KEY if self.api_key_variable is None and self.base_url is None else self.api_key_variable

    def as_json(self) -> dict[str, Any]:
        """All settings as a dict that JSON can hold; ``JudgeSettings(**...)`` takes it back."""
        return asdict(self)
