"""Chromium looks at every page of a study: axe, sizes, boxes, what screen readers hear, pictures."""

from __future__ import annotations

import io
import zlib
from types import SimpleNamespace

import pytest

from edpbrl_gym.study.pictures import Pictures
from tests.helpers import browser as browsers
from tests.helpers.browser import PHONE, Reader
from tests.helpers.studies import SMALL
from tests.helpers.study_server import listening

pytestmark = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())

LANGUAGES = ("en", "de", "zh", "ar")
TEXT = SMALL.replace("seed = 3", f"seed = 3\nlanguages = {list(LANGUAGES)}")
CHECKED = (
    TEXT.replace(
        "[checks]",
        'attempts = 2\n[[practice.comprehension]]\ntext = "What?"\nchoices = ["this", "that"]\ncorrect = 2\n[checks]',
    )
    .replace("number = 6", "number = 1")
    .replace("repeated = 2", "repeated = 0")
)
WAITING = TEXT[: TEXT.index("[practice]")] + '[practice]\nquestions = 0\n[[arms]]\nname = "loop"\nplanner = "oracle"\n'
DRAWN = "() => [...document.images].every(one => one.naturalWidth > 0)"
SIZES = ((320, 568), (390, 844), (768, 1024), (1280, 800), (2560, 1440))


@pytest.fixture(scope="module")
def browser():
    with browsers.chromium() as started:
        yield started


class Painting:
    """A renderer of one colour for each prompt."""

    def render(self, prompts, seed):
        from PIL import Image

        found = []
        for text in prompts:
            file = io.BytesIO()
            colour = zlib.crc32(text.encode())
            Image.new("RGB", (64, 64), (colour & 255, colour >> 8 & 255, colour >> 16 & 255)).save(file, "PNG")
            found.append(SimpleNamespace(png=file.getvalue(), flagged=False))
        return found


@pytest.fixture
def look(serve, browser):
    """Open a study in a browser of one's own: ``look(text, pictures=False, **options of the context)``."""
    running = []

    def start(text=TEXT, *, pictures=False, **options):
        drawn = Pictures(Painting(), seed=0) if pictures else None
        served = serve(text, languages=LANGUAGES[1:], pictures=drawn)
        server = listening(served.app)
        reader = Reader(browser, f"http://127.0.0.1:{server.__enter__()}", **options)
        running.append((reader, server, drawn))
        return reader

    yield start
    for reader, server, drawn in running:
        reader.close()
        server.__exit__(None, None, None)
        if drawn is not None:
            drawn.close()
        assert [one for one in reader.complaints if "Failed to load resource" not in one] == []


def problems(page):
    """What axe finds, in light, dark and on a phone."""
    from axe_playwright_python.sync_playwright import Axe

    axe, found = Axe(), []
    size = page.viewport_size
    for colours, viewport in (("light", size), ("dark", size), ("light", PHONE["viewport"])):
        page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        page.set_viewport_size(viewport)
        for one in axe.run(page).response["violations"]:
            found.append(
                (page.url, colours, viewport["width"], one["id"], [node["html"][:200] for node in one["nodes"]])
            )
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)
    return found


def fits(page):
    """Nothing is wider than the page, at any size, and everything that is pressed is large enough."""
    size = page.viewport_size
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{page.url} is {wide} wide in a window of {width}"
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, a, select, label.choice, label.card, label.pill")]
                .filter(one => !one.closest(".skip, .prose") && one.getClientRects().length)
                .map(one => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
                .filter(([, box]) => Math.min(box.width, box.height) < 43.9)"""
        )
        assert small == [], f"{page.url} at {width}: {small}"
    page.set_viewport_size(size)


def check(reader):
    """No violation in any look, and it fits every window."""
    reader.page.wait_for_load_state()
    assert problems(reader.page) == []
    fits(reader.page)


def test_pages_before_and_after_the_questions_have_no_violation(look):
    reader = look(CHECKED)
    reader.go("/")
    check(reader)
    reader.page.check("[name=agree]")
    reader.page.click("button.primary")
    reader.page.wait_for_url("**/instructions")
    check(reader)
    reader.page.locator("input[type=radio]").first.check()
    reader.page.click("button.primary")
    reader.page.locator(".notice").wait_for()
    check(reader)
    reader.page.locator("input[type=radio]").nth(1).check()
    reader.page.click("button.primary")
    reader.page.wait_for_url("**/question")
    for address in ("/instructions", "/welcome-back", "/withdraw", "/nothing"):
        reader.go(address)
        check(reader)
    reader.go("/question")
    while not reader.ended:
        reader.page.keyboard.press("1")
        reader.next(lambda: reader.page.keyboard.press("Enter"))
    assert reader.page.locator(".group").count() == 2
    check(reader)
    reader.page.locator(".group button").first.click()
    reader.page.locator(".learnt").wait_for()
    check(reader)


def test_the_pages_of_those_who_stop_or_wait_have_no_violation(look):
    reader = look(WAITING)
    reader.go("/")
    reader.page.check("[name=agree]")
    reader.page.click("button.primary")
    reader.page.click("button.primary")
    reader.page.locator(".waiting").wait_for()
    check(reader)
    reader.go("/withdraw")
    reader.page.click("button:not(.primary)")
    reader.page.wait_for_url("**/end")
    check(reader)


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_pages_in_other_languages_have_no_violation(look, language):
    reader = look(TEXT.replace("options = 3", 'options = 4\nformat = "best_worst"'))
    reader.go(f"/?lang={language}")
    assert reader.page.locator("html").get_attribute("dir") == ("rtl" if language == "ar" else "ltr")
    check(reader)
    reader.begin("one", language=language)
    check(reader)


@pytest.mark.parametrize("format", ["best", "best_worst", "ranking", "partial"])
@pytest.mark.parametrize("pictures", [False, True], ids=["texts", "pictures"])
def test_questions_have_no_violation(look, format, pictures):
    count = 8 if format in ("best", "partial") else 4
    reader = look(TEXT.replace("options = 3", f'options = {count}\nformat = "{format}"'), pictures=pictures)
    reader.begin("one")
    if pictures:
        reader.page.wait_for_function(DRAWN)
    boxes = "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
    for chosen in (False, True):
        if chosen:
            reader.page.keyboard.press("2")
            reader.page.keyboard.press("Shift+Digit1")
        check(reader)
        sizes = reader.page.eval_on_selector_all(".card", boxes)
        assert len(sizes) == count and len({tuple(one) for one in sizes}) == 1


def test_buttons_never_move(look):
    reader = look(TEXT.replace("options = 3", "options = 4"), **PHONE)
    reader.begin("one")
    places = "all => all.map(one => Object.values(one.getBoundingClientRect().toJSON()))"
    seen = []
    for _ in range(4):  # practice first, then without a notice, with one, and again without
        seen.append(reader.page.eval_on_selector_all(".bar button", places))
        reader.page.locator(".card").nth(1).tap()
        seen.append(reader.page.eval_on_selector_all(".bar button", places))
        reader.next(reader.page.locator("[data-undo]" if len(seen) == 4 else "[data-next]").tap)
    assert all(one == seen[0] for one in seen)


def test_four_texts_fit_on_a_phone(look):
    reader = look(TEXT.replace("options = 3", "options = 4"), **PHONE)
    reader.begin("one")
    last = reader.page.locator(".card").last.bounding_box()
    assert last["y"] + last["height"] <= reader.page.locator(".bar").bounding_box()["y"]


def test_screen_readers_go_on_at_the_heading_and_hear_what_is_new(look):
    reader = look()
    reader.begin("one")
    for pressed, heard in (
        ("Enter", ["Question 2 of 10"]),
        ("u", ["Question 1 of 10", "Your last answer is taken back"]),
    ):
        reader.page.keyboard.press("1")
        reader.next(lambda pressed=pressed: reader.page.keyboard.press(pressed))
        assert reader.page.evaluate("document.activeElement.tagName") == "H1"
        said = reader.page.locator("#announcement[role=status]")
        reader.page.wait_for_function("() => document.getElementById('announcement').textContent")
        assert all(one in said.text_content() for one in heard)
    names = [one.get_attribute("aria-hidden") for one in reader.page.locator(".badge, .mark").all()]
    assert set(names) == {"true"}
    reader.page.keyboard.press("Tab")  # from the heading to the options, then along them and on
    reader.page.keyboard.press("ArrowDown")
    assert reader.page.locator("input:checked").count() == 1
    assert reader.page.get_by_role("radio", name="Option 2:").is_checked()


def test_what_is_placed_is_said(look):
    reader = look(TEXT.replace("options = 3", 'options = 4\nformat = "ranking"'))
    reader.begin("one")
    buttons = reader.page.locator(".tap")
    buttons.nth(2).click()
    buttons.nth(0).click()
    pressed = [one.get_attribute("aria-pressed") for one in buttons.all()]
    assert pressed == ["true", "false", "true", "false"]
    names = [one.get_attribute("aria-label") for one in buttons.all()]
    assert names[2].startswith("Option 3: ") and names[2].endswith(" 1") and names[0].endswith(" 2")
    assert reader.page.locator("#announcement").text_content() == names[0]


def test_pictures_are_enlarged_and_answered(look):
    reader = look(TEXT.replace("options = 3", "options = 8"), pictures=True)
    reader.begin("one")
    reader.page.wait_for_function(DRAWN)
    reader.page.locator(".zoom").nth(4).click()
    box = reader.page.locator("dialog[open]")
    assert box.locator("img").get_attribute("alt") == "Picture 5"
    assert problems(reader.page) == []
    reader.page.keyboard.press("3")  # chooses nothing behind the dialog
    reader.page.keyboard.press("Escape")
    box.wait_for(state="detached")
    assert reader.page.locator("input:checked").count() == 0
    reader.page.keyboard.press("5")
    reader.next(lambda: reader.page.keyboard.press("Enter"))
    reader.page.wait_for_function(DRAWN)


def test_the_dialog_of_another_tab_has_no_violation(look):
    reader = look()
    reader.begin("one")
    other = reader.open()
    other.goto(reader.base + "/question")
    reader.page.locator("dialog.tab").wait_for()
    check(reader)
