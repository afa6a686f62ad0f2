"""Which model judges, what it is shown, and how much it may cost."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["OPENAI_KEY", "OPENAI_URL", "EndpointSettings", "JudgeSettings"]

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Where a judge answers, how it is asked, and how much it may cost; JSON-able, and never holds a key.

    Attributes:
        base_url: Endpoint of the judge, such as http://127.0.0.1:8399/v1 (None: OpenAI's own). Kept without spaces
            around it and with its scheme in small letters.
        api_key_variable: Environment variable that holds the key (None: OPENAI_API_KEY for OpenAI's own endpoint, and
            no key at all for one given by its address).
        structured: Answers by JSON schema, as validated text, or by schema until the server has refused it.
        second_look: Ask every question again with each option under another label; says how often the judge agrees
            with itself, and costs twice.
        concurrency: Most questions under way at once.
        timeout: Seconds for a whole attempt (connecting, sending, the answer up to its last byte).
        max_retries: How often a question is sent again after a lost connection, a timeout, 408, 409, 429 or 5xx.
        temperature: Of the judge; None leaves it to the server (some models refuse the parameter).
        image_size: Most pixels of the longer side of an image as it is sent (None: as it is).
        tokens_per_image: Most tokens that the server counts for an image; set aside against the limit on tokens before
            a question is asked, and replaced by what the server reports.
        price_per_million_input: Price of a million input tokens, for the cost (None: not known).
        price_per_million_output: Price of a million output tokens (None: not known).
        max_questions: Hard limit on questions put to the judge, a second look is one more (None: none).
        max_tokens: Hard limit on tokens, input and output together (None: none).
        max_answer_tokens: Most tokens of an answer; models that think before they answer need thousands.
        limit_parameter: Name under which the most tokens of an answer are sent; auto is max_completion_tokens for
            OpenAI's own endpoint and max_tokens for others.

    Raises:
        TypeError: A value of the wrong kind.
        ValueError: An unknown name, a number out of its range, an address that is not http or https, or that holds a
            password.
    """

    base_url: str | None = None
    api_key_variable: str | None = None
    structured: Literal["auto", "schema", "text"] = "auto"
    second_look: bool = False
    concurrency: int = 8
    timeout: float = 60.0
    max_retries: int = 5
    temperature: float | None = 0.0
    image_size: int | None = 512
    tokens_per_image: int = 8500
    price_per_million_input: float | None = None
    price_per_million_output: float | None = None
    max_questions: int | None = None
    max_tokens: int | None = None
    max_answer_tokens: int = 64
    limit_parameter: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"

    def __post_init__(self) -> None:
        check_choice_of(self.structured, "structured", ("auto", "schema", "text"))
        check_choice_of(self.limit_parameter, "limit_parameter", ("auto", "max_tokens", "max_completion_tokens"))
        check_count(self.concurrency, "concurrency")
        check_number(self.timeout, "timeout (seconds)", minimum=0.0, exclusive=True)
        check_count(self.max_retries, "max_retries", minimum=0)
        check_count(self.max_answer_tokens, "max_answer_tokens")
        check_count(self.tokens_per_image, "tokens_per_image", minimum=0)
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

    def judge(self, **settings: Any) -> JudgeSettings:
        """The settings of a judge there: ``model``, ``style`` and what else `JudgeSettings` adds."""
        return JudgeSettings(**asdict(self), **settings)


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(EndpointSettings):
    """Everything that decides what a judge is asked and how.

    The defaults are those of the paper's simulated user: images, temperature 0, one look at each question.

    Attributes:
        model: Name of the model at the endpoint, such as "gpt-4.1-mini".
        style: The guidance by which the judge chooses, such as "Futuristic style with advanced technologies".
        show: "images" shows the K pictures alone (the paper), "texts" the K texts.
        seed: Of the order in which options are labelled.

    Raises:
        TypeError: A value of the wrong kind.
        ValueError: An empty model or style, or as for `EndpointSettings`.
    """

    model: str
    style: str
    show: Literal["texts", "images"] = "images"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("model", "style"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Expected {name} as a text that is not empty, got {value!r}")
        check_choice_of(self.show, "show", ("texts", "images"))
        check_count(self.seed, "seed", minimum=0)
        super().__post_init__()

    def as_json(self) -> dict[str, Any]:
        """All settings as a dict that JSON can hold; ``JudgeSettings(**...)`` takes it back."""
        return asdict(self)
