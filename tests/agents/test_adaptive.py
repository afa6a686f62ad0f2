"""The adaptive agent in the real environment, with embeddings from a file."""

from __future__ import annotations

import itertools
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
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.features import load_encoder
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.clustered_words import cosine_error
from tests.helpers.lane_environments import SIZES, TOKENS, ChainEnv, write_summed_world

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
K, D, H = 2, 6, 3


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Folder of the vocabulary and the encoder's name; a prompt is the sum of its tokens and a little more."""
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=D, seed=0)


def lanes(world, count=K):
    return gymnasium.make_vec(ID, num_envs=count, vectorization_mode="vector_entry_point", **world)


def agent_for(env, **options):
    return make_agent("adaptive", env, **{"num_options": K, "episodes": 4, "seed": 3, **options})


@pytest.fixture(scope="module")
def taste():
    return 5.0 * np.random.default_rng(1).normal(size=D)


def play(agent, venv, episodes, *, observe=True, think=False):
    """Play with ``observe`` after every step; the actions, (steps, lanes)."""
    observation, _ = venv.reset(seed=0)
    state, played = None, []
    for _ in range(episodes * (H + 1) - 1):  # every episode but the last is followed by a step that resets
        actions, state = agent.predict(observation, state, venv.episode_start)
        if think:
            agent.planner.think()
        observation, *_ = venv.step(actions)
        played.append(actions)
        if observe:
            agent.observe(venv.comparisons)
    return np.array(played)


def questions(world, taste, groups=1, feedback="truncated"):
    user = SyntheticUser(taste, mode="argmax")
    return PreferenceQuery(lanes(world, groups * K), lanes=K, oracle=user, feedback=feedback)


def test_registered_and_made_by_name(world):
    agent = agent_for(lanes(world))
    assert isinstance(agent, PlannerAgent) and agent.name == "adaptive"
    assert agent.learn() is agent and agent.design is None
    assert agent.planner.sizes == SIZES and agent.planner.num_options == K


@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_it_learns_the_taste_from_all_answers(world, taste, feedback):
    venv = questions(world, taste, feedback=feedback)
    agent = agent_for(venv, feedback=feedback).learn()
    play(agent, venv, 10)
    found = venv.comparisons
    assert len(found) == 10 * H
    expected = agent.planner.prior.fit(found)
    assert cosine_error(agent.planner.estimate.theta, expected.theta) < 0.01
    assert (found.features @ taste).argmax(axis=1).tolist() == found.choice.tolist()
    right = (found.features @ agent.planner.estimate.theta).argmax(axis=1) == found.choice
    assert right.mean() > 0.9


def test_options_of_a_question_are_distinct_and_legal(world, taste):
    venv = questions(world, taste)
    agent = agent_for(venv).learn()
    play(agent, venv, 6)
    assert all(len(set(texts)) == K for texts in venv.comparisons.texts)


def test_answers_change_what_is_asked(world, taste):
    runs = []
    for theta in (taste, -taste):
        venv = questions(world, theta)
        play(agent := agent_for(venv).learn(), venv, 6)
        runs.append(venv.comparisons.texts)
    assert agent.planner.asked == 6 * H
    assert runs[0] != runs[1]


def test_the_same_seed_asks_the_same(world, taste):
    played = []
    for options in ({}, {}, {"seed": 4}):
        venv = questions(world, taste)
        played.append(play(agent_for(venv, **options).learn(), venv, 4))
    np.testing.assert_array_equal(played[0], played[1])
    assert not np.array_equal(played[0], played[2])


def test_thinking_ahead_changes_nothing(world, taste):
    played = []
    for think in (False, True):
        venv = questions(world, taste)
        played.append(play(agent_for(venv).learn(), venv, 6, think=think))
    np.testing.assert_array_equal(played[0], played[1])


def test_groups_side_by_side_ask_different_questions(world, taste):
    venv = questions(world, taste, groups=3)
    agent = agent_for(venv).learn()
    play(agent, venv, 3)
    found = venv.comparisons
    assert len(found) == 3 * 3 * H
    last = [tuple(texts) for texts, step in zip(found.texts, found.step, strict=True) if step == H - 1]
    assert len(set(last)) > 6
    assert agent.planner.estimate.converged


def test_collect_plays_it_without_answers_in_between(world, taste):
    agent = agent_for(lanes(world, 4 * K)).learn()
    found = collect(lanes(world, 4 * K), agent, SyntheticUser(taste, mode="argmax"), episodes=4)
    assert len(found) == 4 * H and not agent.planner.estimate.theta.any()
    agent.observe(found)
    assert agent.planner.estimate.theta.any()


def test_observe_takes_in_what_is_new_and_begins_anew_with_fewer(world, taste):
    venv = questions(world, taste)
    agent, other = agent_for(venv).learn(), agent_for(venv).learn()
    play(agent, venv, 5, observe=False)
    found = venv.comparisons
    for count in (4, 4, 10, len(found)):
        agent.observe(found.select(np.arange(count)))
    other.observe(found)
    np.testing.assert_array_equal(agent.planner.estimate.theta, other.planner.estimate.theta)
    agent.observe(found.select(np.arange(4)))
    fresh = agent_for(venv).learn()
    fresh.observe(found.select(np.arange(4)))
    np.testing.assert_array_equal(agent.planner.estimate.theta, fresh.planner.estimate.theta)


def test_learn_forgets_the_answers(world, taste):
    venv = questions(world, taste)
    agent = agent_for(venv).learn()
    first = play(agent, venv, 3)
    agent.learn()
    assert not agent.planner.estimate.theta.any()
    venv = questions(world, taste)
    np.testing.assert_array_equal(play(agent, venv, 3), first)


def test_mode_best_finds_one_of_the_best_prompts(world):
    encoder = load_encoder(world["encoder"])
    prompts = [", ".join(tokens) for tokens in itertools.product(*(TOKENS[name] for name in ORDER))]
    ranks = []
    for seed in range(4):
        theta = 5.0 * np.random.default_rng(seed).normal(size=D)
        venv = questions(world, theta)
        play(agent_for(venv, mode="best").learn(), venv, 6)
        found = venv.comparisons
        full = {text for texts, step in zip(found.texts, found.step, strict=True) for text in texts if step == H - 1}
        order = np.argsort(-(encoder.encode(prompts) @ theta))
        ranks.append(min(place for place, number in enumerate(order) if prompts[number] in full))
    assert np.mean(ranks) <= 2.0  # of 24


def test_a_saved_agent_keeps_its_answers_and_the_number_of_its_questions(world, taste, tmp_path):
    venv = questions(world, taste)
    agent = agent_for(venv, score="mutual", draws=8, memory=12).learn()
    play(agent, venv, 5)
    agent.save(tmp_path)
    copies = [PlannerAgent.load(tmp_path, lanes(world)) for _ in range(2)]
    for copy in copies:
        assert (copy.planner.score, copy.planner.draws, copy.planner.memory, copy.seed) == ("mutual", 8, 12, 3)
        assert copy.planner.asked == agent.planner.asked == 5 * H
        assert cosine_error(copy.planner.estimate.theta, agent.planner.estimate.theta) < 0.01
        copy.observe(venv.comparisons)  # what it knows already
    start = np.array([[4] * H] * K)
    np.testing.assert_array_equal(copies[0].predict(start)[0], copies[1].predict(start)[0])


def test_an_agent_saved_before_it_learned(world, taste, tmp_path):
    venv = questions(world, taste)
    agent = agent_for(venv).learn()
    play(agent, venv, 1)
    agent.save(tmp_path)
    agent_for(lanes(world)).save(tmp_path)  # over the other one
    copy = PlannerAgent.load(tmp_path, lanes(world))
    with pytest.raises(RuntimeError, match=r"no planner yet; call learn\(\) first"):
        copy.predict(np.full((K, H), 4))
    assert json.loads((tmp_path / "agent.json").read_text())["arguments"]["feedback"] == "truncated"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "images"}, "Expected feedback as one of 'truncated', 'state', 'prompt', got 'images'"),
        ({"mode": "win"}, "Expected mode as one of"),
        ({"score": "A"}, "Expected score as one of"),
        ({"draws": -1}, "draws >= 0"),
        ({"memory": 0}, "memory .*>= 1"),
    ],
)
def test_wrong_options(world, options, message):
    with pytest.raises(ValueError, match=message):
        agent_for(lanes(world), **options)


def test_an_environment_without_prompts():
    with pytest.raises(TypeError, match="agent 'adaptive' needs env.unwrapped to have .vocabulary .*ChainEnv has not"):
        agent_for(ChainEnv())


def test_an_environment_without_an_encoder(world):
    env = ChainEnv()
    full = lanes(world).unwrapped
    env.vocabulary, env.mdp, env.features = full.vocabulary, full.mdp, full.features
    with pytest.raises(TypeError, match="needs env.unwrapped to have .encoder"):
        agent_for(env).learn()
    assert agent_for(env, feedback="state").learn().planner is not None


def test_wrong_calls(world):
    agent = agent_for(lanes(world))
    start = np.full((K, H), 4)
    for call in (lambda: agent.predict(start), lambda: agent.observe(None)):
        with pytest.raises(RuntimeError, match=r"call learn\(\) first"):
            call()
    agent.learn()
    with pytest.raises(ValueError, match="multiple of num_options = 2 lanes, got 3"):
        agent.predict(np.full((3, H), 4))
    with pytest.raises(ValueError, match="multiple of num_options = 2 lanes, got a single one"):
        agent.predict(start[0])
    apart = start.copy()
    apart[0, 0] = 1
    with pytest.raises(ValueError, match=r"Expected the lanes of a group in step, got \[1, 0\]"):
        agent.predict(apart)


def test_a_given_prior_is_taken_as_it_is_and_saved(world, taste, tmp_path):
    prior = GaussianPrior.from_precision(np.diag(np.arange(1.0, D + 1.0)), mean=np.ones(D))
    venv = PreferenceQuery(lanes(world), lanes=K, oracle=SyntheticUser(taste, mode="argmax"))
    agent = agent_for(venv, prior=prior).learn()
    play(agent, venv, 2)
    wanted = estimate(venv.comparisons, prior=prior)
    assert agent.planner.estimate.theta == pytest.approx(wanted.theta, abs=1e-6)
    agent.save(tmp_path / "agent")
    loaded = PlannerAgent.load(tmp_path / "agent", venv)
    assert loaded.planner.estimate.theta == pytest.approx(wanted.theta, abs=1e-6)
    agent_for(venv).save(tmp_path / "agent")  # without one: the old file must go
    assert PlannerAgent.load(tmp_path / "agent", venv).prior is None
    with pytest.raises(TypeError, match="GaussianPrior, a Population or None, got int"):
        agent_for(venv, prior=3)


def test_a_population_is_a_prior_and_is_saved(world, taste, tmp_path):
    rng = np.random.default_rng(8)
    people = [(rng.normal(size=(6, K, D)), rng.integers(K, size=6)) for _ in range(20)]
    population = fit_population(people, rounds=3)
    venv = PreferenceQuery(lanes(world), lanes=K, oracle=SyntheticUser(taste, mode="argmax"))
    agent = agent_for(venv, prior=population).learn()
    play(agent, venv, 1)
    words = VocabularyPrior(venv.unwrapped.features)  # the fallback for a person unlike all others
    wanted = population.with_fallback(words).fit(venv.comparisons).theta
    assert agent.planner.estimate.theta == pytest.approx(wanted, abs=1e-9)
    agent.save(tmp_path / "agent")
    loaded = PlannerAgent.load(tmp_path / "agent", venv)
    assert loaded.prior.fingerprint == population.fingerprint
    assert loaded.planner.estimate.theta == pytest.approx(wanted, abs=1e-9)
    agent_for(venv, prior=GaussianPrior.isotropic(D, 1.0)).save(tmp_path / "agent")  # the population must go
    assert isinstance(PlannerAgent.load(tmp_path / "agent", venv).prior, GaussianPrior)


def test_collect_tells_the_agent_what_was_answered_if_asked_to(world, taste):
    """One group of lanes, told after every step, asks what `play` asks with ``observe``; untold, something else."""
    found = {}
    for observe in (True, False):
        user = SyntheticUser(taste, mode="argmax")
        env = lanes(world)
        agent = agent_for(env).learn()
        found[observe] = collect(env, agent, user, episodes=6, observe=observe)
        assert len(found[observe]) == 6 * H
        assert (len(agent._answers or ()) == 6 * H) == observe
    assert not np.array_equal(found[True].features, found[False].features)
    venv = PreferenceQuery(lanes(world), lanes=K, oracle=SyntheticUser(taste, mode="argmax"))
    agent = agent_for(venv).learn()
    play(agent, venv, 6)
    assert venv.comparisons.features.tolist() == found[True].features.tolist()
