"""The number of factors or of types of people, by how well each predicts the answers of people left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_count
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.population.answers import answered_people, check_group
from edpbrl_gym.estimation.population.fitting import fit_population
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["PopulationChoice", "choose_population"]

_CANDIDATES = {"factors": (0, 1, 2, 4, 8), "types": (1, 2, 3, 4)}


@dataclass(frozen=True, eq=False)
class PopulationChoice:
    """The number with the highest held-out likelihood.

    Attributes:
        number: The chosen number.
        candidates: All numbers tried, ascending.
        log_evidence: Log evidence of each left-out person's answers under each candidate, (candidates, people), fitted
            on the people of the other folds.
        standard_errors: Of the mean difference of each candidate to the chosen one, over people, (candidates,).
    """

    number: int
    candidates: tuple[int, ...]
    log_evidence: Floats
    standard_errors: Floats


def choose_population(
    people: Sequence[Data],
    *,
    kind: Literal["factors", "types"],
    candidates: Sequence[int] | None = None,
    folds: int = 5,
    base: GaussianPrior | None = None,
    rounds: int = 300,
    model: AnswerFormat | None = None,
    seed: int = 0,
    shrinkage: float | None = None,
    minimum_people: int = 20,
) -> PopulationChoice:
    """Choose the number of factors or types by the likelihood of people left out, in folds over people.

    Ascending numbers are tried until one is worse than its predecessor. A number replaces a smaller one only if its
    mean log evidence is higher.

    Args:
        people: As for :func:`~edpbrl_gym.estimation.population.fit_population`; what is fitted here is not kept.
        kind: "factors" or "types".
        candidates: Numbers to try; None: 0, 1, 2, 4 and 8 factors, as far as there are features, or 1 to 4 types.
        folds: Number of folds, >= 2.
        base: As there, as are all that follow.
        rounds: As there.
        model: As there.
        seed: As there, and of the folds.
        shrinkage: As there.
        minimum_people: As there.

    Raises:
        TypeError, ValueError: As for ``fit_population``; no candidates, or fewer people than folds.
    """
    if kind not in _CANDIDATES:
        raise ValueError(f"Expected kind 'factors' or 'types', got {kind!r}")
    answered = answered_people(people, model)
    check_group(answered, minimum_people, "choose a population")
    count = check_count(folds, "folds", minimum=2)
    if len(answered) < count:
        raise ValueError(f"Expected at least as many people as folds, got {len(answered)} people and {count} folds")
    dimension = answered[0].rows.shape[2]
    if candidates is None:
        candidates = [number for number in _CANDIDATES[kind] if kind == "types" or number <= dimension]
    least = 0 if kind == "factors" else 1
    numbers = sorted({check_count(number, "candidates", minimum=least) for number in candidates})
    if not numbers:
        raise ValueError("Expected at least one candidate, got none")
    terms = [person.terms() for person in answered]
    order = generator(seed, "folds").permutation(len(terms))
    parts: list[NDArray[np.intp]] = np.array_split(order, count)
    rows: list[Floats] = []
    for number in numbers:
        evidence = np.empty(len(terms))
        for held_out in parts:
            kept = np.setdiff1d(order, held_out)
            population = fit_population(
                [terms[person] for person in kept],
                kind=kind,
                base=base,
                factors=number if kind == "factors" else None,
                types=number if kind == "types" else None,
                rounds=rounds,
                seed=seed,
                shrinkage=shrinkage,
                minimum_people=1,
            )
            for person in held_out:
                evidence[person] = population.log_evidence(terms[person])
        rows.append(evidence)
        if len(rows) > 1 and rows[-1].mean() < rows[-2].mean():
            break
    table = np.array(rows)
    best = int(table.mean(axis=1).argmax())
    errors = (table - table[best]).std(axis=1) / np.sqrt(table.shape[1])
    return PopulationChoice(numbers[best], tuple(numbers[: len(rows)]), table, errors)
