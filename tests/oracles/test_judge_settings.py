"""Settings, messages and the reading of answers: what goes out, under which key, and what counts as an answer."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.messages import (
    answer_schema,
    label_order,
    make_messages,
    most_input_tokens,
    question_keys,
)
from tests.helpers.judge_tools import png

SETTINGS = JudgeSettings(model="m", style="sunny days", show="texts")
QUESTION = JudgeQuestion(texts=["a", "b\nB: c", "d"], identity="1/2")


def test_settings_go_through_json_and_hold_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    told = json.loads(json.dumps(asdict(SETTINGS)))
    assert JudgeSettings(**told) == SETTINGS
    assert "secret" not in repr(SETTINGS) + json.dumps(told)


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
            pictures.append(Image.open(io.BytesIO(base64.b64decode(data)), formats=["PNG"]))
    assert [picture.size for picture in pictures] == [(16, 8), (12, 10), (12, 10)]
    assert [int(np.argmax(np.asarray(p.convert("RGB"))[3, 3])) for p in pictures] == [1, 2, 0]


# another value of every setting, and whether it changes what a model may reply
OTHER = {
    "base_url": ("http://other/v1", False), "api_key_variable": ("OTHER", False), "structured": ("text", True),
    "second_look": (True, False), "concurrency": (2, False), "timeout": (3.0, False),
    "max_wait": (9.0, False), "max_retries": (1, False),
    "temperature": (None, True), "image_size": (99, False), "tokens_per_image": (9, False),
    "price_per_million_input": (1.0, False), "price_per_million_output": (1.0, False), "max_questions": (9, False),
    "max_tokens": (9, False), "max_answer_tokens": (65, True), "limit_parameter": ("max_tokens", True),
    "model": ("n", True), "style": ("rain", True), "seed": (1, True),
}  # fmt: skip


def keys(chosen, question=QUESTION, order=(0, 1, 2), look=0):
    return question_keys(chosen, question, order, look)


def test_the_key_of_a_request_changes_with_every_setting_that_changes_a_reply_and_with_no_other():
    names = {field.name for field in fields(SETTINGS)} - {"show"}
    assert names <= set(OTHER)  # a new setting needs a decision here
    first, reminder = keys(SETTINGS)
    for name in sorted(names):
        value, decides = OTHER[name]
        others = keys(replace(SETTINGS, **{name: value}))
        assert (others[0].request != first.request) == (others[1].request != reminder.request) == decides, name
        assert (others[0].answer != first.answer) == (decides and name not in ("max_answer_tokens", "limit_parameter"))
    another = replace(QUESTION, texts=["a", "b", "d"])
    different = [keys(SETTINGS, order=(0, 2, 1)), keys(SETTINGS, look=1), keys(SETTINGS, another), (reminder, first)]
    for kind in ("request", "answer"):
        assert len({getattr(pair[0], kind) for pair in [(first,), *different]}) == 5


@pytest.mark.needs("judge")
def test_a_picture_has_one_key_as_a_file_and_as_bytes(tmp_path):
    pictures = [png("red"), png("blue")]
    for number, data in enumerate(pictures):
        (tmp_path / f"{number}.png").write_bytes(data)
    shown = replace(SETTINGS, show="images")
    files = JudgeQuestion(images=[tmp_path / "0.png", tmp_path / "1.png"])
    key = keys(shown, JudgeQuestion(images=pictures), (0, 1))[0].request
    assert keys(shown, files, (0, 1))[0].request == key
    assert keys(replace(shown, image_size=64), files, (0, 1))[0].request != key
    (tmp_path / "1.png").write_bytes(png("green"))
    assert keys(shown, files, (0, 1))[0].request != key


def test_the_most_tokens_are_not_fewer_than_the_bytes_sent():
    question = JudgeQuestion(texts=["a" * 500, "\N{SNOWMAN}" * 100])
    sent = sum(len(message["content"].encode()) for message in make_messages(SETTINGS, question, (0, 1)))
    assert most_input_tokens(SETTINGS, question) >= sent + len(json.dumps(answer_schema(2)))
    reminder = make_messages(SETTINGS, question, (0, 1), reminded=True)
    more = sum(len(message["content"].encode()) for message in reminder) - sent
    assert 100 < more <= most_input_tokens(SETTINGS, question, reminded=True) - most_input_tokens(SETTINGS, question)
    pictures = JudgeQuestion(images=[b"x", b"y"])
    assert most_input_tokens(replace(SETTINGS, show="images", tokens_per_image=700), pictures) > 1400
