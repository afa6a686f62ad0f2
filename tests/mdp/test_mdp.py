"""The MDPs against enumeration, linear programming, Monte Carlo and each other."""

from __future__ import annotations

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
@settings(max_examples=10)
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
@settings(max_examples=10)
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
    size = 20_000
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


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 10**6))
@settings(max_examples=15)
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
@settings(max_examples=15)
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


def test_rows_can_be_states_pairs_or_a_table():
    p = np.full((2, 2, 2), 0.5)
    start = [0.5, 0.5]
    assert FiniteHorizonMDP.from_dense(p, start, 2).num_rows == 2
    assert FiniteHorizonMDP.from_dense(p, start, 2, rows="pair").num_rows == 4
    assert FiniteHorizonMDP.from_dense(ONE_WAY, [1.0, 0.0], 2, allow_unreachable=True).num_states == 2
    table = FiniteHorizonMDP.from_dense(p, start, 2, rows=[[0, 1], [1, 2]])
    occupancy = table.occupancy(table.uniform_policy())
    np.testing.assert_allclose(table.row_occupancy(occupancy), [[0.25, 0.5, 0.25]] * 2)


def two_states(**changes):
    arguments = {
        "pair_state": [0, 0, 1],
        "pair_action": [0, 1, 0],
        "transitions": [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]],
        "initial": [1.0, 0.0],
        "horizon": 2,
    }
    return FiniteHorizonMDP(**(arguments | changes))


def half(**options):
    return FiniteHorizonMDP.from_dense(np.full((2, 1, 2), 0.5), [1.0, 0.0], 2, **options)


ONE_WAY = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
REFUSED = [
    (lambda: two_states(transitions=[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), "State 1 can't be reached"),
    (lambda: two_states(transitions=[[1.0, 0.0], [0.3, 0.3], [0.0, 1.0]]), "0.6 for state 0, action 1"),
    (lambda: two_states(transitions=np.eye(2)), "shape (M, S)"),
    (lambda: two_states(initial=[0.5, 0.2]), "sums to 1, got 0.7"),
    (lambda: two_states(initial=[1.5, -0.5]), "non-negative probabilities"),
    (lambda: two_states(horizon=0), "horizon (steps) >= 1, got 0"),
    (lambda: two_states(horizon=2.5), "horizon (steps) as an integer, got 2.5"),
    (lambda: two_states(admissible=[[1, 1, 1], [1, 1, 0]]), "State 1 is reachable at step 1 but has no admissible"),
    (lambda: two_states(admissible=np.full((2, 3), 0.2)), "admissible as booleans"),
    (lambda: two_states(pair_action=[1, 0, 0]), "sorted by state"),
    (lambda: two_states(pair_state=[0, 0, 2]), "pair_state in 0..1 and pair_action >= 0"),
    (lambda: two_states(pair_state=[0, 0.4, 1]), "pair_state as integers, got dtype float64"),
    (lambda: FiniteHorizonMDP.from_dense(np.ones((2, 3)), [1.0, 0.0], 2), "transitions of shape (S, A, S)"),
    (lambda: FiniteHorizonMDP.from_dense(ONE_WAY, [1.0, 0.0], 2), "State 1 can't be reached"),
    (lambda: half(admissible=np.ones((2, 3, 1), bool)), "admissible"),
    (lambda: half(rows="token"), 'rows to be "state", "pair"'),
    (lambda: two_states().best_response(np.full((2, 2), np.nan)), "finite rewards"),
    (lambda: two_states().best_response(np.zeros((2, 3))), "shape (H, N)"),
    (lambda: two_states().optimal_policy(np.full((2, 3), -np.inf)), "finite pair_rewards"),
    (lambda: two_states().occupancy([[0.4, 0.4, 1], [1, 0, 1]]), "sum to 1"),
    (lambda: two_states().occupancy([[1.5, -0.5, 1], [1, 0, 1]]), "non-negative policy"),
    (lambda: two_states().occupancy([[np.nan, 0, 1], [1, 0, 1]]), "finite policy, got 1 NaN or infinite"),
    (lambda: two_states().occupancy([[1, 0, 1]]), "shape (H, M)"),
    (
        lambda: two_states(admissible=[[1, 1, 1], [1, 0, 1]]).occupancy([[1, 0, 1], [0, 1, 1]]),
        "inadmissible pair at step 1: state 0, action 1",
    ),
    (lambda: PromptMDP([2, 1]).best_response(np.full((2, 3), np.nan)), "finite rewards"),
    (lambda: PromptMDP([2, 1]).optimal_policy(np.full((2, 3), -np.inf)), "finite pair_rewards"),
    (lambda: PromptMDP((2, 3)).row_occupancy(np.ones((2, 4))), "occupancy of shape (..., 2, 5)"),
    *((lambda sizes=sizes: PromptMDP(sizes), "at least one token") for sizes in ([], [3, 0], [[2, 3]], 4)),
    (lambda: PromptMDP((3, 4), shared=True), "equal sizes of steps that share their tokens, got sizes (3, 4)"),
    (lambda: PromptMDP.repeated(0, 2), "size (tokens) >= 1, got 0"),
    (lambda: PromptMDP.repeated(3, 2.0), "horizon (steps) as an integer"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


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
        with pytest.raises(ValueError, match=rf"states in 0\.\.2, got {states[-1]} "):
            mdp.action_probabilities(policy, 0, states)
    with pytest.raises(ValueError, match=r"step in 0\.\.2, got 3"):
        mdp.action_probabilities(policy, 3, [0])


def test_a_state_without_actions_has_no_probability():
    mdp = unequal()
    poison = [np.full((3, 5), 7.0) for _ in range(20)]  # memory that an array left unset would take over
    del poison
    with np.errstate(invalid="raise", divide="raise"):
        uniform = mdp.uniform_policy()
    np.testing.assert_array_equal(uniform, [[0.5, 0.5, 1, 0, 0], [0.5, 0.5, 1, 1, 0], [0.5, 0.5, 1, 0.5, 0.5]])
    np.testing.assert_allclose(mdp.occupancy(uniform).sum(axis=1), 1.0)
    np.testing.assert_array_equal(mdp.policy_from_occupancy(np.zeros((3, 5))), uniform)


@pytest.mark.parametrize(("sizes", "step"), [((2, 3, 2), 0), ((2, 3, 2), 2), ((3, 3, 3), 1)])
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
