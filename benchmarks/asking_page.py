"""What a person sees in the pages of `edpbrl ask`, and how long they wait: a simulated person in front of Chromium.

python -m benchmarks.asking_page                 # the pictures and the times of docs/ask.md
python -m benchmarks.asking_page --study         # the pictures of docs/study-participants.md: a study about posters

The person likes pictures that are calm, blue and have much empty space, a function of pixels that the library does not
see, and takes some seconds for every answer. It needs Chromium (`apt-get install chromium`) and playwright.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from benchmarks.common import PROGRAM
from benchmarks.picture_tastes import TASTES
from edpbrl_gym.study.template import write_template

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_WINDOW = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 844}
_PICTURES = """() => Promise.all([...document.querySelectorAll(".card img")].map(async (one) => {
  const bytes = new Uint8Array(await (await fetch(one.src)).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}))"""
_PRESSED = """key => new Promise((told) => {
  const begin = performance.now();
  const asked = () => document.querySelector("form[data-question] [name=key]")?.value;
  const before = asked();
  const look = () => {
    const pictures = [...document.querySelectorAll(".card img")];
    const there = pictures.every((one) => one.complete && one.naturalWidth);
    if (asked() && asked() !== before && there) told(performance.now() - begin);
    else setTimeout(look, 2);
  };
  document.dispatchEvent(new KeyboardEvent("keydown", { key, code: "Digit" + key, bubbles: true }));
  look();
})"""
"""Presses a key; gives the milliseconds until the next question is there with its pictures decoded."""
_STUDY = """title = "Which posters do you like?"
seed = 2
[consent]
version = "1"
[questions]
vocabulary = "posters"
options = 4
number = 20
[pictures]
renderer = "posters"
[[arms]]
name = "adaptive"
planner = "adaptive"
"""
_ANOTHER = """before => {
  const asked = document.querySelector("form[data-question] [name=key]")?.value;
  return asked && asked !== before && [...document.querySelectorAll(".card img")].every((one) => one.naturalWidth);
}"""
_AT_HOME = """folder => document.querySelectorAll("code").forEach((one) => {
  one.textContent = one.textContent.replace(folder, "~");
})"""
"""Shows the temporary folder of the run as a person's own."""


@dataclass
class Args:
    """Arguments of the run."""

    taste: str = "calm"
    """what the simulated person likes, of benchmarks.picture_tastes"""
    answers: int = 18
    """questions answered"""
    reading: float = 4.0
    """seconds for which the person looks at a question"""
    features: Literal["text", "picture", "both"] = "text"
    """by what the command learns"""
    docs: bool = True
    """write the pictures of docs/ask.md"""
    study: bool = False
    """draw the pictures of docs/study-participants.md instead, and answer nothing but what leads to them"""


class Page:
    """A command of `edpbrl` that serves a page, and its page in Chromium."""

    def __init__(self, browser: Any, folder: Path, *words: str) -> None:
        environment = {**os.environ, "EDPBRL_CACHE": str(folder / "cache")}
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, *words],
            stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
        )  # fmt: skip
        assert self.process.stdout is not None
        address = next(found[0] for line in self.process.stdout if (found := re.search(r"http\S+", line)))
        self.page = browser.new_page(viewport=_WINDOW, device_scale_factor=2)
        self.page.goto(re.sub(r"participant=.*", "participant=one", address))  # until all pictures are there

    def wait(self) -> float:
        """Wait for a question; the seconds since the command."""
        self.page.locator("form[data-question]").wait_for()
        return time.monotonic() - self.begin

    def pictures(self) -> list[bytes]:
        """The pictures of the question, as PNG."""
        from resvg_py import svg_to_bytes

        scenes = [base64.b64decode(one).decode() for one in self.page.evaluate(_PICTURES)]
        return [bytes(svg_to_bytes(svg_string=one, skip_system_fonts=True)) for one in scenes]

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)


def shot(page: Any, *, full: bool = False, dark: bool = False, phone: bool = False) -> bytes:
    """A picture of the page."""
    page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
    page.set_viewport_size(_PHONE if phone else _WINDOW)
    time.sleep(0.5)
    return bytes(page.screenshot(full_page=full))


def beside(question: bytes, end: bytes, bottom: float) -> Any:
    """A question and, beside it, the taste learnt, down to a height in the window's pixels."""
    from PIL import Image

    left, right = (Image.open(io.BytesIO(one)).convert("RGB") for one in (question, end))
    right = right.crop((0, 0, right.width, round(bottom * right.width / _WINDOW["width"])))
    right = right.resize((right.width * left.height // right.height, left.height), Image.Resampling.LANCZOS)
    sheet = Image.new("RGB", (left.width + right.width + 40, left.height), "white")
    sheet.paste(left, (0, 0))
    sheet.paste(right, (left.width + 40, 0))
    return sheet.resize(
        (sheet.width * 1800 // sheet.width, sheet.height * 1800 // sheet.width), Image.Resampling.LANCZOS
    )


def write(picture: bytes, name: str) -> None:
    """Write a picture of the page as docs/NAME.png, a pixel for each of the window's."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
    save(image, name)


def save(image: Any, name: str) -> None:
    """Save a picture of the docs with 256 colours, which are those that are near in it."""
    image.quantize(256, kmeans=2).save(_DOCS / f"{name}.png", optimize=True)


def show_study(browser: Any, folder: Path) -> None:
    """Take part in a study about posters as far as its third question of those that count, and draw that."""
    write_template(folder / "study")
    (folder / "study/study.toml").write_text(_STUDY, encoding="utf-8")
    with closing(Page(browser, folder, "study", "serve", "study", "--port", "0")) as study:
        study.page.check("[name=agree]")
        for address in ("**/instructions", "**/question"):
            study.page.click("button.primary")
            study.page.wait_for_url(address)
        study.wait()
        for key in "1234":
            asked = study.page.input_value("[name=key]")
            study.page.keyboard.press(key)
            study.page.keyboard.press("Enter")
            study.page.wait_for_function(_ANOTHER, arg=asked)
        study.page.keyboard.press("2")
        for name, look in (("light", {}), ("dark", {"dark": True}), ("phone", {"phone": True})):
            write(shot(study.page, **look), f"study-{name}")


def main(args: Args) -> None:
    """Answer the questions of a real command, write the pictures of the docs, and print the times."""
    from playwright.sync_api import sync_playwright

    taste = TASTES[args.taste]
    waits, shots = [], {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if args.study:
            show_study(browser, Path(folder))
            return
        asking = Page(browser, Path(folder), "ask", "--no-open", "--features", args.features)
        first = asking.wait()
        for _ in range(args.answers):
            time.sleep(args.reading)
            best = int(np.argmax([taste(picture) for picture in asking.pictures()]))
            waits.append(asking.page.evaluate(_PRESSED, str(best + 1)))
            print(f"{len(waits)}: {waits[-1]:.0f} ms", file=sys.stderr, flush=True)
        time.sleep(2 * args.reading)
        said = asking.page.inner_text("#progress")
        shots["question"] = shot(asking.page)
        shots["dark"] = shot(asking.page, dark=True)
        shots["phone"] = shot(asking.page, phone=True)
        begin = time.monotonic()
        asking.page.click("[form=finish]")
        asking.page.locator(".best").wait_for(timeout=300_000)
        learnt = time.monotonic() - begin
        asking.page.locator("#files:not([data-later])").wait_for(timeout=300_000)
        asking.page.reload()
        asking.page.evaluate(_AT_HOME, folder)
        shots["end"] = shot(asking.page, full=True)
        place = asking.page.locator(".best").bounding_box()
        asking.close()
        browser.close()
    if args.docs:
        sheet = beside(shots["question"], shots["end"], place["y"] + place["height"] + 10)
        save(sheet, "ask-light")
        for name in ("dark", "phone", "end"):
            write(shots[name], f"ask-{name}")
    print(f"from the command to the first question: {first:.1f} s")
    print(f"from a key to the next question: median {np.median(waits):.0f} ms, longest {max(waits):.0f} ms")
    print(f"from the end of the questions to what was learnt: {learnt:.1f} s; {said}")
    print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
