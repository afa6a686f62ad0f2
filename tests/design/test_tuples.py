"""Realised query sets against brute force, recomputation from scratch and the restrictions they must keep."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import (
    DesignProblem,
    InfeasibleRestrictionsError,
    QuerySet,
    Restrictions,
    frank_wolfe,
    given_query_set,
    make_criterion,
    newton,
    query_set,
    question_bound,
    truncated_query_set,
)
from edpbrl_gym.design.criteria import Criterion
from edpbrl_gym.design.query_sets.bound import heaviest_subset
from edpbrl_gym.design.query_sets.exchange import PromptExchange, gather_options
from edpbrl_gym.design.query_sets.repair import complete_episode
from edpbrl_gym.design.query_sets.rounding import apportion, balanced_questions
from edpbrl_gym.design.query_sets.state import InverseState
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.design_cases import problem_of, prompt_problem, random_mdp_problem

CRITERIA = ["D", "A", "V"]


def scratch_value(problem: DesignProblem, rows: np.ndarray, features=None) -> float:
    """The criterion of rows (T, K, H), with loops and numpy only."""
    features = problem.features if features is None else features
    information = np.array(problem.prior)
    for episode in rows:
        for shown in episode.T:
            options = np.asarray(features[shown], dtype=float)
            information += np.cov(options.T, bias=True)
    if problem.criterion.name == "D":
        return float(np.linalg.slogdet(information)[1])
    target = np.eye(len(information)) if problem.criterion.name == "A" else problem.criterion.matrix
    return -float(np.trace(target @ np.linalg.inv(information)))


def blocks_of(problem: DesignProblem) -> list[np.ndarray]:
    return [problem.features[problem.mdp.step_pairs(step)] for step in range(problem.horizon)]


def random_tokens(problem: DesignProblem, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (problem.episodes, problem.num_policies)
    return np.stack([rng.integers(size, size=shape) for size in problem.mdp.sizes], axis=-1)


def efficiency(problem: DesignProblem, value: float, best: float) -> float:
    return problem.criterion.efficiency(value, best, problem.dimension)


# -- value and certificate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_value_is_that_of_the_realised_information(criterion, lanes):
    problem = prompt_problem(criterion, num_policies=lanes, episodes=7)
    design = newton(problem)
    found = query_set(design, seed=1)
    assert found.tokens.shape == (7, lanes, 3) and found.status == "converged"
    assert found.value == pytest.approx(scratch_value(problem, found.rows), rel=1e-10)
    np.testing.assert_allclose(found.information, found.information.T, atol=1e-12)
    assert found.value <= design.upper_bound + 1e-9
    assert found.efficiency == pytest.approx(efficiency(problem, found.value, design.upper_bound))
    again = given_query_set(problem, found.tokens, upper_bound=design.upper_bound)
    assert again.value == pytest.approx(found.value) and again.status == "given"
    np.testing.assert_array_equal(again.rows, found.rows)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_exchange_beats_draws_from_the_design_and_never_falls(criterion):
    problem = prompt_problem(criterion, num_policies=3, episodes=12, sizes=(15, 12, 10), dimension=8)
    design = newton(problem)
    found = query_set(design, seed=0, restarts=3)
    for restart in range(3):
        values = [record.value for record in found.history if record.restart == restart]
        assert len(values) > 1 and all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    drawn = [
        given_query_set(problem, problem.mdp.sample(design.policies[0], 36, rng).actions.reshape(12, 3, 3)).value
        for rng in map(np.random.default_rng, range(10))
    ]
    assert found.value > max(drawn)
    assert found.value == max(record.value for record in found.history)


def test_the_same_seed_gives_the_same_set():
    design = newton(prompt_problem("D", episodes=9))
    one, other = query_set(design, seed=4, restarts=2), query_set(design, seed=4, restarts=2)
    np.testing.assert_array_equal(one.tokens, other.tokens)
    assert query_set(design, seed=5).seed == 5


@pytest.mark.parametrize("criterion", CRITERIA)
def test_exchange_finds_the_best_of_all_assignments(criterion):
    """Two episodes of two lanes and two steps: every assignment is evaluated."""
    close = []
    for seed in range(4):
        problem = prompt_problem(criterion, seed, sizes=(4, 3), dimension=3, num_policies=2, episodes=2)
        pairs = [list(itertools.combinations(range(size), 2)) for size in (4, 3)]
        episodes = [np.array([[a[0], b[0]], [a[1], b[1]]]) for a, b in itertools.product(*pairs)]
        best = max(
            given_query_set(problem, np.stack(both)).value
            for both in itertools.combinations_with_replacement(episodes, 2)
        )
        design = newton(problem)
        for restart in range(6):
            found = query_set(design, seed=restart)
            assert found.value <= best + 1e-9
            close.append(efficiency(problem, found.value, best) >= 0.99)
    assert np.mean(close) > 0.5
    # and with a few restarts the best of all
    assert query_set(design, seed=0, restarts=20).value == pytest.approx(best, rel=1e-3)


# -- incremental updates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
def test_updates_agree_with_a_new_factorisation(criterion):
    problem = prompt_problem(criterion, dimension=6)
    rng = np.random.default_rng(0)
    state = InverseState(problem.criterion, problem.prior)
    state.reset(rng.standard_normal((10, 4, 6)))
    for size in (1, 2, 5):
        for _ in range(40):
            rows, signs = 0.3 * rng.standard_normal((size, 6)), rng.choice([-0.1, 0.2], size=size)
            before, expected = state.value, state.gain(rows, signs)
            inverse, target = state.without(rows, signs)
            state.change(rows, signs)
            assert state.value - before == pytest.approx(expected)
            np.testing.assert_allclose(inverse, state.inverse, atol=1e-12)
            assert (target is None) == (criterion == "D")
    value, inverse, target = state.value, state.inverse.copy(), None if criterion == "D" else state.target.copy()
    assert state.refresh() == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(inverse, state.inverse, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(state.inverse, np.linalg.inv(state.information), rtol=1e-8, atol=1e-10)
    if target is not None:
        np.testing.assert_allclose(target, state.target, rtol=1e-7, atol=1e-8)
    assert state.value == pytest.approx(problem.criterion.value(state.information))


def test_a_change_that_would_make_the_information_singular_has_no_gain():
    problem = prompt_problem("D", dimension=3)
    state = InverseState(problem.criterion, np.eye(3))
    state.factorise(np.eye(3))
    assert state.gain(np.eye(3)[:1], np.array([-1.0])) == -np.inf
    assert state.gain(np.eye(3)[:1], np.array([-2.0])) == -np.inf


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_scores_are_the_gains_of_all_replacements(criterion, kind):
    problem = prompt_problem(criterion, num_policies=3, episodes=4, sizes=(7, 6))
    tokens = random_tokens(problem, 0)
    blocks = [block.astype(kind) for block in blocks_of(problem)]
    state = InverseState(problem.criterion, problem.prior)
    exchange = PromptExchange(blocks, tokens, state, Restrictions(distinct=False).rules(problem.mdp))
    start = state.value
    for step in (0, 1):
        scores = exchange.scores(step, exchange.norms(blocks[step]), np.arange(4))
        for episode, lane, token in itertools.product(range(4), range(3), range(problem.mdp.sizes[step])):
            changed = tokens.copy()
            changed[episode, lane, step] = token
            if token == tokens[episode, lane, step]:
                assert scores[episode, lane, token] == -np.inf
                continue
            gained = scratch_value(problem, changed + problem.mdp.offsets[:-1]) - start
            assert scores[episode, lane, token] == pytest.approx(
                gained, rel=1e-6, abs=1e-9 if kind == np.float64 else 1e-4
            )


@pytest.mark.parametrize("criterion", CRITERIA)
def test_norms_follow_the_changes(criterion):
    from edpbrl_gym.design.query_sets.exchange import norms_after

    problem = prompt_problem(criterion, num_policies=3, episodes=4)
    state = InverseState(problem.criterion, problem.prior)
    exchange = PromptExchange(blocks_of(problem), random_tokens(problem, 1), state, Restrictions().rules(problem.mdp))
    block, rng = blocks_of(problem)[0], np.random.default_rng(2)
    norms = exchange.norms(block)
    for _ in range(5):
        change = state.change(rng.standard_normal((2, 5)), np.array([-0.01, 0.2]))
        norms = norms_after(block, norms, change)
    for found, expected in zip(norms, exchange.norms(block), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# -- rounding -------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 200), st.integers(0, 10))
def test_counts_are_within_one_of_the_shares(raw, total, seed):
    weights = np.array(raw) + (0.0 if sum(raw) > 0.1 else 1.0)
    counts = apportion(weights / weights.sum(), total, np.random.default_rng(seed))
    assert counts.sum() == total
    assert (np.abs(counts - total * weights / weights.sum()) < 1 + 1e-6).all()


def test_dealing_balances_the_questions():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((40, 6))
    tokens = rng.integers(40, size=120)
    dealt = balanced_questions(features, tokens, 4, rng)
    np.testing.assert_array_equal(np.sort(dealt.ravel()), np.sort(tokens))

    def spread(questions):
        return float(np.trace(np.cov(features[questions].mean(axis=1).T)))

    assert spread(dealt) < 0.5 * spread(rng.permutation(tokens).reshape(-1, 4))
    assert np.mean([len(set(question)) == 4 for question in dealt.tolist()]) > 0.9


# -- restrictions ---------------------------------------------------------------------------------------------------


@st.composite
def restricted_problems(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    total = sum(sizes)
    identity = draw(st.none() | st.lists(st.integers(0, total), min_size=total, max_size=total).map(tuple))
    pairs = st.tuples(st.integers(0, total - 1), st.integers(0, total - 1))
    restrictions = Restrictions(
        distinct=draw(st.booleans()),
        no_overlap=draw(st.booleans()),
        forbidden=tuple(draw(st.lists(pairs, max_size=4))),
        shared_base=draw(st.sampled_from(["free", "episode", "all"])),
        identity=identity,
    )
    problem = prompt_problem("D", sizes=sizes, dimension=3, num_policies=draw(st.integers(2, 3)), episodes=3)
    return problem, restrictions


def lawful(lanes: np.ndarray, sizes: tuple[int, ...], wanted: Restrictions) -> bool:
    """The restrictions of one episode by their definition."""
    first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    names = np.arange(sum(sizes)) if wanted.identity is None else np.array(wanted.identity)
    shown = names[lanes + first].tolist()
    shared = wanted.shared_base != "free"
    if shared and len({lane[0] for lane in shown}) > 1:
        return False
    banned = [{int(names[a]), int(names[b])} for a, b in wanted.forbidden]
    for one, other in itertools.combinations(shown, 2):
        for i, j in itertools.product(range(len(sizes)), repeat=2):
            same, bases = one[i] == other[j], shared and i == j == 0
            if same and not bases and (wanted.no_overlap or (wanted.distinct and i == j)):
                return False
    return not any({a, b} in banned for lane in shown for a, b in itertools.combinations(lane, 2))


@settings(max_examples=60)
@given(restricted_problems(), st.integers(0, 3))
def test_restrictions_are_kept_or_impossible(case, seed):
    problem, wanted = case
    sizes, lanes = problem.mdp.sizes, problem.num_policies
    try:
        found = query_set(frank_wolfe(problem, max_iterations=3), restrictions=wanted, seed=seed, max_sweeps=3)
    except InfeasibleRestrictionsError:
        one = [np.array(lane) for lane in itertools.product(*map(range, sizes))]
        if len(one) ** lanes <= 4000:
            assert not any(lawful(np.stack(both), sizes, wanted) for both in itertools.product(one, repeat=lanes))
        return
    rules = wanted.rules(problem.mdp)
    assert rules.violations(found.tokens) == []
    assert all(lawful(episode, sizes, wanted) for episode in found.tokens)
    if wanted.shared_base == "all":
        assert len(np.unique(found.tokens[:, :, 0])) == 1


@settings(max_examples=60)
@given(restricted_problems(), st.integers(0, 1000))
def test_allowed_tokens_are_those_that_violate_nothing(case, seed):
    problem, wanted = case
    sizes, rules = problem.mdp.sizes, wanted.rules(problem.mdp)
    lanes = random_tokens(problem, seed)[0]
    assert (rules.episode_violations(lanes) == []) == lawful(lanes, sizes, wanted)
    rng = np.random.default_rng(seed)
    lane, step = int(rng.integers(len(lanes))), int(rng.integers(len(sizes)))
    others = np.delete(lanes, lane, axis=0)
    if not rules.episode_violations(lanes):
        mask = rules.allowed(step, lanes[lane], others)
        for token in range(sizes[step]):
            changed = lanes.copy()
            changed[lane, step] = token
            assert mask[token] == lawful(changed, sizes, wanted)
        some = rng.integers(sizes[step], size=3)
        np.testing.assert_array_equal(rules.allowed(step, lanes[lane], others, some), mask[some])
        whole = np.array(list(itertools.product(*map(range, sizes))))
        expected = [lawful(np.insert(others, lane, candidate, axis=0), sizes, wanted) for candidate in whole]
        np.testing.assert_array_equal(rules.allowed_lanes(whole, others), expected)


def test_unknown_tokens_restrict_nothing():
    rules = Restrictions(no_overlap=True, forbidden=((0, 3),)).rules(PromptMDP((3, 4)))
    assert rules.allowed(0, [-1, -1], [[-1, -1]]).all()
    assert rules.allowed(0, [], []).all() and not rules.allowed(1, [0], [])[0]
    np.testing.assert_array_equal(rules.allowed(1, [0], [[1]]), [False, True, True, True])
    np.testing.assert_array_equal(rules.allowed(0, np.empty(0, int), [[1]]), [True, False, True])
    np.testing.assert_array_equal(rules.allowed(0, [-1, 0], [[-1, 2]]), [False, True, True])


def test_a_proposal_keeps_what_is_legal():
    rules = Restrictions().rules(PromptMDP((6, 6)))
    proposal = np.array([[0, 1], [0, 2], [3, 2]])
    found = complete_episode(rules, proposal, np.random.default_rng(0))
    assert not rules.episode_violations(found)
    assert (found != proposal).sum() == 2  # one option in each of the two questions that repeated a token


def test_restrictions_by_text():
    words = Vocabulary(("a", "b"), (("red cat", "dog"), ("Red  cat", "snow", "rain")))
    wanted = Restrictions.of_texts(words, forbidden=[("DOG", "snow")], shared_base="all", base="dog", no_overlap=True)
    assert wanted.forbidden == ((1, 3),) and wanted.base == 1 and wanted.identity == (0, 1, 0, 2, 3)
    rules = wanted.rules(PromptMDP(words.sizes))
    np.testing.assert_array_equal(rules.allowed(1, [1], [[1, 0]]), [False, False, True])
    with pytest.raises(ValueError, match="token of the vocabulary, got 'cow'"):
        Restrictions.of_texts(words, forbidden=[("cow", "snow")])
    with pytest.raises(ValueError, match="2 tokens of the first step .*got 'snow'"):
        Restrictions.of_texts(words, shared_base="all", base="snow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared_base": "some"}, "shared_base as one of 'free', 'episode', 'all'"),
        ({"base": 1}, 'shared_base="all" where a base is given'),
        ({"shared_base": "all", "base": 9}, "base among the rows 0..1"),
        ({"forbidden": ((0, 99),)}, "forbidden pairs of rows in 0..5, got \\(0, 99\\)"),
        ({"identity": (0, 1)}, "identity for each of the 6 feature rows, got 2"),
    ],
)
def test_wrong_restrictions(options, message):
    with pytest.raises(ValueError, match=message):
        Restrictions(**options).rules(PromptMDP((2, 4)))


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((5, 3), {}, "at least K = 4 different tokens at step 1, .*got 3"),
        ((6, 6), {"forbidden": tuple((a, b) for a in range(6) for b in range(6, 12))}, "there are none; forbid fewer"),
        (
            (6, 6),
            {"identity": (0, 1, 2, 3, 4, 5) * 2, "no_overlap": True, "forbidden": tuple((a, a) for a in range(6))},
            "there are none|none were found",
        ),
    ],
)
def test_impossible_restrictions_say_so(sizes, options, message):
    problem = prompt_problem("D", sizes=sizes, num_policies=4, episodes=2)
    with pytest.raises(InfeasibleRestrictionsError, match=message):
        query_set(frank_wolfe(problem, max_iterations=2), restrictions=Restrictions(**options))


# -- the bound over questions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_heaviest_subset(size):
    rng = np.random.default_rng(size)
    points = rng.standard_normal((11, 4))
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    best = max(
        sum(distances[i, j] for i, j in itertools.combinations(chosen, 2))
        for chosen in itertools.combinations_with_replacement(range(11), size)
    )
    bound = heaviest_subset(distances, size)
    assert best <= bound <= best * (1.0 + 2e-6 if size <= 4 else 1.5)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_no_questions_exceed_the_bound(criterion):
    problem = prompt_problem(criterion, num_policies=3, episodes=6, sizes=(8, 7), dimension=5)
    design = newton(problem)
    found = query_set(design, restarts=5)
    bound = question_bound(problem, found, rounds=20, steps=20)
    assert found.value <= bound.upper_bound <= design.upper_bound + 1e-9
    assert bound.value <= bound.upper_bound
    assert efficiency(problem, bound.value, bound.upper_bound) > 0.99
    with pytest.raises(ValueError, match="query set of this problem on state features"):
        question_bound(prompt_problem(criterion, 1, num_policies=3, sizes=(8, 7)), found)


# -- whole trajectories ---------------------------------------------------------------------------------------------


def deterministic_problem(criterion: str, seed: int = 0, **options) -> DesignProblem:
    rng = np.random.default_rng(seed)
    dense = np.eye(6)[rng.integers(6, size=(6, 3))]
    mdp = FiniteHorizonMDP.from_dense(dense, np.eye(6)[0], 3, rows="pair", allow_unreachable=True)
    return problem_of(mdp, criterion, dimension=4, seed=seed, **{"num_policies": 2, "episodes": 2, **options})


@pytest.mark.parametrize("criterion", CRITERIA)
def test_trajectories_of_a_deterministic_mdp(criterion):
    problem = deterministic_problem(criterion)
    actions = np.array(list(itertools.product(range(3), repeat=3)))
    wanted = Restrictions(distinct=False)
    both = list(itertools.combinations_with_replacement(range(27), 2))
    values = [
        given_query_set(problem, actions[list(one + other)].reshape(2, 2, 3)).value
        for one, other in itertools.combinations_with_replacement(both[::9], 2)
    ]
    design = newton(problem)
    found = query_set(design, restrictions=wanted, restarts=4, candidates=12)
    assert found.value == pytest.approx(scratch_value(problem, found.rows), rel=1e-10)
    assert max(values) <= design.upper_bound + 1e-9 and found.value <= design.upper_bound + 1e-9
    assert efficiency(problem, found.value, max(values)) > 0.99
    values = [record.value for record in found.history if record.restart == found.restart]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    given_again = given_query_set(problem, found.tokens)
    np.testing.assert_array_equal(given_again.rows, found.rows)


EVERY_PAIR = tuple(itertools.combinations_with_replacement(range(18), 2))


def test_trajectories_keep_restrictions():
    problem = deterministic_problem("D", episodes=4)
    wanted = Restrictions(distinct=False, shared_base="episode", forbidden=((0, 3), (1, 4)))
    found = query_set(newton(problem), restrictions=wanted)
    assert wanted.rules(problem.mdp).violations(found.rows) == []
    with pytest.raises(InfeasibleRestrictionsError, match="candidate trajectories"):
        query_set(newton(problem), restrictions=Restrictions(forbidden=EVERY_PAIR))


def test_random_transitions_are_refused():
    problem = random_mdp_problem("D")
    with pytest.raises(ValueError, match="deterministic transitions and one initial state"):
        query_set(frank_wolfe(problem, max_iterations=2))


# -- truncated feedback ---------------------------------------------------------------------------------------------

WORDS = Vocabulary(
    ("what", "how", "light"),
    tuple(tuple(f"{name}{index}" for index in range(size)) for name, size in (("w", 8), ("h", 7), ("l", 6))),
)
RULE = Restrictions(no_overlap=True, forbidden=((0, 9), (3, 12)))


def truncated_problem(criterion="D") -> DesignProblem:
    return prompt_problem(criterion, sizes=WORDS.sizes, dimension=5, num_policies=3, episodes=6)


class Encoder:
    """Tokens' features with a part that depends on the whole text, so that prefixes don't add up."""

    def __init__(self, problem):
        self.features = dict(zip(WORDS.all_tokens, problem.features, strict=True))
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return np.stack([self._one(text) for text in texts])

    def _one(self, text):
        parts = text.split(", ")
        noise = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)).standard_normal(5)
        row = np.mean([self.features[part] for part in parts], axis=0) + 0.2 * noise * (len(parts) > 1)
        return (row / np.linalg.norm(row)).astype(np.float32)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("proposal", ["linear", "mean"])
def test_truncated_exchange_gains_on_the_true_embeddings(criterion, proposal):
    problem = truncated_problem(criterion)
    start = query_set(newton(problem), restrictions=RULE)
    encoder = Encoder(problem)
    found = truncated_query_set(
        problem, start, vocabulary=WORDS, embed=encoder, budget=1500, restrictions=RULE, proposal=proposal
    )
    values = [record.value for record in found.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(values)) and values[-1] > values[0]
    assert len(encoder.texts) == len(set(encoder.texts)) == found.encoded_texts <= 1500
    assert RULE.rules(problem.mdp).violations(found.tokens) == []
    assert found.efficiency is None and found.feedback == "truncated"

    def information(tokens):
        total = np.array(problem.prior)
        for lanes, step in itertools.product(tokens, range(3)):
            total += np.cov(np.stack([encoder._one(WORDS.prompt(lane[: step + 1])) for lane in lanes]).T, bias=True)
        return total

    assert found.value == pytest.approx(problem.criterion.value(information(found.tokens)), rel=1e-7)
    assert values[0] == pytest.approx(problem.criterion.value(information(start.tokens)), rel=1e-7)


def test_a_budget_is_kept():
    problem = truncated_problem()
    start = query_set(newton(problem))
    for budget in (60, 100):
        encoder = Encoder(problem)
        found = truncated_query_set(problem, start, vocabulary=WORDS, embed=encoder, budget=budget)
        assert len(encoder.texts) == found.encoded_texts <= budget and found.status == "budget"
    with pytest.raises(ValueError, match="budget of at least .* texts, the partial prompts of the start, got 10"):
        truncated_query_set(problem, start, vocabulary=WORDS, embed=encoder, budget=10)


def test_a_start_that_breaks_restrictions_is_mended():
    problem = truncated_problem()
    start = given_query_set(problem, np.zeros((6, 3, 3), int))
    wanted = Restrictions(shared_base="all")
    options = {"vocabulary": WORDS, "embed": Encoder(problem), "budget": 400}
    found = truncated_query_set(problem, start, restrictions=wanted, **options)
    assert wanted.rules(problem.mdp).violations(found.tokens) == [] and (found.tokens[:, :, 0] == 0).all()
    with pytest.raises(ValueError, match=r"vocabulary of sizes \(8, 7, 6\), got one of sizes"):
        truncated_query_set(problem, start, **{**options, "vocabulary": WORDS.subset(3, 0)})
    with pytest.raises(ValueError, match="embeddings of shape"):
        truncated_query_set(problem, start, **{**options, "embed": lambda texts: np.ones((len(texts), 2))})


# -- files and errors -----------------------------------------------------------------------------------------------


def test_a_query_set_survives_its_file(tmp_path):
    problem = prompt_problem("V", sizes=WORDS.sizes, episodes=5)
    found = query_set(newton(problem), restrictions=RULE, restarts=2)
    loaded = QuerySet.load(found.save(tmp_path / "new" / "set.npz"), problem)
    for name in ("tokens", "rows", "information"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(found, name))
        assert not getattr(loaded, name).flags.writeable and not getattr(found, name).flags.writeable
    names = ("value", "upper_bound", "efficiency", "status", "seed", "restart", "history", "restrictions", "feedback")
    assert all(getattr(loaded, name) == getattr(found, name) for name in names)
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["set.npz"]
    assert loaded.texts(WORDS) == found.texts(WORDS) and len(loaded) == 5
    assert found.texts(WORDS, step=1)[0][0] == WORDS.prompt(found.tokens[0, 0, :2])
    assert "efficiency" in found.summary()


def test_other_files_are_refused(tmp_path):
    found = query_set(newton(prompt_problem("D", episodes=3)))
    path = found.save(tmp_path / "set.npz")
    with pytest.raises(ValueError, match="was made for another problem"):
        QuerySet.load(path, prompt_problem("D", episodes=4))
    with pytest.raises(FileNotFoundError, match="saved query set at .*missing"):
        QuerySet.load(tmp_path / "missing")
    content = path.read_bytes()
    for data in (b"", b"text", content[: len(content) // 2], content[:100] + b"\xff" * 60 + content[160:]):
        (tmp_path / "bad.npz").write_bytes(data)
        with pytest.raises(ValueError, match="Expected a query set saved by QuerySet.save"):
            QuerySet.load(tmp_path / "bad.npz")
    with pytest.raises(ValueError, match="vocabulary of this query set"):
        found.texts(WORDS)


class Other(Criterion):
    name = "other"

    def value(self, information):
        return float(np.trace(information))

    def gradient(self, information):
        return np.eye(len(information))


def test_wrong_arguments():
    problem = prompt_problem("D", episodes=3)
    design = frank_wolfe(problem, max_iterations=2)
    with pytest.raises(TypeError, match="Expected a Design .*got DesignProblem"):
        query_set(problem)
    with pytest.raises(ValueError, match="restarts >= 1"):
        query_set(design, restarts=0)
    with pytest.raises(ValueError, match=r"tokens of shape \(T, K, H\) = \(T, 4, 3\)"):
        given_query_set(problem, np.zeros((3, 2, 3), int))
    with pytest.raises(ValueError, match="actions that exist .*got 10 at step 2"):
        given_query_set(problem, np.full((3, 4, 3), 10)[..., [0, 0, 0]] * [0, 0, 1])
    strange = DesignProblem(
        mdp=problem.mdp, features=problem.features, episodes=3, num_policies=4, criterion=Other(), regularization=1.0
    )
    with pytest.raises(TypeError, match="criterion A, V or D .*got Other"):
        InverseState(strange.criterion, strange.prior)
    assert make_criterion("D").name == "D"


def test_a_callback_stops():
    seen = []
    found = query_set(newton(prompt_problem("D", episodes=8)), restarts=3, callback=lambda r: seen.append(r) or True)
    assert found.status == "interrupted" and len(seen) == 1 and seen[0].sweep == 1


def test_options_are_in_the_order_of_episodes_and_steps():
    problem = prompt_problem("D", num_policies=2, episodes=3)
    tokens = random_tokens(problem, 0)
    options = gather_options(blocks_of(problem), tokens)
    np.testing.assert_array_equal(options[4, 1], blocks_of(problem)[1][tokens[1, 1, 1]])
