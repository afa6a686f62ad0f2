"""Making, saving and loading agents; the designs they solve."""

import json
import sys

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.design import SOLVER_OPTIONS, DesignAgent, target_matrix
from edpbrl_gym.agents.registry import AGENTS, check_agent, make_agent
from edpbrl_gym.agents.tabular import RandomAgent
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.planners import PLANNERS
from tests.helpers.lane_environments import SIZES, ChainEnv, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"


class Patient(Agent):
    def __init__(self, env, *, patience=1, **arguments):
        super().__init__(env, **arguments)
        self.patience = patience

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), dtype=int), state


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


# planners need prompts, reinforce a language model, deep lanes to train on, enumerated a diffusion model:
# test_planner.py, test_reinforce.py, test_deep.py, test_enumerated.py
ELSEWHERE = {"reinforce", "deep", "enumerated"}


@pytest.mark.needs("reference")
@pytest.mark.parametrize("name", sorted((set(AGENTS) - set(PLANNERS) - ELSEWHERE) | {"random"}))
def test_every_registered_agent(name):
    env = ChainEnv()
    if name in ("newton", "tuples"):  # on a prompt MDP: query sets are made of prompts
        env.mdp, env.features = PromptMDP((3, 4)), np.random.default_rng(0).normal(size=(7, 3))
    agent = make_agent(name, env, num_options=2, episodes=4, criterion="D", seed=1)
    assert agent.name == name and agent.learn() is agent
    assert agent.predict(np.zeros(4, int))[0].shape == (4,)
    agent.observe(None)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("xyzzy", {}, ValueError, "newton, random, reference, reinforce, .*or an import string .* got 'xyzzy'"),
        (":Agent", {}, ValueError, "among"),
        ("no_such_package.module:Agent", {}, ImportError, "no_such_package"),
        ("edpbrl_gym.agents.base:NoAgent", {}, ImportError, "no 'NoAgent'"),
        ("collections:OrderedDict", {}, TypeError, "subclass of edpbrl_gym.agents.base.Agent"),
        ("math:pi", {}, TypeError, "subclass of edpbrl_gym.agents.base.Agent"),
        (RandomAgent, {}, TypeError, "Expected the name of an agent or an import string"),
        ("frank_wolfe", {"num_options": 1}, ValueError, "num_options .* >= 2, got 1"),
        ("frank_wolfe", {"episodes": 0}, ValueError, "episodes .* >= 1, got 0"),
        ("frank_wolfe", {"regularization": -1.0}, ValueError, "lambda"),
        ("frank_wolfe", {"regularization": float("nan")}, ValueError, "lambda"),
        ("frank_wolfe", {"seed": -1}, ValueError, "seed >= 0, got -1"),
        ("frank_wolfe", {"criterion": "E"}, ValueError, "criterion"),
        ("frank_wolfe", {"criterion": "D", "v_matrix": np.eye(3)}, ValueError, "takes no v_matrix"),
        ("random", {"num_options": "3"}, TypeError, "Expected num_options .*got '3'"),
        ("random", {"episodes": 2.5}, TypeError, "Expected episodes .*as an integer, got 2.5"),
        ("random", {"regularization": None}, TypeError, "Expected regularization .*got None"),
        ("random", {"iterations": 3}, TypeError, "agent 'random' has no option 'iterations'; its options: none"),
        ("frank_wolfe", {"iterations": 3}, TypeError, "option 'iterations'; its options: max_iterations, .*v_matrix"),
        ("newton", {"solver": "exact"}, TypeError, "has no option 'solver'; its options: max_iterations"),
    ],
)
def test_wrong_names_and_arguments(name, options, error, message):
    with pytest.raises(error, match=message):
        make_agent(name, ChainEnv(), **{"num_options": 2, "episodes": 4, **options})


def test_the_names_of_designs_are_those_of_their_solvers():
    assert {name for name, entry in AGENTS.items() if "solver" in entry.options} == set(SOLVER_OPTIONS)
    with pytest.raises(ValueError, match="Expected solver as one of 'newton', .*'tuples', got 'cvxpy'"):
        DesignAgent(ChainEnv(), solver="cvxpy", num_options=2, episodes=4)


def test_a_missing_package_is_said_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ModuleNotFoundError, match="cvxpy.* for the agent 'reference'"):
        check_agent("reference")
    check_agent("newton"), check_agent("bald")


def test_a_users_agent_by_its_import_string_with_options_of_its_own():
    agent = make_agent(f"{__name__}:Patient", ChainEnv(), num_options=2, episodes=4, patience=3)
    assert agent.patience == 3 and agent.learn() is agent and agent.design is None
    with pytest.raises(TypeError, match="no option 'patients'; its options: patience"):
        make_agent(f"{__name__}:Patient", ChainEnv(), num_options=2, episodes=4, patients=3)


def test_target_of_the_prompt_environment_is_the_papers(folder, minilm):
    for order, kept in ((["bases", "lighting", "style"], (1, 2)), (["lighting", "bases", "style"], (0, 2))):
        env = gymnasium.make(ID, vocabulary=folder, order=order).unwrapped
        rows = []
        offsets = env.mdp.offsets
        for step in kept:
            block = env.features[offsets[step] : offsets[step + 1]].astype(float)
            rows += [block[i] - block[j] for i in range(len(block)) for j in range(i)]
        np.testing.assert_allclose(target_matrix(env), np.array(rows).T @ np.array(rows), atol=1e-8)
    assert sum(SIZES) == env.mdp.num_rows


def test_target_of_any_other_environment_is_all_differences():
    env = ChainEnv()
    rows = [a - b for i, a in enumerate(env.features.astype(float)) for b in env.features[:i]]
    np.testing.assert_allclose(target_matrix(env), np.array(rows).T @ np.array(rows))
    matrix = np.diag([1.0, 2.0, 3.0])
    agent = make_agent("frank_wolfe", env, num_options=2, episodes=3, v_matrix=matrix)
    np.testing.assert_allclose(agent.problem().criterion.matrix, matrix)


def test_a_saved_agent_continues_where_it_was(tmp_path):
    env = ChainEnv()
    agent = DesignAgent(
        env,
        solver="frank_wolfe",
        num_options=2,
        episodes=6,
        v_matrix=np.eye(3),
        prior_precision=np.diag([1.0, 2.0, 3.0]),
        max_iterations=20,
    ).learn()
    agent.predict(np.zeros(5, int))
    agent.save(tmp_path / "agent")
    copy = DesignAgent.load(tmp_path / "agent", env)
    np.testing.assert_array_equal(copy.policies, agent.policies)
    assert copy.design.value == agent.design.value and copy.options == {"max_iterations": 20}
    observations = np.array([0, 1, 2, 3, 4] * 20)
    np.testing.assert_array_equal(copy.predict(observations)[0], agent.predict(observations)[0])


def test_wrong_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="agent.json"):
        RandomAgent.load(tmp_path, ChainEnv())
    arguments = {"solver": "frank_wolfe", "num_options": 2, "episodes": 6, "criterion": "D"}
    DesignAgent(ChainEnv(), **arguments).learn().save(tmp_path)
    assert json.loads((tmp_path / "agent.json").read_text())["arguments"]["criterion"] == "D"
    with pytest.raises(ValueError, match="RandomAgent.*saved by.*DesignAgent"):
        RandomAgent.load(tmp_path, ChainEnv())
    with pytest.raises(ValueError, match="another problem"):
        DesignAgent.load(tmp_path, ChainEnv(seed=4))
    DesignAgent(ChainEnv(), **arguments).save(tmp_path)  # without a design, over the learned one
    assert DesignAgent.load(tmp_path, ChainEnv()).design is None


@pytest.mark.parametrize("damage", ["{", "[]", "{}"])
def test_a_damaged_folder_is_named(tmp_path, damage):
    RandomAgent(ChainEnv(), num_options=2, episodes=6).save(tmp_path)
    (tmp_path / "agent.json").write_text(damage)
    with pytest.raises(ValueError, match="Expected a saved agent in .*agent.json.*save it again"):
        RandomAgent.load(tmp_path, ChainEnv())
