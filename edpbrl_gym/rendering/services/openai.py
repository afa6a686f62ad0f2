"""``OpenAIRenderer``: pictures by POST /images/generations, of OpenAI, vLLM-Omni, SGLang, NVIDIA Dynamo and others."""

from __future__ import annotations

import threading
from typing import Any

from edpbrl_gym._addresses import OPENAI_KEY, OPENAI_URL
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.rendering.base import NotDrawn
from edpbrl_gym.rendering.services.http import HttpService, base64_bytes, only_one, options_from

__all__ = ["OpenAIRenderer"]

_PATH = "/images/generations"


class OpenAIRenderer(HttpService):
    """A model behind the images endpoint of OpenAI's API.

    OpenAI takes no seed, so each picture is one sample: the cache keeps it, and it is never asked for again. A text
    that the server refuses for its content is a flagged picture.

    Args:
        url: Address of the endpoint, such as http://127.0.0.1:8000/v1 ("": OpenAI's own).
        model: Name of the model.
        seeded: Send the seed, to a server that takes one (vLLM-Omni, SGLang); equal seeds give equal pictures there.
        steps: Number of denoising steps, as ``num_inference_steps`` (None: the model's own).
        guidance: Guidance scale, as ``guidance_scale`` (None: the model's own).
        negative: Negative prompt, as ``negative_prompt`` ("": none is sent).
        quality: Such as "low", "medium" or "high" of OpenAI (None: the model's own).
        response_format: How the picture is asked for: "b64_json", "url", or "none" for models that take no such
            parameter; "auto" is b64_json until the server refuses the parameter.
        extra: Further fields of the request, as a JSON object.
        **connection: See ``HttpService``.

    Raises:
        ValueError, TypeError: A value is wrong; for OpenAI's own endpoint, the key is not in OPENAI_API_KEY.
    """

    example = "http://127.0.0.1:8000/v1"

    def __init__(
        self,
        url: str,
        *,
        seeded: bool = False,
        steps: int | None = None,
        guidance: float | None = None,
        negative: str = "",
        quality: str | None = None,
        response_format: str = "auto",
        extra: str | dict[str, Any] | None = None,
        **connection: Any,
    ) -> None:
        address = (url or OPENAI_URL).strip().rstrip("/").removesuffix(_PATH)
        if address == OPENAI_URL and connection.get("api_key_variable") is None:
            connection["api_key_variable"] = OPENAI_KEY
        super().__init__(address, **connection)
        if not self.model:
            raise ValueError(f"Expected the name of a model, as in 'openai:{self.url}#MODEL', got none")
        if response_format not in ("auto", "b64_json", "url", "none"):
            raise ValueError(f"Expected response_format as auto, b64_json, url or none, got {response_format!r}")
        self.seeded = bool(seeded)
        given = {
            "size": None if self.size is None else "{}x{}".format(*self.size),
            "quality": quality,
            "num_inference_steps": None if steps is None else check_count(steps, "steps"),
            "guidance_scale": None if guidance is None else check_number(guidance, "guidance", minimum=0.0),
            "negative_prompt": negative or None,
        }
        self._request = {name: value for name, value in given.items() if value is not None} | options_from(extra)
        if response_format == "auto":  # OpenAI's later models always answer in base64, and refuse the parameter
            response_format = "none" if address == OPENAI_URL and not self.model.startswith("dall-e") else "b64_json"
            self._may_leave_out = True
        else:
            self._may_leave_out = False
        self._format = None if response_format == "none" else response_format

    def request(self) -> dict[str, Any]:
        return self._request

    def picture(self, text: str, seed: int, stop: threading.Event) -> bytes:
        document: dict[str, Any] = {**self._request, "model": self.model, "prompt": text, "n": 1}
        if self.seeded:
            document["seed"] = seed
        while True:
            form = self._format
            whole = document | ({} if form is None else {"response_format": form})
            try:
                content = self.ask_json(_PATH, whole, stop=stop, text=text, number=seed)
                break
            except NotDrawn as error:
                if form is None or not self._may_leave_out or "response_format" not in str(error):
                    raise
                self._format = None
        one = only_one(content.get("data"))
        if not isinstance(one, dict):
            raise NotDrawn("Expected a picture with b64_json or url in the reply, got something else")
        if one.get("b64_json"):
            return base64_bytes(one["b64_json"])
        url = one.get("url")
        if not isinstance(url, str) or not url:
            raise NotDrawn("Expected a picture with b64_json or url in the reply, got none of them")
        return base64_bytes(url) if url.startswith("data:") else self.picture_at(url, stop)
