"""Chromium looks at every page of a study: axe, sizes, boxes, what screen readers hear, pictures."""

from __future__ import annotations

import io
import zlib
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from edpbrl_gym.study.photo_store import PhotoStore
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.study.tables import participants
from edpbrl_gym.study.web.preview import preview_address
from tests.helpers import browser as browsers
from tests.helpers.browser import PHONE, Reader, problems
from tests.helpers.picture_files import encoded, made_picture
from tests.helpers.studies import CHECKED, SMALL
from tests.helpers.study_server import listening

pytestmark = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())

LANGUAGES = ("en", "de", "zh", "ar")
WITH_LANGUAGES = f"seed = 3\nlanguages = {list(LANGUAGES)}"
TEXT, READ = SMALL.replace("seed = 3", WITH_LANGUAGES), CHECKED.replace("seed = 3", WITH_LANGUAGES)
READ = READ.replace("number = 6", "number = 1").replace("repeated = 2", "repeated = 0")
WAITING = TEXT[: TEXT.index("[practice]")] + '[practice]\nquestions = 0\n[[arms]]\nname = "loop"\nplanner = "oracle"\n'
PAGES = """
[[pages]]
name = "load"
place = "start"
template = "nasa-tlx"
[[pages]]
name = "about"
place = "before"
template = "demographics"
[[pages.questions]]
name = "where"
kind = "choices"
text = "???"
choices = ["1.", "2.", "3."]
[[pages.questions]]
name = "fun"
kind = "scale"
text = "!!!"
rather_not_say = true
[[pages.questions]]
name = "short"
kind = "short_text"
text = "..."
required = false
[[pages.questions]]
name = "long"
kind = "long_text"
text = "...?"
help = "(...)"
"""
DRAWN = "() => [...document.images].every(one => one.naturalWidth > 0)"
SIZES = ((320, 568), (390, 844), (768, 1024), (1280, 800), (2560, 1440))


# what is cut, broken or not for a phone: a page that scrolls sideways, a word in two lines, text beyond its box, keys
CUT = r"""() => {
  const bad = [];
  const width = document.documentElement.scrollWidth;
  if (width > window.innerWidth) bad.push(["scrolls", width]);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!parent.getClientRects().length || parent.closest(".visually-hidden, .skip, script, option")) continue;
    const isChinese = /[一-鿿]/.test(node.data); // lines may end after any sign, but not on a button
    const whole = !isChinese ? /\S+/g : parent.closest("button, a:not(.notice a), label.pill") ? /.+/g : /[a-z0-9]+/gi;
    for (const found of node.data.matchAll(whole)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 0.5);
      const lines = new Set(boxes.map((box) => Math.round(box.top)));
      if (lines.size > 1) bad.push(["breaks", found[0], parent.outerHTML.slice(0, 60)]);
    }
  }
  for (const one of document.querySelectorAll("button, .button, label.pill, .choice, .card, h1, .progress")) {
    if (one.scrollWidth > one.clientWidth + 1) bad.push(["overflows", one.outerHTML.slice(0, 80)]);
  }
  if (document.querySelector(".keys")?.getClientRects().length) bad.push(["keys are shown"]);
  return bad;
}"""


class Painting:
    """A renderer of one colour for each prompt."""

    batch_size = 1

    def render(self, prompts, seed, each):
        from PIL import Image

        for place, text in enumerate(prompts):
            file = io.BytesIO()
            colour = zlib.crc32(text.encode())
            Image.new("RGB", (64, 64), (colour & 255, colour >> 8 & 255, colour >> 16 & 255)).save(file, "PNG")
            each(place, SimpleNamespace(png=file.getvalue(), flagged=False))

    def close(self):
        pass


@pytest.fixture
def look(serve, browser):
    """Open a study in a browser of one's own: ``look(text, pictures=False, **options of the context)``."""
    running = []

    def start(text=TEXT, *, pictures=False, admin_token="", **options):
        drawn = Pictures(Painting(), seed=0) if pictures else None
        served = serve(text, languages=LANGUAGES[1:], pictures=drawn, admin_token=admin_token)
        server = listening(served.app)
        reader = Reader(browser, f"http://127.0.0.1:{server.__enter__()}", **options)
        reader.served = served
        running.append((reader, server, drawn))
        return reader

    yield start
    for reader, server, drawn in running:
        reader.close()
        server.__exit__(None, None, None)
        if drawn is not None:
            drawn.close()
        assert [one for one in reader.complaints if "Failed to load resource" not in one] == []


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


def is_whole(page):
    """On small phones, also with a wider font, no word breaks inside and nothing is cut."""
    size = page.viewport_size
    for spacing in ("", ".06em"):
        page.evaluate(
            "value => document.querySelectorAll('*').forEach(one => one.style.letterSpacing = value)", spacing
        )
        for width in (320, 375):
            page.set_viewport_size({"width": width, "height": 667})
            assert page.evaluate(CUT) == [], f"{page.url} at {width}, spacing {spacing or 'normal'}"
    page.evaluate("() => document.querySelectorAll('*').forEach(one => one.style.letterSpacing = '')")
    page.set_viewport_size(size)


def check(reader):
    """No violation in any look, it fits every window, and on a phone no word breaks inside."""
    reader.page.wait_for_load_state()
    assert problems(reader.page) == []
    fits(reader.page)
    is_whole(reader.page)


def press(reader, address):
    """Go on to another page."""
    reader.page.click("button.primary")
    reader.page.wait_for_url(f"**{address}")


@pytest.mark.parametrize("language", ["de", "zh", "ar"])
def test_every_page_has_no_violation_and_on_a_phone_no_word_breaks_inside(look, gate, language):
    reader = look(READ.replace("attention = 1", "attention = 0"))
    page = reader.page
    for address in ("PROLIFIC_PID={{x}}", "assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE", "x=y"):
        reader.go(f"/?{address}&lang={language}")
        check(reader)
    assert page.locator("html").get_attribute("dir") == ("rtl" if language == "ar" else "ltr")
    page.check("[name=agree]")
    press(reader, "/page")
    check(reader)
    page.locator("input[type=radio]").first.check()
    page.click("button.primary")
    page.locator(".notice").wait_for()
    check(reader)
    page.locator("input[type=radio]").nth(1).check()
    press(reader, "/question")
    for address in ("/instructions", "/welcome-back", "/withdraw", "/nothing", "/question"):
        reader.go(address)
        check(reader)
    other = reader.open()
    other.goto(reader.base + "/question")
    page.locator("dialog.tab").wait_for()
    check(reader)
    other.close()
    reader.go("/question")
    while not reader.ended:
        page.locator(".card").first.click()
        reader.next(page.locator("[data-next]").click)
    check(reader)
    gate.set()
    page.locator(".group").nth(1).wait_for()
    check(reader)
    page.locator(".group button").first.click()
    page.locator(".learnt").wait_for()
    check(reader)


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_of_questions_are_like_the_others(look, language):
    reader = look(TEXT + PAGES)
    page = reader.page
    reader.go(f"/?PROLIFIC_PID=one&lang={language}")
    page.check("[name=agree]")
    press(reader, "/page")
    check(reader)
    page.click("button.primary")
    page.locator(".problem").first.wait_for()
    for points in page.locator(".points").all():
        points.locator("label").nth(3).click()
    check(reader)
    assert page.locator(".points :checked").count() == 6
    press(reader, "/instructions")
    press(reader, "/page")
    page.fill("#q-age", "old")
    page.click("button.primary")
    page.locator(".problem").first.wait_for()
    check(reader)
    assert page.input_value("#q-age") == "old"


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_of_own_photos_are_like_the_others(look, language, tmp_path):
    reader = look(TEXT + '\n[own_photos]\nversion = "1"\nleast = 2\nmost = 3\n')
    page = reader.page
    reader.go(f"/?PROLIFIC_PID=one&lang={language}")
    page.check("[name=agree]")
    press(reader, "/photos")
    check(reader)
    files = [tmp_path / f"{number}.jpg" for number in range(3)]
    for number, path in enumerate(files[:2]):
        path.write_bytes(encoded(made_picture(number, (90 + 200 * number, 120)), "JPEG"))
    files[2].write_bytes(b"no photo")
    page.check("[name=agree]")
    page.set_input_files("#photos", files)
    page.click("form[enctype] button")
    page.locator(".notice li").wait_for()
    page.wait_for_function(DRAWN)
    assert page.locator(".photos li").count() == 2
    check(reader)
    page.click("form[action='/photos/next'] button.primary")
    page.locator(".points").first.wait_for()
    page.wait_for_function(DRAWN)
    check(reader)
    page.click("button.primary")
    page.locator(".problem").first.wait_for()
    check(reader)
    for points in page.locator(".points").all():
        points.locator("label").nth(3).click()
    press(reader, "/instructions")
    assert [one.rating for one in PhotoStore(reader.served.store.database).of(1)] == [4, 4]


@pytest.mark.parametrize("how", ["reload", "back", "lost"])
def test_what_is_typed_on_a_page_is_there_again(look, how):
    reader = look(TEXT + PAGES[PAGES.index("[[pages]]", 5) :])
    page = reader.page
    reader.go("/?PROLIFIC_PID=one")
    page.check("[name=agree]")
    press(reader, "/instructions")
    press(reader, "/page")
    page.fill("#q-age", "42")
    page.locator("[name=q-gender]").nth(1).check()
    page.select_option("#q-residence", label="Germany")
    page.check("[name=q-where-1]")
    page.fill("#q-long", "first\nsecond")
    if how == "reload":
        page.reload()
    elif how == "back":
        page.go_back()
        page.wait_for_load_state()
        reader.go("/question")
    else:
        page.route("**/page", lambda route: route.abort())
        page.locator("button.primary").click(no_wait_after=True)
        page.wait_for_timeout(500)
        page.unroute("**/page")
        reader.go("/page")
    page.locator("#q-age").wait_for()
    assert page.input_value("#q-age") == "42" and page.input_value("#q-long") == "first\nsecond"
    assert page.locator("[name=q-gender]").nth(1).is_checked() and page.locator("[name=q-where-1]").is_checked()
    assert page.locator("#q-residence option:checked").text_content() == "Germany"
    for name in ("sex", "student", "employment"):
        page.locator(f"[name=q-{name}][value=not]").check()
    for name in ("birth", "nationality", "language"):
        page.select_option(f"#q-{name}", "not")
    page.locator(".tick").first.click()
    press(reader, "/question")
    assert page.evaluate("sessionStorage.getItem('edpbrl-draft')") is None


def test_a_page_between_choices_is_loaded_by_the_script_and_played_without_one(look):
    between = PAGES[: PAGES.index("[[pages]]", 5)].replace('"start"', '"between"\nafter = 2')
    for scripted in (True, False):
        reader = look(TEXT + between, java_script_enabled=scripted)
        reader.begin("one")
        for _ in range(2):
            reader.page.locator(".card").first.click()
            reader.page.locator("[data-next]").click()
            reader.page.wait_for_load_state()
            if scripted:
                reader.page.wait_for_function("() => !document.querySelector('input:checked')")
        reader.page.locator(".points").first.wait_for()
        for points in reader.page.locator(".points").all():
            points.locator("label").first.click()
        press(reader, "/question")


def without_refresh(route):
    """The page that waits for a question would be loaded anew while it is looked at."""
    page = route.fetch()
    route.fulfill(response=page, headers={name: value for name, value in page.headers.items() if name != "refresh"})


@pytest.mark.parametrize("language", ["de", "zh", "ar"])
def test_the_pages_of_those_who_stop_or_wait_are_like_the_others(look, language):
    reader = look(WAITING)
    reader.go(f"/?lang={language}")
    reader.page.check("[name=agree]")
    press(reader, "/instructions")
    reader.page.click("button.primary")
    reader.page.locator(".waiting").wait_for()
    reader.page.route("**/question", without_refresh)
    reader.go("/question")
    check(reader)
    reader.go("/withdraw")
    reader.page.click("button:not(.primary)")
    reader.page.wait_for_url("**/end")
    check(reader)


RECRUITING = """[recruitment]
platform = "prolific"
people = 1
[recruitment.codes]
complete = "C1A2B3C4"
no_consent = "N1A2B3C4"
quota_full = "F1A2B3C4"
timed_out = "T1A2B3C4"
"""
LINK = "/?PROLIFIC_PID={}&STUDY_ID=s&SESSION_ID=t&lang={}"


def recruiting(more, text=TEXT):
    """A study of one question with people from Prolific, and no last question."""
    text = text.replace("number = 6", "number = 1").replace("repeated = 2", "repeated = 0")
    text = text.replace("attention = 1", "attention = 0").replace("[[arms]]", "[thanks]\nstyle = 0\n[[arms]]", 1)
    recruitment = RECRUITING.replace("people = 1\n", f"people = 1\n{more}")
    return text.replace('[recruitment.codes]\ncomplete = "C1"\n', recruitment)


@pytest.mark.parametrize("language", ["en", "de", "zh", "ar"])
def test_pages_of_coming_and_going_have_no_violation(look, language):
    reader = look(recruiting(""))
    page = reader.page
    page.set_viewport_size({"width": 1280, "height": 800})
    reader.go(preview_address(reader.served.store.secret))
    page.goto(f"{page.url}&lang={language}")
    page.locator(".preview").wait_for()
    check(reader)
    page.check("[name=agree]")
    press(reader, "/instructions")
    press(reader, "/question")
    check(reader)
    reader.go(LINK.format("one", language))  # the study itself
    page.click("[formaction='/decline']")
    page.wait_for_url("**/decline")
    check(reader)
    reader.go(LINK.format("one", language))
    page.check("[name=agree]")
    press(reader, "/instructions")
    reader.go(LINK.format("two", language))
    check(reader)  # it is full
    reader.go("/question")
    press(reader, "/question")
    while not reader.ended:
        page.locator(".card").first.click()
        reader.next(page.locator("[data-next]").click)
    assert page.locator("a.primary").get_attribute("href").endswith("?cc=C1A2B3C4")
    check(reader)
    [participant] = reader.served.store.participants()
    with reader.served.store.database.writing() as connection:
        connection.execute(update(participants).values(status="timed_out"))
    reader.go("/end")
    check(reader)
    assert "T1A2B3C4" in page.content() and participant.status == "finished"
    for time in ("opens = 2100-01-01T08:30:00Z\n", "closes = 2020-01-01T00:00:00Z\n"):
        reader = look(recruiting(time))
        reader.go(LINK.format("one", language))
        check(reader)


@pytest.mark.parametrize("scripted", [True, False])
def test_who_has_finished_is_sent_back_to_the_platform(look, scripted):
    reader = look(recruiting("redirect = true\n"), java_script_enabled=scripted)
    page = reader.page
    page.route("https://app.prolific.com/**", lambda route: route.fulfill(body="Thank you"))
    reader.go(LINK.format("one", "en"))
    page.check("[name=agree]")
    press(reader, "/instructions")
    press(reader, "/question")
    for _ in range(2):  # practice, and the one that counts
        page.locator(".card").first.click()
        page.locator("[data-next]").click()
        page.wait_for_load_state("networkidle")
    page.wait_for_url("https://app.prolific.com/submissions/complete?cc=C1A2B3C4")


@pytest.mark.parametrize(
    ("language", "format", "pictures"),
    [
        ("en", "best", True),
        ("de", "best_worst", False),
        ("ar", "best_worst", True),
        ("zh", "ranking", False),
        ("de", "partial", True),
        ("de", "rating", False),
        ("ar", "rating", True),
        ("zh", "like", False),
    ],
)
def test_questions_have_no_violation(look, language, format, pictures):
    count = 8 if format in ("best", "partial") else 4
    reader = look(TEXT.replace("options = 3", f'options = {count}\nformat = "{format}"'), pictures=pictures)
    reader.begin("one", language=language)
    if pictures:
        reader.page.wait_for_function(DRAWN)
    boxes = "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
    for chosen in (False, True):
        if chosen:
            reader.page.keyboard.press("2")
            reader.page.keyboard.press("Shift+Digit1")
        check(reader)
        sizes = reader.page.eval_on_selector_all(".card", boxes)
        assert len(sizes) == count
        assert all(max(one) - min(one) <= 1 for one in zip(*sizes, strict=True))  # pixels: tracks have fractions


@pytest.mark.needs("experiments")
def test_the_pages_of_researchers_are_like_the_others(look):
    reader = look(admin_token="a-secret-of-researchers")
    page = reader.page

    def look_at(page):
        page.wait_for_load_state()
        assert problems(page) == []
        fits(page)

    reader.begin("one")
    for _ in range(3):
        page.locator(".card").first.click()
        reader.next(page.locator("[data-next]").click)
    reader.go("/admin")
    look_at(page)
    page.fill("[name=secret]", "a-secret-of-researchers")
    page.click("button.primary")
    page.locator(".facts-now").wait_for()
    look_at(page)
    page.get_by_role("link", name="Report").click()
    page.locator("#participants").wait_for()
    page.wait_for_function(DRAWN)
    look_at(page)
    page.locator("#participants td a").click()
    page.locator(".steps").wait_for()
    look_at(page)


def test_on_a_phone_four_texts_fit_and_buttons_never_move(look):
    reader = look(TEXT.replace("options = 3", "options = 4"), **PHONE)
    reader.begin("one")
    last = reader.page.locator(".card").last.bounding_box()
    assert last["y"] + last["height"] <= reader.page.locator(".bar").bounding_box()["y"]
    places = "all => all.map(one => Object.values(one.getBoundingClientRect().toJSON()))"
    seen = []
    for _ in range(4):  # practice first, then without a notice, with one, and again without
        seen.append(reader.page.eval_on_selector_all(".bar button", places))
        reader.page.locator(".card").nth(1).tap()
        seen.append(reader.page.eval_on_selector_all(".bar button", places))
        reader.next(reader.page.locator("[data-undo]" if len(seen) == 4 else "[data-next]").tap)
    assert all(one == seen[0] for one in seen)


def test_screen_readers_go_on_at_the_heading_and_hear_what_is_new(look):
    reader = look()
    reader.begin("one")
    assert reader.page.locator(".keys").is_visible()  # where there is a keyboard
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


# what lies on a picture, and pictures that are cut: none
COVERED = """() => {
  const box = (one) => one.getBoundingClientRect();
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const others = [...document.querySelectorAll(".badge, .mark, .zoom, .pill, .place, .bar, .top, h1, .signs")]
    .filter((one) => one.getClientRects().length);
  return [...document.querySelectorAll(".card img")].flatMap((picture) => [
    ...others.filter((one) => meets(box(one), box(picture))).map((one) => one.outerHTML.slice(0, 60)),
    ...(getComputedStyle(picture).objectFit === "contain" ? [] : ["cut"]),
  ]);
}"""
COMPARED = [(4, "best"), (9, "best"), (4, "best_worst"), (9, "best_worst"), (9, "partial")]


@pytest.mark.parametrize(("count", "format"), COMPARED)
def test_pictures_are_compared_without_scrolling_and_nothing_lies_on_them(look, count, format):
    reader = look(TEXT.replace("options = 3", f'options = {count}\nformat = "{format}"'), pictures=True)
    reader.begin("one", language="de")
    reader.page.wait_for_function(DRAWN)
    reader.page.keyboard.press("2")
    for width, height in ((1280, 800), (1440, 900), (1920, 1080), (390, 844), (360, 640)):
        reader.page.set_viewport_size({"width": width, "height": height})
        assert reader.page.evaluate(COVERED) == []
        assert reader.page.evaluate(browsers.HIDDEN) == [], (width, height)
        cards = reader.page.eval_on_selector_all(".card", "all => all.map(one => one.getBoundingClientRect().toJSON())")
        bar = reader.page.locator(".bar").bounding_box()["y"]
        assert max(card["bottom"] for card in cards) <= bar + 2, (width, height)
        assert min(card["left"] for card in cards) >= 0 and max(card["right"] for card in cards) <= width
        sizes = "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
        sizes = reader.page.eval_on_selector_all(".card img", sizes)
        assert len({tuple(one) for one in sizes}) == 1
        across = sum(abs(card["top"] - cards[0]["top"]) < 5 for card in cards)
        if width < height:
            assert across == {4: 2, 9: 3}[count]
            continue
        assert across == {4: 4, 9: 5}[count]
        used = sum(min(one) ** 2 for one in sizes) / (width * height)  # the pictures are square
        assert used > 0.17 + 0.05 * (format != "best_worst"), (width, used)


@pytest.mark.parametrize(("language", "format"), [("en", "best"), ("ar", "best_worst"), ("de", "ranking")])
def test_on_a_phone_an_enlarged_picture_leads_to_the_others_and_is_chosen(look, language, format):
    reader = look(TEXT.replace("options = 3", f'options = 4\nformat = "{format}"'), pictures=True, **PHONE)
    reader.begin("one", language=language)
    reader.page.wait_for_function(DRAWN)
    viewport = reader.page.get_attribute("meta[name=viewport]", "content")
    assert "maximum-scale" not in viewport and "user-scalable" not in viewport  # pinch
    pictures = reader.page.locator(".card img")
    names = [one.get_attribute("alt") for one in pictures.all()]
    if format == "best_worst":
        pictures.first.tap()
    else:
        reader.page.locator(".zoom").first.tap()
    box = reader.page.locator("dialog[open]")

    def shows(place):
        source = pictures.nth(place).get_attribute("src")
        assert box.locator("img").get_attribute("src").endswith(source)
        assert box.locator(".which").text_content() == box.locator("img").get_attribute("alt") == names[place]

    shows(0)
    assert "pinch-zoom" in box.locator(".picture").evaluate("one => getComputedStyle(one).touchAction")
    assert problems(reader.page) == [] and reader.page.evaluate(CUT) == []
    box.locator(".step").last.tap()
    shows(1)
    touch, way = reader.context.new_cdp_session(reader.page), -1 if language == "ar" else 1
    points = [{"x": 200 - way * by, "y": 400} for by in range(0, 130, 10)]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points[:1]})
    for point in points[1:]:
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    shows(2)
    reader.page.keyboard.press("ArrowRight" if way > 0 else "ArrowLeft")
    shows(3)
    pressed = box.locator("[aria-pressed]")
    assert pressed.count() == (2 if format == "best_worst" else 1)
    pressed.first.tap()
    if format == "best_worst":
        assert pressed.first.get_attribute("aria-pressed") == "true"
        reader.page.keyboard.press("Escape")
    box.wait_for(state="detached")
    assert reader.page.locator(".option").nth(3).locator("input:checked, .is-placed, .tap[aria-pressed=true]").count()
    assert reader.page.evaluate("scrollY") == 0


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
