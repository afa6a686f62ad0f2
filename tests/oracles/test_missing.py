"""Questions that an oracle leaves without an answer: no comparison, no reward, and nothing waits for them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import answer_again, collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood import WithTies
from edpbrl_gym.oracles import Answers, ImperfectUser, SyntheticUser
from tests.helpers.lane_environments import ChainEnv

THETA = np.array([1.0, -2.0, 0.5])
HORIZON = 4


class Forgetful(SyntheticUser):
    """Answers as a synthetic user does, but not the questions that ``leave`` names."""

    def __init__(self, leave):
        super().__init__(THETA)
        self.leave = leave

    def answer(self, queries):
        answers = super().answer(queries)
        return Answers.of_choices(np.where(self.leave(queries), -1, answers.choices), answers.details)


def odd(queries):
    return (queries.episode + queries.step) % 2 == 1


def last(queries):
    return queries.step == HORIZON - 1


def everything(queries):
    return np.ones(len(queries), dtype=bool)


def lanes(number=6, mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([ChainEnv] * number, autoreset_mode=mode)


def gather(leave, env=None, episodes=3, **arguments):
    env = env or lanes()
    agent = make_agent("random", env, num_options=2, episodes=1, seed=4)
    return collect(env, agent, Forgetful(leave), episodes=episodes, feedback="state", lanes=2, **arguments)


@pytest.mark.parametrize("leave", [odd, last, everything])
def test_infos_and_rewards_of_a_question_without_an_answer(leave):
    query = PreferenceQuery(lanes(), lanes=2, oracle=Forgetful(leave), feedback="state")
    twin = PreferenceQuery(lanes(), lanes=2, oracle=SyntheticUser(THETA), feedback="state")
    query.reset(seed=0), twin.reset(seed=0)
    answered = 0
    for step in range(HORIZON):
        actions = np.array([0, 1] * 3)
        _, rewards, *_, infos = query.step(actions)
        _, full, *_, wanted = twin.step(actions)
        there = ~leave(type("Asked", (), {"episode": np.arange(3), "step": np.full(3, step), "__len__": lambda _: 3})())
        answered += there.sum()
        np.testing.assert_array_equal(infos["preference"], np.where(there, wanted["preference"], -1))
        np.testing.assert_array_equal(infos["_preference"], there)
        np.testing.assert_array_equal(infos["_question"], [True] * 3)
        np.testing.assert_array_equal(rewards.reshape(3, 2), full.reshape(3, 2) * there[:, None])
    if not answered:
        with pytest.raises(RuntimeError, match="No question was answered yet"):
            _ = query.comparisons
        return
    found, whole = query.comparisons, twin.comparisons
    keep = ~leave(whole)
    assert len(found) == answered == keep.sum()
    for name in ("features", "choice", "episode", "step"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[keep])
    assert found.answered_at is not None and len(found.answered_at) == answered


def test_a_tie_is_an_answer_without_a_best_option_and_a_skip_is_none():
    user = ImperfectUser(THETA, equal_threshold=0.7, skip_threshold=-1.0)
    query = PreferenceQuery(lanes(20), lanes=2, oracle=user, feedback="state")
    query.reset(seed=0)
    rng, missing, ties = np.random.default_rng(0), 0, 0
    for _ in range(HORIZON):
        _, rewards, *_, infos = query.step(rng.integers(2, size=20))
        missing += (infos["preference"] < 0).sum()
        np.testing.assert_array_equal(infos["preference"] < 0, ~infos["_preference"])
        np.testing.assert_array_equal(rewards.reshape(10, 2).sum(axis=1), infos["_preference"])
    found = query.comparisons
    kinds = [response.kind for response in found.responses]
    ties = kinds.count("tie")
    assert set(kinds) == {"best", "tie"} and len(found) == 10 * HORIZON - (missing - ties) < 10 * HORIZON
    assert len(found.decided) == len(found) - ties
    assert estimate(found, model=WithTies()).converged
    with pytest.raises(ValueError, match="got a tie"):
        estimate(found)


@pytest.mark.parametrize("episodes", [3, 7])
@pytest.mark.parametrize("leave", [odd, last])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_collect_plays_as_many_episodes_as_with_all_answers(episodes, leave, mode):
    """Also where the last question of an episode has no answer: it has ended all the same."""
    whole = gather(lambda queries: np.zeros(len(queries), dtype=bool), lanes(mode=mode), episodes)
    found = gather(leave, lanes(mode=mode), episodes)
    assert len(whole) == episodes * HORIZON
    keep = ~leave(whole)
    for name in ("features", "choice", "episode", "step"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[keep])
    assert estimate(found, regularization=1.0).converged


@pytest.mark.parametrize("texts", [True, False])
def test_answer_again_drops_what_the_other_one_leaves(texts):
    rng = np.random.default_rng(0)
    asked = Comparisons.of_choices(
        features=rng.normal(size=(20, 4, 3)),
        choice=np.zeros(20, int),
        episode=np.repeat(np.arange(5), 4),
        step=np.tile(np.arange(4), 5),
        texts=[[f"{i}{k}" for k in "abcd"] for i in range(20)] if texts else None,
        metadata={"encoder": "e"},
    )
    found = answer_again(asked, Forgetful(odd))
    keep = ~odd(asked)
    np.testing.assert_array_equal(found.features, asked.features[keep])
    np.testing.assert_array_equal(found.choice, SyntheticUser(THETA).answer(asked.queries).choices[keep])
    np.testing.assert_array_equal(found.step, asked.step[keep])
    assert found.texts == ([asked.texts[i] for i in np.flatnonzero(keep)] if texts else None)
    assert found.metadata["encoder"] == "e"
    assert len(answer_again(asked, Forgetful(everything))) == 0
