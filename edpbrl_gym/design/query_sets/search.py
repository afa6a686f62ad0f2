"""Realised query sets: the T x K trajectories to show, chosen together instead of drawn one by one.

A design says how often each token should be shown on average. Independent draws from it lose twice: the counts are
random, and the K options of a question are not balanced, which costs the covariance of their mean (SPEC F2, F3). Here
the trajectories themselves are the unknowns: maximise

    s( Lambda + sum over t, h of (1/K) sum_q (x_thq - xbar_th)(x_thq - xbar_th)' )

over the tokens, by rounding the design and exchanging one token (or one trajectory) at a time until nothing gains.

    design = newton(problem)
    questions = query_set(design, restrictions=Restrictions(no_overlap=True))
    print(questions.summary())
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.design.deadline import Deadline, check_time_limit
from edpbrl_gym.design.information import realised_information
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.query_sets.bound import QuestionBound, question_bound
from edpbrl_gym.design.query_sets.exchange import PromptExchange
from edpbrl_gym.design.query_sets.paths import PathExchange, candidate_pairs, first_paths, trajectory_pairs
from edpbrl_gym.design.query_sets.repair import InfeasibleRestrictionsError, complete_episode
from edpbrl_gym.design.query_sets.restrictions import Restrictions, TokenRules
from edpbrl_gym.design.query_sets.result import QuerySet, SweepRecord, make_query_set
from edpbrl_gym.design.query_sets.rounding import first_tokens
from edpbrl_gym.design.query_sets.state import InverseState
from edpbrl_gym.design.query_sets.truncated import Embed, PrefixFeatures, Proposal, TruncatedExchange, prefixes_of
from edpbrl_gym.design.result import Design
from edpbrl_gym.mdp import PromptMDP

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "InfeasibleRestrictionsError",
    "QuerySet",
    "QuestionBound",
    "SweepRecord",
    "given_query_set",
    "query_set",
    "question_bound",
    "truncated_query_set",
]

Callback = Callable[[SweepRecord], object]
Exchange = PromptExchange | PathExchange | TruncatedExchange


def query_set(
    design: Design,
    *,
    restrictions: Restrictions | None = None,
    restarts: int = 1,
    max_sweeps: int = 50,
    candidates: int = 1000,
    seed: int = 0,
    callback: Callback | None = None,
    time_limit: float | None = None,
) -> QuerySet:
    """Choose the T x K trajectories of a design's problem on state features.

    Of a `PromptMDP` every token may be replaced by any token of its step. Of any other MDP with deterministic
    transitions and one initial state whole trajectories are replaced, by samples of the design's policies, of the
    uniform policy, and by the best path for the gradient of the moment.

    Args:
        design: A design, optimal or not; its upper bound is the bound of the efficiency, and holds for every query set.
        restrictions: What the lanes of an episode may show together; None: the options of a question are distinct.
        restarts: Independent starts; the best result is returned.
        max_sweeps: Sweeps of each restart at most.
        candidates: Trajectories to choose from, for an MDP that is no `PromptMDP`.
        seed: Seed of the roundings and of the order of the sweeps.
        callback: Called with a `SweepRecord` after every sweep; a true return value stops ("interrupted").
        time_limit: Seconds; then the best set so far is returned ("time_limit"). None is no limit.

    Returns:
        The query set. It is a local optimum: no single exchange gains (status "converged").

    Raises:
        TypeError: If the design is none, or its criterion is not A, V or D.
        ValueError: If an option is out of range, or the MDP is neither a `PromptMDP` nor deterministic.
        InfeasibleRestrictionsError: If no lanes keep the restrictions (a ValueError).
        SingularInformationError: If the first set's information is singular; use a regularization > 0.
    """
    if not isinstance(design, Design):
        raise TypeError(f"Expected a Design (solve the problem with newton first), got {type(design).__name__}.")
    deadline = check_time_limit(time_limit)
    check_count(restarts, "restarts")
    check_count(max_sweeps, "max_sweeps", minimum=0)
    check_count(candidates, "candidates")
    check_count(seed, "seed", minimum=0)
    problem = design.problem
    rules = (restrictions or Restrictions()).rules(problem.mdp)
    begin = time.perf_counter()
    best: tuple[float, int, str, PromptExchange | PathExchange] | None = None
    history: list[SweepRecord] = []
    with one_blas_thread():
        for restart in range(restarts):
            rng = np.random.default_rng([seed, restart])
            exchange = _exchange(design, rules, candidates, rng)
            status, records = _improve(exchange, restart, max_sweeps, rng, callback, deadline)
            history += records
            if best is None or records[-1].value > best[0]:
                best = records[-1].value, restart, status, exchange
            if status in ("interrupted", "time_limit"):
                break
    assert best is not None
    _, restart, status, winner = best
    rows = _rows(problem, winner.tokens)
    return make_query_set(
        problem,
        winner.tokens,
        rows,
        _information(problem, rows),
        upper_bound=design.upper_bound,
        feedback="state",
        status=status,
        seed=seed,
        restart=restart,
        seconds=time.perf_counter() - begin,
        encoded_texts=0,
        restrictions=rules.describe(),
        history=tuple(history),
    )


def given_query_set(problem: DesignProblem, tokens: ArrayLike, *, upper_bound: float | None = None) -> QuerySet:
    """Evaluate trajectories that came from elsewhere, such as independent draws.

    Args:
        problem: A problem with a deterministic MDP with one initial state, such as a `PromptMDP`.
        tokens: Actions of the trajectories, shape (T, K, H), for any T.
        upper_bound: Bound of the value for this T, for the efficiency (`Design.upper_bound`).

    Returns:
        A query set of status "given".

    Raises:
        ValueError: If a shape does not fit, or an action is none of its state.
    """
    lanes = problem.num_policies
    questions = np.asarray(tokens)
    if questions.ndim != 3 or questions.shape[1:] != (lanes, problem.horizon) or questions.dtype.kind not in "iu":
        raise ValueError(
            f"Expected integer tokens of shape (T, K, H) = (T, {lanes}, {problem.horizon}), got {questions.dtype} of "
            f"shape {questions.shape}."
        )
    rows = _rows(problem, questions.astype(np.int64))
    return make_query_set(
        problem,
        questions,
        rows,
        _information(problem, rows),
        upper_bound=upper_bound,
        feedback="state",
        status="given",
        seed=0,
        restart=0,
        seconds=0.0,
        encoded_texts=0,
    )


def truncated_query_set(
    problem: DesignProblem,
    start: QuerySet,
    *,
    vocabulary: Vocabulary,
    embed: Embed,
    budget: int,
    restrictions: Restrictions | None = None,
    proposal: Proposal = "linear",
    shortlist: int = 4,
    max_sweeps: int = 10,
    seed: int = 0,
    callback: Callable[[SweepRecord], object] | None = None,
    time_limit: float | None = None,
) -> QuerySet:
    """Improve a query set for truncated feedback, where options are embeddings of partial prompts.

    Args:
        problem: A problem with a `PromptMDP`; its features serve the proposals, its prior and criterion the value.
        start: Prompts to begin with, such as those of `query_set`; made legal first where they are not.
        vocabulary: The tokens of the problem.
        embed: Texts to embeddings (n, d), such as ``encoder.encode``.
        budget: Texts that may be embedded, the T K H of the start included. The last visit is not begun if it would
            exceed it.
        restrictions: What the lanes of an episode may show together; None: the options of a question are distinct. A
            shared base is kept as it is.
        proposal: What tokens are embedded: "linear" fits a model to embedded prefixes, "mean" takes the mean of the
            tokens' own features.
        shortlist: Tokens embedded for each lane and step.
        max_sweeps: Sweeps at most.
        seed: Seed of the order.
        callback: Called with a `SweepRecord` after every sweep; a true return value stops ("interrupted").
        time_limit: Seconds; then the best set so far is returned ("time_limit"). None is no limit.

    Returns:
        The query set, without a bound: the surrogate of the tokens' features does not bound partial prompts.

    Raises:
        TypeError: If the criterion is not A, V or D.
        ValueError: If the MDP is no `PromptMDP`, the vocabulary or the start does not fit it, an embedding has another
            dimension than the features, or the budget does not cover the start.
        InfeasibleRestrictionsError: If no lanes keep the restrictions.
    """
    deadline = check_time_limit(time_limit)
    rules = (restrictions or Restrictions()).rules(problem.mdp)
    tokens = _checked_start(problem, start, vocabulary, rules, np.random.default_rng([seed, 1]))
    check_choice_of(proposal, "proposal", ("linear", "mean"))
    check_count(shortlist, "shortlist")
    check_count(max_sweeps, "max_sweeps", minimum=0)
    check_count(budget, "budget (texts)")
    begin, rng = time.perf_counter(), np.random.default_rng(seed)
    blocks = _blocks(problem)
    prefixes = PrefixFeatures(vocabulary, embed, problem.dimension, budget)
    needed = prefixes.cost([prefix for lane in tokens.reshape(-1, problem.horizon) for prefix in prefixes_of(lane, 0)])
    if needed > budget:
        raise ValueError(
            f"Expected a budget of at least {needed} texts, the partial prompts of the start, got {budget}."
        )
    state = InverseState(problem.criterion, problem.prior)
    exchange = TruncatedExchange(blocks, tokens, prefixes, state, rules, proposal=proposal, shortlist=shortlist)
    status, history = _improve(exchange, 0, max_sweeps, rng, callback, deadline)
    return make_query_set(
        problem,
        exchange.tokens,
        _rows(problem, exchange.tokens),
        exchange.information,
        upper_bound=None,
        feedback="truncated",
        status=status,
        seed=seed,
        restart=0,
        seconds=time.perf_counter() - begin,
        encoded_texts=prefixes.spent,
        restrictions=rules.describe(),
        history=tuple(history),
    )


def _exchange(
    design: Design, rules: TokenRules, candidates: int, rng: np.random.Generator
) -> PromptExchange | PathExchange:
    problem = design.problem
    state = InverseState(problem.criterion, problem.prior)
    if not isinstance(problem.mdp, PromptMDP):
        pairs = candidate_pairs(design, candidates, rng)
        return PathExchange(problem, pairs, first_paths(problem, pairs, rules, rng), state, rules)
    blocks = _blocks(problem)
    tokens = first_tokens(problem, design.mean_rows, blocks, rules, rng)
    return PromptExchange(blocks, tokens, state, rules)


def _improve(
    exchange: Exchange,
    restart: int,
    max_sweeps: int,
    rng: np.random.Generator,
    callback: Callback | None,
    deadline: Deadline,
) -> tuple[str, list[SweepRecord]]:
    """Sweep until nothing gains, the budget, the sweeps or the time are spent, or the callback stops the search."""
    begin = time.perf_counter()
    exchange.deadline = deadline
    records = [SweepRecord(restart, 0, exchange.value, 0, exchange.encoded_texts, 0.0)]
    for sweep in range(1, max_sweeps + 1):
        if deadline.passed:
            return "time_limit", records
        before, value = exchange.exchanges, exchange.sweep(rng)
        seconds = time.perf_counter() - begin
        records.append(SweepRecord(restart, sweep, value, exchange.exchanges, exchange.encoded_texts, seconds))
        if callback is not None and callback(records[-1]):
            return "interrupted", records
        if exchange.exhausted:
            return "budget", records
        if exchange.exchanges == before and not deadline.passed:
            return "converged", records
    return "time_limit" if deadline.passed else "sweep_limit", records


def _rows(problem: DesignProblem, tokens: Indices) -> Indices:
    """Feature rows (T, K, H) of actions (T, K, H)."""
    pairs = trajectory_pairs(problem.mdp, tokens.reshape(-1, problem.horizon))
    return np.asarray(problem.mdp.pair_row[pairs], dtype=np.int64).reshape(tokens.shape)


def _information(problem: DesignProblem, rows: Indices) -> NDArray[np.float64]:
    episodes, lanes, horizon = rows.shape
    options = problem.rows(rows.transpose(0, 2, 1).ravel()).reshape(episodes * horizon, lanes, -1)
    return realised_information(options) + problem.prior


def _blocks(problem: DesignProblem) -> list[NDArray[np.floating]]:
    """Feature rows of each step's tokens of a prompt MDP."""
    assert isinstance(problem.mdp, PromptMDP)
    return [problem.features[problem.mdp.step_pairs(step)] for step in range(problem.horizon)]


def _checked_start(
    problem: DesignProblem, start: QuerySet, vocabulary: Vocabulary, rules: TokenRules, rng: np.random.Generator
) -> Indices:
    """Tokens of the start, made legal."""
    if not isinstance(problem.mdp, PromptMDP):
        raise ValueError(f"Expected a problem with a PromptMDP, got one with a {type(problem.mdp).__name__}.")
    if tuple(vocabulary.sizes) != tuple(problem.mdp.sizes):
        raise ValueError(f"Expected a vocabulary of sizes {problem.mdp.sizes}, got one of sizes {vocabulary.sizes}.")
    expected = (problem.num_policies, problem.horizon)
    if start.tokens.shape[1:] != expected or (start.tokens >= np.array(problem.mdp.sizes)).any():
        raise ValueError(
            f"Expected a start of this problem with (K, H) = {expected}, got tokens of shape {start.tokens.shape}."
        )
    if not rules.violations(start.tokens):
        return np.array(start.tokens)
    if rules.restrictions.shared_base == "all" and rules.restrictions.base is None:
        rules = rules.with_base(int(np.bincount(start.tokens[:, :, 0].ravel()).argmax()))
    return np.stack([complete_episode(rules, lanes, rng) for lanes in start.tokens])
