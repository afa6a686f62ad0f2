"""REINFORCE with networks: its gradient against enumeration, learning, playing, saving."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.network import NetworkReinforceAgent
from edpbrl_gym.agents.policy_networks import PolicyNetworks, score_surrogate
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.reward_lanes import remade_lanes
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.language.objective import d_objective
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import SIZES, ChainEnv, RaggedEnv, write_summed_world
from tests.helpers.tiny_digits import save_tiny_digits

PROMPTS, IMAGES = "edpbrl/PromptConstruction-v0", "edpbrl/DiffusionGuidance-v0"
TINY = {"num_options": 2, "episodes": 3, "iterations": 3, "meta_samples": 2, "hidden": (4,), "seed": 5}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=3, seed=0)


@pytest.fixture(scope="module")
def env(world):
    return gymnasium.make_vec(PROMPTS, num_envs=4, **world)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    model = str(save_tiny_digits(tmp_path_factory.mktemp("digits") / "model"))
    arguments = {"model": model, "conditions": [0, 7], "weights": (6.0,), "blocks": 2, "steps": 2}
    return gymnasium.make_vec(IMAGES, num_envs=4, shared_noise=2, **arguments)


def networks_for(inputs, actions, *, policies=2, seed=0):
    mean, deviation = np.arange(inputs, dtype=float), np.linspace(0.5, 1.5, inputs)
    return PolicyNetworks(
        num_policies=policies, num_actions=actions, mean=mean, deviation=deviation, hidden=(3,), seed=seed
    )


class TwoSteps:
    """Two steps of three actions, of which one is illegal after action 0; the observation is (h, last action)."""

    paths = [path for path in itertools.product(range(3), range(3)) if path != (0, 2)]

    @staticmethod
    def inputs(path):
        return np.array([[0.0, -1.0], [1.0, float(path[0])]])

    @staticmethod
    def masks(path):
        return np.array([[True] * 3, [True, True, path[0] != 0]])

    @classmethod
    def probability(cls, networks, policy, path):
        with torch.no_grad():
            logs = networks.log_probabilities(policy, cls.inputs(path), cls.masks(path)).numpy().astype(float)
        return float(np.exp(logs[0, path[0]] + logs[1, path[1]]))


def test_the_gradient_is_that_of_the_expected_objective():
    """All joint episodes of two policies are enumerated; the expectation is differentiated by finite differences."""
    networks = networks_for(2, 3)
    for parameter in networks.parameters:
        parameter.data *= 4.0  # far from uniform
    joint = list(itertools.product(TwoSteps.paths, repeat=2))
    rng = np.random.default_rng(0)
    features = {path: rng.normal(size=(2, 2)) for path in TwoSteps.paths}
    values = d_objective(np.array([[[features[path] for path in pair]] for pair in joint]), 0.5)

    def chances():
        table = [{path: TwoSteps.probability(networks, q, path) for path in TwoSteps.paths} for q in (0, 1)]
        return np.array([table[0][first] * table[1][second] for first, second in joint])

    weights = len(joint) * chances() * values  # the surrogate is a mean over "meta-samples"
    assert chances().sum() == pytest.approx(1.0, abs=1e-6)
    stacked = {
        "inputs": np.array([[[TwoSteps.inputs(path) for path in pair]] for pair in joint]),
        "masks": np.array([[[TwoSteps.masks(path) for path in pair]] for pair in joint]),
        "actions": np.array([[list(pair)] for pair in joint]),
        "weights": np.broadcast_to(weights[:, None, None, None], (len(joint), 1, 2, 2)),
    }
    surrogate, _ = score_surrogate(networks, **stacked)
    surrogate.backward()
    found, expected = [], []
    for parameter in networks.parameters:
        for index in range(parameter.numel()):
            flat, before = parameter.data.view(-1), float(parameter.data.view(-1)[index])
            sides = []
            for sign in (1.0, -1.0):
                flat[index] = before + sign * 1e-2
                sides.append(float(chances() @ values))
            flat[index] = before
            expected.append((sides[0] - sides[1]) / 2e-2)
            found.append(float(parameter.grad.view(-1)[index]))
    assert np.abs(expected).max() > 0.02
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_the_entropy_is_the_policies():
    networks = networks_for(2, 3)
    paths = TwoSteps.paths[:4]
    arrays = [np.array([[[f(path)] * 2 for path in paths]]) for f in (TwoSteps.inputs, TwoSteps.masks)]
    shape = (1, len(paths), 2, 2)
    _, entropy = score_surrogate(networks, *arrays, np.zeros(shape, dtype=int), np.zeros(shape))
    total = 0.0
    for policy, path in itertools.product((0, 1), paths):
        with torch.no_grad():
            logs = networks.log_probabilities(policy, TwoSteps.inputs(path), TwoSteps.masks(path)).numpy()
        table = np.exp(logs.astype(float))
        total -= np.sum(table[table > 0] * np.log(table[table > 0]))
    assert entropy.item() == pytest.approx(total / (2 * len(paths) * 2), rel=1e-4)
    entropy.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in networks.parameters)


def test_illegal_actions_have_no_probability():
    networks = networks_for(4, 5, policies=3)
    rng = np.random.default_rng(1)
    masks = rng.random((40, 5)) < 0.4
    masks[:, 2] |= ~masks.any(axis=1)
    table = networks.probabilities(np.arange(40) % 3, 100 * rng.normal(size=(40, 4)), masks)
    assert (table[~masks] == 0).all() and (table[masks] > 0).all()
    np.testing.assert_allclose(table.sum(axis=1), 1.0)


@pytest.mark.parametrize("credit", ["batch_mean", "marginal_causal"])
def test_the_objective_rises(env, credit):
    agent = make_agent(
        "reinforce-network",
        env,
        **{**TINY, "iterations": 40, "meta_samples": 8, "credit": credit, "learning_rate": 0.03},
        feedback="state",
        observe_step=True,
    ).learn()
    values = np.array([record.objective for record in agent.history])
    error = np.mean([record.deviation for record in agent.history]) / np.sqrt(8 * 8)
    assert values[-8:].mean() > values[:8].mean() + 4 * error
    assert agent.history[-1].entropy < agent.history[0].entropy


def test_it_plays_legal_actions_and_every_lane_its_policy(env):
    agent = make_agent("reinforce-network", env, **TINY).learn()
    observations, infos = env.reset(seed=0)
    state, starts = None, np.ones(4, dtype=bool)
    for step in range(3):
        masks = np.stack(infos["action_mask"]).astype(bool)
        expected = agent.networks.probabilities(np.array([0, 1, 0, 1]), observations, masks)
        best, _ = agent.predict(observations, state, starts, deterministic=True)
        np.testing.assert_array_equal(best, expected.argmax(axis=1))
        actions, state = agent.predict(observations, state, starts)
        assert (actions < SIZES[step]).all()
        observations, _, _, _, infos = env.step(actions)
        starts = np.zeros(4, dtype=bool)
    single, _ = agent.predict(observations[0] * 0 + max(SIZES))
    assert np.ndim(single) == 0


def test_draws_follow_the_probabilities(env):
    agent = make_agent("reinforce-network", env, **TINY).learn()
    observations, _ = env.reset(seed=0)
    drawn = np.stack([agent.predict(observations)[0] for _ in range(600)])
    chances = agent.networks.probabilities(np.arange(2), observations[:2], np.arange(4)[None] < [[2], [2]])
    for policy in (0, 1):
        share = (drawn[:, policy::2] == 0).mean()
        assert abs(share - chances[policy, 0]) < 4 * np.sqrt(0.25 / 1200)


def test_the_same_seed_learns_the_same(env):
    first, second, other = (make_agent("reinforce-network", env, **{**TINY, "seed": seed}) for seed in (5, 5, 6))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    arrays = [agent.learn().networks.arrays() for agent in (first, second, other)]
    assert torch.equal(before, torch.get_rng_state())
    assert all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
    assert any(not np.array_equal(arrays[0][name], arrays[2][name]) for name in arrays[0])
    assert [record.objective for record in first.history] == [record.objective for record in second.history]


def test_fewer_lanes_play_the_same_number_of_episodes(env):
    """12 episodes on 5 lanes, which are 4 for two policies: three batches."""
    agent = make_agent("reinforce-network", env, **{**TINY, "iterations": 1}, num_envs=5).learn()
    assert len(agent.history) == 1 and agent.history[0].gradient_norm > 0


def test_a_saved_agent_continues_where_it_was(env, tmp_path):
    agent = make_agent("reinforce-network", env, **TINY, entropy=0.1, observe_step=True).learn()
    observations, _ = env.reset(seed=0)
    agent.predict(observations)
    agent.save(tmp_path)
    copy = NetworkReinforceAgent.load(tmp_path, env)
    assert copy.history == agent.history and copy.entropy == 0.1 and copy.hidden == (4,)
    for _ in range(20):
        np.testing.assert_array_equal(copy.predict(observations)[0], agent.predict(observations)[0])
    make_agent("reinforce-network", env, **TINY).save(tmp_path / "new")
    with pytest.raises(RuntimeError, match="call learn"):
        NetworkReinforceAgent.load(tmp_path / "new", env).predict(observations)


def test_on_images_from_one_noise(digits):
    agent = make_agent("reinforce-network", digits, **TINY).learn()
    assert agent.networks.mean.shape == (129,) and len(agent.history) == 3
    answers = collect(digits, agent, SyntheticUser(np.ones(12)), episodes=4, seed=0)
    assert answers.features.shape == (8, 2, 12)


def test_it_learns_on_lanes_that_go_together_as_those_that_are_asked_about(digits):
    """The options of a question begin from one noise, in training as in play; other agents' lanes need not."""
    for questions, same in ((True, True), (False, False)):
        lanes = remade_lanes(digits, 6, questions=questions)
        observations = lanes.reset(seed=3)[0].reshape(3, 2, -1)
        assert (observations[:, 0] == observations[:, 1]).all() == same
        assert not (observations[0] == observations[1]).all()
    agent = make_agent("reinforce-network", digits, **{**TINY, "iterations": 1, "meta_samples": 16, "episodes": 8})
    agent.learn()
    played = collect(digits, make_agent("random", digits, num_options=2, episodes=8), SyntheticUser(np.ones(12)),
                     episodes=128, seed=0)  # fmt: skip
    order = np.lexsort((played.step, played.episode))
    rows = played.features[order].reshape(16, 8, 2, 2, 12).swapaxes(2, 3)
    at_random, first = d_objective(rows), agent.history[0]
    error = np.hypot(at_random.std(ddof=1), first.deviation) / 4
    assert abs(first.objective - at_random.mean()) < 5 * error  # the first policies are nearly uniform


def test_on_lanes_of_single_environments():
    lanes = SyncVectorEnv([ChainEnv] * 4, autoreset_mode=AutoresetMode.SAME_STEP)

    def more(count):
        return SyncVectorEnv([ChainEnv] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    agent = make_agent("reinforce-network", lanes, **TINY, feedback="state", make_lanes=more, observe_step=True)
    agent.learn()
    observations, _ = lanes.reset(seed=0)
    for _ in range(4):
        observations, *_ = lanes.step(agent.predict(observations)[0])


def test_wrong_arguments(env):
    with pytest.raises(ValueError, match="criterion 'D'"):
        make_agent("reinforce-network", env, **TINY, criterion="V")
    with pytest.raises(ValueError, match=r"meta_samples \(M\)"):
        make_agent("reinforce-network", env, **{**TINY, "meta_samples": 1})
    with pytest.raises(ValueError, match="credit"):
        make_agent("reinforce-network", env, **TINY, credit="mine")
    with pytest.raises(ValueError, match="lambda"):
        make_agent("reinforce-network", env, **TINY, regularization=0.0)
    with pytest.raises(TypeError, match="trajectory_features"):
        make_agent("reinforce-network", ChainEnv(), **TINY)

    def ragged(count):
        return SyncVectorEnv([RaggedEnv] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    with pytest.raises(ValueError, match="one length"):
        make_agent("reinforce-network", RaggedEnv(), **TINY, feedback="state", make_lanes=ragged).learn()
