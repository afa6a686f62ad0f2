"""The last question: the learnt taste beside random prompts, without names; and pictures instead of texts."""

from __future__ import annotations

import itertools
import re
import threading
from concurrent.futures import Future

import numpy as np
import pytest

from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config_reading import Mistakes, read_config
from edpbrl_gym.study.pictures import Pictures, make_pictures
from edpbrl_gym.study.style import STYLE, STYLE_CHOICE
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.extras import skip_without
from tests.helpers.renderers import Picky
from tests.helpers.small_vocabulary import write_vocabulary
from tests.helpers.studies import SMALL, write_study
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion


def finish(person, **how):
    """Answer everything, and wait for the last question."""
    person.begin()
    person.play(**how)
    assert person.at == "/end" and "C1" in person.page.text
    person.wait_for_style()


def details(served, kind):
    [participant] = served.store.participants()
    return [event["detail"] for event in served.store.events(participant.id) if event["kind"] == kind]


@pytest.mark.parametrize("chosen", ["learnt", "tie"])
def test_the_last_question_is_blind_and_answered_once(served, chosen):
    person = served.person()
    finish(person)
    assert "Group A" in person.page.text and "What we learnt" not in person.page.text and "C1" in person.page.text
    [style] = details(served, STYLE)
    assert len(style["learnt"]) == len(style["random"]) == 4 and not set(style["learnt"]) & set(style["random"])
    for one, other in itertools.combinations((text.split(", ") for text in style["learnt"]), 2):
        assert 2 * sum(map(str.__eq__, one, other)) <= len(one)
    person.post("/prefer", group="tie" if chosen == "tie" else 1 - style["learnt_first"])
    assert person.at == "/end" and "What we learnt" in person.page.text
    assert details(served, STYLE_CHOICE) == [{"chosen": chosen}]
    person.page = person.client.post("/prefer", data={"token": served.token(person), "group": "0"})
    assert details(served, STYLE_CHOICE) == [{"chosen": chosen}] and details(served, STYLE) == [style]


@pytest.mark.parametrize(("text", "cant_tell"), [(SMALL, True), (SMALL + "[thanks]\nstyle = 0\n", False)])
def test_without_an_informative_answer_or_if_left_out_there_is_no_last_question(serve, text, cant_tell):
    served = serve(text)
    person = served.person()
    finish(person, cant_tell=cant_tell)
    assert "Group A" not in person.page.text and details(served, STYLE) == []


def test_the_style_is_that_of_the_answers(serve):
    """Whoever always likes the options with the largest utility gets prompts with a large one."""
    served = serve(SMALL.replace("number = 6", "number = 20"))
    theta = np.linspace(-3, 3, 8)
    utility = lambda texts: served.queue.materials.encoder.encode(list(texts)) @ theta  # noqa: E731
    person = served.begin()
    [participant] = served.store.participants()
    while person.at == "/question":
        question = served.store.history(participant.id)[-1][0]
        person.post("/answer", best=int(np.argmax(utility(question.texts))))
    person.wait_for_style()
    style = served.queue.style(participant)
    assert utility(style.learnt).mean() > utility(style.random).mean()


def one_arm(planner, folder):
    """The small study with one arm, of fixed questions for the planner "design"."""
    if planner == "design":
        vocabulary, rng = load_vocabulary(write_vocabulary(folder / "words")), np.random.default_rng(0)
        asked = [(i, 2, [vocabulary.prompt(rng.integers(vocabulary.sizes)) for _ in range(3)]) for i in range(6)]
        write_questions(folder / "questions.csv", asked)
    given = f'"questions"\nfile = "{folder / "questions.csv"}"' if planner == "design" else f'"{planner}"'
    return SMALL[: SMALL.index("[[arms]]")] + f'[[arms]]\nname = "{planner}"\nplanner = {given}\n'


def test_an_arm_with_fixed_questions_learns_a_style_too(serve, tmp_path):
    """Its planner learns nothing, so the taste is learnt from the answers themselves."""
    served = serve(one_arm("design", tmp_path))
    person = served.person()
    finish(person)
    assert "Group A" in person.page.text and len(details(served, STYLE)[0]["learnt"]) == 4


# pictures


class Drawing:
    """A renderer whose pictures a test releases one by one."""

    batch_size = 1

    def __init__(self, flagged=()):
        self.flagged, self.drawn, self.gate = set(flagged), [], threading.Event()
        self.gate.set()

    def render(self, prompts, seed, each):
        self.gate.wait(10)
        self.drawn += prompts
        for place, text in enumerate(prompts):
            each(place, Picture(text, text in self.flagged))

    def close(self):
        pass


class Picture:
    def __init__(self, text, flagged):
        self.png, self.flagged = f"PNG of {text}".encode(), flagged


@pytest.fixture
def drawing(serve):
    drawn = Drawing()
    pictures = Pictures(drawn, seed=0)
    served = serve(pictures=pictures)
    yield served, drawn
    pictures.close()


def sources(person):
    """Addresses of the pictures of the page."""
    return re.findall(r'<img src="(/pictures/[^"]+)"', person.page.text)


def alternatives(person):
    """Alternative texts of the pictures of the page."""
    return re.findall(r'<img src="/pictures/[^"]+" alt="([^"]*)"', person.page.text)


def test_options_are_pictures_whose_addresses_tell_nothing_and_that_nobody_else_sees(drawing):
    served, _ = drawing
    person, other = served.person(), served.person()
    person.begin()
    question = served.history()[-1][0]
    assert not any(text in person.page.text for text in question.texts)
    assert alternatives(person) == ["Picture 1", "Picture 2", "Picture 3"]  # browsers show them while pictures load
    for option, address in zip(question.positions, sources(person), strict=True):
        answer = person.client.get(address)
        assert answer.content == f"PNG of {question.texts[option]}".encode()
        assert answer.headers["content-type"] == "image/png" and "private" in answer.headers["cache-control"]
    for name in ("0" * 32 + ".png", "x.png", "0.svg", "..%2f..%2fstudy.png", "\u00e4.png"):
        assert person.client.get("/pictures/" + name).status_code == 404
    other.begin()
    assert other.client.get(sources(person)[0]).status_code == 404
    assert served.person().client.get(sources(person)[0]).status_code == 403


def test_where_no_picture_is_drawn_signs_are_in_their_place(serve, tmp_path, caplog):
    skip_without("images")
    pictures = Pictures(load_renderer(Picky(every=1), cache_folder=tmp_path / "pictures"), seed=0)
    served = serve(pictures=pictures)
    person = served.person()
    person.begin()
    for address in sources(person):
        answer = person.client.get(address)
        assert answer.headers["content-type"] == "image/svg+xml" and "no-store" in answer.headers["cache-control"]
    assert len(sources(person)) == 3 and "could not be drawn" in caplog.text
    pictures.close()


def test_the_last_question_has_pictures_too(drawing):
    served, drawn = drawing
    person = served.person()
    finish(person)
    [style] = details(served, STYLE)
    shown = [person.client.get(address).content.decode().removeprefix("PNG of ") for address in sources(person)]
    groups = [style["learnt"], style["random"]]
    assert shown == [text for group in (groups if style["learnt_first"] else groups[::-1]) for text in group]
    assert not any(text in person.page.text for text in style["learnt"])
    assert alternatives(person) == [f"Picture {number}" for number in (1, 2, 3, 4)] * 2
    person.post("/prefer", group="tie")
    assert "What we learnt" in person.page.text and alternatives(person) == [f"Picture {i}" for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("arm", ["adaptive", "random", "design"])
def test_pictures_of_a_known_next_question_are_loaded_ahead(serve, tmp_path, arm):
    pictures = Pictures(Drawing(), seed=0)
    served = serve(one_arm(arm, tmp_path), pictures=pictures)
    person = served.begin()
    offered, kinds = [], []
    while person.at == "/question":
        kinds.append(served.history()[-1][0].kind)
        if offered and offered[-1]:  # what was offered with the question before is shown now
            assert sorted(offered[-1]) == sorted(sources(person))
        found = re.search(r'data-preload="([^"]+)"', person.page.text)
        offered.append(found[1].split() if found else [])
        for address in offered[-1]:
            assert person.client.get(address).status_code == 200
        person.post("/answer", best=0)
    known = [arm != "adaptive" or kind != "normal" for kind in kinds[1:]]
    assert [bool(addresses) for addresses in offered[:-1]] == known and not offered[-1]
    pictures.close()


def test_what_is_waited_for_is_drawn_first_and_once_what_is_flagged_withheld_and_what_failed_tried_again():
    drawn = Drawing(flagged=["e"])
    drawn.gate.clear()
    pictures = Pictures(drawn, seed=0)
    pictures.ahead(["a", "b", "c"], soon=False)
    pictures.ahead(["d"])
    waited = pictures.get("c")
    assert isinstance(waited, Future) and not waited.done()
    drawn.gate.set()
    assert waited.result(10) == b"PNG of c"
    assert pictures.get("b").result(10) == b"PNG of b"
    pictures.get("a").result(10)
    assert sorted(drawn.drawn) == ["a", "b", "c", "d"] and drawn.drawn.index("c") <= 1 < drawn.drawn.index("a") + 1
    assert pictures.get("e").result(10) is None
    render, drawn.render = drawn.render, None
    with pytest.raises(TypeError):
        pictures.get("f").result(10)
    drawn.render = render
    assert pictures.get("f").result(10) == b"PNG of f"
    pictures.close()


def test_a_real_pipeline_draws_the_options(tmp_path):
    skip_without("images")
    text = SMALL + '[pictures]\nrenderer = "tiny"\nheight = 64\nwidth = 64\nsteps = 2\nguidance = 0\n'
    folder = write_study(tmp_path / "study", text)
    config = read_config(folder)
    with pytest.raises(Mistakes, match="pictures: "):
        examine(config, encoder=CountingEncoder())
    save_tiny_stable_diffusion(folder / "tiny")
    examine(config, encoder=CountingEncoder())
    pictures = make_pictures(config, config.pictures)
    png = pictures.get("a gate").result(60)
    assert png.startswith(b"\x89PNG") and png != pictures.get("a door").result(60)
    pictures.close()
    again = make_pictures(config, config.pictures)
    assert again.get("a gate").result(60) == png and list((folder / "pictures").rglob("*.png"))
    again.close()


def test_the_completion_code_is_shown_when_no_taste_can_be(served, monkeypatch, caplog):
    def fail(*arguments):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr("edpbrl_gym.study.planning.make_style", fail)
    person = served.person()
    finish(person)
    assert person.at == "/end" and "C1" in person.page.text and "Group A" not in person.page.text
    assert caplog.text.count("could not be made") == 1  # it is not tried again whenever the page is opened
