"""The MDPs against enumeration, linear programming, Monte Carlo and each other."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP


def random_mdp(seed: int, *, states: int = 5, actions: int = 3, horizon: int = 4, masked: bool = True):
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    transitions = 0.98 * transitions + 0.02 / states
    admissible = rng.random((horizon, states, actions)) < 0.7 if masked else np.ones((horizon, states, actions), bool)
    admissible[..., 0] |= ~admissible.any(axis=-1)
    return FiniteHorizonMDP.from_dense(transitions, rng.dirichlet(np.ones(states)), horizon, admissible=admissible), rng


def random_policy(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    weights = rng.random((mdp.horizon, mdp.num_pairs)) * mdp.admissible
    return mdp.policy_from_occupancy(weights)


def loop_value(mdp: FiniteHorizonMDP, rewards: np.ndarray) -> float:
    """Value iteration written as plain loops over states, actions and successors."""
    value = np.zeros(mdp.num_states)
    dense = mdp.transitions.toarray()
    for step in reversed(range(mdp.horizon)):
        new = np.zeros(mdp.num_states)
        for state in range(mdp.num_states):
            options = []
            for pair in range(mdp.num_pairs):
                if mdp.pair_state[pair] == state and mdp.admissible[step, pair]:
                    future = sum(dense[pair, s] * value[s] for s in range(mdp.num_states))
                    options.append(rewards[step, mdp.pair_row[pair]] + (future if step < mdp.horizon - 1 else 0.0))
            new[state] = max(options)
        value = new
    return float(mdp.initial @ value)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_value_iteration_agrees_with_loops_and_its_own_policy(seed):
    mdp, rng = random_mdp(seed)
    rewards = rng.standard_normal((mdp.horizon, mdp.num_rows))
    policy, value = mdp.best_response(rewards)
    occupancy = mdp.occupancy(policy)
    assert value == pytest.approx(loop_value(mdp, rewards), abs=1e-10)
    assert value == pytest.approx(float((mdp.row_occupancy(occupancy) * rewards).sum()), abs=1e-10)
    assert set(np.unique(policy)) <= {0.0, 1.0}
    for _ in range(5):
        other = mdp.row_occupancy(mdp.occupancy(random_policy(mdp, rng)))
        assert float((other * rewards).sum()) <= value + 1e-10


def test_value_iteration_agrees_with_a_linear_program():
    mdp, rng = random_mdp(3)
    rewards = rng.standard_normal((mdp.horizon, mdp.num_rows))
    horizon, pairs, states = mdp.horizon, mdp.num_pairs, mdp.num_states
    out = sparse.csr_array((np.ones(pairs), (mdp.pair_state, np.arange(pairs))), shape=(states, pairs))
    blocks = [[None] * horizon for _ in range(horizon)]
    for step in range(horizon):
        blocks[step][step] = out
        if step:
            blocks[step][step - 1] = -mdp.transitions.T
    upper = mdp.admissible.astype(float).ravel()
    solution = optimize.linprog(
        -rewards[:, mdp.pair_row].ravel(),
        A_eq=sparse.block_array(blocks),
        b_eq=np.concatenate([mdp.initial, np.zeros(states * (horizon - 1))]),
        bounds=np.column_stack([np.zeros_like(upper), upper]),
    )
    assert mdp.best_response(rewards)[1] == pytest.approx(-solution.fun, abs=1e-8)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_policy_and_occupancy_are_inverse_where_there_is_mass(seed):
    mdp, rng = random_mdp(seed)
    occupancy = mdp.occupancy(random_policy(mdp, rng))
    np.testing.assert_allclose(occupancy.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(mdp.occupancy(mdp.policy_from_occupancy(occupancy)), occupancy, atol=1e-12)
    flow = mdp.transitions.T @ occupancy[0]
    arrived = np.bincount(mdp.pair_state, weights=occupancy[1], minlength=mdp.num_states)
    np.testing.assert_allclose(arrived, flow, atol=1e-12)


def test_sampling_agrees_with_the_occupancy():
    mdp, rng = random_mdp(11)
    policy = random_policy(mdp, rng)
    size = 40_000
    sampled = mdp.sample(policy, size, np.random.default_rng(0))
    occupancy = mdp.occupancy(policy)
    for step in range(mdp.horizon):
        counts = np.bincount(sampled.pairs[:, step], minlength=mdp.num_pairs)
        expected = occupancy[step]
        assert counts[expected == 0].sum() == 0
        error = np.abs(counts / size - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-9) / size)
        assert error.max() < 5.0
    np.testing.assert_array_equal(sampled.rows, mdp.pair_row[sampled.pairs])
    np.testing.assert_array_equal(sampled.states, mdp.pair_state[sampled.pairs])
    again = mdp.sample(policy, size, np.random.default_rng(0))
    np.testing.assert_array_equal(again.pairs, sampled.pairs)


def test_transitions_between_successive_samples_follow_p():
    mdp, rng = random_mdp(5, masked=False)
    sampled = mdp.sample(mdp.uniform_policy(), 60_000, np.random.default_rng(1))
    pair = int(np.bincount(sampled.pairs[:, 0]).argmax())
    successors = sampled.states[sampled.pairs[:, 0] == pair, 1]
    frequency = np.bincount(successors, minlength=mdp.num_states) / successors.size
    expected = mdp.transitions[[pair]].toarray().ravel()
    assert np.abs(frequency - expected).max() < 5 * np.sqrt(0.25 / successors.size)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_prompt_mdp_equals_the_general_mdp(sizes, seed):
    """Every closed form of the fast path against the general sparse code on the same MDP."""
    fast, rng = PromptMDP(sizes), np.random.default_rng(seed)
    general = FiniteHorizonMDP(
        pair_state=fast.pair_state,
        pair_action=fast.pair_action,
        transitions=fast.transitions,
        initial=fast.initial,
        horizon=fast.horizon,
        pair_row=fast.pair_row,
    )
    rewards = rng.integers(-2, 3, (fast.horizon, fast.num_rows)).astype(float)  # integers: ties happen
    fast_policy, fast_value = fast.best_response(rewards)
    policy, value = general.best_response(rewards)
    assert fast_value == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(fast.occupancy(fast_policy), general.occupancy(policy), atol=0)
    np.testing.assert_allclose(fast.uniform_policy(), general.uniform_policy(), atol=1e-15)
    some = random_policy(general, rng)
    np.testing.assert_allclose(fast.occupancy(some), general.occupancy(some), atol=1e-15)
    np.testing.assert_allclose(fast.policy_from_occupancy(fast.occupancy(some)).sum(axis=1), len(sizes), atol=1e-9)
    occupancy = general.occupancy(some)
    np.testing.assert_allclose(fast.policy_from_occupancy(occupancy), general.policy_from_occupancy(occupancy))
    np.testing.assert_array_equal(fast.row_occupancy(occupancy[None]), general.row_occupancy(occupancy[None]))
    assert fast.available_rows() == general.available_rows() == tuple(sizes)
    elsewhere = np.roll(occupancy, 1, axis=1)
    for measure, feasible in ((occupancy, True), (1.5 * occupancy, False), (elsewhere, len(sizes) == 1)):
        assert (fast.flow_violation(measure) < 1e-12) == (general.flow_violation(measure) < 1e-12) == feasible
    a, b = fast.sample(some, 200, np.random.default_rng(1)), fast.sample(some, 200, np.random.default_rng(1))
    np.testing.assert_array_equal(a.rows, b.rows)
    assert ((a.rows >= fast.offsets[:-1]) & (a.rows < fast.offsets[1:])).all()


@given(size=st.integers(1, 6), horizon=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_repeated_tokens_are_the_general_mdp_with_one_state(size, horizon, seed):
    fast, rng = PromptMDP.repeated(size, horizon), np.random.default_rng(seed)
    general = FiniteHorizonMDP(
        pair_state=np.zeros(size, dtype=int),
        pair_action=np.arange(size),
        transitions=np.ones((size, 1)),
        initial=[1.0],
        horizon=horizon,
        pair_row=np.arange(size),
    )
    assert isinstance(fast, PromptMDP) and fast.shared and fast.sizes == (size,) * horizon
    for name in ("num_states", "num_pairs", "num_rows", "num_actions", "horizon"):
        assert getattr(fast, name) == getattr(general, name), name
    for name in ("pair_state", "pair_action", "pair_row", "initial", "admissible"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(general, name))
    np.testing.assert_array_equal(fast.transitions.toarray(), general.transitions.toarray())
    rewards = rng.integers(-2, 3, (horizon, size)).astype(float)  # integers: ties happen
    (found, value), (policy, expected) = fast.best_response(rewards), general.best_response(rewards)
    assert value == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(found, policy)
    np.testing.assert_array_equal(fast.optimal_policy(rewards)[0], policy)
    np.testing.assert_allclose(fast.uniform_policy(), general.uniform_policy(), atol=1e-15)
    some = random_policy(general, rng)
    occupancy = general.occupancy(some)
    np.testing.assert_allclose(fast.occupancy(some), occupancy, atol=1e-15)
    np.testing.assert_array_equal(fast.policy_from_occupancy(occupancy), general.policy_from_occupancy(occupancy))
    np.testing.assert_array_equal(fast.row_occupancy(occupancy[None]), general.row_occupancy(occupancy[None]))
    assert fast.available_rows() == general.available_rows() == (size,) * horizon
    assert fast.flow_violation(occupancy) < 1e-14 and general.flow_violation(occupancy) < 1e-14
    assert fast.flow_violation(occupancy + 0.01) == pytest.approx(0.01 * size)
    np.testing.assert_array_equal(fast.action_probabilities(some, 0, [0, 0]), some[[0, 0]])
    (a, b) = (mdp.sample(some, 50, np.random.default_rng(1)) for mdp in (fast, fast))
    np.testing.assert_array_equal(a.pairs, b.pairs)
    assert not a.states.any() and (a.rows == a.actions).all() and (a.rows == a.pairs).all()


def test_repeated_tokens_equal_a_prompt_mdp_with_the_tokens_of_each_step_apart():
    shared, apart = PromptMDP.repeated(4, 3), PromptMDP([4, 4, 4])
    for mdp in (shared, apart):
        for step in range(3):
            own = mdp.step_pairs(step)
            assert own == slice(mdp.offsets[step], mdp.offsets[step] + 4)
            np.testing.assert_array_equal(mdp.pair_row[own], np.arange(own.start, own.stop))
            np.testing.assert_array_equal(mdp.pair_action[own], np.arange(4))
        assert mdp.offsets[-1] == mdp.num_pairs
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), size=3)
    spread = np.zeros((3, 12))
    for step in range(3):
        spread[step, apart.step_pairs(step)] = weights[step]
    draws = [
        mdp.sample(mdp.policy_from_occupancy(measure), 60_000, np.random.default_rng(3)).actions
        for mdp, measure in ((shared, weights), (apart, spread))
    ]
    np.testing.assert_array_equal(*draws)
    for step in range(3):
        np.testing.assert_allclose(np.bincount(draws[0][:, step]) / 60_000, weights[step], atol=0.01)
    rewards = rng.standard_normal((3, 4))
    together, value = shared.best_response(rewards)
    _, same = apart.best_response(np.tile(rewards, 3))
    assert value == pytest.approx(same) == pytest.approx(rewards.max(axis=1).sum())
    np.testing.assert_array_equal(together.argmax(axis=1), rewards.argmax(axis=1))


def test_a_million_repeated_tokens_stay_small():
    mdp = PromptMDP.repeated(1_000_000, 6)
    policy = mdp.uniform_policy()
    assert policy.shape == (6, 1_000_000)
    rows = mdp.sample(policy, 1000, np.random.default_rng(0)).rows
    assert rows.max() < 1_000_000 and abs(rows.mean() / 500_000 - 1.0) < 0.05
    arrays = [mdp.pair_state, mdp.pair_action, mdp.pair_row, mdp.admissible]
    matrix = mdp.transitions
    assert sum(array.nbytes for array in [*arrays, matrix.data, matrix.indices, matrix.indptr]) < 60e6


def test_tokens_are_shared_only_among_equal_steps():
    with pytest.raises(ValueError, match=r"equal sizes of steps that share their tokens, got sizes \(3, 4\)"):
        PromptMDP((3, 4), shared=True)
    with pytest.raises(ValueError, match=r"size \(tokens\) >= 1, got 0"):
        PromptMDP.repeated(0, 2)
    with pytest.raises(TypeError, match=r"horizon \(steps\) as an integer"):
        PromptMDP.repeated(3, 2.0)


def test_prompt_mdp_sampling_has_the_policys_frequencies():
    mdp = PromptMDP([3, 4])
    policy = mdp.policy_from_occupancy(np.array([[1, 2, 0, 0, 0, 0, 0], [0, 0, 0, 4, 0, 1, 5]], float))
    rows = mdp.sample(policy, 50_000, np.random.default_rng(2)).rows
    frequency = np.bincount(rows.ravel(), minlength=7) / 50_000
    np.testing.assert_allclose(frequency, [1 / 3, 2 / 3, 0, 0.4, 0, 0.1, 0.5], atol=0.012)
    assert frequency[2] == 0 and frequency[4] == 0


def test_best_response_finds_the_best_of_all_deterministic_policies():
    mdp, rng = random_mdp(8, states=2, actions=2, horizon=3, masked=False)
    rewards = rng.standard_normal((3, 2))
    best = -np.inf
    for choice in itertools.product([0, 1], repeat=6):
        policy = np.zeros((3, mdp.num_pairs))
        for index, action in enumerate(choice):
            step, state = divmod(index, 2)
            policy[step, 2 * state + action] = 1.0
        best = max(best, float((mdp.row_occupancy(mdp.occupancy(policy)) * rewards).sum()))
    assert mdp.best_response(rewards)[1] == pytest.approx(best, abs=1e-12)


def test_rows_can_be_states_pairs_or_a_table():
    p = np.full((2, 2, 2), 0.5)
    start = [0.5, 0.5]
    assert FiniteHorizonMDP.from_dense(p, start, 2).num_rows == 2
    assert FiniteHorizonMDP.from_dense(p, start, 2, rows="pair").num_rows == 4
    table = FiniteHorizonMDP.from_dense(p, start, 2, rows=[[0, 1], [1, 2]])
    occupancy = table.occupancy(table.uniform_policy())
    np.testing.assert_allclose(table.row_occupancy(occupancy), [[0.25, 0.5, 0.25]] * 2)


def test_action_probabilities_are_dense_rows_of_the_policy():
    mdp, rng = random_mdp(2)
    policy = random_policy(mdp, rng)
    table = mdp.action_probabilities(policy, 1, [3, 0, 3])
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    np.testing.assert_array_equal(table[0], table[2])
    own = mdp.pair_state == 3
    np.testing.assert_array_equal(table[0, mdp.pair_action[own]], policy[1, own])


def two_states(**changes):
    arguments = {
        "pair_state": [0, 0, 1],
        "pair_action": [0, 1, 0],
        "transitions": [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]],
        "initial": [1.0, 0.0],
        "horizon": 2,
    }
    return FiniteHorizonMDP(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transitions": [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]}, "State 1 can't be reached"),
        ({"transitions": [[1.0, 0.0], [0.3, 0.3], [0.0, 1.0]]}, "0.6 for state 0, action 1"),
        ({"transitions": [[1.0, 0.0], [np.nan, 1.0], [0.0, 1.0]]}, "finite"),
        ({"initial": [0.5, 0.2]}, "sums to 1, got 0.7"),
        ({"horizon": 0}, "horizon (steps) >= 1, got 0"),
        ({"admissible": [[1, 1, 1], [1, 1, 0]]}, "State 1 is reachable at step 1 but has no admissible action"),
        ({"pair_action": [1, 0, 0]}, "sorted by state"),
        ({"pair_row": [0, 1, 5], "num_rows": 3}, "pair_row"),
        ({"transitions": np.eye(2)}, "shape (M, S)"),
    ],
)
def test_bad_descriptions_are_named(changes, message):
    with pytest.raises(ValueError) as error:
        two_states(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 2.5}, "horizon (steps) as an integer, got 2.5"),
        ({"pair_state": [0, 0.4, 1]}, "pair_state as integers, got dtype float64"),
        ({"pair_action": [0, 1.7, 0]}, "pair_action as integers, got dtype float64"),
        ({"pair_row": [0, 1.5, 1]}, "pair_row as integers, got dtype float64"),
        ({"num_rows": 3.5}, "num_rows as an integer, got 3.5"),
        ({"admissible": np.full((2, 3), 0.2)}, "admissible as booleans"),
    ],
)
def test_numbers_that_are_no_indices_are_not_rounded(changes, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        two_states(**changes)


def test_dense_arrays_are_not_rounded_either():
    p = np.full((2, 2, 2), 0.5)
    with pytest.raises(TypeError, match="rows as integers"):
        FiniteHorizonMDP.from_dense(p, [0.5, 0.5], 2, rows=[[0, 1.5], [1, 2]])
    with pytest.raises(TypeError, match="horizon .* as an integer"):
        FiniteHorizonMDP.from_dense(p, [0.5, 0.5], 2.5)
    with pytest.raises(TypeError, match="admissible as booleans"):
        FiniteHorizonMDP.from_dense(p, [0.5, 0.5], 2, admissible=np.full((2, 2, 2), 0.5))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rewards_are_finite(bad):
    for mdp in (two_states(), PromptMDP([2, 1])):
        rewards = np.zeros((2, mdp.num_rows))
        rewards[1, :] = bad
        with pytest.raises(ValueError, match="finite rewards"):
            mdp.best_response(rewards)
        pair_rewards = np.zeros((2, 3))
        pair_rewards[1, 2] = bad
        with pytest.raises(ValueError, match="finite pair_rewards"):
            mdp.optimal_policy(pair_rewards)


def test_unreachable_states_can_be_allowed():
    mdp = two_states(transitions=[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], allow_unreachable=True)
    assert mdp.best_response([[0, 9], [0, 9]])[1] == 0.0


@pytest.mark.parametrize("sizes", [[], [3, 0], [[2, 3]], 4])
def test_prompt_mdp_needs_tokens(sizes):
    with pytest.raises(ValueError, match="at least one token"):
        PromptMDP(sizes)


def test_prompt_mdp_sizes_are_not_rounded():
    with pytest.raises(TypeError, match="sizes as integers"):
        PromptMDP([2, 3.7])


def test_bad_policies_are_named():
    mdp = two_states(admissible=[[1, 1, 1], [1, 0, 1]])
    with pytest.raises(ValueError, match="sum to 1"):
        mdp.occupancy([[0.4, 0.4, 1], [1, 0, 1]])
    with pytest.raises(ValueError, match="inadmissible pair at step 1: state 0, action 1"):
        mdp.occupancy([[1, 0, 1], [0, 1, 1]])
    with pytest.raises(ValueError, match="finite policy, got 1 NaN or infinite"):
        mdp.occupancy([[np.nan, 0, 1], [1, 0, 1]])
    with pytest.raises(ValueError, match=r"shape \(H, M\)"):
        mdp.occupancy([[1, 0, 1]])
    with pytest.raises(ValueError, match=r"shape \(H, N\)"):
        mdp.best_response(np.zeros((2, 3)))


def test_arrays_of_wrong_shapes_values_and_numbers_are_named():
    mdp, _ = random_mdp(0)
    uniform = mdp.uniform_policy()
    occupancy = mdp.occupancy(uniform)
    with pytest.raises(ValueError, match=r"transitions of shape \(S, A, S\)"):
        FiniteHorizonMDP.from_dense(np.ones((2, 3)), [1.0, 0.0], 2)
    with pytest.raises(ValueError, match="admissible"):
        FiniteHorizonMDP.from_dense(np.full((2, 1, 2), 0.5), [1.0, 0.0], 2, admissible=np.ones((2, 3, 1), bool))
    with pytest.raises(ValueError, match='rows to be "state", "pair"'):
        FiniteHorizonMDP.from_dense(np.full((2, 1, 2), 0.5), [1.0, 0.0], 2, rows="token")
    with pytest.raises(ValueError, match="non-negative occupancy"):
        mdp.policy_from_occupancy(occupancy - 1.0)
    with pytest.raises(ValueError, match="occupancy"):
        mdp.row_occupancy(occupancy[:, 1:])
    with pytest.raises(ValueError, match=rf"step in 0\.\.{mdp.horizon - 1}, got {mdp.horizon}"):
        mdp.action_probabilities(uniform, mdp.horizon, [0])
    with pytest.raises(ValueError, match="states"):
        mdp.action_probabilities(uniform, 0, [mdp.num_states])
    with pytest.raises(ValueError, match="non-negative policy"):
        mdp.occupancy(np.where(mdp.admissible, -uniform, 0.0))
    prompts = PromptMDP((2, 3))
    with pytest.raises(ValueError, match=r"occupancy of shape \(\.\.\., 2, 5\)"):
        prompts.row_occupancy(np.ones((2, 4)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": np.ones((1, 2))}, "initial distribution of shape"),
        ({"pair_action": [0, 0, 0]}, "pair_state and pair_action of shape"),
        ({"transitions": sparse.csr_array(np.eye(2)[:, :1])}, "transitions of shape"),
        ({"pair_state": [0, 2]}, r"pair_state in 0\.\.1"),
        ({"initial": [1.5, -0.5]}, "non-negative probabilities"),
        ({"admissible": np.ones((3, 2), bool)}, "admissible of shape"),
    ],
)
def test_sparse_descriptions_are_checked(changes, message):
    good = {
        "transitions": sparse.csr_array(np.eye(2)),
        "initial": np.array([0.5, 0.5]),
        "pair_state": [0, 1],
        "pair_action": [0, 0],
        "horizon": 2,
    }
    assert FiniteHorizonMDP(**good).num_pairs == 2
    arrays = {name: np.asarray(value) if isinstance(value, list) else value for name, value in changes.items()}
    with pytest.raises(ValueError, match=message):
        FiniteHorizonMDP(**{**good, **arrays})


def unequal():
    """Three states with different actions: 0 and 2, 1, and 0 and 1; the last state has none at the first step."""
    return FiniteHorizonMDP(
        pair_state=[0, 0, 1, 2, 2],
        pair_action=[0, 2, 1, 0, 1],
        transitions=[[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]],
        initial=[1, 0, 0],
        horizon=3,
        admissible=[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    )


def test_actions_of_each_state_are_its_own():
    mdp = unequal()
    policy = [[0.3, 0.7, 1, 0, 0], [0.4, 0.6, 1, 1, 0], [1, 0, 1, 0.2, 0.8]]
    expected = [[[0.3, 0, 0.7], [0, 1, 0], [0, 0, 0]], [[0.4, 0, 0.6], [0, 1, 0], [1, 0, 0]]]
    for step, rows in enumerate(expected):
        np.testing.assert_array_equal(mdp.action_probabilities(policy, step, [0, 1, 2]), rows)
    np.testing.assert_array_equal(mdp.action_probabilities(policy, 2, [2, 2, 0]), [[0.2, 0.8, 0]] * 2 + [[1, 0, 0]])
    assert mdp.action_probabilities(policy, 0, np.zeros(0, dtype=int)).shape == (0, 3)
    for states in ([3], [0, 3], [-1], [2, -1]):
        with pytest.raises(ValueError, match=rf"states in 0\.\.2, got {min(states)}\.\.{max(states)}"):
            mdp.action_probabilities(policy, 0, states)
    for step in (-1, 3):
        with pytest.raises(ValueError, match=rf"step in 0\.\.2, got {step}"):
            mdp.action_probabilities(policy, step, [0])


def test_a_state_without_actions_has_no_probability():
    mdp = unequal()
    poison = [np.full((3, 5), 7.0) for _ in range(20)]  # memory that an array left unset would take over
    del poison
    with np.errstate(invalid="raise", divide="raise"):
        uniform = mdp.uniform_policy()
    np.testing.assert_array_equal(uniform, [[0.5, 0.5, 1, 0, 0], [0.5, 0.5, 1, 1, 0], [0.5, 0.5, 1, 0.5, 0.5]])
    np.testing.assert_allclose(mdp.occupancy(uniform).sum(axis=1), 1.0)
    np.testing.assert_array_equal(mdp.policy_from_occupancy(np.zeros((3, 5))), uniform)


def test_a_policy_that_does_not_sum_to_one_is_named_with_its_sum():
    policy = np.array([[0.3, 0.7, 1, 0, 0], [0.4, 0.6, 1, 0.9, 0], [1, 0, 1, 0.2, 0.8]])
    with pytest.raises(ValueError, match=r"sum to 1, got 0\.9 at step 1, state 2"):
        unequal().occupancy(policy)
    with pytest.raises(ValueError, match="Expected a non-negative occupancy measure, its smallest entry is -0.25"):
        unequal().policy_from_occupancy(np.full((3, 5), -0.25))
    with pytest.raises(ValueError, match="finite occupancy, got 15 NaN"):
        unequal().policy_from_occupancy(np.full((3, 5), np.nan))
    with pytest.raises(ValueError, match=r"occupancy of shape \(H, M\)"):
        unequal().policy_from_occupancy(np.zeros((2, 5)))


@pytest.mark.parametrize("changes", [{"pair_state": [0, 2]}, {"pair_state": [-1, 1]}, {"pair_action": [0, -1]}])
def test_each_index_alone_may_be_out_of_range(changes):
    good = {"pair_state": [0, 1], "pair_action": [0, 0], "transitions": np.eye(2), "initial": [0.5, 0.5], "horizon": 2}
    with pytest.raises(ValueError, match=r"Expected pair_state in 0\.\.1 and pair_action >= 0"):
        FiniteHorizonMDP(**{**good, **changes})


def test_unreachable_states_of_dense_arrays_can_be_allowed():
    dense = np.zeros((2, 1, 2))
    dense[:, 0, 0] = 1.0
    with pytest.raises(ValueError, match="State 1 can't be reached"):
        FiniteHorizonMDP.from_dense(dense, [1.0, 0.0], 2)
    assert FiniteHorizonMDP.from_dense(dense, [1.0, 0.0], 2, allow_unreachable=True).num_states == 2


@pytest.mark.parametrize("shape", [(), (4,), (2, 1)])
def test_rows_of_any_number_of_occupancies(shape):
    mdp = unequal()
    measure = np.random.default_rng(0).random((*shape, 3, 5))
    expected = np.zeros((*shape, 3, 3))
    for pair, row in enumerate(mdp.pair_row):
        expected[..., row] += measure[..., pair]
    np.testing.assert_allclose(mdp.row_occupancy(measure), expected)


def test_sampled_indices_can_be_used_as_such():
    for mdp in (unequal(), PromptMDP((2, 3)), two_states()):
        found = mdp.sample(mdp.uniform_policy(), 50, np.random.default_rng(1))
        for array in (found.states, found.actions, found.pairs, found.rows):
            assert array.shape == (50, mdp.horizon) and array.dtype == np.intp
        np.testing.assert_array_equal(mdp.pair_state[found.pairs], found.states)
        assert mdp.admissible[np.arange(mdp.horizon), found.pairs].all()


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 3, 3)])
def test_the_violation_of_the_flow_is_the_largest_of_all_steps(sizes, step):
    """One step short of mass, whichever it is; and mass on a token of another step."""
    for mdp in {PromptMDP(sizes), PromptMDP(sizes, shared=len(set(sizes)) == 1)}:
        measure = mdp.occupancy(mdp.uniform_policy())
        assert mdp.flow_violation(measure) == pytest.approx(0.0, abs=1e-12)
        short = measure.copy()
        short[step] *= 0.75
        assert mdp.flow_violation(short) == pytest.approx(0.25)
        if not mdp.shared:
            elsewhere = measure.copy()
            elsewhere[step, mdp.step_pairs((step + 1) % 3).start] = 0.125
            assert mdp.flow_violation(elsewhere) == pytest.approx(0.125)
    with pytest.raises(ValueError, match="Expected finite occupancy"):
        mdp.flow_violation(np.full_like(measure, np.nan))
