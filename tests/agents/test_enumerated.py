"""The agent that asks about all images of a noise, end to end on a tiny diffusion model."""

import gymnasium
import numpy as np
import pytest

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.diffusion import enumerate_episodes
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import TokenFeatures
from edpbrl_gym.planners.adaptive import AdaptivePlanner
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.lane_environments import ChainEnv
from tests.helpers.tiny_digits import save_tiny_digits

ID = "edpbrl/DiffusionGuidance-v0"
K, A, B = 2, 3, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny_digits(tmp_path_factory.mktemp("digits") / "model"))


def lanes(model, count=K, *, shared=K, **arguments):
    options = {"model": model, "conditions": [0, 1, 7], "weights": (6.0,), "blocks": B, "steps": B, **arguments}
    return gymnasium.make_vec(ID, num_envs=count, shared_noise=shared, autoreset_mode="same_step", **options)


def agent_for(env, **options):
    return make_agent("enumerated", env, **{"num_options": K, "episodes": 6, "seed": 3, "prior_noises": 2, **options})


def taste(seed=1):
    theta = np.random.default_rng(seed).normal(size=12)
    return 40.0 * theta / np.linalg.norm(theta)


def test_it_plays_the_planners_choice_among_all_sequences(model):
    env = lanes(model)
    agent = agent_for(env, posterior="ridge", score="information").learn()
    query = PreferenceQuery(env, lanes=K, oracle=SyntheticUser(taste(), seed=0))
    observations, infos = query.reset(seed=5)
    trees = enumerate_episodes(env.unwrapped.model, [int(infos["noise_seed"][0])])
    names = Vocabulary(("item",), (tuple(map(str, range(A**B))),))
    rows = trees.features[-1][0]
    planner = AdaptivePlanner(
        names,
        options=TokenFeatures(names, rows),
        prior=GaussianPrior.isotropic(12, 1.0),
        num_options=K,
        seed=3,
        score="information",
    )
    items = planner.ask(np.empty((K, 0), dtype=np.int64))
    expected = trees.sequences()[items]
    played, state = [], None
    for _ in range(B):
        actions, state = agent.predict(observations, state, query.episode_start)
        played.append(actions)
        observations, *_ = query.step(actions)
    np.testing.assert_array_equal(np.stack(played, axis=1), expected)
    # what was compared last are the pool's rows of the choice
    np.testing.assert_allclose(query.comparisons.features[-1], rows[items], atol=1e-4)


def test_a_new_noise_replaces_the_pool_and_keeps_the_posterior(model):
    env = lanes(model)
    agent = agent_for(env).learn()
    user = SyntheticUser(taste(), mode="sampled", seed=2)
    answers = collect(env, agent, user, episodes=6, observe=True, seed=1)
    assert len(answers) == 6 * B and set(answers.episode) == set(range(6))
    assert agent.planner.asked == 6
    again = agent_for(env).learn()
    again.observe(answers)
    np.testing.assert_allclose(again.planner.estimate.theta, agent.planner.estimate.theta)
    before = agent.planner.posterior.mean.copy()
    agent.predict(env.reset(seed=99)[0])
    np.testing.assert_array_equal(agent.planner.posterior.mean, before)
    twice = collect(env, agent_for(env).learn(), SyntheticUser(taste(), mode="sampled", seed=2), episodes=6,
                    observe=True, seed=1)  # fmt: skip
    np.testing.assert_array_equal(twice.features, answers.features)


def test_it_learns_a_taste(model):
    env = lanes(model, count=4, shared=4)
    theta = taste()
    agent = agent_for(env, num_options=4, posterior="ridge", regularization=0.01).learn()
    collect(env, agent, SyntheticUser(theta, mode="sampled", seed=2), episodes=20, observe=True, seed=1)
    trees = enumerate_episodes(env.unwrapped.model, np.arange(10))
    rows = trees.features[-1].reshape(-1, 12).astype(float)
    centred = rows - rows.mean(axis=0)  # what the images of this model can't tell apart can't be learnt
    assert np.corrcoef(centred @ agent.planner.estimate.theta, centred @ theta)[0, 1] > 0.8


def test_a_saved_agent_continues_where_it_was(model, tmp_path):
    env = lanes(model)
    agent = agent_for(env, prior=GaussianPrior.isotropic(12, 0.5), score="variance", draws=8).learn()
    collect(env, agent, SyntheticUser(taste()), episodes=3, observe=True)
    agent.save(tmp_path)
    copy = type(agent).load(tmp_path, env)
    np.testing.assert_array_equal(copy.planner.estimate.theta, agent.planner.estimate.theta)
    observations = env.reset(seed=7)[0]
    np.testing.assert_array_equal(copy.predict(observations)[1][0], agent.predict(observations)[1][0])


def test_wrong_lanes(model):
    agent = agent_for(lanes(model), posterior="ridge")
    with pytest.raises(RuntimeError, match="call learn"):
        agent.predict(np.zeros((K, 129), dtype=np.float32))
    agent.learn()
    with pytest.raises(ValueError, match=f"same noise.*shared_noise={K}"):
        agent.predict(lanes(model, shared=1).reset(seed=0)[0])
    with pytest.raises(ValueError, match="multiple of num_options = 2"):
        agent.predict(lanes(model, count=3, shared=3).reset(seed=0)[0])
    env = lanes(model)
    env.reset(seed=0)
    middle, *_ = env.step(np.zeros(K, dtype=int))
    with pytest.raises(ValueError, match="state that the last predict"):
        agent.predict(middle)
    with pytest.raises(ValueError, match="lanes with horizon = 2, as the agent was made for, got 4"):
        agent.play_on(lanes(model, blocks=4, steps=4))
    with pytest.raises(TypeError, match="ChainEnv has no model"):
        agent_for(ChainEnv())
    with pytest.raises(ValueError, match="at least num_options = 10 sequences of actions, got 9"):
        agent_for(lanes(model, count=10, shared=10), num_options=10)
