"""Questions for people show no option twice, whoever chooses the options."""

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.tabular import TabularAgent
from edpbrl_gym.collection.collect import (
    ENVIRONMENT,
    DistinctOptions,
    check_enough_options,
    collect,
    draw_questions,
    make_prompt_lanes,
)
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import RandomPlanner
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from tests.helpers.lane_environments import ChainEnv

K, T = 4, 12


class Stubborn(Agent):
    """Plays the same token in every lane."""

    token = 3

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.full(len(observation), self.token), state


def narrow(env, shares):
    """A tabular agent whose K policies are all the same: the given shares of the first tokens of every step."""
    mdp = env.unwrapped.mdp
    policy = np.zeros((mdp.horizon, mdp.num_pairs))
    for step in range(mdp.horizon):
        pairs = mdp.step_pairs(step)
        policy[step, pairs.start : pairs.start + len(shares)] = shares
    return TabularAgent(env, policies=np.stack([policy] * K), num_options=K, episodes=T, seed=1)


def make(name, env):
    if name == "stubborn":
        return Stubborn(env, num_options=K, episodes=T)
    if name == "narrow":
        return narrow(env, [0.9, 0.1])
    return make_agent(name, env, num_options=K, episodes=T, criterion="D", seed=0).learn()


def repeats(drawn):
    return sum(len(texts) - len(set(texts)) for _, _, texts in drawn.questions)


@pytest.mark.parametrize("name", ["newton", "random", "stubborn", "narrow"])
@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_no_question_shows_an_option_twice(words, minilm, name, feedback):
    env = make_prompt_lanes(K, vocabulary=words)
    env.unwrapped.model.use_encoder(minilm)
    given = {"episodes": T, "env_arguments": {"vocabulary": words}, "feedback": feedback}
    as_played = draw_questions(ENVIRONMENT, make(name, env), distinct=False, **given)
    drawn = draw_questions(ENVIRONMENT, make(name, env), **given)
    assert len(drawn.questions) == 3 * T and repeats(drawn) == 0
    assert (drawn.exchanged > 0) == (repeats(as_played) > 0)
    assert as_played.exchanged == 0 < repeats(as_played)
    vocabulary = load_vocabulary(words)
    for episode, step, texts in drawn.questions:  # the tokens are those of the texts
        chosen = drawn.tokens[episode, :, : step + 1]
        if feedback == "truncated":
            assert texts == [vocabulary.prompt(lane) for lane in chosen]
        else:
            assert texts == [vocabulary.tokens[step][lane[-1]] for lane in chosen]


def test_questions_without_a_repeat_stay_as_the_agent_plays_them(words):
    env = make_prompt_lanes(K, vocabulary=words)
    given = {"episodes": 60, "env_arguments": {"vocabulary": words}, "feedback": "state"}
    agents = [make_agent("random", env, num_options=K, episodes=60, seed=5) for _ in range(2)]
    played = draw_questions(ENVIRONMENT, agents[0], distinct=False, **given)
    drawn = draw_questions(ENVIRONMENT, agents[1], **given)
    kept = changed = 0
    for (_, _, before), (_, _, after) in zip(played.questions, drawn.questions, strict=True):
        assert len(set(after)) == K
        for option, (old, new) in enumerate(zip(before, after, strict=True)):
            assert (old == new) == (old not in before[:option])
            kept, changed = kept + (old == new), changed + (old != new)
    assert kept > changed == drawn.exchanged > 0
    assert agents[0].rng.random() == agents[1].rng.random()


def test_an_exchanged_option_is_drawn_from_the_agents_policy_first(words):
    """Shares 0.6, 0.3 and 0.1 of three tokens, K = 4: all three are shown, and one that the policy doesn't know."""
    env = make_prompt_lanes(K, vocabulary=words)
    agent = narrow(env, [0.6, 0.3, 0.1])
    given = {"episodes": T, "env_arguments": {"vocabulary": words}, "feedback": "state"}
    tokens = draw_questions(ENVIRONMENT, agent, **given).tokens
    for lanes in tokens.transpose(0, 2, 1).reshape(-1, K):
        assert set(lanes) >= {0, 1, 2} and len(set(lanes)) == K
    # in proportion to the policy: with lanes 0 and 1 on token 0, lane 1 moves to 1 or 2 as 3 to 1
    exchange = DistinctOptions(env.unwrapped, num_options=K, feedback="state", seed=0)
    observation, _ = env.reset()
    moved = [exchange(agent, observation, np.array([0, 0, 6, 7]))[1] for _ in range(2000)]
    share = np.mean(np.array(moved) == 1)
    assert set(moved) == {1, 2} and abs(share - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 2000)


def test_options_of_different_policies_move_to_tokens_that_the_others_show(words):
    """Deterministic policies leave nothing of their own; what the K policies show together comes next."""
    env = make_prompt_lanes(3, vocabulary=words)
    mdp = env.unwrapped.mdp
    policies = np.zeros((3, mdp.horizon, mdp.num_pairs))
    for policy, tokens in zip(policies, ([0], [0], [1, 2]), strict=True):
        for step in range(mdp.horizon):
            policy[step, mdp.step_pairs(step).start + np.array(tokens)] = 1 / len(tokens)
    agent = TabularAgent(env, policies=policies, num_options=3, episodes=T)
    given = {"episodes": 40, "env_arguments": {"vocabulary": words}, "feedback": "state"}
    tokens = draw_questions(ENVIRONMENT, agent, **given).tokens
    assert (np.sort(tokens, axis=1) == np.arange(3)[:, None]).all()


@pytest.mark.parametrize(
    ("sizes", "options", "feedback", "said"),
    [
        ((12, 60), 50, "truncated", r"12 at step 0 \(s0\); ask with at most K = 12 options, begin with a longer file"),
        ((3, 5, 9), 20, "truncated", r"3 at step 0 \(s0\), 15 at step 1 \(s1\); ask with at most K = 3"),
        ((5, 3, 9), 4, "state", r"different tokens .* 3 at step 1 \(s1\); ask with at most K = 3 options, add"),
        ((5, 3, 1), 4, "truncated", None),
        ((4, 4), 4, "state", None),
        ((2, 3, 4), 24, "prompt", None),
        ((2, 3, 4), 25, "prompt", r"25 different complete prompts.*got 24; ask with fewer options, or add tokens"),
    ],
)
def test_a_vocabulary_with_too_few_options_is_told_with_its_steps(sizes, options, feedback, said):
    names = [f"s{step}" for step in range(len(sizes))]
    tokens = tuple(tuple(f"{name} {number}" for number in range(size)) for name, size in zip(names, sizes, strict=True))
    vocabulary = Vocabulary(tuple(names), tokens)
    if said is None:
        return check_enough_options(vocabulary, options, feedback)
    with pytest.raises(ValueError, match=said):
        check_enough_options(vocabulary, options, feedback)
    return None


def test_equal_is_what_reads_equal(tmp_path):
    """Commas inside tokens make different choices the same prompt; only texts tell."""
    (tmp_path / "1.txt").write_text("x\nx, a\nx, a, a\n")
    (tmp_path / "2.txt").write_text("b\na, b\n")
    env = make_prompt_lanes(3, vocabulary=str(tmp_path))
    exchange = DistinctOptions(env.unwrapped, num_options=3, feedback="truncated", seed=0)
    env.reset()
    observation, *_ = env.step(np.array([0, 1, 2]))
    agent = Stubborn(env, num_options=3, episodes=1)
    assert exchange(agent, observation, np.array([1, 0, 1])).tolist() == [1, 1, 1]  # not twice "x, a, b"
    assert exchange.exchanged == 1
    with pytest.raises(ValueError, match="tokens with commas make different choices read the same"):
        exchange(agent, observation, np.array([1, 0, 0]))  # the third option reads as the second's other choice


@pytest.mark.parametrize(("sizes", "options"), [((2, 3, 2), 12), ((2, 3, 2), 5), ((3, 1), 3), ((4, 2, 1), 8)])
def test_complete_prompts_differ_however_few_tokens_the_last_steps_have(sizes, options, tmp_path):
    """Every lane plays token 0: partial prompts may be equal as long as the rest can tell them apart."""
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}.txt").write_text("".join(f"s{number} {token}\n" for token in range(size)))
    lanes = make_prompt_lanes(options, vocabulary=str(tmp_path))
    agent = Stubborn(lanes, num_options=options, episodes=3)
    agent.token = 0
    given = {"episodes": 3, "env_arguments": {"vocabulary": str(tmp_path)}, "feedback": "prompt"}
    drawn = draw_questions(ENVIRONMENT, agent, **given)
    vocabulary = load_vocabulary(tmp_path)
    assert [question[:2] for question in drawn.questions] == [(e, len(sizes) - 1) for e in range(3)]
    for (_, _, texts), tokens in zip(drawn.questions, drawn.tokens, strict=True):
        assert texts == [vocabulary.prompt(lane) for lane in tokens] and len(set(texts)) == options
        for step in range(len(sizes)):  # no more changes than are needed
            same = max(np.unique(tokens[:, : step + 1], axis=0, return_counts=True)[1])
            assert same == min(options, int(np.prod(sizes[step + 1 :])))


def test_a_question_of_complete_prompts_repeats_none(words, minilm):
    env = make_prompt_lanes(K, vocabulary=words)
    env.unwrapped.model.use_encoder(minilm)
    given = {"episodes": T, "env_arguments": {"vocabulary": words}, "feedback": "prompt"}
    drawn = draw_questions(ENVIRONMENT, make("narrow", env), **given)
    assert len(drawn.questions) == T and repeats(drawn) == 0 and drawn.exchanged > 0
    user = SyntheticUser.from_text("a quiet evening", minilm, mode="argmax")
    asked = collect(env, make("narrow", env), user, episodes=T, feedback="prompt", distinct=True)
    assert len(asked) == T and all(len(set(texts)) == K for texts in asked.texts)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("groups", [1, 3])
def test_collect_asks_distinct_questions_where_that_is_wanted(words, minilm, mode, groups):
    env = make_prompt_lanes(K * groups, vocabulary=words, autoreset_mode=mode)
    env.unwrapped.model.use_encoder(minilm)
    user = SyntheticUser.from_text("a quiet evening", minilm, mode="argmax")
    given = {"episodes": 6, "feedback": "state"}
    as_played = collect(env, narrow(env, [0.9, 0.1]), user, **given)
    asked = collect(env, narrow(env, [0.9, 0.1]), user, distinct=True, **given)
    assert len(asked) == len(as_played) == 18
    assert all(len(set(texts)) < K for texts in as_played.texts) and all(len(set(texts)) == K for texts in asked.texts)
    np.testing.assert_array_equal(asked.features[:, 0], as_played.features[:, 0])  # the first option always stays


def test_environments_without_texts_are_refused():
    lanes = SyncVectorEnv([ChainEnv] * 2)
    mdp = lanes.envs[0].unwrapped.mdp
    agent = TabularAgent(lanes, policies=np.stack([mdp.uniform_policy()] * 2), num_options=2, episodes=1)
    user = SyntheticUser(np.ones(np.asarray(lanes.envs[0].unwrapped.features).shape[1]))
    with pytest.raises(TypeError, match="vocabulary"):
        collect(lanes, agent, user, episodes=1, feedback="state", distinct=True)


def test_the_random_planner_of_a_session_asks_people_distinct_questions():
    given = {"prior": GaussianPrior.isotropic(2, 1.0), "num_options": 3, "seed": 1}
    asked = [RandomPlanner([4], distinct=wanted, **given) for wanted in (False, True)]
    empty = np.empty((3, 0), dtype=np.int64)
    independent, distinct = ([len(set(planner.ask(empty).tolist())) for _ in range(400)] for planner in asked)
    assert min(independent) < 3 and set(distinct) == {3}
    shown = np.bincount(np.concatenate([asked[1].ask(empty) for _ in range(2000)]), minlength=4) / 2000
    assert np.abs(shown - 0.75).max() < 4.5 * np.sqrt(0.75 * 0.25 / 2000)
    with pytest.raises(ValueError, match=r"at least K = 3 different prompts.*got \[2, 1\] tokens .*; ask with fewer"):
        RandomPlanner([2, 1], distinct=True, **given)
