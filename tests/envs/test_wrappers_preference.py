"""PreferenceQuery over all forms of vector environments: questions of every step, and of complete prompts."""

from __future__ import annotations

from datetime import UTC, datetime

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection import collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import PreferenceQuery, TextObservation
from edpbrl_gym.oracles import Answers, SyntheticUser
from tests.helpers.lane_environments import (
    SIZES,
    TOKENS,
    BareEnv,
    ChainEnv,
    RaggedEnv,
    write_summed_world,
    write_vocabulary,
)

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
MODES = ["next_step", "same_step", "disabled"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Arguments of an environment with the real encoder."""
    return {"vocabulary": write_vocabulary(tmp_path_factory.mktemp("words")), "order": ORDER}


@pytest.fixture(scope="module")
def theta(minilm):
    return minilm.encode(["a moody watercolor at night"])[0].astype(float)


def make(form, arguments, mode="next_step", lanes=6):
    if form == "own":
        return gymnasium.make_vec(ID, num_envs=lanes, autoreset_mode=mode, **arguments)
    member = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}[mode]
    # the module form of the id, as a spawned process has not imported the package
    makers = [lambda: gymnasium.make(f"edpbrl_gym:{ID}", **arguments)] * lanes
    if form == "sync":
        return SyncVectorEnv(makers, autoreset_mode=member)
    return AsyncVectorEnv(makers, context="spawn", autoreset_mode=member)


def play(query, episodes, seed=0):
    """Masked random play of some episodes per group; returns rewards and preferences of every step."""
    rng = np.random.default_rng(seed)
    mode = query.metadata["autoreset_mode"]
    seen = []
    _, infos = query.reset(seed=seed)
    ends = 0
    while ends < episodes:
        actions = np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in infos["action_mask"]])
        observations, rewards, terminations, _, infos = query.step(actions)
        seen.append((rewards, infos["preference"], infos["_preference"]))
        if terminations.any():
            ends += 1
            if mode is not AutoresetMode.SAME_STEP and ends < episodes:
                if mode is AutoresetMode.DISABLED:
                    _, infos = query.reset(options={"reset_mask": terminations.copy()})
                else:
                    _, rewards, _, _, infos = query.step(np.zeros(query.num_envs, dtype=int))
                    assert not rewards.any() and (infos["preference"] == -1).all()
                    assert not infos["_preference"].any()
    return seen


def same(first: Comparisons, second: Comparisons) -> None:
    np.testing.assert_allclose(first.features, second.features, atol=1e-6)
    for name in ("choice", "episode", "step"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.texts == second.texts and first.who == second.who


@pytest.mark.parametrize(
    ("mode", "feedback"), [("next_step", "truncated"), ("same_step", "state"), ("disabled", "truncated")]
)
def test_the_choices_are_the_oracles_on_the_lanes(folder, theta, minilm, mode, feedback):
    query = PreferenceQuery(make("own", folder, mode), lanes=3, oracle=SyntheticUser(theta), feedback=feedback)
    seen = play(query, episodes=2)
    found = query.comparisons
    assert len(found) == 2 * 2 * 3  # groups, episodes, steps
    assert sorted(set(zip(found.episode.tolist(), found.step.tolist(), strict=True))) == [
        (episode, step) for episode in range(4) for step in range(3)
    ]
    for question, choice, features in zip(found.texts, found.choice, found.features, strict=True):
        embedded = minilm.encode(question)
        np.testing.assert_allclose(features, embedded, atol=1e-5)
        scores = embedded @ theta
        assert scores[choice] > scores.max() - 1e-5  # two lanes may show the same token
    if feedback == "state":
        assert all(", " not in option for question in found.texts for option in question)
    else:
        counts = [option.count(", ") for question in found.texts for option in question]
        assert counts == np.repeat(found.step, 3).tolist()
    asked = [(rewards, preference) for rewards, preference, mask in seen if mask.any()]
    for rewards, preference in asked:
        expected = np.zeros((2, 3))
        expected[np.arange(2), preference] = 1.0
        np.testing.assert_array_equal(rewards, expected.ravel())
    np.testing.assert_array_equal(np.concatenate([preference for _, preference in asked]), found.choice)
    assert found.metadata["feedback"] == feedback and found.metadata["environment"] == ID
    assert found.metadata["encoder_fingerprint"] == minilm.fingerprint


@pytest.mark.parametrize(
    ("other", "mode", "feedback"),
    [("sync", "next_step", "truncated"), ("sync", "disabled", "truncated"), ("async", "same_step", "state")],
)
def test_all_forms_of_lanes_give_the_same_comparisons(folder, theta, other, mode, feedback):
    results = []
    for form in ("own", other):
        oracle = SyntheticUser(theta, mode="sampled", scale=5.0, seed=1)
        query = PreferenceQuery(make(form, folder, mode, lanes=4), lanes=2, oracle=oracle, feedback=feedback)
        try:
            play(query, episodes=2)
            results.append(query.comparisons)
        finally:
            query.close()
    same(*results)


def test_an_interrupted_episode_keeps_its_questions_and_its_number(folder, theta):
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=SyntheticUser(theta))
    query.reset()
    query.step(np.zeros(6, int))
    query.reset()
    query.reset()  # an episode without a question has no number
    query.step(np.zeros(6, int))
    query.step(np.zeros(6, int))
    assert query.comparisons.episode.tolist() == [0, 1, 2, 3, 2, 3]
    assert query.comparisons.step.tolist() == [0, 0, 0, 0, 1, 1]
    query.clear()
    with pytest.raises(RuntimeError, match="No question was answered"):
        query.comparisons  # noqa: B018
    play(query, episodes=1)
    assert sorted(set(query.comparisons.episode.tolist())) == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lanes": 1}, "lanes .* >= 2, got 1"),
        ({"lanes": 2, "feedback": None}, "feedback"),
        ({"lanes": 4}, "multiple of lanes = 4, got 6"),
        ({"lanes": 2, "feedback": "full"}, "feedback"),
    ],
)
def test_wrong_arguments(folder, theta, arguments, message):
    with pytest.raises(ValueError, match=message):
        PreferenceQuery(make("own", folder), oracle=SyntheticUser(theta), **arguments)


def test_wrong_oracle_and_environment(folder, theta):
    texts = SyncVectorEnv([lambda: TextObservation(gymnasium.make(ID, **folder))] * 2)
    with pytest.raises(TypeError, match="observations as one array.*Tuple.*before this wrapper"):
        PreferenceQuery(texts, lanes=2, oracle=SyntheticUser(theta))
    with pytest.raises(TypeError, match="oracle with answer"):
        PreferenceQuery(make("own", folder), lanes=2, oracle="me")
    with pytest.raises(TypeError, match="VectorEnv"):
        PreferenceQuery(gymnasium.make(ID), lanes=2, oracle=SyntheticUser(theta))
    wanted = {"truncated": "trajectory_features", "state": "mdp and features", "prompt": '"prompt"'}
    for feedback, said in wanted.items():
        with pytest.raises(TypeError, match=said):
            PreferenceQuery(SyncVectorEnv([BareEnv] * 2), lanes=2, oracle=SyntheticUser(theta), feedback=feedback)


def test_an_oracle_that_answers_nonsense(folder, theta):
    class Broken(SyntheticUser):
        def answer(self, queries):
            answers = super().answer(queries)
            return Answers.of_choices(answers.choices + 7, answers.details)

    query = PreferenceQuery(make("own", folder), lanes=3, oracle=Broken(theta))
    query.reset()
    with pytest.raises(ValueError, match=r"options in 0\.\.2"):
        query.step(np.zeros(6, int))


@pytest.mark.parametrize(("mode", "fails_at"), [("next_step", 0), ("next_step", 3), ("same_step", 3)])
def test_after_an_oracle_that_failed_once_the_other_answers_are_in_place(mode, fails_at):
    class Absent(SyntheticUser):
        def answer(self, queries):
            if (queries.step == fails_at).all() and not self.failed:
                self.failed = True
                raise TimeoutError("nobody answered")
            return super().answer(queries)

    member = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}[mode]
    env = SyncVectorEnv([ChainEnv] * 2, autoreset_mode=member)
    base = env.envs[0].unwrapped
    user = Absent(np.ones(3))
    user.failed = False
    query = PreferenceQuery(env, lanes=2, oracle=user, feedback="state")
    query.reset(seed=0)
    expected = []
    for _ in range(13):
        shown = base.features[[one.unwrapped.state for one in env.envs]]
        starts = query.episode_start.all()
        try:
            infos = query.step(np.array([0, 1]))[-1]
        except TimeoutError:
            continue
        if infos["_preference"].all():
            expected.append(shown)
            assert starts == (query.comparisons.step[-1] == 0)
    found = query.comparisons
    np.testing.assert_allclose(found.features, expected)
    steps = {episode: found.step[found.episode == episode].tolist() for episode in set(found.episode.tolist())}
    assert steps[0] == [step for step in range(4) if step != fails_at] and steps[1] == list(range(4))


def test_a_group_is_reset_as_a_whole(folder, theta):
    query = PreferenceQuery(make("own", folder, "disabled"), lanes=3, oracle=SyntheticUser(theta))
    query.reset()
    with pytest.raises(ValueError, match="group 1 is reset in part"):
        query.reset(options={"reset_mask": np.array([True] * 4 + [False] * 2)})


@pytest.mark.parametrize("mode", MODES)
def test_episode_start_marks_the_first_action_of_every_episode(mode):
    member = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}[mode]
    env = SyncVectorEnv([ChainEnv] * 4, autoreset_mode=member)
    horizon = env.envs[0].unwrapped.mdp.horizon
    query = PreferenceQuery(env, lanes=2, oracle=SyntheticUser(np.ones(3)), feedback="state")
    agent = make_agent("random", env, num_options=2, episodes=1)
    observations, _ = query.reset(seed=0)
    state, counted = None, []
    for _ in range(4 * horizon):
        starts = query.episode_start
        actions, state = agent.predict(observations, state, starts)
        observations, _, terminations, _, infos = query.step(actions)
        if infos["_preference"].all():
            counted.append(int(state[0][0]) - 1)  # the agent's own step counter
            assert starts.all() == (counted[-1] == 0) and starts.any() == starts.all()
        if mode == "disabled" and terminations.any():
            observations, _ = query.reset(options={"reset_mask": terminations.copy()})
    np.testing.assert_array_equal(counted, query.comparisons.step[::2])
    assert counted[: 2 * horizon] == list(range(horizon)) * 2


def test_each_answer_is_recorded_with_its_time_and_how_its_oracle_answered(folder, theta):
    user = SyntheticUser(theta, mode="sampled", scale=2.0)
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=user)
    query.reset()
    before = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")
    query.step(np.zeros(6, int))
    query.step(np.zeros(6, int))
    after, found = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us"), query.comparisons.answered_at
    assert found.dtype == np.dtype("datetime64[us]") and (before <= found).all() and (found <= after).all()
    assert query.comparisons.metadata["oracle"]["scale"] == 2.0 and "parts" not in query.comparisons.metadata
    user.scale = 9.0
    query.step(np.zeros(6, int))
    for _ in range(2):  # looking changes nothing
        metadata = query.comparisons.metadata
        assert [part["oracle"]["scale"] for part in metadata["parts"]] == [2.0, 9.0]
        assert "oracle" not in metadata and metadata["lanes"] == 3


D, H, K = 5, 3, 3
TASTE = np.random.default_rng(7).normal(size=D)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=D, seed=2)


def of_prompts(env, user=None):
    return PreferenceQuery(env, lanes=K, oracle=user or SyntheticUser(TASTE), feedback="prompt")


class Trajectories:
    """The features of what a chain environment has reached: one-hot states, and the calls."""

    calls = 0

    def trajectory_features(self, observations):
        type(self).calls += 1
        return np.eye(self.mdp.num_states)[np.asarray(observations)].astype(np.float32)


class ChainOfStates(Trajectories, ChainEnv):
    pass


class RaggedChain(Trajectories, RaggedEnv):
    pass


@pytest.mark.parametrize(("form", "mode"), [("own", "next_step"), ("own", "same_step"), ("sync", "disabled")])
def test_the_questions_are_those_of_a_hand_written_loop(world, mode, form):
    """The actions of every lane are kept by hand; when three are there, they are a prompt."""
    venv = of_prompts(make(form, world, mode))
    encoder = venv.unwrapped.encoder if form == "own" else venv.unwrapped.envs[0].unwrapped.encoder
    rng, built, expected = np.random.default_rng(3), [[] for _ in range(2 * K)], []
    venv.reset(seed=0)
    while len(expected) < 6:
        step = len(built[0])
        actions = rng.integers(SIZES[step], size=2 * K)
        _, rewards, terminations, _, infos = venv.step(actions)
        for lane, action in zip(built, actions, strict=True):
            lane.append(TOKENS[ORDER[step]][action])
        if step + 1 < H:
            assert not rewards.any() and not infos["_question"].any() and (infos["preference"] == -1).all()
            assert "question" not in infos
            continue
        prompts = [", ".join(lane) for lane in built]
        rows = encoder.encode(prompts).reshape(2, K, D)
        best = (rows @ TASTE).argmax(axis=1)
        wanted = np.zeros((2, K))
        wanted[[0, 1], best] = 1.0
        np.testing.assert_array_equal(rewards, wanted.ravel())
        np.testing.assert_array_equal(infos["preference"], best)
        assert infos["question"].tolist() == [prompts[:K], prompts[K:]] and infos["_question"].all()
        expected += [(prompts[:K], rows[0], best[0]), (prompts[K:], rows[1], best[1])]
        built = [[] for _ in range(2 * K)]
        if mode == "disabled":
            venv.reset(options={"reset_mask": terminations.copy()})
        elif mode == "next_step":
            _, rewards, *_, infos = venv.step(np.zeros(2 * K, dtype=int))  # resets only
            assert not rewards.any() and not infos["_question"].any()
    found = venv.comparisons
    assert found.texts == [texts for texts, _, _ in expected]
    np.testing.assert_array_equal(found.features, np.stack([rows for _, rows, _ in expected]))
    assert found.choice.tolist() == [best for _, _, best in expected]
    assert found.episode.tolist() == list(range(6)) and (found.step == H - 1).all()
    assert found.metadata["feedback"] == "prompt"


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_another_environment_is_asked_when_it_has_ended(mode):
    """The features are those of the last state before the reset, computed once an episode."""
    env = SyncVectorEnv([ChainOfStates] * (2 * K), autoreset_mode=mode)
    venv = of_prompts(env, SyntheticUser(np.arange(5.0)))
    observations, _ = venv.reset(seed=0)
    ChainOfStates.calls, horizon, finals = 0, env.envs[0].unwrapped.mdp.horizon, []
    while len(finals) < 3:
        observations, _, terminations, _, infos = venv.step(np.zeros(2 * K, dtype=int))
        if terminations.any():
            reached = observations
            if env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
                reached = np.array([infos["final_obs"][lane] for lane in range(2 * K)])
            finals.append(reached)
            if mode == "Disabled":
                venv.reset(options={"reset_mask": terminations.copy()})
    found = venv.comparisons
    assert ChainOfStates.calls == 3 and found.texts is None
    np.testing.assert_array_equal(found.features, np.eye(5)[np.concatenate(finals)].reshape(6, K, 5))
    assert (found.step == horizon - 1).all() and found.episode.tolist() == list(range(6))


@pytest.mark.parametrize("feedback", ["prompt", "state"])
def test_lanes_that_end_at_different_steps_are_an_error(feedback):
    env, user = SyncVectorEnv([RaggedChain] * (2 * K)), SyntheticUser(np.ones(5 if feedback == "prompt" else 3))
    venv = PreferenceQuery(env, lanes=K, oracle=user, feedback=feedback)
    venv.reset(seed=0)
    with pytest.raises(RuntimeError, match="same step and to end together.*different lengths"):
        for _ in range(4 if feedback == "prompt" else 40):
            venv.step(np.zeros(2 * K, int))


def test_an_episode_without_its_end_is_no_question(world):
    venv = of_prompts(make("own", world))
    venv.reset()
    venv.step(np.zeros(2 * K, int))
    venv.reset()
    with pytest.raises(RuntimeError, match="No question was answered"):
        venv.comparisons  # noqa: B018
    for _ in range(2):
        venv.step(np.zeros(2 * K, int))
    venv.clear()  # in the middle of the episode
    venv.step(np.zeros(2 * K, int))
    assert venv.comparisons.episode.tolist() == [0, 1] and venv.comparisons.step.tolist() == [2, 2]


def test_a_planner_agent_learns_from_one_answer_an_episode(world):
    name = "adaptive"
    venv = PreferenceQuery(make("own", world, lanes=2), lanes=2, oracle=SyntheticUser(TASTE), feedback="prompt")
    agent = make_agent(name, venv, num_options=2, episodes=4, seed=3, feedback="prompt").learn()
    told = collect(venv.env, agent, SyntheticUser(TASTE), episodes=4, feedback="prompt", observe=True)
    assert len(told) == 4 and agent.planner.asked == 4 * H
    assert all(len(set(texts)) == 2 for texts in told.texts)
    twin = make_agent(name, venv, num_options=2, episodes=4, seed=3, feedback="prompt").learn()
    twin.observe(told)
    np.testing.assert_allclose(agent.planner.estimate.theta, twin.planner.estimate.theta, rtol=1e-6, atol=1e-9)
    assert agent.planner.estimate.theta.any()


def test_an_agent_that_designs_every_step_refuses_complete_prompts(world):
    with pytest.raises(ValueError, match="'truncated', 'state', got 'prompt'; .* designs a question for every step"):
        make_agent("deep", make("own", world), num_options=K, episodes=2, feedback="prompt")
