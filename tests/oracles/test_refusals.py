"""What users and judges refuse, each in one line that names it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Answers, ImperfectUser, SyntheticUser
from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.client import ChatClient

THETA = np.arange(6.0)


def asked(num_options=4, step=0):
    return Queries(np.ones((1, num_options, 6)), np.zeros(1, int), np.array([step]))


class Embeds:
    """An encoder that gives what it is told to."""

    name, dimension, fingerprint = "broken", 3, "0"

    def __init__(self, rows):
        self.rows = rows

    def encode(self, texts, *, progress=False):
        return np.array(self.rows, dtype=np.float32)


def from_text(text, *rows):
    return SyntheticUser.from_text(text, Embeds(rows))


def imperfect(**options):
    return ImperfectUser(THETA, **options)


def changes_options():
    user = imperfect(myopia=0.5)
    user.answer(asked())
    user.answer(asked(3, step=1))


def judge(**options):
    return JudgeSettings(**{"model": "m", "style": "s", **options})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SyntheticUser([1.0, np.nan]), ValueError, "finite theta"),
        (lambda: SyntheticUser([]), ValueError, "at least 1 feature"),
        (lambda: SyntheticUser([[1.0]]), ValueError, "theta of shape"),
        (lambda: SyntheticUser("sunny"), TypeError, "theta as an array"),
        (lambda: SyntheticUser([1.0], mode="softmax"), ValueError, "'argmax', 'sampled', got 'softmax'"),
        (lambda: SyntheticUser([1.0], scale=-1), ValueError, "scale >= 0, got -1"),
        (lambda: SyntheticUser([1.0], seed=-1), ValueError, "seed >= 0"),
        (lambda: SyntheticUser([1.0], seed=None), TypeError, "seed as an integer"),
        (lambda: SyntheticUser([1.0]).answer(asked()), ValueError, "d = 1 features .* got d = 6"),
        (lambda: from_text("  ", [1, 2, 3]), ValueError, "text that describes"),
        (lambda: from_text("x", [0, 0, 0]), ValueError, "not zero, got zeros"),
        (lambda: from_text("x", [1, 2]), ValueError, "embedding of shape"),
        (lambda: from_text("x", [1, 2, np.nan]), ValueError, "finite embedding"),
        (lambda: Answers(np.zeros(1, int)), TypeError, r"responses as a list .*got ndarray; .*of_choices"),
        (lambda: Answers([Response.best(0), 0]), TypeError, r"got int at index 1; use Response\.best"),
        (lambda: Answers.of_choices([0, -2]), ValueError, "choices in -1..inf, got -2"),
        (lambda: Answers.of_choices([0.5]), TypeError, "choices as integers"),
        (lambda: imperfect(mistake_rate=1.5), ValueError, r"mistake_rate in \[0, 1\], got 1.5"),
        (lambda: imperfect(mistake_rate=-0.1), ValueError, "mistake_rate >= 0"),
        (lambda: imperfect(myopia=2), ValueError, r"myopia in \[0, 1\]"),
        (lambda: imperfect(drift=4.0), ValueError, "drift in"),
        (lambda: imperfect(equal_threshold=-1.0), ValueError, "equal_threshold >= 0"),
        (lambda: imperfect(skip_threshold=math.nan), ValueError, "finite skip_threshold"),
        (lambda: imperfect(response="worst"), ValueError, "'ties', 'rating', 'like', got 'worst'"),
        (lambda: imperfect(scale=(5.0, 1.0)), ValueError, "low <= high"),
        (lambda: imperfect(scale=(0.0, 1.0)), ValueError, r"scale \(low\) > 0"),
        (lambda: imperfect(scale=(1.0, 2.0, 3.0)), ValueError, "a number or"),
        (lambda: imperfect(nu=0.0), ValueError, "nu > 0"),
        (lambda: ImperfectUser([1.0], drift=0.1), ValueError, "at least 2 features for drift"),
        (changes_options, ValueError, "Expected 4 options in every question of episode 0, got 3"),
        (lambda: judge(model=""), ValueError, "model as a text"),
        (lambda: judge(style="  "), ValueError, "style as a text"),
        (lambda: judge(show="sounds"), ValueError, "'texts', 'images'"),
        (lambda: judge(concurrency=0), ValueError, "concurrency >= 1"),
        (lambda: judge(timeout=0), ValueError, "timeout"),
        (lambda: judge(max_tokens=-1), ValueError, "max_tokens >= 0"),
        (lambda: judge(base_url="127.0.0.1:8000"), ValueError, "http or https address"),
        (lambda: judge(base_url="http://127.0.0.1:99999/v1"), ValueError, "http or https address"),
        (lambda: ChatClient(judge(base_url="https://\U0001f600.example/v1")), ValueError, "the name of a host"),
        (lambda: judge(base_url="ftp://me:pw@host/v1"), ValueError, "got one with a password"),
        (lambda: judge(base_url="http://me:pw@host/v1"), ValueError, "without a password"),
        (lambda: judge(base_url="http://host/v1?key=sk-abc"), ValueError, r"environment variable \(OPENAI_API_KEY\)"),
        (lambda: judge(api_key_variable="sk-proj-abc"), ValueError, "name of an environment variable"),
        (lambda: JudgeQuestion(), ValueError, "Expected a question with texts or images"),
        (lambda: JudgeQuestion(texts=["only one"]), ValueError, "2 to 26 candidates"),
        (lambda: JudgeQuestion(texts="ab"), TypeError, "list of strings"),
        (lambda: JudgeQuestion(texts=["a", "b"], images=[b"1"] * 3), ValueError, "as many images as texts"),
        (lambda: JudgeQuestion(images=["a.png", "b.png"]), TypeError, "paths .* or bytes"),
        (lambda: JudgeQuestion(texts=["a", "b"], identity=3), TypeError, "identity as a string"),
    ],
)
def test_what_is_refused_is_named(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "sk-" not in str(caught.value) and "pw" not in str(caught.value)
