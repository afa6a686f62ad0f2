"""The page to send: in Chromium, without a network, for eyes, keyboards and readers of screens."""

from __future__ import annotations

import html
import io
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from edpbrl_gym.personalize.keeping import PagePrompt, PageWords, write_page
from tests.helpers.browser import PHONE, Reader, missing, violations

NASTY = "<script>alert(1)</script>, \"'quoted'\" & {{brace}} </style> -->"
PROMPTS = [f"a lighthouse, {NASTY}", "a lighthouse, gouache, gold", "منارة على جرف"]
WORDS = [
    PageWords("medium", ["gouache", "<b>ink</b>"], ["3D render"]),
    PageWords("mood", [], ["tense"]),
    PageWords("unsure", (), ()),
]


def picture(seed: int, size: tuple[int, int] = (64, 48), mode: str = "RGB") -> bytes:
    levels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], len(mode)), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(levels, mode).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    prompts = [PagePrompt(text, picture(n), "liked more than 93% of <all>") for n, text in enumerate(PROMPTS)]
    return write_page(path, prompts, title=f"a lighthouse {NASTY}", words=WORDS, questions=1, learnt="By rating.")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_in_a_browser_it_needs_nothing_else_and_everything_works(browser, page):
    looks = [("light", {"viewport": {"width": 1280, "height": 800}}), ("dark", PHONE)]
    for colours, options in looks:
        reader = Reader(browser, page.as_uri(), color_scheme=colours, **options)
        asked: list[str] = []
        reader.page.on("request", lambda request, asked=asked: asked.append(request.url))
        reader.go("")
        assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
        assert reader.page.locator(".prompt").all_text_contents() == PROMPTS
        assert reader.page.locator("h1").text_content() == f"a lighthouse {NASTY}"
        assert reader.page.eval_on_selector_all("img", "all => all.every(one => one.naturalWidth > 0)")
        assert violations(reader.page) == []
        wide = reader.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide
        reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
        reader.page.locator("li:nth-child(2) button").press("Enter")
        reader.page.get_by_role("status").filter(has_text="Copied").wait_for(state="attached")
        assert reader.page.evaluate("navigator.clipboard.readText()") == PROMPTS[1]
        reader.page.get_by_role("button", name="Copy all prompts").click()
        reader.page.wait_for_function("navigator.clipboard.readText().then(text => text.includes('\\n'))")
        assert reader.page.evaluate("navigator.clipboard.readText()").split("\n") == PROMPTS
        assert not reader.complaints
        reader.close()
    plain = Reader(browser, page.as_uri(), java_script_enabled=False)
    plain.go("")
    assert plain.page.locator("button:visible").count() == 0
    assert plain.page.locator("table").inner_text().split() == (
        "Liked Not liked Medium gouache <b>ink</b> 3D render Mood nothing is sure tense".split()
    )
    plain.close()


def test_what_is_written(page):
    text = page.read_text(encoding="utf-8")
    assert "Learnt from 1 question. By rating." in text and "unsure" not in text
    assert not re.search(r"(?:src|href|action)=\"(?!data:image/jpeg;base64,)|https?:|url\(|@import", text)
    assert "default-src 'none'" in text


@settings(max_examples=30)
@given(st.text(st.sampled_from("<>&\"'/{}=a -!é|$"), min_size=1, max_size=30))
@example('" onmouseover="alert(1)')
@example("</p><script>alert(1)</script>")
@example("</title><img src=x onerror=alert(1)>")
def test_no_text_becomes_markup(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("texts") / "page.html"
    bare = write_page(path, [PagePrompt("x", None, "x")], title="x", words=[PageWords("x", ["x"], ["x"])], learnt="x")
    shape = re.findall(r"<[^>]*>", bare.read_text(encoding="utf-8"))
    write_page(path, [PagePrompt(text, None, text)], title=text, words=[PageWords(text, [text], [text])], learnt=text)
    written = path.read_text(encoding="utf-8")
    found = re.findall(r"<[^>]*>", written)
    if text.strip():  # without a word the sentence is left out
        assert found == shape
    assert written.count(html.escape(text)) >= 5


def test_large_and_odd_pictures_fit(tmp_path):
    prompts = [PagePrompt(f"p{n}", picture(n, (900, 1400))) for n in range(9)]
    prompts += [PagePrompt("clear", picture(1, (40, 40), "RGBA")), PagePrompt("none")]
    path = write_page(tmp_path / "page.html", prompts)
    text = path.read_text(encoding="utf-8")
    assert 1_000_000 < path.stat().st_size < 3_000_000 and text.count("<img ") == 10
    widths = [int(width) for width in re.findall(r'width="(\d+)" height', text)]
    assert widths[0] > widths[1] == widths[8] and widths[9] == 40
    with pytest.raises(ValueError, match="at least one prompt"):
        write_page(tmp_path / "page.html", [])
    with pytest.raises(ValueError, match="can't be read"):
        write_page(tmp_path / "page.html", [PagePrompt("a", b"no picture")])
    assert path.read_text(encoding="utf-8") == text
