"""PreferenceQuery over all forms of vector environments."""

from __future__ import annotations

from datetime import UTC, datetime

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import PreferenceQuery, TextObservation
from edpbrl_gym.oracles import Answers, SyntheticUser
from tests.helpers.lane_environments import BareEnv, ChainEnv, RaggedEnv, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
MODES = ["next_step", "same_step", "disabled"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def theta(minilm):
    return minilm.encode(["a moody watercolor at night"])[0].astype(float)


def make(form, folder, mode="next_step", lanes=6):
    arguments = {"vocabulary": folder, "order": ORDER}
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


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("mode", MODES)
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_lanes_in_one_process_give_the_same_comparisons(folder, theta, mode, feedback):
    results = []
    for form in ("own", "sync"):
        oracle = SyntheticUser(theta, mode="sampled", scale=5.0, seed=1)
        query = PreferenceQuery(make(form, folder, mode), lanes=3, oracle=oracle, feedback=feedback)
        play(query, episodes=3)
        results.append(query.comparisons)
    same(*results)


def test_lanes_in_other_processes_give_the_same_comparisons(folder, theta):
    results = []
    for form in ("own", "async"):
        query = PreferenceQuery(make(form, folder, "same_step", lanes=4), lanes=2, oracle=SyntheticUser(theta))
        try:
            play(query, episodes=2)
            results.append(query.comparisons)
        finally:
            query.close()
    same(*results)


def test_infos_carry_the_question(folder, theta):
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=SyntheticUser(theta))
    query.reset()
    *_, infos = query.step(np.array([0, 1, 0, 1, 1, 0]))
    assert infos["question"].tolist() == [
        ["a lighthouse on a cliff", "a city street", "a lighthouse on a cliff"],
        ["a city street", "a city street", "a lighthouse on a cliff"],
    ]


def test_clear_begins_again(folder, theta):
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=SyntheticUser(theta))
    with pytest.raises(RuntimeError, match="No question was answered"):
        query.comparisons  # noqa: B018
    play(query, episodes=1)
    query.clear()
    with pytest.raises(RuntimeError, match="No question was answered"):
        query.comparisons  # noqa: B018
    play(query, episodes=1)
    assert sorted(set(query.comparisons.episode.tolist())) == [0, 1]


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


@pytest.mark.parametrize("lanes", [1.5, 3.0, "3", None, True])
def test_lanes_that_are_no_count(folder, theta, lanes):
    with pytest.raises(TypeError, match="Expected lanes .*as an integer"):
        PreferenceQuery(make("own", folder), lanes=lanes, oracle=SyntheticUser(theta))


def test_observations_that_are_no_arrays(folder, theta):
    env = SyncVectorEnv([lambda: TextObservation(gymnasium.make(ID, vocabulary=folder))] * 2)
    with pytest.raises(TypeError, match="observations as one array.*Tuple.*before this wrapper"):
        PreferenceQuery(env, lanes=2, oracle=SyntheticUser(theta))


def test_wrong_oracle_and_environment(folder, theta):
    with pytest.raises(TypeError, match="oracle with answer"):
        PreferenceQuery(make("own", folder), lanes=2, oracle="me")
    with pytest.raises(TypeError, match="VectorEnv"):
        PreferenceQuery(gymnasium.make(ID), lanes=2, oracle=SyntheticUser(theta))
    for feedback, wanted in (("truncated", "trajectory_features"), ("state", "mdp and features")):
        with pytest.raises(TypeError, match=wanted):
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


@pytest.mark.parametrize("fails_at", range(4))
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
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


def test_episodes_of_different_lengths_are_an_error():
    query = PreferenceQuery(SyncVectorEnv([RaggedEnv] * 4), lanes=2, oracle=SyntheticUser(np.ones(3)), feedback="state")
    query.reset(seed=0)
    with pytest.raises(RuntimeError, match="same step.*different lengths"):
        for _ in range(40):
            query.step(np.zeros(4, int))


def test_a_third_partys_environment_shows_the_rows_of_its_pairs():
    env = SyncVectorEnv([ChainEnv] * 4)
    query = PreferenceQuery(env, lanes=2, oracle=SyntheticUser(np.array([1.0, -2.0, 0.5])), feedback="state")
    observations, _ = query.reset(seed=0)
    base = env.envs[0].unwrapped
    expected = []
    for _ in range(10):  # four steps, an automatic reset, four steps, a reset
        before = observations.copy()
        observations, _, _, _, infos = query.step(np.array([0, 1, 0, 1]))
        if infos["_preference"].any():
            expected.append(base.features[before].reshape(2, 2, 3))
    np.testing.assert_allclose(query.comparisons.features, np.concatenate(expected))
    assert query.comparisons.texts is None
    with pytest.raises(IndexError):  # the environment itself has no such action
        query.step(np.array([9, 9, 9, 9]))


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


def test_an_oracle_without_a_description_is_recorded_by_its_details(folder, theta):
    class Plain:
        name = "plain"

        def answer(self, queries):
            return Answers.of_choices(np.zeros(len(queries), dtype=int), details={"model": "always the first"})

    query = PreferenceQuery(make("own", folder), lanes=3, oracle=Plain())
    query.reset()
    query.step(np.zeros(6, int))
    assert query.comparisons.metadata["oracle"] == {"name": "plain", "model": "always the first"}


def test_each_answer_is_recorded_with_how_its_oracle_answered(folder, theta):
    user = SyntheticUser(theta, mode="sampled", scale=2.0)
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=user)
    query.reset()
    query.step(np.zeros(6, int))
    query.step(np.zeros(6, int))
    assert query.comparisons.metadata["oracle"]["scale"] == 2.0 and "parts" not in query.comparisons.metadata
    user.scale = 9.0
    query.step(np.zeros(6, int))
    for _ in range(2):  # looking changes nothing
        metadata = query.comparisons.metadata
        assert [part["oracle"]["scale"] for part in metadata["parts"]] == [2.0, 9.0]
        assert "oracle" not in metadata and metadata["lanes"] == 3


def test_answers_are_dated_in_utc(folder, theta):
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=SyntheticUser(theta))
    before = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")
    play(query, episodes=1)
    after = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")
    found = query.comparisons.answered_at
    assert found.dtype == np.dtype("datetime64[us]") and (before <= found).all() and (found <= after).all()


def test_details_of_the_answers_are_kept_beside_the_description(folder, theta):
    class Timed(SyntheticUser):
        def answer(self, queries):
            answers = super().answer(queries)
            return Answers(answers.responses, {**answers.details, "latency": 0.25})

    user = Timed(theta)
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=user)
    query.reset()
    query.step(np.zeros(6, int))
    assert query.comparisons.metadata["oracle"] == {**user.describe(), "latency": 0.25}


def test_the_oracle_is_recorded_not_copied(folder, theta):
    oracle = SyntheticUser(theta)
    query = PreferenceQuery(make("own", folder), lanes=3, oracle=oracle)
    assert query._saved_kwargs["oracle"] is oracle
