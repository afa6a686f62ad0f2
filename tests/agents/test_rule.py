"""The agent of the rules in the real environment: every rule plays, asks different options, is saved and loaded."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest

import edpbrl_gym  # noqa: F401  (registers the environment)
from edpbrl_gym.agents.planner import PlannerAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import ComposedFeatures, RandomPlanner, make_planner
from edpbrl_gym.planners.registry import PLANNERS, make_rule
from tests.helpers.lane_environments import ChainEnv, write_summed_world

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
K, D, H = 2, 6, 3
KIND = {"num_options": K, "seed": 3}
PLANNED = sorted(name for name, row in PLANNERS.items() if row.family != "external" and name != "random")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Folder of the vocabulary and the encoder's name; a prompt is the sum of its tokens and a little more."""
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=D, seed=1000)


def lanes(world, count=K):
    return gymnasium.make_vec(ID, num_envs=count, vectorization_mode="vector_entry_point", **world)


def made(name, env, **options):
    if name == "dopewolfe":
        options.setdefault("rule_options", {"iterations": 10})
    return make_agent(name, env, **{"num_options": K, "episodes": 4, "seed": 3, **options})


def questions(world, groups=1, feedback="truncated", sign=1.0):
    taste = sign * 5.0 * np.random.default_rng(1001).normal(size=D)
    user = SyntheticUser(taste, mode="argmax")
    return PreferenceQuery(lanes(world, groups * K), lanes=K, oracle=user, feedback=feedback)


def play(agent, venv, episodes, *, observe=True):
    """Play with ``observe`` after every step; the actions, (steps, lanes)."""
    observation, _ = venv.reset(seed=0)
    state, played = None, []
    for _ in range(episodes * (H + 1) - 1):  # every episode but the last is followed by a step that resets
        actions, state = agent.predict(observation, state, venv.episode_start)
        observation, *_ = venv.step(actions)
        played.append(actions)
        if observe:
            agent.observe(venv.comparisons)
    return np.array(played)


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("name", PLANNED)
def test_every_planner_agent_plays_different_options_and_learns(world, name, feedback, tmp_path):
    venv = questions(world, feedback=feedback)
    agent = made(name, venv, feedback=feedback)
    assert isinstance(agent, PlannerAgent) and agent.name == name
    assert agent.learn() is agent and agent.design is None
    play(agent, venv, 3)
    found = venv.comparisons
    assert len(found) == 3 * H == agent.planner.asked
    assert all(len(set(texts)) == K for texts in found.texts)
    if PLANNERS[name].family != "adaptive":  # the ridge's exact estimate
        wanted = estimate(found, prior=GaussianPrior.isotropic(D, 1.0))
        assert agent.planner.estimate.theta == pytest.approx(wanted.theta, abs=1e-6)
    agent.save(tmp_path)
    copies = [type(agent).load(tmp_path, lanes(world)) for _ in range(2)]
    start = np.array([[4] * H] * K)
    for copy in copies:
        assert copy.name == agent.name and copy.planner.asked == 3 * H
        assert copy.planner.estimate.theta == pytest.approx(agent.planner.estimate.theta, rel=0.02, abs=0.02)
        copy.observe(found)  # what it knows already
    asked = [one.predict(start)[0] for one in copies]
    np.testing.assert_array_equal(asked[0], asked[1])
    if PLANNERS[name].family != "adaptive":
        assert set(asked[0].tolist()) == set(agent.predict(start)[0].tolist())


@pytest.mark.parametrize("name", ["bald", "thinning", "random_distinct"])
def test_the_same_seed_asks_the_same(world, name):
    played = []
    for seed in (3, 3, 4):
        venv = questions(world)
        played.append(play(made(name, venv, seed=seed).learn(), venv, 4))
    np.testing.assert_array_equal(played[0], played[1])
    assert not np.array_equal(played[0], played[2])


def test_answers_change_what_adaptive_rules_ask_and_nothing_else(world):
    for name, changes in (("qeubo", True), ("greedy_d", False)):  # adaptive_d asks a taste and its opposite the same
        played = []
        for sign in (1.0, -1.0):
            venv = questions(world, sign=sign)
            played.append(play(made(name, venv).learn(), venv, 5))
        assert np.array_equal(*played) != changes


def test_a_plan_is_saved_with_the_agent(world, tmp_path):
    venv = questions(world)
    agent = made("thinning", venv, episodes=6).learn()
    play(agent, venv, 2)
    agent.save(tmp_path)
    copy = PlannerAgent.load(tmp_path, lanes(world))
    assert len(copy.planner.questions()["plan"]) == 4
    other = questions(world)
    np.testing.assert_array_equal(play(agent, questions(world), 4, observe=False), play(copy, other, 4, observe=False))


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PK torn")])
def test_a_damaged_folder_is_said(world, tmp_path, damage):
    made("bald", lanes(world)).learn().save(tmp_path)
    damage(tmp_path / "questions.npz")
    with pytest.raises(ValueError, match=r"questions of a saved agent in .*questions\.npz, could not.*save it again"):
        PlannerAgent.load(tmp_path, lanes(world))


def test_groups_side_by_side_and_the_posterior_of_the_words(world):
    for name in ("bald", "dopewolfe"):
        venv = questions(world, groups=3)
        agent = made(name, venv, posterior="vocabulary").learn()
        play(agent, venv, 3)
        found = venv.comparisons
        last = [tuple(texts) for texts, step in zip(found.texts, found.step, strict=True) if step == H - 1]
        assert len(found) == 3 * 3 * H and len(set(last)) > 5 and agent.planner.estimate.converged
        wanted = agent.planner.prior.fit(found)
        assert agent.planner.estimate.theta == pytest.approx(wanted.theta, rel=0.05, abs=0.05)


def test_collect_plays_a_rule(world):
    agent = made("qeubo", lanes(world)).learn()
    taste = np.random.default_rng(1001).normal(size=D)
    found = collect(lanes(world), agent, SyntheticUser(taste, mode="argmax"), episodes=3, observe=True)
    assert len(found) == 3 * H and agent.planner.estimate.theta.any()


def test_a_given_prior_and_the_regularization(world):
    prior = GaussianPrior.from_precision(np.diag(np.arange(1.0, D + 1.0)), mean=np.ones(D))
    for options, wanted in (
        ({"prior": prior}, prior),
        ({"regularization": 7.0}, GaussianPrior.isotropic(D, 7.0)),
    ):
        venv = questions(world)
        agent = made("adaptive_a", venv, **options).learn()
        play(agent, venv, 1)
        theta = estimate(venv.comparisons, prior=wanted).theta
        assert agent.planner.estimate.theta == pytest.approx(theta, abs=1e-6)
    with pytest.raises(ValueError, match=r"regularization \(lambda\) > 0, got 0"):
        made("adaptive_a", lanes(world), regularization=0.0).learn()


def test_options_and_saved_arguments(world, tmp_path):
    agent = made("rollout_pool", lanes(world), rule_options={"rule": "adaptive_d", "size": 5}, rollouts=9, draws=4)
    assert agent.learn().planner.rule.size == 5 and agent.planner.rule.rule.name == "adaptive_d"
    agent.save(tmp_path)
    saved = json.loads((tmp_path / "agent.json").read_text())
    assert saved["class"] == "edpbrl_gym.agents.planner:PlannerAgent"
    assert saved["arguments"]["rule_options"] == {"rule": "adaptive_d", "size": 5}
    copy = PlannerAgent.load(tmp_path, lanes(world))
    assert (copy.name, copy.planner.name, copy.posterior) == ("rollout_pool", "rollout_pool", None)
    assert (copy.planner.rollouts, copy.planner.draws, copy.planner.rule.rule.name) == (9, 4, "adaptive_d")
    made("bald", lanes(world)).save(tmp_path)  # over the other one, before it learned
    with np.load(tmp_path / "questions.npz") as stored:
        assert not stored.files
    assert PlannerAgent.load(tmp_path, lanes(world)).planner is None


def test_arrays_among_the_options_are_saved_and_what_cannot_be_is_refused(world, tmp_path):
    sigma = np.diag(np.arange(1.0, D + 1.0))
    venv = questions(world)
    agent = made("adaptive_v", venv, rule_options={"sigma": sigma, "starts": np.int64(3)}).learn()
    play(agent, venv, 2)
    agent.save(tmp_path)
    copy = PlannerAgent.load(tmp_path, lanes(world))
    start = np.array([[4] * H] * K)
    np.testing.assert_array_equal(copy.predict(start)[0], agent.predict(start)[0])
    assert copy.planner_options == {"rule_options": {"sigma": sigma.tolist(), "starts": 3}}
    with pytest.raises(TypeError, match="AdaptiveV object.*a rule is given by its name"):
        made("rollout_pool", lanes(world), rule_options={"rule": make_rule("adaptive_v")})


def test_names_and_wrong_options(world):
    env = lanes(world)
    with pytest.raises(
        ValueError, match="an agent among .*exact, .*a planner among adaptive, .*bald, .*qeubo.*'thompson'"
    ):
        made("thompson", env)
    with pytest.raises(TypeError, match="agent 'bald' has no option 'rule'; its options: draws"):
        made("bald", env, rule="qeubo")
    with pytest.raises(TypeError, match=r"'bald' has no option 'starts'; its options: .*rollouts, rule_options\.$"):
        made("bald", env, starts=3)
    with pytest.raises(TypeError, match="rule 'bald' has no option 'beta'"):
        made("bald", env, rule_options={"beta": 1})
    for options, message in (
        ({"posterior": "flat"}, "Expected posterior as one of"),
        ({"feedback": "images"}, "Expected feedback as one of"),
        ({"draws": 0}, "draws .*>= 1"),
        ({"rollouts": 1}, "rollouts >= 2"),
    ):
        with pytest.raises(ValueError, match=message):
            made("bald", env, **options)
    with pytest.raises(TypeError, match="agent 'bald' needs env.unwrapped to have .vocabulary"):
        made("bald", ChainEnv())
    assert make_agent("random", env, num_options=K, episodes=2).name == "random"  # the agent, not the rule
    assert not isinstance(make_agent("random", env, num_options=K, episodes=2), PlannerAgent)
    with pytest.raises(ValueError, match="Expected a planner among adaptive, .*got 'thompson'"):
        PlannerAgent(env, planner="thompson", num_options=K, episodes=2)


def test_a_planner_that_is_made_already(world, tmp_path):
    base = lanes(world).unwrapped
    given = make_planner(
        "bald", base.vocabulary, ComposedFeatures(base.vocabulary, base.features, base.encoder), **KIND
    )
    played = []
    for planner in ("bald", given):
        venv = questions(world)
        agent = PlannerAgent(venv, planner=planner, episodes=4, **KIND).learn()
        played.append(play(agent, venv, 3))
        assert agent.name == "bald" and not agent.static and agent.planner.asked == 3 * H
    np.testing.assert_array_equal(*played)
    assert agent.learn().planner is given and given.asked == 0
    with pytest.raises(TypeError, match="given by name, so that the agent can be saved"):
        agent.save(tmp_path)
    with pytest.raises(ValueError, match="planner of K = 3 options, got one of 2"):
        PlannerAgent(lanes(world, 3), planner=given, num_options=3, episodes=2)
    uniform = PlannerAgent(lanes(world), planner="random", **KIND, episodes=2)
    assert uniform.static and isinstance(uniform.learn().planner, RandomPlanner)
