"""A realised query set: the T x K trajectories to show, what they tell, and how good they are; saved and loaded."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices, read_only
from edpbrl_gym._files import reading, replacing
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.design.problem import DesignProblem

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["QuerySet", "SweepRecord", "make_query_set"]


_FORMAT = "edpbrl-gym query set 1"
_PLAIN = (
    *("value", "upper_bound", "efficiency", "criterion", "feedback", "status", "seed", "restart", "seconds"),
    *("encoded_texts", "problem_fingerprint", "restrictions"),
)


class SweepRecord(NamedTuple):
    """One sweep of an exchange.

    Attributes:
        restart: Which start it belongs to.
        sweep: Number of the sweep; 0 is the start itself.
        value: Criterion after it, computed anew.
        exchanges: Replacements so far.
        encoded_texts: Texts embedded so far (0 on state features).
        seconds: Time since the start of this restart.
    """

    restart: int
    sweep: int
    value: float
    exchanges: int
    encoded_texts: int
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerySet:
    """T episodes of K trajectories; step h of episode t asks which of the K options is best.

    Attributes:
        tokens: Action of each lane at each step, shape (T, K, H), read-only: of a prompt the token of each step.
        rows: Feature rows that they show, shape (T, K, H), read-only.
        information: Realised information at p = 1/K plus the prior precision, shape (d, d), read-only.
        value: Criterion of it.
        upper_bound: Certified bound of the value over all query sets; None where none is known (truncated feedback).
        efficiency: `Criterion.efficiency` of value and bound; None without a bound.
        criterion: "A", "V" or "D".
        feedback: "state": options are feature rows; "truncated": embeddings of partial prompts.
        status: "converged" (no exchange gains), "sweep_limit", "budget" (no more texts may be embedded),
            "time_limit", "interrupted" (by the callback), or "given" (nothing was exchanged).
        seed: Seed of the exchange.
        restart: The start that this set came from.
        seconds: Time taken, all restarts together.
        encoded_texts: Texts embedded.
        problem_fingerprint: Of the `DesignProblem`.
        restrictions: What was honoured (`TokenRules.describe`).
        history: One record for each sweep of each restart.
    """

    tokens: Indices
    rows: Indices
    information: Floats
    value: float
    upper_bound: float | None
    efficiency: float | None
    criterion: str
    feedback: str
    status: str
    seed: int
    restart: int
    seconds: float
    encoded_texts: int
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
        against = "no bound" if self.efficiency is None else f"efficiency {self.efficiency:.4f} of the certified bound"
        return (
            f"{episodes} x {lanes} trajectories of {horizon} steps ({self.feedback} feedback): {self.status}, "
            f"{self.criterion}-value {self.value:.6g}, {against} ({self.seconds:.1f} s)"
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


def make_query_set(
    problem: DesignProblem, tokens: Indices, rows: Indices, information: Floats, **fields: Any
) -> QuerySet:
    """A query set with its value and, where a bound is given, its efficiency, computed from the information."""
    value = problem.criterion.value(information)
    bound = fields.pop("upper_bound")
    return QuerySet(
        tokens=read_only(tokens.astype(np.int64)),
        rows=read_only(rows.astype(np.int64)),
        information=read_only(information.copy()),
        value=value,
        upper_bound=None if bound is None else float(bound),
        efficiency=None if bound is None else problem.criterion.efficiency(value, float(bound), problem.dimension),
        criterion=problem.criterion.name,
        problem_fingerprint=problem.fingerprint,
        **fields,
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
