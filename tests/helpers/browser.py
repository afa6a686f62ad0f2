"""Chromium for the tests of the study's pages, and a participant in front of it."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INSTALL = "apt-get install chromium"
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--disable-quic")  # fmt: skip
_PATIENCE = 60_000  # milliseconds
HIDDEN = """() => {
  const bad = [];
  const box = (one) => one.getBoundingClientRect();
  const bar = document.querySelector(".bar"), edge = box(bar).top, low = innerHeight;
  for (const one of document.querySelectorAll("button, a, label, select")) {
    if (one.closest(".skip") || !one.getClientRects().length) continue;
    const { top, bottom } = box(one);
    const whole = bar.contains(one) ? top >= edge && bottom <= low + 1 : bottom <= edge + 2 || top >= edge - 1;
    if (!whole) bad.push(["lies under the bar", one.outerHTML.slice(0, 80), top, bottom, edge]);
  }
  const title = document.querySelector(".study-title bdi"), frame = box(title.parentElement), text = box(title);
  const shown = Math.min(text.right, frame.right) - Math.max(text.left, frame.left);
  const there = text.top < frame.bottom - 1 && frame.width > 0;
  if (there && shown < Math.min(100, title.scrollWidth)) bad.push(["the title is cut", shown, title.scrollWidth]);
  return bad;
}"""
"""What of a page of pictures is hidden by half: buttons by the bar, and the title by what stands beside it."""


def find_chromium() -> str | None:
    """The program, as Debian and others name it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def missing() -> str:
    """Why no browser can be started; empty if one can."""
    for package in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(package) is None:
            return f"needs {package}: pip install 'edpbrl-gym[test]'"
    return "" if find_chromium() else f"needs Chromium: {INSTALL}"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=find_chromium(), args=list(_SWITCHES))
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Any) -> list[tuple[str, list[str]]]:
    """What axe finds wrong with a page as it is: the rule, and where."""
    from axe_playwright_python.sync_playwright import Axe

    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(Axe().axe_script)
    run = "() => axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations)"
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in page.evaluate(run)]


def problems(page: Any, *, phone: bool = True) -> list[tuple[Any, ...]]:
    """What axe finds, in light and dark, and on a phone; and whether the page is wider than that."""
    found: list[tuple[Any, ...]] = []
    size = page.viewport_size
    for colours, viewport in [("light", size), ("dark", size)] + [("light", PHONE["viewport"])] * phone:
        page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        page.set_viewport_size(viewport)
        found += [(page.url, colours, viewport["width"], *one) for one in violations(page)]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append((page.url, viewport["width"], "wider than the window"))
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)
    return found


class Reader:
    """A participant in front of a browser.

    Args:
        browser: The browser.
        base: Address of the study.
        options: Of the context: viewport, touch, colours, language, JavaScript.

    Attributes:
        context, page: Of the browser.
        complaints: What the browser said: errors of the script, violations of the security policy, failed loads.
        answered: By key of the question, what was answered: numbers of options.
    """

    def __init__(self, browser: Any, base: str, **options: Any) -> None:
        self.base = base
        self.context = browser.new_context(reduced_motion="reduce", **options)  # nothing to wait for
        self.context.set_default_timeout(_PATIENCE)
        self.scripted = options.get("java_script_enabled", True)
        self.complaints: list[str] = []
        self.answered: dict[str, tuple[int, ...]] = {}
        self.page = self.open()

    def open(self) -> Any:
        """Another tab."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None,
        )
        return page

    def close(self) -> None:
        self.context.close()

    def go(self, address: str) -> None:
        self.page.goto(self.base + address)

    def begin(self, name: str, *, language: str = "en") -> None:
        """Agree, and read the instructions."""
        self.go(f"/?PROLIFIC_PID={name}&lang={language}")
        self.page.check("[name=agree]")
        self.page.click("button.primary")
        self.page.wait_for_url(re.compile("/instructions$"))
        self.page.click("button.primary")
        self.page.wait_for_url(re.compile("/question$"))

    @property
    def key(self) -> str | None:
        """Key of the question on the page; None: there is none."""
        found = self.page.locator("form[data-question] [name=key]")
        return found.input_value() if found.count() else None

    @property
    def ended(self) -> bool:
        return self.page.url.endswith("/end")

    def options(self) -> list[int]:
        """Numbers of the options in the order of the page."""
        read = "all => all.map(one => +(one.name === 'best' ? one.value : one.name.slice(6)))"
        inputs = self.page.eval_on_selector_all(".option :is([name=best], select, [name^=level-][value='0'])", read)
        assert inputs, "no question"
        return inputs

    def wait_for_another(self, key: str | None) -> None:
        """Wait until the page shows another question than that with a key, or the end."""
        shown = "document.querySelector('form[data-question] [name=key]')?.value"
        self.page.wait_for_function(f"key => document.querySelector('h1') && {shown} !== key", arg=key)

    def next(self, press: Any) -> None:
        """Do what sends the answer, and wait for what comes after it."""
        key = self.key
        if self.scripted:
            press()
            self.wait_for_another(key)
        else:
            with self.page.expect_navigation():
                press()
