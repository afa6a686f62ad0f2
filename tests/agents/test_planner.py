"""The agent that asks through a planner, in the real environment with embeddings from a file: every planner's name."""

import gymnasium
import numpy as np
import pytest

import edpbrl_gym  # noqa: F401  (registers the environment)
from edpbrl_gym.agents.planner import PlannerAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners.registry import PLANNERS, make_planner, make_rule
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.lane_environments import ChainEnv, write_summed_world
from tests.helpers.small_vocabulary import write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
K, D, H = 2, 6, 3
PLANNED = sorted(name for name, row in PLANNERS.items() if row.family != "external" and name != "random")
START = np.full((K, H), 4)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=D, seed=0)


def lanes(world, count=K):
    return gymnasium.make_vec(ID, num_envs=count, vectorization_mode="vector_entry_point", **world)


def made(name, env, **options):
    if name == "dopewolfe":
        options.setdefault("rule_options", {"iterations": 10})
    return make_agent(name, env, **{"num_options": K, "episodes": 4, "seed": 3, **options})


def agent_for(env, **options):
    return made("adaptive", env, **options)


@pytest.fixture(scope="module")
def taste():
    return 5.0 * np.random.default_rng(1).normal(size=D)


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


def questions(world, taste, groups=1, feedback="truncated"):
    user = SyntheticUser(taste, mode="argmax")
    return PreferenceQuery(lanes(world, groups * K), lanes=K, oracle=user, feedback=feedback)


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("name", PLANNED)
def test_every_planner_agent_plays_different_options_and_learns(world, taste, name, feedback, tmp_path):
    venv = questions(world, taste, feedback=feedback)
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
    for copy in copies:
        assert copy.name == agent.name and copy.planner.asked == 3 * H
        assert copy.planner.estimate.theta == pytest.approx(agent.planner.estimate.theta, rel=0.02, abs=0.02)
        copy.observe(found)  # what it knows already
    asked = [one.predict(START)[0] for one in copies]
    np.testing.assert_array_equal(asked[0], asked[1])
    if PLANNERS[name].family != "adaptive":
        assert set(asked[0].tolist()) == set(agent.predict(START)[0].tolist())


@pytest.mark.parametrize(
    ("name", "adapts"), [("adaptive", True), ("bald", True), ("thinning", False), ("random_distinct", False)]
)
def test_what_is_asked_depends_on_the_seed_and_on_answers_only_where_it_adapts(world, taste, name, adapts):
    played = []
    for seed, theta in ((3, taste), (3, taste), (4, taste), (3, -taste)):
        venv = questions(world, theta)
        played.append(play(made(name, venv, seed=seed).learn(), venv, 5))
    np.testing.assert_array_equal(played[0], played[1])
    assert not np.array_equal(played[0], played[2])
    assert np.array_equal(played[0], played[3]) != adapts


@pytest.mark.parametrize("name", ["adaptive", "bald", "dopewolfe"])
def test_groups_side_by_side_ask_different_questions(world, taste, name):
    venv = questions(world, taste, groups=3)
    agent = made(name, venv, posterior="vocabulary").learn()
    play(agent, venv, 3)
    found = venv.comparisons
    last = [tuple(texts) for texts, step in zip(found.texts, found.step, strict=True) if step == H - 1]
    assert len(found) == 3 * 3 * H and len(set(last)) > 5 and agent.planner.estimate.converged
    wanted = agent.planner.prior.fit(found)
    assert agent.planner.estimate.theta == pytest.approx(wanted.theta, rel=0.05, abs=0.05)


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


def test_questions_with_more_options_than_the_agent_asks_are_refused(world, taste):
    venv = questions(world, taste)
    agent = agent_for(venv).learn()
    play(agent, venv, 2, observe=False)
    found = venv.comparisons
    wider = [np.concatenate([found[0].options, found[1].options[:1]])]
    mixed = Comparisons.concatenate(
        [found, Comparisons.of_choices(wider, [0], [9], [0], who=found.who, metadata=found.metadata)]
    )
    with pytest.raises(ValueError, match=f"num_options = {K} options each, as the agent asks, got {K} to {K + 1}"):
        agent.observe(mixed)
    assert not agent.planner.estimate.theta.any()


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PK torn")])
def test_a_damaged_folder_is_said(world, tmp_path, damage):
    made("bald", lanes(world)).learn().save(tmp_path)
    damage(tmp_path / "questions.npz")
    with pytest.raises(ValueError, match=r"questions of a saved agent in .*questions\.npz, could not.*save it again"):
        PlannerAgent.load(tmp_path, lanes(world))


def test_numbers_of_numpy_among_the_options_are_saved_and_what_cannot_be_is_refused(world, taste, tmp_path):
    venv = questions(world, taste)
    agent = made("adaptive_v", venv, rule_options={"exhaustive": np.array(0), "starts": np.int64(3)}).learn()
    play(agent, venv, 2)
    agent.save(tmp_path)
    copy = PlannerAgent.load(tmp_path, lanes(world))
    np.testing.assert_array_equal(copy.predict(START)[0], agent.predict(START)[0])
    assert copy.planner_options == {"rule_options": {"exhaustive": 0, "starts": 3}}
    with pytest.raises(TypeError, match="Expected rule_options of names.*Rule.*saved with it"):
        made("rollout_pool", lanes(world), rule_options={"rule": make_rule("adaptive_v")})


def test_a_prior_or_a_population_is_taken_and_saved(world, taste, tmp_path):
    rng = np.random.default_rng(8)
    people = [(rng.normal(size=(6, K, D)), rng.integers(K, size=6)) for _ in range(20)]
    population = fit_population(people, rounds=3)
    given = GaussianPrior.from_precision(np.diag(np.arange(1.0, D + 1.0)), mean=np.ones(D))
    for prior in (given, population):  # of the population's file nothing is left for the next agent
        venv = questions(world, taste)
        agent = agent_for(venv, prior=prior).learn()
        play(agent, venv, 1)
        words = VocabularyPrior(venv.unwrapped.features)  # the fallback for a person unlike all others
        if prior is given:
            wanted = estimate(venv.comparisons, prior=given).theta
        else:
            wanted = population.with_fallback(words).fit(venv.comparisons).theta
        assert agent.planner.estimate.theta == pytest.approx(wanted, abs=1e-6)
        agent.save(tmp_path)
        loaded = PlannerAgent.load(tmp_path, venv)
        assert type(loaded.prior) is type(prior)
        assert loaded.planner.estimate.theta == pytest.approx(wanted, abs=1e-6)
    agent_for(venv).save(tmp_path)
    assert PlannerAgent.load(tmp_path, venv).prior is None


def test_the_regularization_is_the_prior_of_rules(world, taste):
    venv = questions(world, taste)
    agent = made("adaptive_a", venv, regularization=7.0).learn()
    play(agent, venv, 1)
    theta = estimate(venv.comparisons, prior=GaussianPrior.isotropic(D, 7.0)).theta
    assert agent.planner.estimate.theta == pytest.approx(theta, abs=1e-6)
    with pytest.raises(ValueError, match=r"regularization \(lambda\) > 0, got 0"):
        made("adaptive_a", venv, regularization=0.0).learn()


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("adaptive", {"feedback": "images"}, ValueError, "Expected feedback as one of 'truncated', 'state', 'prompt'"),
        ("adaptive", {"mode": "win"}, ValueError, "Expected mode as one of"),
        ("adaptive", {"score": "A"}, ValueError, "Expected score as one of"),
        ("adaptive", {"draws": -1}, ValueError, "draws >= 0"),
        ("adaptive", {"memory": 0}, ValueError, "memory .*>= 1"),
        ("adaptive", {"prior": 3}, TypeError, "GaussianPrior, a Population or None, got int"),
        ("bald", {"posterior": "flat"}, ValueError, "Expected posterior as one of"),
        ("bald", {"draws": 0}, ValueError, "draws .*>= 1"),
        ("bald", {"rule": "qeubo"}, TypeError, "agent 'bald' has no option 'rule'; its options: draws"),
        ("bald", {"starts": 3}, TypeError, r"'bald' has no option 'starts'; its options: .*rollouts, rule_options\.$"),
        ("bald", {"rule_options": {"beta": 1}}, TypeError, "rule 'bald' has no option 'beta'"),
        ("xyzzy", {}, ValueError, "an agent among .*exact, .*a planner among adaptive, .*bald, .*qeubo.*'xyzzy'"),
    ],
)
def test_wrong_names_and_options(world, name, options, error, message):
    with pytest.raises(error, match=message):
        made(name, lanes(world), **options)


def test_an_environment_without_an_encoder(world):
    env = ChainEnv()
    with pytest.raises(TypeError, match="agent 'adaptive' needs env.unwrapped to have .vocabulary .*ChainEnv has not"):
        agent_for(env)
    full = lanes(world).unwrapped
    env.vocabulary, env.mdp, env.features = full.vocabulary, full.mdp, full.features
    with pytest.raises(TypeError, match="needs env.unwrapped to have .encoder"):
        agent_for(env).learn()
    assert agent_for(env, feedback="state").learn().planner is not None


def test_wrong_calls(world):
    agent = agent_for(lanes(world))
    for call in (lambda: agent.predict(START), lambda: agent.observe(None)):
        with pytest.raises(RuntimeError, match=r"call learn\(\) first"):
            call()
    agent.learn()
    with pytest.raises(ValueError, match="multiple of num_options = 2 lanes, got 3"):
        agent.predict(np.full((3, H), 4))
    with pytest.raises(ValueError, match="multiple of num_options = 2 lanes, got a single one"):
        agent.predict(START[0])
    apart = START.copy()
    apart[0, 0] = 1
    with pytest.raises(ValueError, match=r"Expected the lanes of a group in step, got \[1, 0\]"):
        agent.predict(apart)


@pytest.mark.parametrize("feedback", ["truncated", "state", "prompt"])
def test_in_a_small_vocabulary_an_agent_plans_with_the_other_texts_of_make_planner(feedback, minilm, tmp_path):
    folder = write_vocabulary(tmp_path / "words")
    words, rng = load_vocabulary(folder), np.random.default_rng(0)
    env = lanes({"vocabulary": str(folder)})
    env.unwrapped.model.use_encoder(minilm)
    given = {"num_options": K, "seed": 3, "episodes": 4}
    planners = [
        PlannerAgent(env, feedback=feedback, **given).learn().planner,
        PlannerAgent(env, feedback=feedback, posterior="vocabulary", **given).learn().planner,
        make_planner("adaptive", words, minilm, feedback=feedback, **given),
    ]
    options = minilm.encode([words.prompt(row) for row in rng.integers(8, size=(6 * K, H))]).reshape(6, K, -1)
    asked = []
    for planner in planners:
        assert len(planner.prior.others) == 2
        planner.tell(options, [Response.best(0)] * 6)
        asked.append(planner.ask(np.empty((K, 0), dtype=np.int64)))
    np.testing.assert_array_equal(asked[0], asked[2])
    np.testing.assert_array_equal(asked[1], asked[2])
    rules = PlannerAgent(env, planner="bald", feedback=feedback, regularization=2.0, **given).learn().planner
    assert rules.prior.precision == pytest.approx(2.0 * np.eye(384))
