"""Names as people type them, and public functions that lack an optional package."""

import subprocess
import sys

import pytest

import edpbrl_gym as eg
from edpbrl_gym._validation import check_choice_of, did_you_mean, known_name
from edpbrl_gym.agents.registry import AGENTS, agent_class
from edpbrl_gym.planners.registry import PLANNERS, planner_class, rule_function


@pytest.mark.parametrize("table", [AGENTS, PLANNERS])
def test_hyphens_underscores_and_case_are_all_the_same(table):
    find = agent_class if table is AGENTS else planner_class
    for name in table:
        for typed in (name.replace("_", "-"), name.replace("-", "_"), name.upper()):
            assert known_name(typed, table) == name
            assert find(typed) is find(name)
    assert len({name.replace("_", "-") for name in table}) == len(table)


def test_what_is_nearly_a_name_gets_the_name_and_no_list():
    for find, typed, meant in (
        (agent_class, "frank-wolf", "frank_wolfe"),
        (agent_class, "adaptiv", "adaptive"),
        (planner_class, "adaptve", "adaptive"),
        (rule_function, "greedy", "greedy_d"),
    ):
        with pytest.raises(ValueError, match=f"did you mean '{meant}'") as caught:
            find(typed)
        assert len(str(caught.value)) < 600
    with pytest.raises(ValueError, match="newton") as caught:
        agent_class("xyzzy")
    assert "did you mean" not in str(caught.value)
    assert type(eg.make_criterion("d")) is type(eg.make_criterion("D"))
    with pytest.raises(ValueError, match="did you mean 'prompt'"):
        check_choice_of("prompts", "feedback", ("truncated", "state", "prompt"))
    assert did_you_mean(3, ("a",)) == "" and known_name("frank wolfe", AGENTS) == "frank_wolfe"


_WITHOUT = """
import importlib.machinery, sys
gone = {"stable_baselines3", "sb3_contrib", "torch", "cvxpy", "transformers", "pandas"}
class Hidden(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in gone else super().find_spec(name, path, target)
sys.meta_path[:] = [Hidden if one is importlib.machinery.PathFinder else one for one in sys.meta_path]
import numpy as np
import edpbrl_gym as eg
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.agents.registry import AGENTS
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.planners import TokenFeatures
import gymnasium as gym
words = Vocabulary(("items",), (tuple(f"item {n}" for n in range(8)),))
features = TokenFeatures(words, np.random.default_rng(0).normal(size=(8, 3)))
lanes = gym.make_vec("edpbrl/PromptConstruction-v0", num_envs=8, tokens_per_step=5)
problem = eg.DesignProblem
def planner(name):
    return lambda: eg.make_planner(name, words, features, num_options=3, episodes=4)
def agent(name):
    return lambda: eg.make_agent(name, lanes, num_options=4, episodes=2)
calls = [("planner " + name, planner(name)) for name in PLANNERS]
for name in ("deep", "reference", "reinforce"):
    calls += [("agent " + name, agent(name))]
calls += [("encoder", lambda: eg.load_encoder("minilm").encode(["a fox"]))]
for label, call in calls:
    try:
        call()
        print(label, "| made")
    except ModuleNotFoundError as error:
        print(label, "|", error)
"""


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    lines = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    missing = [line for line in lines if not line.endswith("| made")]
    assert all("pip install" in line and "edpbrl-gym[" in line for line in missing), missing
    said = {line.partition(" |")[0] for line in missing}
    assert said >= {"agent deep", "agent reference"}
    assert "planner adaptive" not in said and "encoder" in said
