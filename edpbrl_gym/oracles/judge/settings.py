"""Settings of a judge: model, endpoint, candidates shown, limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from edpbrl_gym._addresses import OPENAI_KEY, OPENAI_URL, check_address, check_key_variable
from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["EndpointSettings", "JudgeSettings"]

_CHAT = "/chat/completions"


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Endpoint, requests and limits of a judge; JSON-able (``asdict``), without any key.

    Attributes:
        base_url: Endpoint of the judge, such as http://127.0.0.1:8399/v1 (None: OpenAI's own). Parameters, such as
            ?api-version=2024-10-21 of Azure, are sent with every request; none may be a key. Stored without spaces
            around it, with its scheme in lower case, and without /chat/completions at its end.
        api_key_variable: Environment variable with the key (None: OPENAI_API_KEY for OpenAI's own endpoint, no key for
            other endpoints).
        structured: Answers by JSON schema, as validated text, or by schema until the server has rejected it.
        second_look: Ask every question again with each option under another label; measures how often the judge agrees
            with itself, at twice the cost.
        concurrency: Maximum number of simultaneous questions.
        timeout: Seconds for a whole attempt (connecting, sending, the answer up to its last byte).
        max_retries: Maximum number of retries after a lost connection, a timeout, 408, 409, 429 or 5xx.
        max_wait: Maximum number of seconds for which a question waits for limits that the server announces.
        temperature: Temperature of the judge; None leaves it to the server (some models reject the parameter).
        image_size: Maximum number of pixels of the longer side of an image as it is sent (None: its own size).
        tokens_per_image: Maximum number of tokens that the server counts for an image; reserved within the limit on
            tokens before a question is asked, and replaced by the number that the server reports.
        price_per_million_input: Price of a million input tokens, for the cost (None: unknown).
        price_per_million_output: Price of a million output tokens (None: unknown).
        max_questions: Hard limit on questions to the judge; a second look counts as another one (None: no limit).
        max_tokens: Hard limit on tokens, input and output together (None: no limit).
        max_answer_tokens: Maximum number of tokens of an answer; reasoning models need thousands.
        limit_parameter: Request parameter for max_answer_tokens; auto is max_completion_tokens for OpenAI's own
            endpoint and max_tokens for others.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: An unknown name, a number out of its range, or an address that is not http or https or contains a
            password or a key.
    """

    base_url: str | None = None
    api_key_variable: str | None = None
    structured: Literal["auto", "schema", "text"] = "auto"
    second_look: bool = False
    concurrency: int = 8
    timeout: float = 60.0
    max_retries: int = 5
    max_wait: float = 3600.0
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
        check_number(self.max_wait, "max_wait (seconds)", minimum=0.0)
        check_count(self.max_answer_tokens, "max_answer_tokens")
        check_count(self.tokens_per_image, "tokens_per_image", minimum=0)
        for name in ("temperature", "price_per_million_input", "price_per_million_output"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, minimum=0.0)
        for name, minimum in (("image_size", 16), ("max_questions", 0), ("max_tokens", 0)):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name, minimum=minimum)
        self._check_address()

    def _check_address(self) -> None:
        variable = check_key_variable(self.api_key_variable)
        if self.base_url is None:
            return
        url = check_address(self.base_url, "base_url", "http://127.0.0.1:8399/v1", variable or OPENAI_KEY)
        path = url.path.rstrip("/").removesuffix(_CHAT) if url.path.rstrip("/").endswith(_CHAT) else url.path
        # normalised: requests go to the address that was checked
        object.__setattr__(self, "base_url", url._replace(path=path).geturl())

    @property
    def address(self) -> str:
        """Address to which questions are sent."""
        return OPENAI_URL if self.base_url is None else self.base_url

    @property
    def chat_address(self) -> str:
        """Address of the requests: the path of the endpoint with /chat/completions, and its parameters."""
        url = urlsplit(self.address)
        return url._replace(path=quote(url.path.rstrip("/") + _CHAT, safe="/%:@!$&'()*+,;=~")).geturl()

    @property
    def key_variable(self) -> str | None:
        """The environment variable of the key, None if no key is sent."""
        return OPENAI_KEY if self.api_key_variable is None and self.base_url is None else self.api_key_variable

    def judge(self, **settings: Any) -> JudgeSettings:
        """Settings of a judge at this endpoint, with ``model``, ``style`` and the other fields of `JudgeSettings`."""
        return JudgeSettings(**asdict(self), **settings)


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(EndpointSettings):
    """All settings of a judge.

    The defaults are those of the paper's simulated user: images, temperature 0, one look at each question.

    Attributes:
        model: Name of the model at the endpoint, such as "gpt-4.1-mini".
        style: Style guidance of the judge, such as "Futuristic style with advanced technologies".
        show: "images" shows only the K pictures (the paper), "texts" the K texts.
        seed: Seed of the order in which options are labelled.

    Raises:
        TypeError, ValueError: An empty model or style, or as for `EndpointSettings`.
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
