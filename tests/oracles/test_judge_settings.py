"""Settings, messages and the reading of answers: what goes out, under which key, and what counts as an answer."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.messages import answer_schema, label_order, make_messages, most_input_tokens, question_key
from edpbrl_gym.oracles.judge.reading import read_answer
from tests.helpers.judge_tools import png

SETTINGS = JudgeSettings(model="m", style="sunny days", show="texts")
QUESTION = JudgeQuestion(texts=["a", "b\nB: c", "d"], identity="1/2")


def test_settings_go_through_json_and_hold_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    told = json.loads(json.dumps(SETTINGS.as_json()))
    assert JudgeSettings(**told) == SETTINGS
    assert "secret" not in repr(SETTINGS) + json.dumps(told)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "model as a text"),
        ({"style": "  "}, "style as a text"),
        ({"show": "sounds"}, "'texts', 'images'"),
        ({"concurrency": 0}, "concurrency >= 1"),
        ({"timeout": 0}, "timeout"),
        ({"max_tokens": -1}, "max_tokens >= 0"),
        ({"base_url": "127.0.0.1:8000"}, "http or https address"),
        ({"base_url": "http://127.0.0.1:99999/v1"}, "http or https address"),
        ({"base_url": "ftp://me:pw@host/v1"}, "got one with a password"),
        ({"base_url": "http://me:pw@host/v1"}, "without a password"),
        ({"base_url": "http://host/v1?key=sk-abc"}, r"environment variable \(OPENAI_API_KEY\)"),
        ({"api_key_variable": "sk-proj-abc"}, "name of an environment variable"),
    ],
)
def test_wrong_settings_are_explained(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        JudgeSettings(**{"model": "m", "style": "s", **options})
    assert "sk-" not in str(caught.value) and "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"texts": ["only one"]}, ValueError),
        ({"texts": "ab"}, TypeError),
        ({"texts": ["a", "b"], "images": [b"1", b"2", b"3"]}, ValueError),
        ({"images": ["a.png", "b.png"]}, TypeError),
        ({"texts": ["a", "b"], "identity": 3}, TypeError),
    ],
)
def test_wrong_questions_are_explained(arguments, error):
    with pytest.raises(error, match="Expected"):
        JudgeQuestion(**arguments)


@pytest.mark.parametrize("options", [2, 4, 26])
def test_orders_are_seeded_permutations_and_the_second_look_moves_every_candidate(options):
    seen = set()
    for number in range(60):
        first, second = (label_order(f"{number}", options, 5, look) for look in (0, 1))
        assert sorted(first) == list(range(options)) == sorted(second)
        assert all(a != b for a, b in zip(first, second, strict=True))
        assert first == label_order(f"{number}", options, 5)
        seen.add(first)
    assert len(seen) > 1
    assert any(label_order(f"{i}", options, 5) != label_order(f"{i}", options, 6) for i in range(20))


def test_every_candidate_is_as_often_under_every_label():
    counts = np.zeros((4, 4))
    for number in range(2000):
        counts[np.arange(4), label_order(f"{number}", 4, 0)] += 1
    assert (abs(counts - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)).all()


def test_messages_show_the_candidates_by_label_and_keep_each_on_its_line():
    system, user = make_messages(SETTINGS, QUESTION, (2, 0, 1))
    assert system["role"] == "system" and system["content"].endswith("Style guidance:\nsunny days")
    assert "A, B, C" in system["content"] and '{"preference": "<label>"}' in system["content"]
    assert user["content"].splitlines()[1:] == ["A: d", "B: a", "C: b B: c"]


@pytest.mark.needs("judge")
def test_pictures_go_out_in_the_order_of_their_labels_scaled_down_and_as_png():
    from PIL import Image

    question = JudgeQuestion(images=[png("red"), png("lime", (40, 20)), png("blue", kind="JPEG")])
    _, user = make_messages(replace(SETTINGS, show="images", image_size=16), question, (1, 2, 0))
    labels = [part["text"] for part in user["content"] if part["type"] == "text"]
    assert labels == ["Candidates:", "A:", "B:", "C:"]
    pictures = []
    for part in user["content"]:
        if part["type"] == "image_url":
            head, _, data = part["image_url"]["url"].partition(",")
            assert head == "data:image/png;base64"
            import io

            pictures.append(Image.open(io.BytesIO(base64.b64decode(data)), formats=["PNG"]))
    assert [picture.size for picture in pictures] == [(16, 8), (12, 10), (12, 10)]
    assert [int(np.argmax(np.asarray(p.convert("RGB"))[3, 3])) for p in pictures] == [1, 2, 0]


@pytest.mark.needs("judge")
def test_what_is_not_a_picture_is_explained(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    question = JudgeQuestion(images=[tmp_path / "a.png", png("red")])
    with pytest.raises(ValueError, match=r"an image file at .*a\.png, but it can.t be read"):
        make_messages(replace(SETTINGS, show="images"), question, (0, 1))


def test_the_key_changes_with_all_that_decides_an_answer_and_with_nothing_else():
    key = question_key(SETTINGS, QUESTION, (0, 1, 2), 0)
    same = [
        replace(SETTINGS, base_url="http://other/v1"),
        replace(SETTINGS, concurrency=2, timeout=3.0, max_tokens=9, price_per_million_input=1.0),
        replace(SETTINGS, image_size=99),
    ]
    assert all(question_key(one, QUESTION, (0, 1, 2), 0) == key for one in same)
    other = [
        question_key(replace(SETTINGS, model="n"), QUESTION, (0, 1, 2), 0),
        question_key(replace(SETTINGS, style="rain"), QUESTION, (0, 1, 2), 0),
        question_key(replace(SETTINGS, temperature=1.0), QUESTION, (0, 1, 2), 0),
        question_key(replace(SETTINGS, seed=1), QUESTION, (0, 1, 2), 0),
        question_key(SETTINGS, QUESTION, (0, 2, 1), 0),
        question_key(SETTINGS, QUESTION, (0, 1, 2), 1),
        question_key(SETTINGS, replace(QUESTION, texts=["a", "b", "d"]), (0, 1, 2), 0),
    ]
    assert len({key, *other}) == 1 + len(other)


@pytest.mark.needs("judge")
def test_a_picture_has_one_key_as_a_file_and_as_bytes(tmp_path):
    pictures = [png("red"), png("blue")]
    for number, data in enumerate(pictures):
        (tmp_path / f"{number}.png").write_bytes(data)
    shown = replace(SETTINGS, show="images")
    files = JudgeQuestion(images=[tmp_path / "0.png", tmp_path / "1.png"])
    key = question_key(shown, JudgeQuestion(images=pictures), (0, 1), 0)
    assert question_key(shown, files, (0, 1), 0) == key
    assert question_key(replace(shown, image_size=64), files, (0, 1), 0) != key
    (tmp_path / "1.png").write_bytes(png("green"))
    assert question_key(shown, files, (0, 1), 0) != key


def test_the_most_tokens_are_not_fewer_than_the_bytes_sent():
    question = JudgeQuestion(texts=["a" * 500, "\N{SNOWMAN}" * 100])
    sent = sum(len(message["content"].encode()) for message in make_messages(SETTINGS, question, (0, 1)))
    assert most_input_tokens(SETTINGS, question) >= sent + len(json.dumps(answer_schema(2)))
    pictures = JudgeQuestion(images=[b"x", b"y"])
    assert most_input_tokens(replace(SETTINGS, show="images", tokens_per_image=700), pictures) > 1400


@pytest.mark.parametrize(
    ("text", "schema", "plain"),
    [
        ('{"preference": "C"}', 2, 2),
        ('\n {"preference":"A"} ', 0, 0),
        ('The best is:\n```json\n{"preference": "B"}\n```', None, 1),
        ('{"preference": "D"}', None, None),  # three candidates only
        ('{"preference": "a"}', None, None),
        ('{"preference": "AB"}', None, None),
        ('{"preference": ""}', None, None),
        ('{"preference": 1}', None, None),
        ('{"preference": null}', None, None),
        ('{"preference": "A", "why": "so"}', None, None),
        ('{"preference": "A", "preference": "B"}', None, None),
        ('{"preference": "A"} or {"preference": "B"}', None, None),
        ('{"answer": {"preference": "A"}}', None, None),
        ('["A"]', None, None),
        ('"A"', None, None),
        ("A", None, None),
        ("", None, None),
        ('{"preference": "', None, None),
        ('{"preference": "A"', None, None),
        ('Between {these}: {"preference": "A"}', None, None),
        ("{" * 100_000, None, None),
        ("[" * 100_000, None, None),
        ('{"preference": "\u0391"}', None, None),  # a Greek letter that looks like A
    ],
)
def test_reading_takes_one_object_with_one_known_label_and_nothing_else(text, schema, plain):
    assert read_answer(text, 3, "schema") == schema
    assert read_answer(text, 3, "text") == plain
