"""Chromium plays studies: by mouse, keyboard and touch, without JavaScript, and through failures of the network."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest

from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.store import Store
from tests.helpers import browser as browsers
from tests.helpers.browser import PHONE, Reader
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_process import ServerProcess, free_port
from tests.helpers.study_server import listening

pytestmark = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())

NUMBER = 12
UNKNOWN = "do not know yet whether your answer is stored"
PLAIN = SMALL.replace("attention = 1", "attention = 0").replace("repeated = 2", "repeated = 0")
PLAIN = PLAIN.replace("questions = 1", "questions = 0")
_names = (f"reader{number}" for number in itertools.count())


class Study:
    """A study behind a server, and what its database holds."""

    def __init__(self, folder, port, server=None):
        self.config, self.base, self.server = read_config(folder), f"http://127.0.0.1:{port}", server

    def history(self, name):
        """Questions and answers of a participant, without those that were taken back."""
        with closing(Store(self.config.database_url, create=False)) as store:
            [one] = [one for one in store.participants() if one.external["PROLIFIC_PID"] == name]
            return [(question, answer) for question, answer in store.history(one.id) if not question.struck], one.status

    def check(self, reader, name, *, finished=True):
        """What was answered in the browser is what is stored, once."""
        history, status = self.history(name)
        stored = {
            question.key: answer.response.order or answer.response.levels
            for question, answer in history
            if answer is not None
        }
        assert stored == reader.answered
        assert [question.number for question, _ in history] == list(range(len(history)))
        if finished:
            assert status == "finished" and len(stored) == len(history) == self.config.questions.number
        return history


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """`edpbrl study serve`: questions of four options, adaptive and random."""
    folder = tmp_path_factory.mktemp("browser")
    words, encoder = write_embedded(folder)
    text = PLAIN.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    text = text.replace("number = 6", f"number = {NUMBER}").replace("options = 3", "options = 4")
    server = ServerProcess(write_study(folder / "study", text), free_port())
    try:
        server.start()
        yield Study(server.folder, server.port, server)
        assert server.errors() == []
    finally:
        server.kill()


@pytest.fixture
def arrive(browser):
    """Bring a participant to the first question; a browser that complained fails the test, but for failed loads."""
    readers = []

    def begin(study, *, faults=False, **options):
        name, reader = next(_names), Reader(browser, study.base, **options)
        readers.append((reader, faults))
        reader.begin(name)
        return reader, name

    yield begin
    for reader, faults in readers:
        reader.close()
        complaints = [one for one in reader.complaints if not (faults and "Failed to load resource" in one)]
        assert complaints == []


# how a person answers


def by_keyboard(reader, place):
    reader.page.keyboard.press(str(place + 1))
    reader.next(lambda: reader.page.keyboard.press("Enter"))


WITHOUT_SCRIPT = {"java_script_enabled": False}
WAYS = {"mouse": {}, "keyboard": {}, "touch": PHONE, "no JavaScript": WITHOUT_SCRIPT}
FORMATS = {"best": 1, "best_worst": 2, "ranking": 4, "partial": 2, "rating": 4}  # with numbers that are chosen


def choose(reader, way, format, places):
    """Choose the options at these places, in this order."""
    cards, keys = reader.page.locator(".card"), reader.page.keyboard
    for rank, place in enumerate(places):
        if way == "keyboard":
            keys.press(f"Shift+Digit{place + 1}" if format == "best_worst" and rank else str(place + 1))
        elif format == "rating":
            cards.nth(rank).locator(".pill").nth(place).click()
        elif format == "best_worst":
            cards.nth(place).locator(".pill").nth(rank).click()
        elif way == "no JavaScript" and format in ("ranking", "partial"):
            cards.nth(place).locator("select").select_option(str(rank + 1))
        elif way == "touch":
            cards.nth(place).tap()
        else:
            cards.nth(place).click()


@pytest.mark.parametrize("format", FORMATS)
def test_a_whole_study_of_every_format_is_played_in_every_way(serve, arrive, format):
    served = serve(
        PLAIN.replace("options = 3", f'options = 4\nformat = "{format}"').replace("number = 6", "number = 2")
    )
    with listening(served.app) as port:
        study = Study(served.config.folder, port)
        for way, options in WAYS.items():
            reader, name = arrive(study, **options)
            while not reader.ended:
                numbers, count = reader.options(), len(reader.answered)
                places = [(count + 3 * step) % 4 for step in range(FORMATS[format])]
                choose(reader, way, format, places)
                if way != "no JavaScript" and format in ("ranking", "partial") and not count:
                    choose(reader, way, format, places[:1])  # taken out, and put behind the others
                    choose(reader, way, format, places[:1])
                    places = [*places[1:], places[0]]
                reader.answered[reader.key] = tuple(numbers[place] for place in places)
                if format == "rating":  # the level of each option
                    reader.answered[reader.key] = tuple(dict(sorted(zip(numbers, places, strict=True))).values())
                press = reader.page.locator("[data-next]")
                enter = lambda: reader.page.keyboard.press("Enter")  # noqa: B023, E731
                reader.next(enter if way == "keyboard" else press.tap if way == "touch" else press.click)
            assert "C1" in reader.page.content()
            for _, given in study.check(reader, name):
                timing = given.timing
                if way == "no JavaScript":
                    assert timing.answer_ms is None and timing.viewport is None
                else:
                    assert 0 <= timing.first_input_ms <= timing.answer_ms
                    assert timing.viewport == ((390, 844) if way == "touch" else (1280, 720))
            reader.page.goto("about:blank")  # the last page asks for its last question, longer than the server runs


def test_undo_and_cant_tell_by_their_keys(study, arrive):
    reader, name = arrive(study)
    by_keyboard(reader, 2)
    reader.next(lambda: reader.page.keyboard.press("u"))
    assert "taken back" in reader.page.locator(".notice").inner_text() and study.history(name)[0][0][1] is None
    reader.answered[reader.key] = (reader.options()[1],)
    by_keyboard(reader, 1)
    reader.answered[reader.key] = ()
    reader.next(lambda: reader.page.keyboard.press("s"))
    study.check(reader, name, finished=False)
    assert [answer.response.kind for _, answer in study.history(name)[0] if answer] == ["best", "tie"]


@pytest.mark.parametrize("options", [{}, WITHOUT_SCRIPT], ids=["script", "no JavaScript"])
def test_a_double_click_answers_once_and_back_shows_the_question_that_waits(study, arrive, options):
    reader, name = arrive(study, **options)
    for _ in range(2):
        reader.answered[reader.key] = (reader.options()[0],)
        reader.page.locator(".card").first.click()
        key = reader.key
        reader.page.locator("[data-next]").dblclick()  # without JavaScript the second click may abort the first request
        reader.wait_for_another(key)
        reader.page.wait_for_load_state("networkidle")
    study.check(reader, name, finished=False)
    waiting = reader.key
    reader.page.go_back()
    if not reader.page.url.endswith("/question"):
        reader.page.click("a[href='/question']")
        reader.page.wait_for_url("**/question")
    reader.page.wait_for_function("key => document.querySelector('[name=key]')?.value === key", arg=waiting)
    reader.answered[waiting] = (reader.options()[3],)
    reader.page.locator(".card").nth(3).click()
    reader.next(reader.page.locator("[data-next]").click)
    study.check(reader, name, finished=False)


def test_one_of_two_tabs_is_active(study, arrive):
    reader, name = arrive(study)
    first = reader.page
    second = reader.open()
    second.goto(study.base + "/question")
    first.locator("dialog.tab").wait_for()
    reader.page = second
    reader.answered[reader.key] = (reader.options()[1],)
    by_keyboard(reader, 1)
    waiting = reader.key
    first.bring_to_front()
    first.locator("dialog.tab button").click()
    first.wait_for_function("key => document.querySelector('[name=key]')?.value === key", arg=waiting)
    second.locator("dialog.tab").wait_for()
    reader.page = first
    reader.answered[waiting] = (reader.options()[2],)
    by_keyboard(reader, 2)
    study.check(reader, name, finished=False)


# the network


def lose(reader, route, times):
    """Answer with the first option; what is sent is lost ``times`` times, as ``route`` says."""
    left = iter(range(times))
    reader.page.route("**/answer", lambda one: route(one) if next(left, None) is not None else one.continue_())
    reader.answered[reader.key] = (reader.options()[0],)
    reader.page.keyboard.press("1")
    key = reader.key
    reader.page.keyboard.press("Enter")
    reader.page.get_by_text(UNKNOWN).wait_for()
    reader.wait_for_another(key)
    reader.page.unroute("**/answer")


def cut_after(route):
    """The server has stored the answer, but its acknowledgement is lost."""
    route.fetch()
    route.abort()


@pytest.mark.parametrize("route", [lambda one: one.abort(), cut_after, lambda one: one.fulfill(status=503)],
                         ids=["before the post", "after the post", "a proxy without a server"])  # fmt: skip
def test_a_network_that_fails_loses_and_doubles_nothing(study, arrive, route):
    reader, name = arrive(study, faults=True)
    lose(reader, route, 2)
    study.check(reader, name, finished=False)


def test_the_page_says_stored_once_the_server_has_said_so(study, arrive):
    """Whatever becomes of the page that comes next: it is asked for again, and the answer is not sent again."""
    reader, _ = arrive(study, faults=True)
    posts, lost = [], iter(range(2))
    reader.page.route("**/answer", lambda one: (posts.append(1), one.continue_()))
    reader.page.route("**/question", lambda one: one.abort() if next(lost, None) is not None else one.continue_())
    said = "document.querySelector('.state').textContent"
    reader.page.evaluate(f"window.said = []; new MutationObserver(() => window.said.push({said}))"
                         ".observe(document.querySelector('.state'), {childList: true})")  # fmt: skip
    key = reader.key
    reader.page.keyboard.press("1")
    reader.page.keyboard.press("Enter")
    reader.wait_for_another(key)
    assert len(posts) == 1 and "Stored. The next page is on its way." in reader.page.evaluate("window.said")
    assert not any("not" in one for one in reader.page.evaluate("window.said"))


def test_the_last_page_has_the_code_at_once_and_the_last_question_later(serve, arrive, gate):
    served = serve(PLAIN.replace("options = 3", "options = 4").replace("number = 6", "number = 2"))
    with listening(served.app) as port:
        reader, _ = arrive(Study(served.config.folder, port))
        while not reader.ended:
            reader.page.locator(".card").first.click()
            reader.next(reader.page.locator("[data-next]").click)
        assert reader.page.locator(".code code").inner_text() == "C1"
        assert reader.page.locator("[data-pending] [role=status]").is_visible()
        reader.page.evaluate(
            "document.body.dataset.mine = 1; getSelection().selectAllChildren(document.querySelector('code'))"
        )
        gate.set()
        reader.page.locator(".group").first.wait_for()
        assert not reader.page.locator("[data-pending]").count()
        # the page is the same one: whoever was copying the code goes on
        assert reader.page.evaluate("[document.body.dataset.mine, getSelection().toString()]") == ["1", "C1"]
        assert "last question" in reader.page.locator("#announcement").inner_text()
        reader.page.locator(".group button").first.click()
        reader.page.locator(".learnt").wait_for()
        assert reader.page.locator(".code code").inner_text() == "C1"


def test_a_server_that_starts_again_gets_the_answer(study, arrive):
    reader, name = arrive(study, faults=True)
    key = reader.key
    reader.answered[key] = (reader.options()[0],)
    study.server.kill()
    reader.page.keyboard.press("1")
    reader.page.keyboard.press("Enter")
    reader.page.get_by_text(UNKNOWN).wait_for()
    study.server.start()
    reader.wait_for_another(key)
    study.check(reader, name, finished=False)
