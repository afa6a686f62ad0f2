"""One HTML file to send to a friend: the best prompts with their pictures, and the taste in words.

Pictures, colours and the script of the copy buttons are in the file. It loads nothing, and its security policy forbids
loading anything; without scripts all can be read.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from edpbrl_gym._pictures import read_picture
from edpbrl_gym._places import write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["PagePrompt", "PageWords", "write_page"]

_MOST_PICTURES = 2_100_000  # bytes of all; a third more in base64
_SIDES = (1200, 960, 720, 560, 420, 320, 240, 160)  # the largest that fits is taken


class PagePrompt(NamedTuple):
    """A prompt of the page.

    Attributes:
        text: The prompt.
        picture: Its picture, the bytes of a PNG, JPEG or WebP file; None: there is none.
        note: A line below it, such as "liked more than 93% of random prompts".
    """

    text: str
    picture: bytes | None = None
    note: str = ""


class PageWords(NamedTuple):
    """The phrases of a step that the person surely likes, and those that they surely don't; see ``StepWords``."""

    step: str
    liked: Sequence[str]
    disliked: Sequence[str]


def write_page(
    path: str | os.PathLike[str],
    prompts: Sequence[PagePrompt],
    *,
    title: str = "What I like",
    words: Sequence[PageWords] = (),
    questions: int | None = None,
    learnt: str = "",
) -> Path:
    """Write the page, below 3 MB.

    Args:
        path: The HTML file.
        prompts: Prompts, the best first; the first one's picture is the largest.
        title: Title of the page, such as the subject of all prompts.
        words: The taste in words; steps about which nothing is sure are left out.
        questions: Number of answered questions from which the taste was learnt.
        learnt: A sentence more about how it was learnt.

    Returns:
        The file.

    Raises:
        ValueError: There is no prompt, or a picture can't be read.
        RunFolderError: The file can't be written.
    """
    if not prompts:
        raise ValueError("Expected at least one prompt for a page, got none")
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pictures = _fitting([prompt.picture for prompt in prompts])
    counted = "" if questions is None else f"Learnt from {questions} {'question' if questions == 1 else 'questions'}."
    lead = escape(" ".join(part for part in (counted, learnt.strip()) if part))
    page = Template(_file("page.html")).substitute(
        title=escape(title),
        style=_file("page.css"),
        script=script,
        digest=digest,
        lead=f'<p class="lead">{lead}</p>' if lead else "",
        kicker="A taste in pictures" if any(pictures) else "A taste in words",
        kind="prompts" if any(pictures) else "prompts without-pictures",
        items="".join(_item(number, *one) for number, one in enumerate(zip(prompts, pictures, strict=True), start=1)),
        words=_words([one for one in words if one.liked or one.disliked]),
    )
    target = Path(path)
    write_atomically(target, lambda part: part.write_text(page, encoding="utf-8"))
    return target


def _file(name: str) -> str:
    return (Path(__file__).resolve().parent / name).read_text(encoding="utf-8")


def _item(number: int, prompt: PagePrompt, picture: _Fitted | None) -> str:
    image = "" if picture is None else (
        f'<img src="data:image/jpeg;base64,{base64.b64encode(picture.data).decode()}" '
        f'width="{picture.width}" height="{picture.height}" alt="Picture {number}, drawn from the prompt beside it">\n'
    )  # fmt: skip
    note = f'<p class="note" dir="auto">{escape(prompt.note)}</p>\n' if prompt.note else ""
    return f"""<li>
{image}<div class="caption">
<p class="prompt" id="prompt-{number}" dir="auto">{escape(prompt.text)}</p>
{note}<button type="button" data-copies="#prompt-{number}" aria-describedby="prompt-{number}" hidden>Copy</button>
</div>
</li>
"""


def _words(words: Sequence[PageWords]) -> str:
    rows = "".join(
        f'<tr><th scope="row" dir="auto">{escape(one.step)}</th>{_phrases(one.liked)}{_phrases(one.disliked)}</tr>\n'
        for one in words
    )
    return Template(_file("words.html")).substitute(rows=rows) if rows else ""


def _phrases(phrases: Sequence[str]) -> str:
    if not phrases:
        return '<td class="none">nothing is sure</td>'
    return f'<td><ul role="list">{"".join(f"<li dir=auto>{escape(phrase)}</li>" for phrase in phrases)}</ul></td>'


class _Fitted(NamedTuple):
    data: bytes
    width: int
    height: int


def _fitting(pictures: Sequence[bytes | None]) -> list[_Fitted | None]:
    """The pictures as large as the page may be, the first one half as large again as the others."""
    opened = [None if data is None else read_picture(data, longest=_SIDES[0]) for data in pictures]
    for side in _SIDES:
        sides = (side, *(round(side / 1.5) for _ in opened[1:]))
        fitted = [None if one is None else _encoded(one, most) for one, most in zip(opened, sides, strict=True)]
        if sum(len(one.data) for one in fitted if one is not None) <= _MOST_PICTURES:
            return fitted
    raise ValueError(
        f"Expected pictures that fit on a page of 3 MB, got {len(pictures)} of them, which don't even as thumbnails; "
        "give fewer prompts"
    )


def _encoded(picture: Image, side: int) -> _Fitted:
    """A JPEG of at most so many pixels on a side, with all of its colour, as posters have hard edges."""
    small = picture.copy()
    small.thumbnail((side, side))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=88, subsampling=0)
    return _Fitted(stream.getvalue(), *small.size)
