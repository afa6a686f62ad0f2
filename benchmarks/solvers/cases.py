"""A problem of the benchmark: which features, how they are split over the steps, which criterion and prior."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.solvers.vocabularies import SEED, Vocabulary, prepare
from edpbrl_gym._arrays import Floats
from edpbrl_gym.design import Design, DesignProblem, make_criterion, token_difference_matrix
from edpbrl_gym.mdp import PromptMDP

__all__ = ["Block", "Case", "Instance"]


EPISODES, HORIZON, POLICIES = 60, 6, 4
TARGET_RANK = 16


@dataclass(frozen=True)
class Case:
    """What defines a problem, in words that fit on a line of the results.

    Attributes:
        source: Features, see `vocabularies`.
        tokens: n.
        dimension: d.
        split: Distinct vocabularies: 1 (all H = 6 steps show the same tokens) or 6 (each step its own).
        criterion: "D", "A", "V16" (V = B B', the columns of B 16 random differences of two tokens of a vocabulary) or
            "V" (the paper's: all differences of two tokens of a category, the bases left out where there are others).
        regularization: lambda.
        seed: Of synthetic features.
    """

    source: str
    tokens: int
    dimension: int
    split: int
    criterion: str
    regularization: float
    seed: int = SEED

    @property
    def name(self) -> str:
        """The case as one word."""
        size = f"{self.tokens}x{self.dimension}-split{self.split}"
        return f"{self.source}-{size}-{self.criterion}-{self.regularization:g}-{self.seed}"

    def settings(self) -> dict[str, Any]:
        """The fields, for a line of the results."""
        return asdict(self)


@dataclass(frozen=True)
class Block:
    """Steps that show the same tokens with the same weights.

    Attributes:
        rows: Their feature rows.
        weights: Distribution over the rows, shape (rows,).
        scale: T times the number of these steps.
    """

    rows: slice
    weights: Floats
    scale: float


class Instance:
    """A case with its features: what a solver is given.

    Args:
        case: The case.
        folder: Where the features are kept.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.vocabulary: Vocabulary = prepare(case.source, case.tokens, case.dimension, case.split, case.seed, folder)
        self.blocks: tuple[slice, ...] = self.vocabulary.blocks
        self.scale = float(EPISODES * HORIZON // len(self.blocks))  # T times the steps of a block

    @property
    def features(self) -> NDArray[np.float32]:
        """Phi, shape (n, d), memory-mapped."""
        return self.vocabulary.features

    @cached_property
    def target(self) -> Floats:
        """V of the trace criteria, shape (d, d): the identity for A."""
        if self.case.criterion == "A":
            return np.eye(self.case.dimension)
        if self.case.criterion == "V16":
            rng = np.random.default_rng([self.case.seed, self.case.tokens, self.case.dimension])
            differences = []
            for number in range(TARGET_RANK):
                own = self.blocks[number % len(self.blocks)]
                one, other = own.start + rng.choice(own.stop - own.start, size=2, replace=False)
                differences.append(self.features[one].astype(np.float64) - self.features[other])
            columns = np.stack(differences, axis=1)
            return np.asarray(columns @ columns.T)
        if self.case.criterion == "V":
            groups = self.blocks[1:] or self.blocks
            return token_difference_matrix(self.features, [np.arange(own.start, own.stop) for own in groups])
        raise ValueError(f"The criterion {self.case.criterion} has no target matrix V.")

    @cached_property
    def target_factor(self) -> Floats:
        """B with V = B B', shape (d, r)."""
        if self.case.criterion == "A":
            return np.eye(self.case.dimension)
        values, vectors = np.linalg.eigh(self.target)
        kept = values > values[-1] * len(values) * np.finfo(float).eps
        return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))

    @property
    def kind(self) -> str:
        """Name of the criterion for `make_criterion`: D, A or V."""
        return self.case.criterion[0]

    def design_problem(self, *, merged: bool = False) -> DesignProblem:
        """The problem for the library's solvers: features as they are (float32, memory-mapped), H steps.

        Args:
            merged: Steps with the same tokens as one step with T H episodes: fewer variables, the same optimum.
        """
        sizes = self.vocabulary.sizes
        steps = 1 if merged or len(sizes) > 1 else HORIZON
        return DesignProblem(
            mdp=PromptMDP.repeated(sizes[0], HORIZON) if steps > 1 else PromptMDP(sizes),
            features=self.features,
            num_policies=POLICIES,
            episodes=EPISODES * HORIZON // (steps * len(sizes)),
            criterion=make_criterion(self.kind, self.target if self.kind == "V" else None),
            regularization=self.case.regularization,
        )

    def of_design(self, design: Design) -> list[Block]:
        """The blocks of a design of the library."""
        problem = design.problem
        mean = design.mean_occupancy
        found = []
        for step in range(problem.horizon):
            pairs = problem.mdp.step_pairs(step)
            rows = problem.mdp.pair_row[pairs]
            found.append(Block(slice(int(rows[0]), int(rows[-1]) + 1), mean[step, pairs], float(problem.episodes)))
        return found
