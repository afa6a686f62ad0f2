"""``A1111Renderer``: pictures by POST /sdapi/v1/txt2img, of AUTOMATIC1111's interface, Forge and SD.Next."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import PurePath
from typing import Any

from edpbrl_gym._http.errors import parse_json
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.rendering.base import NotDrawn
from edpbrl_gym.rendering.services.http import HttpService, base64_bytes, only_one, options_from

__all__ = ["A1111Renderer"]

_PATH = "/sdapi/v1/txt2img"
_SEEDS = 2**32  # these servers read no larger ones


class A1111Renderer(HttpService):
    """A model behind the interface of AUTOMATIC1111, Forge or SD.Next, started with ``--api``.

    The server says which seed, text and checkpoint it has drawn with; another one than was asked for is an error.

    Args:
        url: Address of the server, such as http://127.0.0.1:7860.
        model: Checkpoint, by its name at the server, which stays loaded there (None: the one that is loaded; the
            server is asked for its name).
        steps: Number of denoising steps (None: the server's own).
        guidance: Guidance scale, ``cfg_scale`` (None: the server's own).
        negative: Negative prompt.
        sampler: Name of the sampler (None: the server's own).
        extra: Further fields of the request, as a JSON object.
        **connection: See ``HttpService``. The variable of a key may hold USER:PASSWORD, as given to ``--api-auth``.

    Raises:
        ValueError, TypeError: A value is wrong.
    """

    example, has_login = "http://127.0.0.1:7860", True

    def __init__(
        self,
        url: str,
        *,
        steps: int | None = None,
        guidance: float | None = None,
        negative: str = "",
        sampler: str | None = None,
        extra: str | dict[str, Any] | None = None,
        **connection: Any,
    ) -> None:
        super().__init__(url.strip().rstrip("/").removesuffix(_PATH), **{"batch_size": 1} | connection)
        width, height = self.size or (None, None)
        given = {
            "negative_prompt": negative or None,
            "steps": None if steps is None else check_count(steps, "steps"),
            "cfg_scale": None if guidance is None else check_number(guidance, "guidance", minimum=0.0),
            "sampler_name": sampler,
            "width": width,
            "height": height,
            "override_settings": None if self.model is None else {"sd_model_checkpoint": self.model},
        }
        self._request = {name: value for name, value in given.items() if value is not None} | options_from(extra)

    def request(self) -> dict[str, Any]:
        return self._request

    @cached_property
    def checkpoint(self) -> str:
        """The checkpoint that draws, as it is named or as the server names it.

        Raises:
            ConnectionError: The server does not say it.
        """
        if self.model is not None:
            return self.model
        try:
            name = self.ask_json("/sdapi/v1/options", stop=threading.Event()).get("sd_model_checkpoint")
        except NotDrawn as error:
            name, problem = None, f" ({error})"
        else:
            problem = ""
        if not isinstance(name, str) or not name:
            raise ConnectionError(
                f"Expected {self.url} to name the checkpoint that is loaded, it does not{problem}; start it with "
                f"--api, or name the checkpoint, as in 'a1111:{self.url}#CHECKPOINT'"
            )
        return name

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"model": self.checkpoint}

    def picture(self, text: str, seed: int, stop: threading.Event) -> bytes:
        fixed = {"batch_size": 1, "n_iter": 1, "send_images": True, "save_images": False,
                 "override_settings_restore_afterwards": False}  # fmt: skip
        document = fixed | self._request | {"prompt": text, "seed": seed % _SEEDS}
        content = self.ask_json(_PATH, document, stop=stop, text=text, number=seed)
        info = content.get("info")
        told = parse_json(info.encode("utf-8", "replace")) if isinstance(info, str) else info
        if isinstance(told, dict):
            self._check(told, text, seed % _SEEDS)
        return base64_bytes(only_one(content.get("images")))

    def _check(self, told: dict[str, Any], text: str, seed: int) -> None:
        """Compare what the server says that it has drawn with what it was asked for."""
        drawn = told.get("seed")
        if drawn is not None and str(drawn) != str(seed):
            raise NotDrawn(f"Expected a picture with the seed {seed}, the server drew one with {str(drawn)[:20]!r}")
        prompt = told.get("prompt")
        if prompt is not None and str(prompt).split() != text.split():
            raise NotDrawn("Expected a picture of the text, the server drew another one; is an extension rewriting it?")
        name = told.get("sd_model_name")
        if name and _stem(str(name)) != _stem(self.checkpoint):
            raise ConnectionError(
                f"Expected {self.url} to draw with the model {self.checkpoint!r}, it drew with {str(name)[:60]!r}; "
                "check the name, and that nobody else changes it there meanwhile"
            )


def _stem(checkpoint: str) -> str:
    """The name of a checkpoint without folder, ending and hash: of "sd/dream.safetensors [879db5]" it is "dream"."""
    name = PurePath(checkpoint.rpartition(" [")[0] or checkpoint).name.rpartition("\\")[2]
    return name.removesuffix(".safetensors").removesuffix(".ckpt").casefold()
