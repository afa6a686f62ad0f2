"""The agent that plays exact designs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.design import DesignAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import exact_information
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import ChainEnv, write_vocabulary

ARGUMENTS = {"num_options": 2, "episodes": 6, "criterion": "D"}


def test_it_plays_different_policies_with_a_certificate():
    agent = make_agent("exact", ChainEnv(), seed=4, **ARGUMENTS)
    assert isinstance(agent, DesignAgent) and agent.result is None
    assert agent.learn().design is agent.result.design
    problem, design = agent.design.problem, agent.design
    rows = problem.mdp.row_occupancy(design.occupancies)
    value = problem.criterion.value(exact_information(problem.features, rows, 6) + problem.prior)
    assert design.value == pytest.approx(value) and design.solver == "exact"
    assert design.value <= agent.result.independent_bound <= design.upper_bound
    assert np.abs(agent.policies[0] - agent.policies[1]).max() > 0.01
    assert agent.result.gain_over_identical > 1.0


def test_its_seed_and_options_reach_the_solver():
    seen = []
    options = {"callback": lambda state: seen.append(state.name)}
    agent = make_agent(
        "exact", ChainEnv(), starts=["random"], max_sweeps=3, tolerance=1e-12, options=options, **ARGUMENTS
    )
    assert agent.learn().result.starts[0].sweeps == 3 and seen == ["random"] * 3
    values = {}
    for seed in (0, 0, 1):
        agent = make_agent("exact", ChainEnv(), starts=["random"], seed=seed, **ARGUMENTS).learn()
        values.setdefault(seed, []).append(agent.result.starts[0].first)
    assert values[0][0] == pytest.approx(values[0][1], rel=1e-10)
    assert abs(values[0][0] - values[1][0]) > 1e-6
    fixed = make_agent("exact", ChainEnv(), starts=["random"], seed=1, options={"seed": 0}, **ARGUMENTS).learn()
    assert fixed.result.starts[0].first == pytest.approx(values[0][0], rel=1e-10)


def test_a_saved_agent_plays_on(tmp_path):
    agent = make_agent("exact", ChainEnv(), max_sweeps=20, **ARGUMENTS).learn()
    agent.save(tmp_path)
    copy = DesignAgent.load(tmp_path, ChainEnv())
    np.testing.assert_array_equal(copy.policies, agent.policies)
    assert copy.design.value == agent.design.value and copy.options == {"max_sweeps": 20} and copy.result is None


def test_lane_by_lane_in_the_prompt_environment(tmp_path, minilm):
    """Tokens are drawn from the lane's own policy: after many questions, its frequencies."""
    words = write_vocabulary(tmp_path / "words")
    lanes = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=200, vocabulary=words)
    user = SyntheticUser.from_text("a sunny beach", lanes.unwrapped.encoder, mode="argmax")
    questions = PreferenceQuery(lanes, lanes=2, oracle=user)
    agent = make_agent("exact", lanes, seed=2, **ARGUMENTS).learn()
    mdp = lanes.unwrapped.mdp
    counts = np.zeros((2, mdp.num_pairs))
    for episode in range(4):
        observation, _ = questions.reset(seed=episode)
        state = None
        for step in range(mdp.horizon):
            actions, state = agent.predict(observation, state, questions.episode_start)
            np.add.at(counts, (np.arange(200) % 2, mdp.step_pairs(step).start + actions), 1)
            observation, *_ = questions.step(actions)
    shares = counts / 400
    np.testing.assert_allclose(shares, agent.design.occupancies.sum(axis=1), atol=0.12)
    lanes.close()
