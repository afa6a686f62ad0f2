"""Making, saving and loading agents; the designs they solve."""

from __future__ import annotations

import json
import sys

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.design import SOLVER_OPTIONS, DesignAgent, target_matrix
from edpbrl_gym.agents.random import RandomAgent
from edpbrl_gym.agents.registry import AGENTS, check_agent, make_agent
from edpbrl_gym.agents.tabular import TabularAgent
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.planners import PLANNERS
from tests.helpers.lane_environments import SIZES, ChainEnv, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"


class Fixed(Agent):
    """A user's own agent: always the first action."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), dtype=int), state


class Patient(Fixed):
    """A user's own agent with an option."""

    def __init__(self, env, *, patience=1, **arguments):
        super().__init__(env, **arguments)
        self.patience = patience


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


# planners need prompts, reinforce a language model, deep and reinforce-network lanes to train on, enumerated a
# diffusion model: test_adaptive.py, test_rule.py, test_reinforce.py, test_deep.py, test_network.py, test_enumerated.py
ELSEWHERE = {"reinforce", "deep", "reinforce-network", "enumerated"}


@pytest.mark.needs("reference")
@pytest.mark.parametrize("name", sorted((set(AGENTS) - set(PLANNERS) - ELSEWHERE) | {"random"}))
def test_every_registered_agent(name):
    env = ChainEnv()
    if name in ("newton", "tuples"):  # on a prompt MDP: trajectories of a random one cannot be chosen
        env.mdp, env.features = PromptMDP((3, 4)), np.random.default_rng(0).normal(size=(7, 3))
    agent = make_agent(name, env, num_options=2, episodes=4, criterion="D", seed=1)
    assert agent.name == name and agent.learn() is agent
    assert agent.predict(np.zeros(4, int))[0].shape == (4,)
    agent.observe(None)


def test_an_import_string():
    agent = make_agent(f"{__name__}:Fixed", ChainEnv(), num_options=2, episodes=4)
    assert type(agent).__name__ == "Fixed" and agent.learn() is agent and agent.design is None


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (
            "thompson",
            ValueError,
            "newton, random, reference, reinforce, .*or an import string .* got 'thompson'",
        ),
        ("", ValueError, "among"),
        (":Agent", ValueError, "among"),
        ("no_such_package.module:Agent", ImportError, "no_such_package"),
        ("edpbrl_gym.agents.base:NoAgent", ImportError, "no 'NoAgent'"),
        ("collections:OrderedDict", TypeError, "subclass of edpbrl_gym.agents.base.Agent"),
        ("math:pi", TypeError, "subclass of edpbrl_gym.agents.base.Agent"),
    ],
)
def test_wrong_names(name, error, message):
    with pytest.raises(error, match=message):
        make_agent(name, ChainEnv(), num_options=2, episodes=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_options": 1}, "num_options .* >= 2, got 1"),
        ({"episodes": 0}, "episodes .* >= 1, got 0"),
        ({"regularization": -1.0}, "lambda"),
        ({"regularization": float("nan")}, "lambda"),
        ({"regularization": float("inf")}, "lambda"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"criterion": "E"}, "criterion"),
        ({"criterion": "D", "v_matrix": np.eye(3)}, "takes no v_matrix"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_agent("frank_wolfe", ChainEnv(), **{"num_options": 2, "episodes": 4, **arguments}).learn()


@pytest.mark.parametrize("name", ["num_options", "episodes", "regularization", "seed"])
@pytest.mark.parametrize("value", ["3", None])
def test_arguments_of_a_wrong_type(name, value):
    with pytest.raises(TypeError, match=f"Expected {name} .*got {value!r}"):
        make_agent("random", ChainEnv(), **{"num_options": 2, "episodes": 4, name: value})


@pytest.mark.parametrize("name", ["num_options", "episodes", "seed"])
def test_counts_are_not_rounded(name):
    with pytest.raises(TypeError, match=f"Expected {name} .*as an integer, got 2.5"):
        make_agent("random", ChainEnv(), **{"num_options": 2, "episodes": 4, name: 2.5})


@pytest.mark.parametrize(("name", "known"), [("random", "none"), ("frank_wolfe", "max_iterations, .*v_matrix")])
def test_unknown_options_are_named_with_the_known_ones(name, known):
    with pytest.raises(TypeError, match=f"agent '{name}' has no option 'iterations'; its options: {known}"):
        make_agent(name, ChainEnv(), num_options=2, episodes=4, iterations=3)


def test_what_a_name_stands_for_is_no_option():
    assert {name for name, entry in AGENTS.items() if "solver" in entry.options} == set(SOLVER_OPTIONS)
    with pytest.raises(TypeError, match="agent 'newton' has no option 'solver'; its options: device, max_iterations"):
        make_agent("newton", ChainEnv(), num_options=2, episodes=4, solver="exact")
    with pytest.raises(ValueError, match="Expected solver as one of 'newton', .*'tuples', got 'cvxpy'"):
        DesignAgent(ChainEnv(), solver="cvxpy", num_options=2, episodes=4)


@pytest.mark.parametrize(
    ("name", "package"), [("reference", "cvxpy"), ("botorch-bald", "botorch"), ("optuna", "optuna_dashboard")]
)
def test_a_missing_package_is_said_before_the_work(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=f"{package}.* for the agent {name!r}"):
        check_agent(name)
    check_agent("newton"), check_agent("bald")


def test_options_of_a_users_agent_are_its_own():
    agent = make_agent(f"{__name__}:Patient", ChainEnv(), num_options=2, episodes=4, patience=3)
    assert agent.patience == 3
    with pytest.raises(TypeError, match="no option 'patients'; its options: patience"):
        make_agent(f"{__name__}:Patient", ChainEnv(), num_options=2, episodes=4, patients=3)


@pytest.mark.parametrize("agent", [RandomAgent, None, 3])
def test_an_agents_name_is_a_string(agent):
    with pytest.raises(TypeError, match="Expected the name of an agent or an import string"):
        make_agent(agent, ChainEnv(), num_options=2, episodes=4)


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["V", "A", "D"])
def test_frank_wolfe_and_reference_agree(criterion):
    arguments = {"num_options": 2, "episodes": 6, "criterion": criterion, "regularization": 0.5}
    fast = (
        make_agent("frank_wolfe", ChainEnv(), variant="pairwise", max_iterations=400, tolerance=1e-6, **arguments)
        .learn()
        .design
    )
    slow = make_agent("reference", ChainEnv(), **arguments).learn().design
    assert fast.relative_gap < 1e-4 and slow.relative_gap < 1e-4
    assert fast.value <= slow.upper_bound and slow.value <= fast.upper_bound
    assert fast.policies.shape == (2, 4, 14)


def test_options_reach_the_solver():
    seen = []
    agent = make_agent(
        "frank_wolfe",
        ChainEnv(),
        num_options=2,
        episodes=6,
        criterion="D",
        max_iterations=3,
        tolerance=1e-12,
        options={"callback": lambda *state: seen.append(state)},
    )
    assert agent.learn().design.iterations <= 3 and seen


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


def test_a_saved_random_agent_continues_where_it_was(tmp_path):
    agent = RandomAgent(ChainEnv(), num_options=2, episodes=6, seed=3)
    agent.predict(np.zeros(5, int))
    agent.save(tmp_path)
    copy = RandomAgent.load(tmp_path, ChainEnv())
    observations = np.array([0, 1, 2, 3, 4] * 20)
    np.testing.assert_array_equal(copy.predict(observations)[0], agent.predict(observations)[0])


def test_wrong_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="agent.json"):
        RandomAgent.load(tmp_path, ChainEnv())
    agent = DesignAgent(ChainEnv(), solver="frank_wolfe", num_options=2, episodes=6, criterion="D").learn()
    agent.save(tmp_path)
    assert json.loads((tmp_path / "agent.json").read_text())["arguments"]["criterion"] == "D"
    with pytest.raises(ValueError, match="RandomAgent.*saved by.*DesignAgent"):
        RandomAgent.load(tmp_path, ChainEnv())
    with pytest.raises(ValueError, match="another problem"):
        DesignAgent.load(tmp_path, ChainEnv(seed=4))


def test_an_unlearned_agent_saved_over_a_learned_one_has_no_design(tmp_path):
    arguments = {"num_options": 2, "episodes": 6, "criterion": "D"}
    DesignAgent(ChainEnv(), solver="frank_wolfe", **arguments).learn().save(tmp_path)
    DesignAgent(ChainEnv(), solver="frank_wolfe", **arguments).save(tmp_path)
    assert DesignAgent.load(tmp_path, ChainEnv()).design is None


def test_given_policies_saved_over_others(tmp_path):
    arguments = {"num_options": 2, "episodes": 6}
    uniform = ChainEnv().mdp.uniform_policy()
    TabularAgent(ChainEnv(), policies=[uniform, uniform], **arguments).save(tmp_path)
    np.testing.assert_array_equal(TabularAgent.load(tmp_path, ChainEnv()).policies, [uniform, uniform])
    TabularAgent(ChainEnv(), **arguments).save(tmp_path)
    with pytest.raises(RuntimeError, match="no policies yet"):
        TabularAgent.load(tmp_path, ChainEnv()).policies  # noqa: B018


@pytest.mark.parametrize("damage", ["{", "[]", "{}"])
def test_a_damaged_folder_is_named(tmp_path, damage):
    RandomAgent(ChainEnv(), num_options=2, episodes=6).save(tmp_path)
    (tmp_path / "agent.json").write_text(damage)
    with pytest.raises(ValueError, match="Expected a saved agent in .*agent.json.*save it again"):
        RandomAgent.load(tmp_path, ChainEnv())
