"""Realised query sets against brute force, recomputation from scratch and the restrictions they must keep."""

from __future__ import annotations

import itertools
from dataclasses import replace

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
    newton,
    query_set,
)
from edpbrl_gym.design.questions.exchange import PromptExchange
from edpbrl_gym.design.questions.restrictions import TokenRules
from edpbrl_gym.design.questions.state import state_of
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.clustered_words import make_words
from tests.helpers.design_cases import Plain, prompt_problem

CRITERIA = ["D", "A", "V"]


def scratch_value(problem: DesignProblem, tokens: np.ndarray) -> float:
    """The criterion of prompts (T, K, H), with loops and numpy only."""
    information = np.array(problem.prior)
    for episode in tokens + problem.mdp.offsets[:-1]:
        for shown in episode.T:
            information += np.cov(problem.features[shown].T, bias=True)
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


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("lanes", [2, 4])
def test_value_is_that_of_the_realised_information(criterion, lanes):
    problem = prompt_problem(criterion, num_policies=lanes, episodes=7)
    design = newton(problem)
    found = query_set(design, seed=1)
    assert found.seed == 1
    np.testing.assert_array_equal(found.tokens, query_set(design, seed=1).tokens)
    assert found.tokens.shape == (7, lanes, 3) and found.status == "converged"
    assert found.value == pytest.approx(scratch_value(problem, found.tokens), rel=1e-10)
    assert found.value == pytest.approx(problem.criterion.value(found.information))
    assert found.value <= design.upper_bound + 1e-9
    assert found.efficiency == pytest.approx(efficiency(problem, found.value, design.upper_bound))
    np.testing.assert_array_equal(found.rows, found.tokens + problem.mdp.offsets[:-1])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_exchange_beats_draws_from_the_design_and_never_falls(criterion):
    problem = prompt_problem(criterion, num_policies=3, episodes=12, sizes=(15, 12, 10), dimension=8)
    design = newton(problem)
    found = query_set(design, seed=0, restarts=3)
    for restart in range(3):
        values = [record.value for record in found.history if record.restart == restart]
        assert len(values) > 1 and all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    drawn = [
        scratch_value(problem, problem.mdp.sample(design.policies[0], 36, rng).actions.reshape(12, 3, 3))
        for rng in map(np.random.default_rng, range(10))
    ]
    assert found.value > max(drawn)
    assert found.value == max(record.value for record in found.history)
    seen = []
    stopped = query_set(design, restarts=3, callback=lambda record: seen.append(record) or True)
    assert stopped.status == "interrupted" and len(seen) == 1 and seen[0].sweep == 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_exchange_finds_the_best_of_all_assignments(criterion):
    close = []
    for seed in range(4):
        problem = prompt_problem(criterion, seed, sizes=(4, 3), dimension=3, num_policies=2, episodes=2)
        pairs = [list(itertools.combinations(range(size), 2)) for size in (4, 3)]
        episodes = [np.array([[a[0], b[0]], [a[1], b[1]]]) for a, b in itertools.product(*pairs)]
        best = max(
            scratch_value(problem, np.stack(both)) for both in itertools.combinations_with_replacement(episodes, 2)
        )
        design = newton(problem)
        for restart in range(6):
            found = query_set(design, seed=restart)
            assert found.value <= best + 1e-9
            close.append(efficiency(problem, found.value, best) >= 0.99)
    assert np.mean(close) > 0.5
    # and with a few restarts the best of all
    assert query_set(design, seed=0, restarts=20).value == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_scores_are_the_gains_of_all_replacements(criterion, kind):
    problem = prompt_problem(criterion, num_policies=3, episodes=4, sizes=(7, 6))
    tokens = random_tokens(problem, 0)
    blocks = [block.astype(kind) for block in blocks_of(problem)]
    state = state_of(problem.criterion, problem.prior)
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
            gained = scratch_value(problem, changed) - start
            assert scores[episode, lane, token] == pytest.approx(
                gained, rel=1e-6, abs=1e-9 if kind == np.float64 else 1e-4
            )


@pytest.mark.parametrize("criterion", CRITERIA)
def test_without_a_closed_form_scores_bound_the_gains_and_no_exchange_gains(criterion):
    problem = prompt_problem(criterion, num_policies=3, episodes=4, sizes=(7, 6))
    plain = replace(problem, criterion=Plain(problem.criterion))
    tokens, blocks = random_tokens(problem, 0), blocks_of(problem)
    exchanges = [
        PromptExchange(blocks, tokens, state_of(one.criterion, one.prior), Restrictions().rules(one.mdp))
        for one in (problem, plain)
    ]
    gains, bounds = (one.scores(0, one.norms(blocks[0]), np.arange(4)) for one in exchanges)
    assert (bounds >= gains - 1e-9).all() and np.isfinite(gains).any()
    found = query_set(newton(plain), seed=1)
    assert found.status == "converged"
    assert found.value == pytest.approx(scratch_value(problem, found.tokens), rel=1e-9)
    exchange = PromptExchange(
        blocks, found.tokens, state_of(problem.criterion, problem.prior), Restrictions().rules(problem.mdp)
    )
    for step, block in enumerate(blocks):
        assert exchange.scores(step, exchange.norms(block), np.arange(4)).max() <= 1e-8


WORDS = make_words((8, 7, 6))


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


def test_identities_of_tokens():
    rules = TokenRules(Restrictions(identity=(5, 3, 5, 1)), ranges=[(0, 2), (1, 4)], num_rows=4)
    np.testing.assert_array_equal(rules.ids([[0, -1], [1, 2]]), [[2, -1], [1, 0]])
    np.testing.assert_array_equal(rules.ids([[-1], [1]]), [[-1], [1]])
    with pytest.raises(IndexError):
        rules.ids([[0, 3]])


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


def test_a_query_set_survives_its_file(tmp_path):
    problem = prompt_problem("V", sizes=WORDS.sizes, episodes=5)
    rules = Restrictions(no_overlap=True, forbidden=((0, 9), (3, 12)))
    found = query_set(newton(problem), restrictions=rules, restarts=2)
    loaded = QuerySet.load(found.save(tmp_path / "new" / "set.npz"), problem)
    for name in ("tokens", "rows", "information"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(found, name))
        assert not getattr(loaded, name).flags.writeable and not getattr(found, name).flags.writeable
    names = ("value", "upper_bound", "efficiency", "status", "seed", "restart", "history", "restrictions")
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
    with pytest.raises(ValueError, match="vocabulary of this query set"):
        found.texts(WORDS)
