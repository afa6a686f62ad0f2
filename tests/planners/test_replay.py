"""Questions that were drawn before are asked again, in their order, whatever the answers."""

import numpy as np
import pytest

from edpbrl_gym.planners import ReplayPlanner
from edpbrl_gym.session import Session
from tests.helpers.session_planners import WORDS, encoder

TOKENS = np.random.default_rng(1000).permuted(np.tile(np.arange(8), (4, 3, 1)), axis=2)[:, :, :3].transpose(0, 2, 1)


def test_a_session_asks_them_and_goes_back():
    one = Session(ReplayPlanner(TOKENS), vocabulary=WORDS, encoder=encoder(), num_options=3)
    for episode in range(4):
        for step in range(3):
            np.testing.assert_array_equal(one.ask().tokens, TOKENS[episode, :, : step + 1])
            one.tell(step)
            if episode == 1:
                one.ask(), one.undo(), one.tell(0)
    assert one.planner.asked == 12 and one.planner.state() == {"asked": 12}
    with pytest.raises(ValueError, match="at most the 12 questions"):
        one.ask()
    one.planner.reset()
    np.testing.assert_array_equal(one.planner.ask(np.empty((3, 0))), TOKENS[0, :, 0])


def test_it_learns_nothing_and_says_so():
    planner = ReplayPlanner(TOKENS)
    assert planner.num_options == 3 and not planner.distinct and ReplayPlanner(TOKENS, distinct=True).distinct
    for name in ("estimate", "posterior"):
        with pytest.raises(AttributeError, match="learns nothing"):
            getattr(planner, name)
    with pytest.raises(ValueError, match=r"prompts of shape \(3, 0\) to extend by question 0, got \(3, 1\)"):
        planner.ask(TOKENS[0, :, :1])
    for tokens in (np.zeros((0, 3, 2), int), np.zeros((2, 1, 2), int)):
        with pytest.raises(ValueError, match="at least 2 options"):
            ReplayPlanner(tokens)
