"""`edpbrl ask` in Chromium: by keyboard, mouse and touch, with pictures that come late or never, and its last page."""

import json
import re
import time
import urllib.error
import urllib.request

import pytest

from edpbrl_gym.asking.opening import differing_items
from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.pictures.pool import prompt_pool
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers import browser as browsers
from tests.helpers.asking import Asking, Guest
from tests.helpers.browser import PHONE, problems
from tests.helpers.painted import Painted
from tests.helpers.terminals import told

pytestmark = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())


def told_when(out, count):
    """The answers of a session, when it has so many."""
    for _ in range(600):
        if (out / "session/journal.jsonl").is_file() and len(told(out)) == count:
            return told(out)
        time.sleep(0.05)
    raise AssertionError(f"not {count} answers")


def test_keys_answer_undo_and_enlarge_and_the_end_has_the_taste(browser, arguments, tmp_path):
    out = tmp_path / "ask"
    with Asking(*arguments) as asking:
        guest = Guest(browser, asking)
        guest.drawn()
        assert problems(guest.page) == []
        for key in "142":
            guest.answer(key)
        guest.answer("s")
        assert guest.number() == 5
        guest.answer("u")
        assert guest.number() == 4 and "taken back" in guest.page.inner_text(".notice")
        guest.page.keyboard.press("z")
        guest.page.locator("dialog img").wait_for()
        first = guest.page.get_attribute("dialog img", "src")
        guest.page.keyboard.press("3")
        assert guest.page.get_attribute("dialog img", "src") != first
        guest.page.keyboard.press("z")
        guest.page.locator("dialog").wait_for(state="detached")
        guest.page.locator(".card input").nth(2).click()  # a mouse answers at once too
        guest.wait_for_another(None)
        told_when(out, 4)
        guest.page.wait_for_function("() => document.querySelector('#sure').textContent.includes('%')")
        guest.finish()
        guest.page.locator("#files:not([data-later]) a >> nth=4").wait_for()
        assert problems(guest.page) == []
        assert guest.page.locator(".best img").count() == 5
        names = set()
        for link in guest.page.locator("#files a").all():
            with guest.page.expect_download() as download:
                link.click()
            names.add(download.value.suggested_filename)
        assert names == {"page.html", "prompts.txt", "wildcards-prompt.txt", "taste.safetensors", "pairs-pairs.parquet"}
        guest.page.get_by_role("link", name="More questions").click()
        guest.drawn()
        assert guest.number() == 5
        guest.close()
        assert asking.stop() == 0
        assert "edpbrl personalize" in asking.said and "Traceback" not in asking.said
    assert told(out) == [("best", [0]), ("best", [3]), ("best", [1]), ("best", [2])]
    answers = Comparisons.from_parquet(out / "answers.parquet")
    assert len(answers) == 4 and answers.num_options == 4
    assert load_taste(out / "taste.safetensors").provenance["questions"] == 4
    page = (out / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == 5 and "http://" not in page


@pytest.mark.parametrize("count", [2, 9])
def test_on_a_phone_nothing_is_hidden_by_half(browser, arguments, count):
    with Asking(*arguments, "--num-options", count) as asking:
        guest = Guest(browser, asking, locale="de", **PHONE)
        guest.drawn()
        for key in "12":
            guest.answer(key)
        guest.page.wait_for_function("() => document.querySelector('#sure').textContent.includes('%')")
        for width, height in ((390, 844), (360, 640), (700, 900), (1280, 800)):
            guest.page.set_viewport_size({"width": width, "height": height})
            assert guest.page.evaluate(browsers.HIDDEN) == [], (width, height)
            end = guest.page.get_by_role("button", name="Aufhören").bounding_box()
            assert end["y"] + end["height"] <= height, (width, height)
        guest.finish()
        assert " Zu " in guest.page.inner_text(".lead")
        guest.close()


def test_a_killed_command_loses_no_answer_and_goes_on(browser, arguments, tmp_path):
    out = tmp_path / "ask"
    with Asking(*arguments) as asking:
        guest = Guest(browser, asking)
        for key in "13":
            guest.answer(key)
        guest.close()
        told_when(out, 2)
        asking.kill()
    with Asking("--out", out, "--cache", tmp_path / "images") as asking:  # the same question, and its undo
        guest = Guest(browser, asking)
        guest.drawn()
        assert guest.number() == 3
        guest.answer("u")
        assert guest.number() == 2
        guest.answer("2")
        assert told_when(out, 2) == [("best", [0]), ("best", [1])]
        guest.close()
        assert asking.stop() == 0
    assert "1 questions" not in asking.said and "Written from 2 questions" in asking.said


def test_ratings_by_key_and_likes_by_swipe_on_a_phone(browser, arguments, tmp_path):
    with Asking(*arguments[: arguments.index("--format")]) as asking:  # where pictures cost, by default
        guest = Guest(browser, asking)
        guest.drawn()
        assert guest.page.locator(".card").count() == 1 and guest.page.locator(".pill").count() == 7
        assert problems(guest.page) == []
        for key in "71":
            guest.answer(key)
        guest.close()
        told_when(tmp_path / "ask", 2)
    like = [*arguments, "--format", "like", "--out", tmp_path / "like"]
    with Asking(*like) as asking:
        guest = Guest(browser, asking, **PHONE)
        guest.drawn()
        assert problems(guest.page) == []
        for way in (1, -1):
            box = guest.page.locator(".card img").bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            touch = guest.context.new_cdp_session(guest.page)

            def swipe(touch=touch, x=x, y=y, way=way):
                points = [{"x": x + way * by, "y": y} for by in range(0, 130, 10)]
                touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points[:1]})
                for point in points[1:]:
                    touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
                touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

            guest.next(swipe)
            guest.drawn()
        guest.answer("ArrowRight")
        guest.close()
        told_when(tmp_path / "like", 3)
        assert asking.stop() == 0
    levels = [list(one.levels) for one in Comparisons.from_parquet(tmp_path / "like/answers.parquet").responses]
    assert levels == [[1], [0], [1]]


def test_a_picture_that_never_comes_gives_way_to_another_prompt(browser, arguments, words, tmp_path):
    texts = prompt_pool(load_vocabulary(words[0]), 40, 0).tokens[0]
    never = texts[differing_items(texts, 4, 0, 0)[1]]
    slow = ["--renderer-option", "seconds=0.7", "--renderer-option", f"failing={json.dumps(never)}"]
    with Asking(*arguments, *slow) as asking:
        guest = Guest(browser, asking, faults=True)
        assert guest.page.locator(".no-picture.is-coming").count() > 0
        guest.page.keyboard.press("1")  # not before all can be seen
        assert guest.number() == 1 and guest.page.locator(".no-picture.is-coming").count() > 0
        shown = "all => all.map(one => one.alt.slice(one.alt.indexOf(':') + 2))"
        guest.page.wait_for_function("() => !document.querySelector('.is-coming') && document.images.length == 4")
        options = guest.page.eval_on_selector_all(".card img", shown)
        assert never not in options and len(set(options) & set(texts)) == 4
        assert guest.page.locator(".is-failed").count() == 0 and problems(guest.page) == []
        guest.answer("2")
        assert guest.number() == 2
        told_when(tmp_path / "ask", 1)
        guest.close()
        assert asking.stop() == 0
    assert Comparisons.from_parquet(tmp_path / "ask/answers.parquet").texts == [options]


def test_a_prompt_without_a_picture_leaves_the_pool_that_is_learnt_from_by_both(browser, arguments, words, tmp_path):
    texts = prompt_pool(load_vocabulary(words[0]), 40, 0).tokens[0]
    never = next(text for text in texts if text not in {texts[item] for item in differing_items(texts, 4, 0, 0)})
    given = [*arguments, "--features", "both", "--renderer-option", f"failing={json.dumps(never)}"]
    with Asking(*given) as asking:
        guest = Guest(browser, asking, faults=True)
        for key in "13":
            guest.answer(key)
        guest.page.wait_for_function("() => document.querySelector('#sure').textContent.includes('%')")
        guest.answer("4")
        told_when(tmp_path / "ask", 3)
        guest.close()
        assert asking.stop() == 0
    assert f"Left out: {never}: Expected no" in " ".join(asking.said.split())
    with Asking("--out", tmp_path / "ask", "--cache", tmp_path / "images") as asking:  # without it again
        guest = Guest(browser, asking)
        guest.drawn()
        assert guest.number() == 4
        guest.finish()
        assert guest.page.locator(".best img").count() == 5
        guest.close()
        assert asking.stop() == 0
    answers = Comparisons.from_parquet(tmp_path / "ask/answers.parquet")
    assert len(answers.metadata["blocks"]) > 1 and never not in {text for one in answers.texts for text in one}
    assert never not in (tmp_path / "ask/prompts.txt").read_text(encoding="utf-8").splitlines()


def test_posters_are_shown_as_scenes_and_kept_as_pixels(browser, words, tmp_path):
    given = ["--out", tmp_path / "ask", "--cache", tmp_path / "images", "--vocabulary", words[0], "--encoder", words[1]]
    with Asking(*given, "--renderer", "posters", "--pool", "40") as asking:
        guest = Guest(browser, asking)
        kind = "async all => (await fetch(all[0].src)).headers.get('content-type')"
        guest.drawn()
        assert guest.page.eval_on_selector_all(".card img", kind) == "image/svg+xml"
        assert guest.page.evaluate("document.images[0].naturalWidth") > 0
        for key in "12":
            guest.answer(key)
        told_when(tmp_path / "ask", 2)
        assert not list((tmp_path / "images").rglob("*.png"))
        guest.finish()
        guest.page.locator("#files:not([data-later]) a >> nth=4").wait_for()
        guest.close()
        assert asking.stop() == 0
    pairs = list((tmp_path / "ask/pairs").rglob("*.png"))
    assert len(pairs) == 8 and (tmp_path / "ask/page.html").read_text(encoding="utf-8").count("data:image/jpeg") == 5


def test_the_pictures_of_a_folder_are_asked_about_and_ranked(browser, words, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, text in enumerate(prompt_pool(load_vocabulary(words[0]), 24, 0).tokens[0]):
        (folder / f"p{number}.png").write_bytes(Painted().draw([text], [0])[0].png)
    (folder / "cut.png").write_bytes((folder / "p0.png").read_bytes()[:300])
    (folder / "copy.png").write_bytes((folder / "p1.png").read_bytes())
    with Asking("--pictures", folder, "--out", tmp_path / "ask", "--cache", tmp_path / "images") as asking:
        guest = Guest(browser, asking)
        guest.drawn()
        assert guest.page.locator(".card img").count() == 4 and problems(guest.page) == []
        for key in "214":
            guest.answer(key)
        told_when(tmp_path / "ask", 3)
        guest.finish()
        assert guest.page.locator(".best img").count() == 5
        guest.close()
        assert asking.stop() == 0
    assert "Left out: cut.png" in asking.said and "the same picture as" in asking.said
    answers = Comparisons.from_parquet(tmp_path / "ask/answers.parquet")
    assert len(answers) == 3 and answers.metadata["encoder"].startswith("picture:")
    rank = ["rank", folder, "--taste", tmp_path / "ask/taste.safetensors", "--out", tmp_path / "ranked"]
    assert main([str(one) for one in rank]) == 0
    assert (tmp_path / "ranked/ranking.csv").read_text(encoding="utf-8").count("\n") == 1 + 24


def test_before_somebody_is_paid_the_page_says_for_how_many_pictures(browser, arguments, tmp_path):
    with Asking(*arguments, "--price", "0.04") as asking:
        guest = Guest(browser, asking)
        assert "/start" in guest.page.url and problems(guest.page) == []
        assert "45" in guest.page.inner_text("main") and "1.8" in guest.page.inner_text("main")
        time.sleep(1.0)
        assert not list((tmp_path / "images").rglob("*.png"))
        guest.page.click("button.primary")
        guest.drawn()
        assert guest.number() == 1
        guest.close()


def test_only_who_has_the_token_is_served(arguments, tmp_path):
    with Asking(*arguments) as asking:
        assert re.search(r"ssh -L \d+:127\.0\.0\.1:\d+", asking.said)
        token = asking.address.partition("token=")[2]

        def status(address, **headers):
            request = urllib.request.Request(asking.base + address, headers=headers)
            data = b"token=x" if "post" in headers else None
            try:
                with urllib.request.urlopen(request, data) as answer:
                    return answer.status, dict(answer.headers)
            except urllib.error.HTTPError as error:
                return error.code, dict(error.headers)

        refused = ["/", "/?token=", f"/?token={token[:-1]}x", "/question", "/state", "/end", "/files/taste"]
        refused.append("/pictures/x.png")
        assert {status(address)[0] for address in refused} == {403}
        assert status("/answer", post="yes")[0] == 403
        assert status("/question", Host="evil.example")[0] == 400
        code, headers = status(f"/?token={token}")  # the redirect comes without its cookie
        assert code == 403 and "script-src 'self'" in headers["content-security-policy"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(asking.address) as answer:
            page = answer.read().decode()
        form = re.search(r'name="token" value="(\w+)"', page)[1]
        key = re.search(r'name="key" value="([\w-]+)"', page)[1]
        post = f"token={form}&key={key}&best=1".encode()
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                opener.open(urllib.request.Request(asking.base + "/answer", post, headers))
        with pytest.raises(urllib.error.HTTPError, match="403"):
            opener.open(urllib.request.Request(asking.base + "/answer", post.replace(form.encode(), b"0" * 64)))
        assert json.loads(opener.open(asking.base + "/state").read())["said"] == ""
        accept = {"Accept": "application/json"}
        for _ in range(2):  # sent twice, it counts once
            answer = opener.open(urllib.request.Request(asking.base + "/answer", post, accept))
            assert json.loads(answer.read()) == {"next": "/question"}
        assert told_when(tmp_path / "ask", 1) == [("best", [1])]


def test_words_are_asked_about_where_nobody_draws(browser, words, tmp_path):
    given = ["--out", tmp_path / "ask", "--vocabulary", words[0], "--encoder", words[1], "--pool", "60"]
    with Asking(*given, "--questions", "2") as asking:
        guest = Guest(browser, asking, color_scheme="dark")
        assert guest.page.locator(".card .title").count() == 9
        for key in "93":
            guest.next(lambda key=key: guest.page.keyboard.press(key))
        guest.page.wait_for_url("**/end")
        guest.page.locator(".best").wait_for()
        assert problems(guest.page) == []
        guest.close()
