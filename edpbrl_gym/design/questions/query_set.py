"""Realised query sets: the T x K prompts to show, chosen together instead of drawn one by one.

A design says how often each token should be shown on average. Independent draws from it lose twice: the counts are
random, and the K options of a question are not balanced, which costs the covariance of their mean (`information`).
Here the prompts themselves are the unknowns: maximise

    s( Lambda + sum over t, h of (1/K) sum_q (x_thq - xbar_th)(x_thq - xbar_th)' )

over the tokens, by rounding the design and exchanging one token at a time until nothing gains.

    design = newton(problem)
    questions = query_set(design, restrictions=Restrictions(no_overlap=True))
    print(questions.summary())
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices, read_only
from edpbrl_gym._files import reading, replacing
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.design.problem import Deadline, DesignProblem, check_time_limit
from edpbrl_gym.design.questions.exchange import PromptExchange
from edpbrl_gym.design.questions.restrictions import Restrictions
from edpbrl_gym.design.questions.rounding import first_tokens
from edpbrl_gym.design.questions.state import state_of
from edpbrl_gym.design.result import Design
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.mdp import PromptMDP

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["QuerySet", "SweepRecord", "query_set"]


_FORMAT = "edpbrl-gym query set 2"
_PLAIN = (
    *("value", "upper_bound", "efficiency", "criterion", "status", "seed", "restart", "seconds"),
    *("problem_fingerprint", "restrictions"),
)


class SweepRecord(NamedTuple):
    """One sweep of an exchange.

    Attributes:
        restart: Which start it belongs to.
        sweep: Number of the sweep; 0 is the start itself.
        value: Criterion after it, computed anew.
        exchanges: Replacements so far.
        seconds: Time since the start of this restart.
    """

    restart: int
    sweep: int
    value: float
    exchanges: int
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerySet:
    """T episodes of K prompts; step h of episode t asks which of the K tokens is best.

    Attributes:
        tokens: Token of each lane at each step, shape (T, K, H), read-only.
        rows: Feature rows that they show, shape (T, K, H), read-only.
        information: Realised information at p = 1/K plus the prior precision, shape (d, d), read-only.
        value: Criterion of it.
        upper_bound: Certified bound of the value over all query sets.
        efficiency: `Criterion.efficiency` of value and bound.
        criterion: Its name.
        status: "converged" (no exchange gains), "sweep_limit", "time_limit" or "interrupted" (by the callback).
        seed: Seed of the exchange.
        restart: The start that this set came from.
        seconds: Time taken, all restarts together.
        problem_fingerprint: Of the `DesignProblem`.
        restrictions: What was honoured (`TokenRules.describe`).
        history: One record for each sweep of each restart.
    """

    tokens: Indices
    rows: Indices
    information: Floats
    value: float
    upper_bound: float
    efficiency: float
    criterion: str
    status: str
    seed: int
    restart: int
    seconds: float
    problem_fingerprint: str
    restrictions: dict[str, Any] = field(default_factory=dict)
    history: tuple[SweepRecord, ...] = ()

    def __len__(self) -> int:
        """T, the number of episodes."""
        return len(self.tokens)

    def texts(self, vocabulary: Vocabulary, step: int | None = None) -> list[list[str]]:
        """The prompts as texts, T lists of K.

        Args:
            vocabulary: The tokens that the set was made of.
            step: Partial prompts up to and with this step, as a question at that step shows them; None: whole prompts.

        Raises:
            ValueError: If the vocabulary has other sizes than the set's, or there is no such step.
        """
        horizon = self.tokens.shape[2]
        highest = self.tokens.reshape(-1, horizon).max(axis=0)
        if vocabulary.horizon != horizon or (highest >= np.array(vocabulary.sizes)).any():
            raise ValueError(
                f"Expected the vocabulary of this query set ({horizon} steps), got one of sizes {vocabulary.sizes}."
            )
        if step is not None and not 0 <= step < horizon:
            raise ValueError(f"Expected a step in 0..{horizon - 1}, got {step}.")
        end = horizon if step is None else step + 1
        return [[vocabulary.prompt(lane[:end]) for lane in lanes] for lanes in self.tokens]

    def summary(self) -> str:
        """One line for a terminal."""
        episodes, lanes, horizon = self.tokens.shape
        return (
            f"{episodes} x {lanes} prompts of {horizon} steps: {self.status}, {self.criterion}-value "
            f"{self.value:.6g}, efficiency {self.efficiency:.4f} of the certified bound ({self.seconds:.1f} s)"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the set to a file (npz with JSON inside), whole or not at all; returns the path as given."""
        target = Path(path)
        document: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        document["format"] = _FORMAT
        document["history"] = [list(record) for record in self.history]
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part, open(part, "wb") as file:
            np.savez_compressed(
                file,
                tokens=self.tokens,
                rows=self.rows,
                information=self.information,
                document=np.array(json.dumps(document)),
            )
        return target

    @staticmethod
    def load(path: str | os.PathLike[str], problem: DesignProblem | None = None) -> QuerySet:
        """Read a query set.

        Args:
            path: The file.
            problem: If given, the set must have been made for it.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, no query set, or of another problem.
        """
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(f"Expected a saved query set at {source}, found no such file.")
        with reading(f"a query set saved by QuerySet.save ({_FORMAT})", source):
            arrays, document = _read(source)
            if problem is None or document["problem_fingerprint"] == problem.fingerprint:
                history = tuple(SweepRecord(*record) for record in document["history"])
                fields: dict[str, Any] = {name: read_only(array) for name, array in arrays.items()}
                fields |= {name: document[name] for name in _PLAIN}
                return QuerySet(**fields, history=history)
        raise ValueError(
            f"The query set in {source} was made for another problem (MDP, features, K, T, prior or criterion "
            "differ); make one for this problem."
        )


def _read(source: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    with np.load(source, allow_pickle=False) as archive:
        arrays: dict[str, NDArray[Any]] = {
            name: check_integers(archive[name], name, shape=("T", "K", "H"), low=0) for name in ("tokens", "rows")
        }
        arrays["information"] = check_array(archive["information"], "information", shape=("d", "d"))
        document = json.loads(str(archive["document"]))
    missing = {"history", *_PLAIN} - set(document)
    if document["format"] != _FORMAT or missing or arrays["tokens"].shape != arrays["rows"].shape:
        raise ValueError(f"format {document['format']!r}")
    return arrays, document


def query_set(
    design: Design,
    *,
    restrictions: Restrictions | None = None,
    restarts: int = 1,
    max_sweeps: int = 50,
    seed: int = 0,
    callback: Callable[[SweepRecord], object] | None = None,
    time_limit: float | None = None,
) -> QuerySet:
    """Choose the T x K prompts of a design's problem on state features: any token of a step may replace any other.

    Args:
        design: A design, optimal or not; its upper bound is the bound of the efficiency, and holds for every query set.
        restrictions: What the lanes of an episode may show together; None: the options of a question are distinct.
        restarts: Independent starts; the best result is returned.
        max_sweeps: Sweeps of each restart at most.
        seed: Seed of the roundings and of the order of the sweeps.
        callback: Called with a `SweepRecord` after every sweep; a true return value stops ("interrupted").
        time_limit: Seconds; then the best set so far is returned ("time_limit"). None is no limit.

    Returns:
        The query set. It is a local optimum: no single exchange gains (status "converged").

    Raises:
        TypeError: If the design is none.
        ValueError: If an option is out of range, or the MDP is no `PromptMDP`.
        InfeasibleRestrictionsError: If no lanes keep the restrictions (a ValueError).
        SingularInformationError: If the first set's information is singular; use a regularization > 0.
    """
    if not isinstance(design, Design):
        raise TypeError(f"Expected a Design (solve the problem with newton first), got {type(design).__name__}.")
    deadline = check_time_limit(time_limit)
    check_count(restarts, "restarts")
    check_count(max_sweeps, "max_sweeps", minimum=0)
    check_count(seed, "seed", minimum=0)
    problem = design.problem
    mdp = problem.mdp
    if not isinstance(mdp, PromptMDP):
        raise ValueError(
            f"Expected a problem with a PromptMDP, whose prompts can be chosen, got one with a {type(mdp).__name__}; "
            "play the design's policies instead."
        )
    blocks = [problem.features[mdp.step_pairs(step)] for step in range(mdp.horizon)]
    rules = (restrictions or Restrictions()).rules(mdp)
    begin = time.perf_counter()
    best: tuple[float, int, str, Indices] | None = None
    history: list[SweepRecord] = []
    with one_blas_thread():
        for restart in range(restarts):
            rng = np.random.default_rng([seed, restart])
            first = first_tokens(problem, design.mean_rows, blocks, rules, rng)
            exchange = PromptExchange(blocks, first, state_of(problem.criterion, problem.prior), rules, deadline)
            status, records = _improve(exchange, restart, max_sweeps, rng, callback, deadline)
            history += records
            if best is None or records[-1].value > best[0]:
                best = records[-1].value, restart, status, exchange.tokens
            if status in ("interrupted", "time_limit"):
                break
    assert best is not None
    _, restart, status, tokens = best
    rows = tokens + rules.first
    information = _information(problem, rows)
    value = problem.criterion.value(information)
    return QuerySet(
        tokens=read_only(tokens),
        rows=read_only(rows),
        information=read_only(information),
        value=value,
        upper_bound=design.upper_bound,
        efficiency=problem.criterion.efficiency(value, design.upper_bound, problem.dimension),
        criterion=problem.criterion.name,
        status=status,
        seed=seed,
        restart=restart,
        seconds=time.perf_counter() - begin,
        problem_fingerprint=problem.fingerprint,
        restrictions=rules.describe(),
        history=tuple(history),
    )


def _improve(
    exchange: PromptExchange,
    restart: int,
    max_sweeps: int,
    rng: np.random.Generator,
    callback: Callable[[SweepRecord], object] | None,
    deadline: Deadline,
) -> tuple[str, list[SweepRecord]]:
    """Sweep until nothing gains, the sweeps or the time are spent, or the callback stops the search."""
    begin = time.perf_counter()
    records = [SweepRecord(restart, 0, exchange.value, 0, 0.0)]
    for sweep in range(1, max_sweeps + 1):
        if deadline.passed:
            return "time_limit", records
        before, value = exchange.exchanges, exchange.sweep(rng)
        records.append(SweepRecord(restart, sweep, value, exchange.exchanges, time.perf_counter() - begin))
        if callback is not None and callback(records[-1]):
            return "interrupted", records
        if exchange.exchanges == before and not deadline.passed:
            return "converged", records
    return "time_limit" if deadline.passed else "sweep_limit", records


def _information(problem: DesignProblem, rows: Indices) -> Floats:
    episodes, lanes, horizon = rows.shape
    options = problem.rows(rows.transpose(0, 2, 1).ravel()).reshape(episodes * horizon, lanes, -1)
    return fisher_information(options) + problem.prior
