"""The planner of the rules: the same questions as the rule itself, prompts of several steps, and going back."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners import ComposedFeatures, Planner, TokenFeatures
from edpbrl_gym.planners.registry import RULES, make_rule
from edpbrl_gym.planners.rules import PoolState, Rule, RulePlanner
from edpbrl_gym.planners.rules.planner import sample_trajectories, trajectory_features
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.small_vocabulary import TOKENS

D, K = 5, 3
PRIOR = GaussianPrior.isotropic(D, 1.0)
WORDS = Vocabulary(tuple(TOKENS), tuple(TOKENS.values()))
H = WORDS.horizon
AGNOSTIC = ("random_distinct", "rollout_pool", "greedy_d", "thinning", "dopewolfe", "naive")
SAMPLED = ("thinning", "dopewolfe", "rollout_pool")


def pool(n: int = 30, seed: int = 1000):
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(n, D))
    words = Vocabulary(("items",), (tuple(f"item {i}" for i in range(n)),))
    return words, items, 2.0 * rng.normal(size=D)


def items_planner(rule, n: int = 30, **arguments) -> RulePlanner:
    words, items, _ = pool(n)
    given = {"prior": PRIOR, "num_options": K, "seed": 7, **arguments}
    return RulePlanner(words, rule=rule, options=TokenFeatures(words, items), **given)


def words_planner(rule, feedback: str = "truncated", prior=PRIOR, **arguments) -> RulePlanner:
    encoder = CountingEncoder(D)
    rows = encoder.encode(WORDS.all_tokens)
    options = TokenFeatures(WORDS, rows) if feedback == "state" else ComposedFeatures(WORDS, rows, encoder, prompts=30)
    prior = VocabularyPrior(rows) if prior == "vocabulary" else prior
    given = {"num_options": K, "seed": 7, "rollouts": 40, **arguments}
    return RulePlanner(WORDS, rule=rule, options=options, prior=prior, **given)


def episode(planner, feedback: str = "truncated", *, taste=None, look: bool = False, tell: bool = True):
    """Play one episode; the tokens, (K, H). Answers are the options that the taste likes best."""
    encoder = CountingEncoder(D)
    before = np.empty((K, 0), dtype=np.int64)
    for step in range(H):
        tokens = planner.ask(before)
        assert tokens.shape == (K,) and tokens.min() >= 0 and tokens.max() < WORDS.sizes[step]
        before = np.concatenate([before, tokens[:, None]], axis=1)
        if feedback == "state":
            texts = [WORDS.tokens[step][token] for token in tokens]
        else:
            texts = [WORDS.prompt(row) for row in before]
        assert len(set(texts)) == K  # no two options are the same
        if look:
            _ = planner.estimate, planner.posterior
        if tell:
            features = encoder.encode(texts)
            theta = np.arange(D) - 2.0 if taste is None else taste
            planner.tell(features[None], [int((features @ theta).argmax())])
    return before


@pytest.mark.parametrize("name", sorted(set(RULES) - {"thinning", "dopewolfe"}))
def test_on_items_it_asks_what_the_rule_asks(name: str) -> None:
    _, items, theta = pool()
    planner, rule = items_planner(name, episodes=5), make_rule(name)
    assert isinstance(planner, Planner) and planner.can_reset and planner.name == name
    rng = np.random.default_rng(1000)
    asked, choices = np.empty((0, K), dtype=np.int64), np.empty(0, dtype=np.int64)
    for number in range(7):
        state = PoolState.of(items, PRIOR, asked, choices, num_options=K, seed=[7, number])
        question = planner.ask(np.empty((K, 0)))
        assert sorted(question.tolist()) == sorted(rule.propose(state).tolist())
        asked = np.concatenate([asked, question[None]])
        choices = np.append(choices, -1)
        if number != 3:  # one is never answered
            choices[-1] = (items[question] @ theta + rng.gumbel(size=K)).argmax()
            planner.tell(items[question][None], [int(choices[-1])])
    answered = choices >= 0
    wanted = estimate((items[asked[answered]], choices[answered]), prior=PRIOR)
    assert planner.estimate.theta == pytest.approx(wanted.theta, abs=1e-6)
    assert planner.posterior.precision == pytest.approx(wanted.precision, abs=1e-6)
    assert planner.asked == 7


@pytest.mark.parametrize("name", ["thinning", "dopewolfe"])
def test_batch_rules_plan_so_many_questions_at_once(name: str) -> None:
    _, items, _ = pool()
    planner = items_planner(name, episodes=4, rule_options={"iterations": 20} if name == "dopewolfe" else None)
    agnostic, asked = PRIOR.precision.copy(), []
    for number in (0, 4):
        rng = np.random.default_rng([7, number])
        draws = planner.posterior.draws(32, rng)
        state = PoolState(items, np.zeros(D), PRIOR.precision, draws, agnostic, K, rng=rng, asked=tuple(asked))
        plan = planner.rule.plan(state, 4)
        for row in plan:
            question = planner.ask(np.empty((K, 0)))
            np.testing.assert_array_equal(question, row)
            agnostic = agnostic + fisher_information(items[question][None])
            asked.append(tuple(question.tolist()))
    one = items_planner(name)
    assert one.ask(np.empty((K, 0))).shape == (K,) and not len(one.questions()["plan"])


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_plays_episodes_and_looking_changes_nothing(name: str) -> None:
    options = {"iterations": 10} if name == "dopewolfe" else None
    for feedback, prior in (("truncated", PRIOR), ("truncated", "vocabulary"), ("state", PRIOR)):
        planners = [words_planner(name, feedback, prior, episodes=2, rule_options=options) for _ in range(3)]
        begun = np.empty((K, 0))
        for number in range(2):
            played = [episode(p, feedback, look=p is planners[0]) for p in planners[:2]]
            np.testing.assert_array_equal(played[0], played[1])
            again = episode(planners[2], feedback, taste=2.0 - np.arange(D), tell=number != 1)
            if name in AGNOSTIC:  # whatever is answered, or nothing
                np.testing.assert_array_equal(again, played[0])
            begun = played[0] if number == 0 else begun
        first = planners[0]
        assert first.asked == 2 * H and first.estimate.converged
        first.reset()
        np.testing.assert_array_equal(episode(first, feedback), begun)


@pytest.mark.parametrize("name", ["adaptive_d", "greedy_d", "naive"])
def test_a_later_step_asks_the_best_tokens_behind_each_prefix(name: str) -> None:
    """Against all tuples of tokens of the second step, scored one by one from the features written out."""
    planner = words_planner(name, rule_options={"exhaustive": 5000})
    episode(planner)
    first = np.array([5, 2, 7])  # in no order
    offsets = planner.options.offsets(first[:, None])
    tokens = planner.options.tokens(1)
    past = planner.questions()["past"]
    agnostic = PRIOR.precision + fisher_information(past)
    found = planner.estimate
    second = planner.ask(first[:, None])

    def worth(chosen) -> float:
        options = tokens[list(chosen)] + offsets
        if name == "adaptive_d":
            added, base = fisher_information(options[None], found.theta), found.precision
        else:
            added, base = fisher_information(options[None]), agnostic
        if name == "naive":
            means = past.mean(axis=1)
            added, base = options.T @ options / K, agnostic + means.T @ means
        return float(np.linalg.slogdet(base + added)[1])

    np.testing.assert_allclose(planner.questions()["past"][-1], tokens[second] + offsets)
    every = np.ndindex(*(WORDS.sizes[1],) * K)
    assert worth(second) == pytest.approx(max(map(worth, every)), abs=1e-8)


def test_options_with_the_same_prefix_are_different_tokens() -> None:
    for name in ("bald", "random_distinct", "dueling_thompson", "maximum_regret", "greedy_d", "idrl"):
        planner = words_planner(name)
        for prefixes in ([[3], [3], [3]], [[3], [1], [3]]):
            before = np.array(prefixes)
            tokens = planner.ask(before)
            assert len({(*row, token) for row, token in zip(prefixes, tokens.tolist(), strict=True)}) == K


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_rules_follow_whole_trajectories(name: str, feedback: str) -> None:
    options = {"size": 40, "rule": "bald"} if name == "rollout_pool" else None
    planner = words_planner(name, feedback, episodes=2, rule_options=options)
    rows = sample_trajectories(WORDS.sizes, 40, np.random.default_rng([7, 0, 2]))
    known = {tuple(row) for row in rows.tolist()}
    assert len(known) == len(rows) <= 40
    encoder = CountingEncoder(D)
    features = trajectory_features(planner.options, rows)
    if feedback == "truncated":
        np.testing.assert_array_equal(features, encoder.encode([WORDS.prompt(row) for row in rows]))
    else:
        tokens = [encoder.encode([WORDS.tokens[h][t] for h, t in enumerate(row)]).astype(float) for row in rows]
        np.testing.assert_allclose(features, np.sum(tokens, axis=1), atol=1e-6)
    played = np.concatenate([episode(planner, feedback) for _ in range(6)])
    followed = [tuple(row) in known for row in played.tolist()]
    assert np.mean(followed) > 0.3  # of 40 trajectories with 8 first tokens many pairs begin alike
    assert not planner.questions()["followed"].size
    if name != "rollout_pool":
        other = words_planner(name, feedback, seed=8, rollout_seed=7)
        other.ask(np.empty((K, 0)))
        np.testing.assert_array_equal(other._rollouts[0], rows)
    # episodes side by side don't mix
    one, two = planner.ask(np.empty((K, 0))), planner.ask(np.empty((K, 0)))
    left = planner.questions()["followed"]
    np.testing.assert_array_equal(planner.ask(two[:, None]), left[1][:, 1])
    np.testing.assert_array_equal(planner.ask(one[:, None]), left[0][:, 1])


@pytest.mark.parametrize("prior", [PRIOR, "vocabulary"])
@pytest.mark.parametrize("name", ["bald", "greedy_d", "naive", "dopewolfe", "thinning", "rollout_pool", "idrl"])
def test_a_restored_planner_goes_on_as_the_other(name: str, prior) -> None:
    options = {"dopewolfe": {"iterations": 10}, "rollout_pool": {"rule": "adaptive_v", "size": 40}}.get(name)
    planner = words_planner(name, prior=prior, episodes=4, rule_options=options)
    episode(planner)
    first = planner.ask(np.empty((K, 0)))
    state = planner.state()
    wanted = [planner.ask(first[:, None]), episode(planner), episode(planner)]
    other = words_planner(name, prior=prior, episodes=4, rule_options=options)
    for one in (planner, other):
        one.restore(state)
        assert one.asked == H + 1
        for tokens, found in zip(wanted, [one.ask(first[:, None]), episode(one), episode(one)], strict=True):
            np.testing.assert_array_equal(found, tokens)


@pytest.mark.parametrize("name", ["bald", "thinning", "naive"])
def test_a_saved_session_goes_on_from_the_planners_state(name: str, tmp_path, monkeypatch) -> None:
    given = {"vocabulary": WORDS, "encoder": CountingEncoder(D)}

    def answered(session: Session, count: int) -> list:
        asked = []
        for _ in range(count):
            question = session.ask()
            asked.append(question.tokens[:, -1].tolist())
            session.tell(int((question.features @ np.arange(D)).argmax()))
        return asked

    whole = Session(words_planner(name, episodes=3), num_options=K, **given)
    wanted = answered(whole, 11)
    first = Session(words_planner(name, episodes=3), num_options=K, folder=tmp_path / "one", **given)
    assert answered(first, 7) == wanted[:7]
    first.close()
    planner, replayed = words_planner(name, episodes=3), []
    with monkeypatch.context() as patched:
        patched.setattr(planner, "ask", lambda prefixes: replayed.append(prefixes))
        resumed = Session.resume(tmp_path / "one", planner, **given)
    assert not replayed and planner.asked == 7
    assert answered(resumed, 4) == wanted[7:]
    assert planner.estimate.theta == pytest.approx(whole.planner.estimate.theta, abs=1e-9)
    resumed.close()


def test_an_estimate_is_made_with_one_thread_whoever_looks(monkeypatch) -> None:
    """The next question begins at an estimate that was looked at, so it must be the same to the last bit."""
    _, items, _ = pool()
    planner, threads = items_planner("bald"), []

    def noted(*arguments, **options):
        threads.append(
            max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)
        )
        return estimate(*arguments, **options)

    monkeypatch.setattr("edpbrl_gym.estimation.evidence.estimate", noted)
    planner.tell(items[:K][None], [1])
    with threadpool_limits(2, user_api="blas"):
        _ = planner.estimate
        planner.tell(items[:K][None], [1])
        planner.ask(np.empty((K, 0)))
    assert threads == [1, 1]


def test_a_rule_of_ones_own_asks() -> None:
    def first_and_last(state: PoolState) -> np.ndarray:
        return np.array([0, 1, state.num_items - 1])

    planner = items_planner(Rule("first and last", first_and_last, kind="question", adaptive=False))
    assert planner.ask(np.empty((K, 0))).tolist() == [0, 1, 29]
    assert planner.name == "first and last" and not planner.adaptive


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rule": "thompson"}, ValueError, "Expected rule as one of"),
        ({"rule": 3}, TypeError, "Expected rule as a name or a Rule, got int"),
        ({"rule": make_rule("bald"), "rule_options": {"starts": 2}}, TypeError, "rule_options only with the name"),
        ({"rule_options": {"beta": 2}}, TypeError, "'bald' has no option 'beta'"),
        ({"num_options": 1}, ValueError, "num_options .*>= 2"),
        ({"seed": -1}, ValueError, "seed >= 0"),
        ({"episodes": 0}, ValueError, "episodes .*>= 1"),
        ({"draws": 0}, ValueError, "draws .*>= 1"),
        ({"rollouts": 2}, ValueError, "rollouts >= 3"),
        ({"rollout_seed": -1}, ValueError, "rollout_seed >= 0"),
        ({"prior": GaussianPrior.isotropic(D + 1, 1.0)}, ValueError, "the options' features"),
    ],
)
def test_wrong_arguments(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        items_planner(arguments.pop("rule", "bald"), **arguments)


def test_wrong_features() -> None:
    words, items, _ = pool()
    with pytest.raises(ValueError, match="Expected features of steps with"):
        RulePlanner(WORDS, rule="bald", options=TokenFeatures(words, items), prior=PRIOR, num_options=K)
    with pytest.raises(ValueError, match="at least 3 tokens at every step, got 2"):
        small = Vocabulary(("a", "b"), (("x", "y"), ("u", "v")))
        options = TokenFeatures(small, np.random.default_rng(0).normal(size=(4, D)))
        RulePlanner(small, rule="thinning", options=options, prior=PRIOR, num_options=K).ask(np.empty((K, 0)))
