"""Frank-Wolfe with a deep RL oracle: lanes, legality, mixtures, saving, Ctrl-C."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.deep import DeepDesignAgent
from edpbrl_gym.agents.legal import LegalMasks
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.reward_lanes import FinalReward, RewardLanes, StandardReward, play_episodes, remade_lanes
from edpbrl_gym.agents.sb3 import own_randomness, sb3_lanes
from edpbrl_gym.design import PolicyMoments, frank_wolfe
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import SIZES, BareEnv, ChainEnv, RaggedEnv, write_summed_world

pytestmark = pytest.mark.needs("rl")

ID = "edpbrl/PromptConstruction-v0"
TINY = {
    "num_options": 2,
    "episodes": 10,
    "criterion": "D",
    "iterations": 2,
    "timesteps": 48,
    "rollouts": 40,
    "num_envs": 8,
    "hyperparameters": {"n_steps": 3, "batch_size": 24, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=3, seed=0)


@pytest.fixture(scope="module")
def env(world):
    return gymnasium.make_vec(ID, num_envs=4, **world)


@pytest.fixture(scope="module")
def learned(env):
    return make_agent("deep", env, **TINY, feedback="state").learn()


def chain_lanes(num_envs: int, kind=ChainEnv) -> SyncVectorEnv:
    return SyncVectorEnv([kind] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def same_step(world, num_envs: int = 4):
    return gymnasium.make_vec(ID, num_envs=num_envs, autoreset_mode="same_step", **world)


def test_lanes_reward_what_they_show(world):
    """Against the environment's own features of the reached observations, for both kinds of feedback."""
    rng = np.random.default_rng(0)
    for feedback in ("truncated", "state"):
        seen = []

        def reward(features, steps, seen=seen):
            seen.append((np.array(features), np.array(steps)))
            return np.arange(len(features)) + 10.0 * np.asarray(steps)

        lanes = RewardLanes(same_step(world), feedback=feedback, reward=reward)
        lanes.reset(seed=1)
        tokens = rng.integers(np.array(SIZES), size=(4, 3))
        for step in range(3):
            assert lanes.action_masks().sum(axis=1).tolist() == [SIZES[step]] * 4
            observations, rewards, done, reached = lanes.step(tokens[:, step])
            expected = lanes.base.trajectory_features if feedback == "truncated" else lanes.base.state_features
            np.testing.assert_array_equal(seen[-1][0], expected(reached))
            assert seen[-1][1].tolist() == [step] * 4 and rewards.tolist() == [10 * step + i for i in range(4)]
            assert done.tolist() == [step == 2] * 4
        np.testing.assert_array_equal(reached, tokens)
        assert (observations == lanes.base.model.padding).all()  # the next episode has begun


def test_features_of_pairs_where_there_are_no_features_of_states():
    lanes = RewardLanes(chain_lanes(3), feedback="state")
    states = lanes.reset(seed=4)
    for _ in range(9):  # over two episodes
        actions = np.array([0, 1, 1])
        new, _, _, _ = lanes.step(actions)
        mdp = lanes.base.mdp
        rows = [
            mdp.pair_row[np.flatnonzero((mdp.pair_state == s) & (mdp.pair_action == a))[0]]
            for s, a in zip(states, actions, strict=True)
        ]
        np.testing.assert_array_equal(lanes.features, lanes.base.features[rows])
        states = new


def test_stable_baselines_takes_the_lanes(world):
    """Its own evaluation gives the rewards of a taste, its masks the legal actions."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.evaluation import evaluate_policy

    theta = np.array([1.0, -2.0, 0.5])
    lanes = RewardLanes(same_step(world), reward=FinalReward(theta, 3))
    venv = sb3_lanes(lanes)
    with own_randomness():
        model = MaskablePPO("MlpPolicy", venv, n_steps=3, batch_size=12, seed=0, policy_kwargs={"net_arch": [4]})
        model.learn(24)

    class Fixed:
        """Takes token 1 everywhere."""

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.ones(len(observation), dtype=int), state

    mean, deviation = evaluate_policy(Fixed(), venv, n_eval_episodes=8, warn=False)
    prompt = np.ones((1, 3), dtype=np.int64)
    assert mean == pytest.approx(float(theta @ lanes.base.trajectory_features(prompt)[0]), rel=1e-5)
    assert deviation == pytest.approx(0.0, abs=1e-6)
    venv.seed(3)
    venv.reset()
    np.testing.assert_array_equal(np.stack(venv.env_method("action_masks")), lanes.action_masks())
    for _ in range(2):
        venv.step(np.zeros(4, dtype=int))
    _, _, done, infos = venv.step(np.zeros(4, dtype=int))
    assert done.all() and all((info["terminal_observation"] == 0).all() for info in infos)


def test_legal_actions_of_every_kind_of_environment(world):
    prompt = gymnasium.make(ID, **world)
    masks = LegalMasks(prompt, 4)
    steps = np.arange(4)
    padded = np.full((4, 3), 4)
    for step in steps:
        padded[step, :step] = 0
    assert masks(padded, steps).sum(axis=1).tolist() == [*SIZES, 4]  # beyond the end all are "legal"
    chain = LegalMasks(ChainEnv(), 3)
    assert chain(np.array([0, 1]), np.zeros(2, int)).tolist() == [[True] * 3, [True, True, False]]
    assert LegalMasks(BareEnv(), 3).unrestricted

    class Told(BareEnv):
        def action_masks(self):
            return np.array([1, 0, 1], dtype=np.int8)

    told = SyncVectorEnv([Told] * 2)
    assert LegalMasks(told, 3)(np.zeros(2, int), np.zeros(2, int)).tolist() == [[True, False, True]] * 2
    with pytest.raises(ValueError, match=r"shape \(n, A\) = \(5, 3\) .* play_on"):
        LegalMasks(told, 3)(np.zeros(5, int), np.zeros(5, int))


def test_the_design_is_that_of_its_moments(env, learned):
    """Value, weights and gradient gap of the agent against the table of the same environment."""
    mixture = learned.mixture
    assert mixture.restricted and len(mixture.policies) == 3 and mixture.policies[0] is None and mixture.horizon == 3
    assert mixture.weights.sum() == pytest.approx(1.0)
    problem = make_agent("newton", env, num_options=2, episodes=10, criterion="D").problem()
    assert learned.problem.baseline == problem.baseline
    optimum = frank_wolfe(problem, tolerance=1e-6).upper_bound
    assert learned.problem.value(learned.moments) == pytest.approx(mixture.value)
    assert mixture.value < optimum + 0.2  # moments of 40 episodes are noisy
    values = [record.value for record in learned.history]
    assert values == sorted(values)  # corrective weights never lose value
    uniform = problem.mdp.row_occupancy(problem.mdp.occupancy(problem.mdp.uniform_policy()))
    assert mixture.moments[0].means == pytest.approx(uniform @ problem.features, abs=0.5)


def test_a_strong_oracle_comes_close_to_the_exact_optimum(world):
    """The whole loop: with enough training the true objective of the mixture is near newton's."""
    env = gymnasium.make_vec(ID, num_envs=4, **world)
    arguments = {"num_options": 2, "episodes": 10, "criterion": "V", "seed": 3}
    exact = make_agent("newton", env, **arguments).learn().design
    agent = make_agent(
        "deep",
        env,
        **arguments,
        feedback="state",
        iterations=3,
        timesteps=960,
        rollouts=400,
        num_envs=32,
        hyperparameters={"n_steps": 6, "batch_size": 64, "learning_rate": 0.01, "policy_kwargs": {"net_arch": [16]}},
    ).learn()
    problem = exact.problem
    value = problem.objective(rows_of(agent, world, problem))
    uniform = problem.objective(problem.mdp.row_occupancy(problem.mdp.occupancy(problem.mdp.uniform_policy())))
    assert uniform < value <= exact.upper_bound
    assert exact.value - value < 0.5 * (exact.value - uniform)


def rows_of(agent, world, problem, episodes=3000):
    """Occupancy of the feature rows of what the agent plays."""
    lanes = gymnasium.make_vec(ID, num_envs=episodes, **world)
    observations, _ = lanes.reset()
    state = None
    for _ in range(3):
        actions, state = agent.predict(observations, state)
        observations, *_ = lanes.step(actions)
    rows = np.zeros((3, problem.mdp.num_rows))
    for step in range(3):
        rows[step] = np.bincount(problem.mdp.offsets[step] + observations[:, step], minlength=problem.mdp.num_rows)
    return rows / episodes


def test_the_same_seed_gives_the_same_design_and_leaves_global_generators_alone(env, learned):
    import torch

    np.random.seed(5)
    torch.manual_seed(5)
    expected = (np.random.random(), float(torch.rand(1)))
    np.random.seed(5)
    torch.manual_seed(5)
    again = make_agent("deep", env, **TINY, feedback="state").learn()
    assert (np.random.random(), float(torch.rand(1))) == expected
    np.testing.assert_array_equal(again.mixture.weights, learned.mixture.weights)
    np.testing.assert_array_equal(again.moments.second, learned.moments.second)
    observations = np.full((6, 3), 4)
    np.testing.assert_array_equal(make_agent("deep", env, **TINY, seed=1).learn().predict(observations)[0].shape, (6,))


def test_a_lane_follows_one_policy_until_its_episode_ends(env, learned):
    observations = np.full((200, 3), 4)
    _, state = learned.predict(observations)
    first = state[0].copy()
    assert set(first) <= {0, 1, 2} and len(set(first)) > 1
    observations[:, 0] = 0
    _, state = learned.predict(observations, state, np.zeros(200, dtype=bool))
    np.testing.assert_array_equal(state[0], first)
    starts = np.arange(200) < 100
    observations[:, 1] = 0
    observations[starts] = 4
    _, state = learned.predict(observations, state, starts)
    np.testing.assert_array_equal(state[0][100:], first[100:])
    assert (state[0][:100] != first[:100]).any() and (state[1] == np.where(starts, 1, 3)).all()


def test_the_shares_of_the_policies_are_the_weights(learned):
    _, state = learned.predict(np.full((4000, 3), 4))
    shares = np.bincount(state[0], minlength=3) / 4000
    np.testing.assert_allclose(shares, learned.mixture.weights, atol=0.05)


def test_deterministic_play_and_a_single_observation(learned):
    observation = np.full(3, 4)
    actions = {int(learned.predict(observation, deterministic=True)[0]) for _ in range(5)}
    assert len(actions) == 1 and actions <= {0, 1}
    batch, state = learned.predict(np.full((7, 3), 4), deterministic=True)
    assert set(batch.tolist()) == actions and set(state[0]) == {int(np.argmax(learned.mixture.weights))}


def test_saving_and_loading(tmp_path, env, learned):
    learned.save(tmp_path / "agent")
    loaded = DeepDesignAgent.load(tmp_path / "agent", env)
    loaded.rng.bit_generator.state = learned.rng.bit_generator.state
    observations = np.full((50, 3), 4)
    for a, b in zip(learned.predict(observations), loaded.predict(observations), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.history == learned.history and loaded.mixture.value == learned.mixture.value
    assert loaded.problem.value(loaded.moments) == pytest.approx(loaded.mixture.value)
    np.testing.assert_array_equal(loaded.moments.means, learned.moments.means)
    fresh = make_agent("deep", env, **TINY)
    fresh.save(tmp_path / "agent")  # over the old one: nothing of it is left
    with pytest.raises(RuntimeError, match="learn"):
        DeepDesignAgent.load(tmp_path / "agent", env).predict(observations)


def test_answers_are_collected_through_the_query(world):
    lanes = PreferenceQuery(gymnasium.make_vec(ID, num_envs=4, **world), lanes=2, oracle=SyntheticUser(np.ones(3)))
    agent = make_agent("deep", lanes, **TINY).learn()
    observations, _ = lanes.reset(seed=0)
    state = None
    for _ in range(8):  # with the automatic resets in between
        actions, state = agent.predict(observations, state, lanes.episode_start)
        observations, *_ = lanes.step(actions)
    assert lanes.comparisons.features.shape == (12, 2, 3)


def test_masks_that_forbid_nothing():
    """Such an environment is played by PPO too, in any number of lanes."""

    class Open(ChainEnv):
        def __init__(self) -> None:
            super().__init__()
            del self.mdp

        def reset(self, *, seed=None, options=None):
            gymnasium.Env.reset(self, seed=seed)
            self.steps = 0
            return 0, {}

        def step(self, action):
            self.steps += 1
            return int(action), 0.0, self.steps == 2, False, {}

        def action_masks(self):
            return np.ones(3, dtype=np.int8)

        def state_features(self, observations):
            return np.eye(5, dtype=np.float32)[np.asarray(observations)]

    agent = make_agent(
        "deep", Open(), **TINY, algorithm="ppo", feedback="state", make_lanes=lambda n: chain_lanes(n, Open)
    ).learn()
    assert not agent.mixture.restricted and agent.predict(np.zeros(11, dtype=int))[0].shape == (11,)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_other_algorithms(algorithm):
    """On an environment that is no prompt; every action is legal, and the policy sees the step."""

    class Line(ChainEnv):
        """Every action always legal."""

        def __init__(self) -> None:
            super().__init__()
            del self.mdp

        def reset(self, *, seed=None, options=None):
            gymnasium.Env.reset(self, seed=seed)
            self.state, self.steps = int(self.np_random.integers(5)), 0
            return self.state, {}

        def step(self, action):
            self.state, self.steps = (self.state + int(action)) % 5, self.steps + 1
            return self.state, 0.0, False, self.steps == 3, {}

        def state_features(self, observations):
            return np.eye(5, dtype=np.float32)[np.asarray(observations)]

    options = {"learning_starts": 8, "batch_size": 8} if algorithm == "dqn" else {"n_steps": 3, "batch_size": 12}
    agent = make_agent(
        "deep",
        Line(),
        **TINY | {"hyperparameters": options, "weights": "pairwise"},
        algorithm=algorithm,
        feedback="state",
        observe_step=True,
        make_lanes=lambda n: chain_lanes(n, Line),
    ).learn()
    assert agent.mixture.horizon == 3 and len(agent.history) == 2
    actions, _ = agent.predict(np.zeros(4, dtype=int), deterministic=True)
    assert actions.shape == (4,)


def test_ctrl_c_leaves_the_finished_iterations(env, monkeypatch):
    from edpbrl_gym.agents import sb3

    train, calls = sb3.DeepOracle.train, []

    def interrupted(self, timesteps):
        calls.append(timesteps)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, timesteps)

    monkeypatch.setattr(sb3.DeepOracle, "train", interrupted)
    agent = make_agent("deep", env, **TINY)
    with pytest.raises(KeyboardInterrupt):
        agent.learn()
    assert len(agent.history) == 1 and len(agent.mixture.policies) == len(agent.mixture.weights) == 2
    assert agent.predict(np.full((3, 3), 4))[0].shape == (3,)


def test_the_reward_is_standardised_and_keeps_its_order(learned):
    features = np.random.default_rng(0).normal(size=(30, 3, 3))
    reward = learned.problem.gradient(PolicyMoments.from_features(features))
    standard = StandardReward(reward, features)
    steps = np.tile(np.arange(3), 30)
    values = standard(features.reshape(-1, 3), steps).reshape(30, 3)
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-12)
    assert np.sqrt((values**2).mean()) == pytest.approx(1.0)
    totals = reward.totals(features)
    np.testing.assert_allclose(np.argsort(values.sum(axis=1)), np.argsort(totals))
    assert StandardReward(reward, features[:1]).scale == 1.0  # one episode has no spread


def test_lanes_are_remade_by_the_spec(world):
    single = gymnasium.make(ID, **world)
    for made in (single, gymnasium.make_vec(ID, num_envs=2, **world)):
        lanes = remade_lanes(made, 5)
        assert lanes.num_envs == 5 and lanes.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert lanes.unwrapped.vocabulary.all_tokens == single.unwrapped.vocabulary.all_tokens


def test_mapped_features(world):
    """A wrapper that redefines features must be made for the training lanes too."""
    from edpbrl_gym.envs.wrappers import MappedFeaturesVector
    from edpbrl_gym.features.maps import RandomFourierFeatures

    feature_map = RandomFourierFeatures.from_rows(np.random.default_rng(0).normal(size=(20, 3)), 8)
    wrapped = MappedFeaturesVector(gymnasium.make_vec(ID, num_envs=4, **world), feature_map)
    with pytest.raises(TypeError, match="no wrapper redefines, got MappedFeaturesVector; give make_lanes"):
        make_agent("deep", wrapped, **TINY).learn()
    agent = make_agent(
        "deep", wrapped, **TINY, make_lanes=lambda n: MappedFeaturesVector(same_step(world, n), feature_map)
    ).learn()
    assert agent.moments.means.shape == (3, 8)


def test_episodes_of_one_policy(world):
    lanes = RewardLanes(same_step(world), feedback="state")
    played = play_episodes(lanes, lambda o, s, m: np.zeros(len(o), dtype=int), episodes=6, seed=0)
    assert played.features.shape == (6, 3, 3) and not played.actions.any()
    np.testing.assert_array_equal(played.features[0], played.features[5])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda env: make_agent("deep", BareEnv(), **TINY), TypeError, "trajectory_features"),
        (lambda env: make_agent("deep", ChainEnv(), **TINY, feedback="state").learn(), TypeError, "make_lanes"),
        (
            lambda env: make_agent("deep", env, **TINY | {"hyperparameters": {}}, algorithm="dqn").learn(),
            ValueError,
            "maskable_ppo",
        ),
        (
            lambda env: make_agent("deep", env, **TINY | {"hyperparameters": {"lr": 0.1}}).learn(),
            TypeError,
            "among learning_rate, .* got 'lr'",
        ),
        (lambda env: make_agent("deep", env, **TINY, algorithm="sac"), ValueError, "'maskable_ppo', 'ppo', 'dqn'"),
        (lambda env: make_agent("deep", env, **TINY | {"criterion": "E"}), ValueError, "criterion"),
        (lambda env: make_agent("deep", env, **TINY, v_matrix=np.eye(3)), ValueError, "takes no v_matrix"),
        (lambda env: make_agent("deep", env, **TINY | {"hyperparameters": {"a": np.tanh}}), TypeError, "saved with it"),
        (lambda env: make_agent("deep", env, **TINY).predict(np.full((2, 3), 4)), RuntimeError, "learn"),
        (lambda env: RewardLanes(env), TypeError, "SAME_STEP"),
        (
            lambda env: make_agent(
                "deep", ChainEnv(), **TINY, feedback="state", make_lanes=lambda n: chain_lanes(n, RaggedEnv)
            ).learn(),
            ValueError,
            "fixed horizon",
        ),
    ],
)
def test_messages(env, make, error, message):
    with pytest.raises(error, match=message):
        make(env)
