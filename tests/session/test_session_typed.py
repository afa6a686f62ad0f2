"""What people type as answers, and how many questions the stopping rule leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.likelihood import Response
from edpbrl_gym.session import AnswerForm, StoppingRule, Wish, standings
from edpbrl_gym.session.typed import Taps, in_words
from tests.helpers.session_planners import WORDS, D, encoder


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("best", "3", Response.best(2)),
        ("best", " 4\n", Response.best(3)),
        ("best", "3 1", Response.partial((2, 0))),
        ("best", "r 3,1", Response.partial((2, 0))),
        ("best", "3 1 4", Response.ranking((2, 0, 3, 1))),
        ("ranking", "2", Response.best(1)),
        ("ranking", "2 1 4 3", Response.ranking((1, 0, 3, 2))),
        ("best-worst", "2 4", Response.best_worst(1, 3)),
        ("best", "U", Wish.UNDO),
        ("ranking", "skip", Wish.SKIP),
        ("best-worst", "quit", Wish.STOP),
    ],
)
def test_lines(name, line, expected):
    assert AnswerForm.named(name, 4).read(line) == expected


@pytest.mark.parametrize("name", ["best", "best-worst", "ranking"])
@pytest.mark.parametrize(
    "line", ["", "0", "5", "1 1", "1 2 3 4 5", "-1", "1.5", "\u0663", "2 x", "uu", "99999999999", "r"]
)
def test_other_lines_are_refused_with_what_was_expected(name, line):
    with pytest.raises(ValueError, match=r"Expected .* 1 to 4.* u \(undo\).*got"):
        AnswerForm.named(name, 4).read(line)


def test_best_and_worst_are_two():
    for line in ("3", "3 1 2", "r 1 2"):
        with pytest.raises(ValueError, match="first the best option and then the worst"):
            AnswerForm.named("best-worst", 4).read(line)
    with pytest.raises(ValueError, match=">= 3"):
        AnswerForm.named("best-worst", 2)


@given(
    st.sampled_from(["best", "best-worst", "ranking"]), st.integers(3, 9), st.text("123456789ru\x7f\nxq", max_size=12)
)
def test_keys_complete_an_answer_that_the_model_takes_or_nothing(name, count, keys):
    form = AnswerForm.named(name, count)
    taps = Taps(form)
    for key in keys:
        done = taps.press({"\n": "enter", "\x7f": "backspace"}.get(key, key))
        if isinstance(done, Response):
            assert done.kind in form.format.kinds and done.checked(count) == done
            assert form.read(in_words(done)) == done
            return
        if done is not None:
            assert key in "uq" and done.value == key
            return
        assert len(set(taps.numbers)) == len(taps.numbers) < count


def pressed(form, *keys):
    taps = Taps(form)
    return [taps.press(key) for key in keys][-1]


def test_keys():
    form = AnswerForm.named("best", 9)
    assert pressed(form, "7") == Response.best(6)
    assert pressed(form, "R", "7", "2", "7", "enter") == Response.partial((6, 1))
    assert pressed(form, "r", "7", "u", "u", "3") == Response.best(2)  # U takes back the tap, then the ranking
    assert pressed(form, "r", "enter") is None
    assert pressed(form, "r", *"12345678") == Response.ranking(range(9))
    assert pressed(AnswerForm.named("best-worst", 4), "4", "4", "1") == Response.best_worst(3, 0)
    assert pressed(AnswerForm.named("best-worst", 4), "r") is None
    with pytest.raises(ValueError, match="at most 9"):
        Taps(AnswerForm.named("best", 10))


@given(st.lists(st.floats(0.0, 0.08), min_size=50, max_size=50), st.integers(0, 30))
def test_the_rule_says_stop_after_as_many_answers_as_it_leaves(gains, answers):
    rule = StoppingRule(target=0.85, gain=0.02, lookahead=10, minimum=12)
    curve = np.minimum(0.5 + np.cumsum(gains), 1.0)
    left = rule.left(answers, np.arange(50), curve, np.tile(curve, (3, 1)))
    stops = [rule.decide(answers + n, curve[n], curve[n + 10])[0] for n in range(40)]
    assert left[:3] == ((stops.index(True) if True in stops else None),) * 3


def test_standings_are_shares_of_random_prompts():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(60, D))
    texts = [WORDS.prompt((0, 1, 2)), WORDS.prompt((3, 4, 5))]
    everyone = [WORDS.prompt(np.unravel_index(number, WORDS.sizes)) for number in range(int(np.prod(WORDS.sizes)))]
    values = draws @ encoder().encode(everyone).T.astype(float)
    mine = draws @ encoder().encode(texts).T.astype(float)
    for number, found in enumerate(standings(WORDS, encoder(), draws, texts, others=10**6)):
        shares = (mine[:, [number]] > values).mean(axis=1)
        np.testing.assert_allclose(
            (found.share, found.low, found.high), (shares.mean(), *np.quantile(shares, (0.05, 0.95))), atol=2e-3
        )
