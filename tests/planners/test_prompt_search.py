"""Questions of complete prompts: the additive model of their embeddings, the search, and the planner that uses both."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design.questions.restrictions import Restrictions
from edpbrl_gym.estimation import GaussianPrior, Posterior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import AdaptivePlanner, PromptFeatures, RandomPlanner, make_planner
from edpbrl_gym.planners.exchange import exchange, search_prompts
from edpbrl_gym.planners.option_features import ComposedFeatures, TokenFeatures, option_features
from edpbrl_gym.planners.scores import ExpectedBest, ExpectedInformation, ExpectedVariance, MutualInformation
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import SEPARATOR
from tests.helpers.clustered_words import ToyEncoder, clustered_rows, make_words
from tests.planners import test_adaptive as partial

SIZES, D, K, H = (70, 70, 60), 16, 4, 3
WORDS, ROWS, ENCODER = partial.WORDS, partial.ROWS, partial.ENCODER
FEATURES = PromptFeatures(WORDS, ROWS, ENCODER)
PRIOR = VocabularyPrior(ROWS)


def make(**options):
    return AdaptivePlanner(WORDS, **{"options": FEATURES, "prior": PRIOR, "num_options": K, "seed": 5, **options})


def episode(planner):
    """The prompts (K, H) of one question."""
    prompts = np.empty((planner.num_options, 0), dtype=np.int64)
    for _ in planner.sizes:
        prompts = np.concatenate([prompts, planner.ask(prompts)[:, None]], axis=1)
    return prompts


def play(planner, count):
    found = []
    for _ in range(count):
        found.append(episode(planner))
        options = partial.shown(found[-1])
        planner.tell(options[None], [partial.best_of(options)])
    return np.array(found)


def test_the_model_is_exact_where_embeddings_are_additive():
    assert FEATURES.explained == pytest.approx(1.0, abs=1e-6)
    prompts = np.array([[3, 60, 7], [0, 0, 59], [69, 5, 5], [8, 9, 10]])
    for step in range(H):
        rows = FEATURES.tokens(step)[prompts[:, step]] + FEATURES.others(prompts, step)
        np.testing.assert_allclose(rows, partial.shown(prompts), atol=1e-5)


def test_a_beginning_stands_for_the_mean_of_its_completions():
    prefixes = np.array([[3, 60], [0, 1]])
    completions = np.array([[[*prefix, last] for last in range(SIZES[2])] for prefix in prefixes])
    mean = np.stack([partial.shown(rows).mean(axis=0) for rows in completions])
    rows = FEATURES.offsets(prefixes) + FEATURES.tokens(2).mean(axis=0)
    np.testing.assert_allclose(rows, mean, atol=1e-5)
    first = FEATURES.tokens(1)[prefixes[:, 1]] + FEATURES.offsets(prefixes[:, :1])
    np.testing.assert_allclose(first, mean, atol=1e-5)


def test_the_model_says_how_good_it_is():
    slightly, strongly = (PromptFeatures(WORDS, ROWS, ToyEncoder(WORDS, ROWS, bend=b)).explained for b in (0.3, 4.0))
    assert strongly < slightly < 1.0
    assert np.isnan(PromptFeatures(WORDS, ROWS, ENCODER, prompts=1).explained)


def test_features_by_feedback():
    for feedback, kind in (("truncated", ComposedFeatures), ("state", TokenFeatures), ("prompt", PromptFeatures)):
        assert isinstance(option_features(feedback, WORDS, ROWS, ENCODER), kind)
    with pytest.raises(ValueError, match="Expected an encoder.*'prompt'"):
        option_features("prompt", WORDS, ROWS, None)
    with pytest.raises(ValueError, match="Expected feedback"):
        option_features("words", WORDS, ROWS, ENCODER)


def small_search(seed, score, sweeps=3):
    sizes = (2, 3, 2)
    words = make_words(sizes)
    rows = clustered_rows(seed, tokens=sum(sizes), d=4, clusters=3)
    features = PromptFeatures(words, rows, ToyEncoder(words, rows))
    tables = [features.tokens(step).astype(np.float32) for step in range(3)]
    everything = np.array(list(itertools.product(*map(range, sizes))))

    def value(prompts):
        score.prepare(tables[0], features.others(prompts, 0))
        return float(score.replacements(prompts[:, 0], 0)[prompts[0, 0]])

    values = [value(everything[[a, b]]) for a, b in itertools.combinations(range(len(everything)), 2)]
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(6):
        start = everything[rng.choice(len(everything), 2, replace=False)]
        prompts = search_prompts(
            score, features, tables, lambda step, lane, prompts: np.ones(sizes[step], dtype=bool), start,
            steps=np.arange(3), candidates=3, sweeps=sweeps, rng=rng,
        )  # fmt: skip
        assert value(prompts) >= value(start) - 1e-6
        found.append(value(prompts))
    return max(found), max(values)


@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_the_best_of_all_pairs_of_prompts(seed):
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(8, 4)) * 3
    for score in (
        ExpectedInformation(draws, Posterior(np.zeros(4), np.linalg.inv(np.eye(4) + 0.5))),
        ExpectedVariance(draws, Posterior(np.zeros(4), np.linalg.inv(np.eye(4) + 0.5))),
        ExpectedBest(draws),
    ):
        found, best = small_search(seed, score)
        assert found == pytest.approx(best, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "count"), [*itertools.product(["information", "variance", "mutual", "best"], [2, 4]), ("best", 1)]
)
def test_the_search_is_that_with_scores_that_know_nothing_of_earlier_sweeps(kind, count):
    """Also of the first prompts' tokens: they are tried only while a prompt has them."""
    sizes, size, d = (30, 40, 20), 8, 5
    differing = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, count])
        tables = [rng.normal(size=(n, d)).astype(np.float32) for n in sizes]
        draws, posterior = 2 * rng.normal(size=(6, d)), Posterior(np.zeros(d), np.eye(d) + 0.5)

        def make(draws=draws, posterior=posterior):
            if kind in ("mutual", "best"):
                return (MutualInformation if kind == "mutual" else ExpectedBest)(draws)
            return (ExpectedInformation if kind == "information" else ExpectedVariance)(draws, posterior)

        def allowed(step, lane, prompts):
            mask = np.ones(sizes[step], dtype=bool)
            mask[np.delete(prompts[:, step], lane)] = False
            return mask

        class Sum:
            def others(self, prompts, step, tables=tables):
                return sum(tables[one][prompts[:, one]].astype(float) for one in range(3) if one != step)

        start = np.stack([rng.permutation(n)[:count] for n in sizes], axis=1)
        given = {"steps": np.arange(3), "candidates": size, "sweeps": 3}
        found = search_prompts(make(), Sum(), tables, allowed, start, **given, rng=np.random.default_rng(seed))

        rng, prompts, value = np.random.default_rng(seed), start.copy(), -np.inf
        drawn = [rng.choice(n, size=size, replace=False) for n in sizes]
        for _ in range(3):
            before = value
            for step in rng.permutation(3):
                pool, score = np.unique([*drawn[step], *prompts[:, step]]), make()
                score.prepare(tables[step][pool], Sum().others(prompts, step))

                def legal(lane, question, step=step, pool=pool, prompts=prompts):
                    shown = prompts.copy()
                    shown[:, step] = pool[question]
                    return allowed(step, lane, shown)[pool]

                places, value = exchange(score, legal, np.searchsorted(pool, prompts[:, step]), sweeps=1, rng=rng)
                prompts[:, step] = pool[places]
            if value <= before + 1e-3 * abs(before):
                break
        differing += not np.array_equal(found, prompts)
    assert not differing


def test_the_prompts_follow_the_plan_of_the_first_step():
    planner, twin = make(), make()
    first = planner.ask(np.empty((K, 0), dtype=int))
    plan = planner.state()["plans"][0]
    np.testing.assert_array_equal(plan[:, 0], first)
    np.testing.assert_array_equal(planner.ask(plan[:, :1]), plan[:, 1])
    np.testing.assert_array_equal(planner.ask(plan[:, :2]), plan[:, 2])
    assert planner.state()["plans"] == ()
    np.testing.assert_array_equal(episode(twin), plan)


def test_prompts_that_began_otherwise_are_completed():
    planner = make()
    planner.ask(np.empty((K, 0), dtype=int))
    before = np.array([[1], [1], [2], [3]])
    second = planner.ask(before)
    third = planner.ask(np.concatenate([before, second[:, None]], axis=1))
    assert second.shape == third.shape == (K,)
    assert len({*zip(before[:, 0], second, third, strict=True)}) == K


def test_episodes_side_by_side_keep_their_plans():
    together, alone = make(), make()
    starts = [together.ask(np.empty((K, 0), dtype=int)) for _ in range(2)]
    plans = together.state()["plans"]
    assert not np.array_equal(plans[0], plans[1])
    for step in (1, 2):
        for start, plan in zip(starts, plans, strict=True):
            np.testing.assert_array_equal(plan[:, 0], start)
            np.testing.assert_array_equal(together.ask(plan[:, :step]), plan[:, step])
    np.testing.assert_array_equal(episode(alone), plans[0])


def test_a_state_in_the_middle_of_an_episode():
    planner, twin = make(), make()
    play(planner, 2)
    first = planner.ask(np.empty((K, 0), dtype=int))
    state = planner.state()
    rest = planner.ask(first[:, None])
    twin.restore(state)
    np.testing.assert_array_equal(twin.ask(first[:, None]), rest)
    planner.reset()
    np.testing.assert_array_equal(play(planner, 2), play(make(), 2))


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4).filter(lambda sizes: np.prod(sizes) >= 6),
    seed=st.integers(0, 3),
)
def test_prompts_always_differ_and_tokens_where_there_are_enough(sizes, seed):
    words = make_words(tuple(sizes))
    rows = np.random.default_rng(seed).normal(size=(sum(sizes), 5))
    features = PromptFeatures(words, rows, ToyEncoder(words, rows), prompts=20)
    planner = AdaptivePlanner(
        words, options=features, prior=GaussianPrior.isotropic(5, 1.0), num_options=3, seed=seed, draws=3
    )
    for _ in range(2):
        prompts = episode(planner)
        assert len({tuple(row) for row in prompts.tolist()}) == 3
        for step, size in enumerate(sizes):
            assert (prompts[:, step] < size).all()
            assert len(set(prompts[:, step])) == 3 or size < 3


def test_restrictions_hold():
    forbidden = tuple((a, 70 + b) for a in range(0, 70, 2) for b in range(0, 70, 3))
    planner = make(restrictions=Restrictions(no_overlap=True, forbidden=forbidden))
    for prompts in play(planner, 4):
        assert not any((row[0], 70 + row[1]) in forbidden for row in prompts.tolist())
    shared = make(restrictions=Restrictions(shared_base="episode"))
    for prompts in play(shared, 2):
        assert len(set(prompts[:, 0])) == 1 and len({tuple(row) for row in prompts.tolist()}) == K


@pytest.mark.parametrize("options", [{"mode": "best"}, {"score": "variance"}, {"score": "trace"}, {"score": "mutual"}])
def test_all_acquisition_functions(options):
    prompts = play(make(**options), 2)
    assert prompts.shape == (2, K, H)


def test_it_learns_more_than_random_prompts():
    errors = []
    for seed in range(6):
        theta = 10.0 * ROWS[30 * seed + 3]
        for planner in (make(seed=seed), RandomPlanner(SIZES, prior=PRIOR, num_options=K, seed=seed)):
            for _ in range(15):
                options = partial.shown(episode(planner))
                planner.tell(options[None], [Response.best(int((options @ theta).argmax()))])
            errors.append(partial.cosine_error(planner.estimate.theta, theta))
    adaptive, at_random = np.array(errors).reshape(-1, 2).mean(axis=0)
    assert adaptive < at_random - 0.02


def test_by_name_and_in_a_session():
    planner = make_planner("adaptive", WORDS, ENCODER, feedback="prompt", num_options=6)
    assert isinstance(planner.options, PromptFeatures)
    with Session(planner, vocabulary=WORDS, encoder=ENCODER, num_options=6, feedback="prompt") as session:
        for _ in range(3):
            question = session.ask()
            assert len(set(question.texts)) == 6
            assert all(len(text.split(SEPARATOR)) == H for text in question.texts)
            session.tell(partial.best_of(question.features.astype(np.float64)))
        again = session.undo()
        np.testing.assert_array_equal(again.tokens, question.tokens)
        session.tell(0)
        assert session.estimate.theta.shape == (D,)
