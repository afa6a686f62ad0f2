"""Sessions that compare complete prompts: one question an episode, whose tokens the planner chooses step by step."""

import numpy as np
import pytest

from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.session import run
from tests.helpers.session_planners import (
    THETA,
    WORDS,
    GreedyPlanner,
    RestorableGreedyPlanner,
    adaptive_planner,
    encoder,
    resume,
    same,
    session,
)

H = WORDS.horizon


def complete(planner=None, **arguments):
    return session(planner, feedback="prompt", **arguments)


class Watched(RestorableGreedyPlanner):
    """Keeps the prefixes that it was asked to extend, and the answers that it was told."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.prefixes, self.told = [], []

    def ask(self, prefixes):
        self.prefixes.append(np.array(prefixes))
        return super().ask(prefixes)

    def tell(self, options, responses):
        self.told.append((np.array(options), list(responses)))
        super().tell(options, responses)


def test_one_question_an_episode_of_complete_prompts():
    planner = Watched()
    one = complete(planner)
    for number in range(4):
        question = one.ask()
        assert question is one.ask()
        assert (question.number, question.episode, question.step) == (number, number, H - 1)
        assert question.tokens.shape == (3, H) and question.num_new == H and question.prefixes.shape == (3, 0)
        assert question.texts == tuple(WORDS.prompt(row) for row in question.tokens)
        np.testing.assert_array_equal(question.features, encoder().encode(question.texts))
        asked = planner.prefixes[-H:]
        assert len(planner.prefixes) == H * (number + 1)
        for step, prefixes in enumerate(asked):  # its own tokens, one more each time
            np.testing.assert_array_equal(prefixes, question.tokens[:, :step])
        one.tell(number % 3)
        (options, responses) = planner.told[-1]
        np.testing.assert_array_equal(options, question.features[None])
        assert len(planner.told) == number + 1 and responses == [Response.best(number % 3)]
    found = one.comparisons
    assert found.metadata["feedback"] == "prompt"
    assert found.step.tolist() == [H - 1] * 4 and found.episode.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("step", range(H))
def test_a_planner_that_fails_is_not_asked_twice_for_a_step(step):
    class Failing(Watched):
        fails = True

        def ask(self, prefixes):
            if self.fails and prefixes.shape[1] == step:
                raise ConnectionError("no tokens")
            return super().ask(prefixes)

    one, other = complete(Failing()), complete(Watched())
    for _ in range(3):
        with pytest.raises(ConnectionError):
            one.ask()
        assert [prefixes.shape[1] for prefixes in one.planner.prefixes] == list(range(step))
    one.planner.fails = False
    same(one, other)
    assert [prefixes.shape[1] for prefixes in one.planner.prefixes] == list(range(H))


def test_an_option_twice_is_refused_only_as_a_whole_prompt():
    class Repeats(GreedyPlanner):
        distinct = True
        last = (0, 1, 2)

        def ask(self, prefixes):
            return np.array(self.last if prefixes.shape[1] == H - 1 else (4, 4, 4))

    assert len(set(complete(Repeats()).ask().texts)) == 3
    planner = Repeats()
    planner.last = (0, 1, 0)
    with pytest.raises(ValueError, match="Expected 3 different options.*as options 0 and 2"):
        complete(planner).ask()


def test_an_adaptive_planner_asks_tells_goes_back_and_resumes(tmp_path):
    one, other = complete(adaptive_planner(), folder=tmp_path / "one"), complete(adaptive_planner())
    for number in range(5):
        one.ask()
        if number % 2:
            one.tell(2), one.ask(), one.undo()
        one.tell(number % 3), other.ask(), other.tell(number % 3)
    one.ask(), one.close()
    with resume(tmp_path / "one", adaptive_planner()) as again:
        same(again, other)
        assert len(set(again.pending.texts)) == 3


def test_what_is_learnt_and_predicted():
    one = complete()
    assert run(one, SyntheticUser(THETA), 24) == 24
    assert one.estimate.theta @ THETA > 0.8 * np.linalg.norm(one.estimate.theta) * np.linalg.norm(THETA)
    typical = one.outlook.typical
    assert typical.shape == (20 * H, 3, 8)
    texts = {text for call in one.memo.encoder.calls for text in call if text.count(", ") == H - 1}
    known = {row.tobytes() for row in encoder().encode(sorted(texts))}
    assert all(row.astype(np.float32).tobytes() in known for row in typical.reshape(-1, 8))  # complete prompts
    progress = one.progress()
    assert progress.answers == 24 and (np.diff(progress.curve) > 0).all()
    assert one.recommend(1)[0].text.count(", ") == H - 1
