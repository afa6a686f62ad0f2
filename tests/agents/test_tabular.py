"""Tabular agents: what they play, how they count, what they refuse."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from scipy import stats

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.tabular import RandomAgent, TabularAgent
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.mdp import FiniteHorizonMDP
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import SIZES, BareEnv, ChainEnv, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


def random_policies(mdp, count, seed=0):
    rng = np.random.default_rng(seed)
    policies = np.zeros((count, mdp.horizon, mdp.num_pairs))
    for policy in policies:
        for step in range(mdp.horizon):
            for state in range(mdp.num_states):
                pairs = np.flatnonzero((mdp.pair_state == state) & mdp.admissible[step])
                policy[step, pairs] = rng.dirichlet(np.full(pairs.size, 0.6))
    return policies


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_visits_follow_the_occupancies_on_stochastic_transitions(mode):
    env = SyncVectorEnv([ChainEnv] * 6, autoreset_mode=mode)
    mdp = env.envs[0].unwrapped.mdp
    policies = random_policies(mdp, 3)
    agent = TabularAgent(env, policies=policies, num_options=3, episodes=1, seed=5)
    counts = np.zeros((3, mdp.horizon, mdp.num_pairs))
    observations, _ = env.reset(seed=11)
    state, starts, step = None, np.ones(6, dtype=bool), 0
    finished, restarting = 0, False
    while finished < 350:
        actions, state = agent.predict(observations, state=state, episode_start=starts)
        if restarting:
            observations, *_ = env.step(actions)
            starts, restarting, step = np.ones(6, dtype=bool), False, 0
            continue
        pairs = [np.flatnonzero((mdp.pair_state == s) & (mdp.pair_action == a))[0]
                 for s, a in zip(observations, actions, strict=True)]  # fmt: skip
        for lane, pair in enumerate(pairs):
            counts[lane % 3, step, pair] += 1
        observations, _, terminations, _, _ = env.step(actions)
        step += 1
        starts = terminations.copy() if mode is AutoresetMode.SAME_STEP else np.zeros(6, dtype=bool)
        if terminations.any():
            finished += 1
            restarting, step = mode is AutoresetMode.NEXT_STEP, 0
    for policy in range(3):
        expected = mdp.occupancy(policies[policy])
        total = counts[policy, 0].sum()
        assert (counts[policy].sum(axis=1) == total).all()
        error = np.sqrt(np.maximum(expected * (1 - expected), 1e-9) / total)
        assert (np.abs(counts[policy] / total - expected) < 4.5 * error + 2 / total).all()
        for step in range(mdp.horizon):
            likely = expected[step] * total >= 5
            observed = np.append(counts[policy, step, likely], counts[policy, step, ~likely].sum())
            predicted = np.append(expected[step, likely], expected[step, ~likely].sum()) * total
            kept = predicted > 0
            assert stats.chisquare(observed[kept], predicted[kept]).pvalue > 1e-4


@pytest.mark.parametrize("name", ["random", "frank_wolfe"])
def test_the_same_seed_gives_the_same_actions(folder, name, minilm):
    env = gymnasium.make_vec(ID, num_envs=4, vocabulary=folder, order=ORDER)

    def play(seed):
        agent = make_agent(name, env, num_options=2, episodes=5, criterion="D", seed=seed).learn()
        observations, _ = env.reset()
        state, actions = None, []
        for _ in range(12):
            chosen, state = agent.predict(observations, state)
            actions.append(chosen)
            observations, *_ = env.step(chosen)
        return np.array(actions)

    played = play(3)
    np.testing.assert_array_equal(play(3), played)
    assert (play(4) != played).any()


def test_lanes_play_their_policy_and_deterministic_takes_the_most_probable(folder):
    env = gymnasium.make_vec(ID, num_envs=5, vocabulary=folder, order=ORDER)
    policies = random_policies(env.mdp, 2)
    agent = TabularAgent(env, policies=policies, num_options=2, episodes=1)
    observations, _ = env.reset()
    for step, size in enumerate(SIZES):
        rows = slice(env.mdp.offsets[step], env.mdp.offsets[step] + size)
        actions, _ = agent.predict(observations, deterministic=True)
        best = [int(np.argmax(policies[lane % 2, step, rows])) for lane in range(5)]
        assert actions.tolist() == best
        observations, *_ = env.step(actions)
    assert agent.predict(observations)[0].tolist() == [0] * 5  # complete: the next step only resets


@pytest.mark.needs("rl")
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_stable_baselines3s_evaluate_policy(folder, lanes):
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    venv = DummyVecEnv([lambda: gymnasium.make(ID, vocabulary=folder, order=ORDER)] * lanes)
    agent = make_agent("random", venv, num_options=2, episodes=1)
    # unequal shares: evaluate_policy leaves episode_start set for lanes that are done with theirs
    rewards, lengths = evaluate_policy(agent, venv, 7, deterministic=False, return_episode_rewards=True, warn=False)
    assert lengths == [3] * 7 and rewards == [0.0] * 7
    chain = DummyVecEnv([ChainEnv] * lanes)
    agent = make_agent("frank_wolfe", chain, num_options=2, episodes=3, criterion="D").learn()
    _, lengths = evaluate_policy(agent, chain, 7, return_episode_rewards=True, warn=False)
    assert lengths == [4] * 7


def test_environments_without_a_model():
    env = SyncVectorEnv([BareEnv] * 4)
    for name in ("frank_wolfe", "reference"):
        with pytest.raises(TypeError, match=rf"agent '{name}' needs env.unwrapped to have \.mdp .*BareEnv has not"):
            make_agent(name, env, num_options=2, episodes=3)
    agent = RandomAgent(env, num_options=2, episodes=3, seed=0)
    actions = np.array([agent.predict(np.zeros(4, int))[0] for _ in range(50)])
    assert actions.shape == (50, 4) and set(actions.ravel().tolist()) == {0, 1, 2}


class HiddenLanes:
    """Like SB3's SubprocVecEnv, whose lanes are in other processes."""

    remotes = ()


def chain_with(**attributes):
    """ChainEnv with other attributes; None takes one away."""
    env = ChainEnv()
    for name, value in attributes.items():
        setattr(env, name, value)
        if value is None:
            delattr(env, name)
    return env


@pytest.mark.parametrize(
    ("name", "env", "message"),
    [
        ("random", chain_with(mdp={"P": 0}), r"\.mdp \(an edpbrl_gym.mdp.FiniteHorizonMDP\).*has one of type dict"),
        ("frank_wolfe", chain_with(mdp={}), r"\.mdp \(an edpbrl_gym.mdp.FiniteHorizonMDP\).*has one of type dict"),
        ("frank_wolfe", chain_with(features=None), r"needs env.unwrapped to have \.features"),
        (
            "random",
            chain_with(mdp=None, action_space=gymnasium.spaces.MultiBinary(3)),  # has an n of its own
            "'random' needs a Discrete action space or .mdp",
        ),
        ("random", chain_with(observation_space=gymnasium.spaces.Box(0.0, 1.0, (2,))), "mdp_state"),
        ("random", ID, "Expected an environment .* got str"),
        ("random", HiddenLanes(), "HiddenLanes.*pass that to the agent"),
    ],
)
def test_environments_that_lack_something(name, env, message):
    with pytest.raises(TypeError, match=message):
        make_agent(name, env, num_options=2, episodes=3).learn().predict(np.zeros((3, 2)))


def test_the_number_of_policies_is_that_of_the_question(folder):
    env = gymnasium.make_vec(ID, num_envs=8, vocabulary=folder, order=ORDER)
    query = PreferenceQuery(env, lanes=4, oracle=SyntheticUser(np.ones(384)))
    for wrapped in (query, RecordEpisodeStatistics(query)):
        assert make_agent("random", wrapped, num_options=4, episodes=3).num_options == 4
        with pytest.raises(ValueError, match="num_options = 4, the lanes of the PreferenceQuery, got 2"):
            make_agent("random", wrapped, num_options=2, episodes=3)


def test_a_step_counter_that_is_never_set_back():
    env = SyncVectorEnv([ChainEnv] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    agent = make_agent("random", env, num_options=2, episodes=1)
    observations, _ = env.reset(seed=0)
    state = None
    for _ in range(agent.base.mdp.horizon + 1):  # the last of them only resets
        actions, state = agent.predict(observations, state)
        observations, *_ = env.step(actions)
    with pytest.raises(ValueError, match="lane 0 is at step 5 of an episode of 4 steps; pass episode_start"):
        agent.predict(observations, state)
    agent.predict(observations, state, np.ones(2, dtype=bool))


def test_a_state_without_an_action_is_no_zeroth_or_last_action():
    env = ChainEnv()
    admissible = np.ones((2, 3, 2), dtype=bool)
    admissible[0, 2] = False  # nobody begins in state 2
    transitions = np.full((3, 2, 3), 1 / 3)
    env.mdp = FiniteHorizonMDP.from_dense(transitions, [0.5, 0.5, 0.0], 2, admissible=admissible)
    agent = make_agent("random", env, num_options=2, episodes=1)
    agent.predict(np.array([0, 1]))
    for deterministic in (False, True):
        with pytest.raises(ValueError, match="lane 1 is in state 2 at step 0.*MDP.*no action"):
            agent.predict(np.array([0, 2]), deterministic=deterministic)


@pytest.mark.parametrize("observation", ["", "a city street", None])
def test_observations_that_are_none_of_the_environments(folder, observation):
    agent = make_agent("random", gymnasium.make(ID, vocabulary=folder), num_options=2, episodes=1)
    with pytest.raises(ValueError, match=r"Expected observations of shape \(3,\) or \(n, 3\)"):
        agent.predict(observation)


def test_wrong_policies_and_missing_learn():
    env = ChainEnv()
    with pytest.raises(ValueError, match=r"shape \(K, H, M\)"):
        TabularAgent(env, policies=np.ones((2, 3)), num_options=2, episodes=1)
    with pytest.raises(ValueError, match="sum to 1"):
        TabularAgent(env, policies=np.zeros((2, 4, env.mdp.num_pairs)), num_options=2, episodes=1)
    with pytest.raises(RuntimeError, match="call learn"):
        make_agent("frank_wolfe", env, num_options=2, episodes=1).predict(0)
    agent = TabularAgent(env, policies=random_policies(env.mdp, 2), num_options=2, episodes=1)
    with pytest.raises(ValueError, match="state of 3 lanes"):
        agent.predict(np.zeros(3, int), state=(np.zeros(2, int),))
