"""The last question: the learnt taste beside random prompts, without names; and pictures instead of texts."""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future

import numpy as np
import pytest

from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.pictures import Pictures, make_pictures
from edpbrl_gym.study.style import STYLE, STYLE_CHOICE
from edpbrl_gym.study.toml_reading import Mistakes
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.extras import skip_without
from tests.helpers.small_vocabulary import write_vocabulary
from tests.helpers.studies import SMALL, write_study
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion


def finish(person, **how):
    person.begin()
    person.play(**how)


def details(served, kind):
    [participant] = served.store.participants()
    return [event["detail"] for event in served.store.events(participant.id) if event["kind"] == kind]


@pytest.mark.parametrize("chosen", ["learnt", "random", "tie"])
def test_the_last_question_is_blind_and_answered_once(served, chosen):
    person = served.person()
    finish(person)
    assert "Group A" in person.page.text and "What we learnt" not in person.page.text and "C1" in person.page.text
    [style] = details(served, STYLE)
    assert len(style["learnt"]) == len(style["random"]) == 4 and not set(style["learnt"]) & set(style["random"])
    place = {"tie": "tie", "learnt": 1 - style["learnt_first"], "random": int(style["learnt_first"])}[chosen]
    person.post("/prefer", group=int(place) if chosen != "tie" else "tie")
    assert person.at == "/end" and "What we learnt" in person.page.text
    assert details(served, STYLE_CHOICE) == [{"chosen": chosen}]
    person.page = person.client.post("/prefer", data={"token": served.token(person), "group": "0"})
    assert details(served, STYLE_CHOICE) == [{"chosen": chosen}] and details(served, STYLE) == [style]


def test_the_learnt_group_is_first_for_about_half_of_the_people(serve):
    text = SMALL.replace("number = 6", "number = 1").replace("attention = 1", "attention = 0")
    served = serve(text.replace("repeated = 2", "repeated = 0"))
    for _ in range(24):
        finish(served.person())
    first = [served.queue.style(one).learnt_first for one in served.store.participants()]
    assert 4 <= sum(first) <= 20


def test_without_an_informative_answer_there_is_no_last_question(served):
    person = served.person()
    finish(person, cant_tell=True)
    assert person.at == "/end" and "Group A" not in person.page.text and "C1" in person.page.text


def test_a_study_may_leave_the_last_question_out(serve):
    served = serve(SMALL + "[thanks]\nstyle = 0\n")
    person = served.person()
    finish(person)
    assert "Group A" not in person.page.text and details(served, STYLE) == []


def test_the_style_is_that_of_the_answers(serve):
    """Whoever always likes the options with the largest utility gets prompts with a large one."""
    served = serve(SMALL.replace("number = 6", "number = 20"))
    theta = np.linspace(-3, 3, 8)
    utility = lambda texts: served.queue.materials.encoder.encode(list(texts)) @ theta  # noqa: E731
    person = served.person()
    person.begin()
    [participant] = served.store.participants()
    while person.at == "/question":
        question = served.store.history(participant.id)[-1][0]
        person.post("/answer", best=int(np.argmax(utility(question.texts))))
    style = served.queue.style(participant)
    assert utility(style.learnt).mean() > utility(style.random).mean()


def test_an_arm_with_fixed_questions_learns_a_style_too(serve, tmp_path):
    """Its planner learns nothing, so the taste is learnt from the answers themselves."""
    vocabulary = load_vocabulary(write_vocabulary(tmp_path / "words"))
    rng = np.random.default_rng(0)
    asked = [(i, 2, [vocabulary.prompt(rng.integers(vocabulary.sizes)) for _ in range(3)]) for i in range(6)]
    write_questions(tmp_path / "questions.csv", asked)
    text = SMALL[: SMALL.index("[[arms]]")]
    text += f'[[arms]]\nname = "design"\nplanner = "questions"\nfile = "{tmp_path / "questions.csv"}"\n'
    served = serve(text)
    person = served.person()
    finish(person)
    assert "Group A" in person.page.text and len(details(served, STYLE)[0]["learnt"]) == 4


# pictures


class Drawing:
    """A renderer whose pictures a test releases one by one."""

    def __init__(self, flagged=()):
        self.flagged, self.drawn, self.gate = set(flagged), [], threading.Event()
        self.gate.set()

    def render(self, prompts, seed):
        self.gate.wait(10)
        self.drawn += prompts
        return [Picture(text, text in self.flagged) for text in prompts]


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


def test_options_are_pictures_whose_addresses_and_names_tell_nothing(drawing):
    served, _ = drawing
    person = served.person()
    person.begin()
    [participant] = served.store.participants()
    question = served.store.history(participant.id)[-1][0]
    assert not any(text in person.page.text for text in question.texts)
    for option, address in zip(question.positions, sources(person), strict=True):
        answer = person.client.get(address)
        assert answer.content == f"PNG of {question.texts[option]}".encode()
        assert answer.headers["content-type"] == "image/png" and "private" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["0" * 32 + ".png", "x.png", "0.svg", "..%2f..%2fstudy.png", "\u00e4.png"])
def test_other_pictures_are_not_found(drawing, name):
    served, _ = drawing
    person = served.person()
    person.begin()
    assert person.client.get("/pictures/" + name).status_code == 404


def test_nobody_sees_the_pictures_of_others(drawing):
    served, _ = drawing
    person, other = served.person(), served.person()
    person.begin()
    other.begin()
    assert other.client.get(sources(person)[0]).status_code == 404
    assert served.person().client.get(sources(person)[0]).status_code == 403


def test_the_last_question_has_pictures_too(drawing):
    served, drawn = drawing
    person = served.person()
    person.begin()
    person.play()
    [style] = details(served, STYLE)
    shown = [person.client.get(address).content.decode().removeprefix("PNG of ") for address in sources(person)]
    groups = [style["learnt"], style["random"]]
    assert shown == [text for group in (groups if style["learnt_first"] else groups[::-1]) for text in group]
    assert not any(text in person.page.text for text in style["learnt"])


@pytest.mark.parametrize("arm", ["adaptive", "random", "design"])
def test_pictures_of_a_known_next_question_are_loaded_ahead(serve, tmp_path, arm):
    vocabulary = load_vocabulary(write_vocabulary(tmp_path / "words"))
    rng = np.random.default_rng(0)
    asked = [(i, 2, [vocabulary.prompt(rng.integers(vocabulary.sizes)) for _ in range(3)]) for i in range(6)]
    write_questions(tmp_path / "questions.csv", asked)
    planner = f'"questions"\nfile = "{tmp_path / "questions.csv"}"' if arm == "design" else f'"{arm}"'
    text = SMALL[: SMALL.index("[[arms]]")] + f'[[arms]]\nname = "{arm}"\nplanner = {planner}\n'
    pictures = Pictures(Drawing(), seed=0)
    served = serve(text, pictures=pictures)
    person = served.person()
    person.begin()
    [participant] = served.store.participants()
    offered, kinds = [], []
    while person.at == "/question":
        kinds.append(served.store.history(participant.id)[-1][0].kind)
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


def test_what_is_waited_for_is_drawn_first_and_once():
    drawn = Drawing()
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
    pictures.close()


def test_a_flagged_picture_is_withheld_and_a_failed_one_is_tried_again():
    drawn = Drawing(flagged=["a"])
    pictures = Pictures(drawn, seed=0)
    assert pictures.get("a").result(10) is None
    render, drawn.render = drawn.render, None
    with pytest.raises(TypeError):
        pictures.get("b").result(10)
    drawn.render = render
    assert pictures.get("b").result(10) == b"PNG of b"
    pictures.close()


def test_a_real_pipeline_draws_the_options(tmp_path):
    skip_without("images")
    text = SMALL + '[renderer]\nmodel = "tiny"\nsize = 64\nsteps = 2\nguidance = 0\n'
    folder = write_study(tmp_path / "study", text)
    config = read_config(folder)
    with pytest.raises(Mistakes, match="renderer: "):
        examine(config, encoder=CountingEncoder())
    save_tiny_stable_diffusion(folder / "tiny")
    examine(config, encoder=CountingEncoder())
    pictures = make_pictures(config, config.renderer)
    png = pictures.get("a gate").result(60)
    assert png.startswith(b"\x89PNG") and png != pictures.get("a door").result(60)
    pictures.close()
    again = make_pictures(config, config.renderer)
    assert again.get("a gate").result(60) == png and list((folder / "pictures").rglob("*.png"))
    again.close()


def test_the_completion_code_is_shown_when_no_taste_can_be(served, monkeypatch, caplog):
    def fail(*arguments):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr("edpbrl_gym.study.queue.make_style", fail)
    person = served.person()
    finish(person)
    assert person.at == "/end" and "C1" in person.page.text and "Group A" not in person.page.text
    assert "could not be shown" in caplog.text
