"""What all pages share, those of studies and of `edpbrl ask`: texts in several languages, templates, static files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from edpbrl_gym.study.wording import Messages, available_languages, has_messages, load_messages

__all__ = [
    "FOLDER",
    "Messages",
    "StaticPages",
    "Templates",
    "available_languages",
    "has_messages",
    "load_messages",
    "preferred_language",
    "see_other",
]

FOLDER = Path(str(files("edpbrl_gym.study.web")))


def preferred_language(accepted: str, offered: Sequence[str]) -> str:
    """The offered language that a browser's Accept-Language header prefers; the first one if it names none."""
    wanted = []
    for part in accepted[:500].split(","):
        code, _, quality = part.partition(";q=")
        try:
            wanted.append((-float(quality or 1), code.strip().lower()))
        except ValueError:
            continue
    for _, code in sorted(wanted, key=lambda pair: pair[0]):
        for language in offered:
            if code and language.lower().partition("-")[0] == code.partition("-")[0]:
                return language
    return offered[0]


@cache
def static_url(name: str) -> str:
    """The address of a file of the pages; it changes with the file, so browsers may keep it."""
    digest = hashlib.sha256((FOLDER / "static" / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def see_other(address: str) -> RedirectResponse:
    """The answer to a post: the browser gets another page, and reloading it posts nothing."""
    return RedirectResponse(address, status_code=303)


class StaticPages(StaticFiles):
    """Files of the pages, which browsers keep: their addresses change with them."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER / "static")

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


class Templates:
    """Makes pages of templates; ``messages`` gives the texts of a language."""

    def __init__(self, messages: Callable[[str], Messages] = load_messages) -> None:
        self._messages = messages
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def page(
        self,
        template: str,
        language: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> HTMLResponse:
        """The page of a template in a language."""
        messages = self._messages(language)
        text = self._environment.get_template(template).render(
            t=messages, language=language, static=static_url, **values
        )
        return HTMLResponse(text, status_code=status, headers=headers)
