"""Held-out log-likelihood of priors by K-fold cross-validation: a check on the evidence that makes no approximation.

The evidence is the sum of the log probabilities of the answers, each given those before it; cross-validation asks the
same of answers given a fixed share of the others (Fong & Holmes, 2020). It needs one estimate for each fold and prior,
and its choice varies more with few answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_count, check_integers
from edpbrl_gym.estimation.map_estimate import solve
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import answer_differences
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.likelihood.choice import log_softmax

__all__ = ["CrossValidation", "cross_validate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Held-out log-likelihoods.

    Attributes:
        best: name of the prior with the highest score.
        scores: mean log probability of a held-out answer under each prior's estimate, by name. Guessing among K
            options scores -log K.
        standard_errors: of the scores, from the spread of the folds' means, by name.
        log_likelihoods: of each answer when it was held out, (n,), by name.
        fold: number of the fold of each answer, (n,).
    """

    best: str
    scores: Mapping[str, float]
    standard_errors: Mapping[str, float]
    log_likelihoods: Mapping[str, Floats]
    fold: NDArray[np.int64]


def cross_validate(
    options: ArrayLike | Terms,
    choices: ArrayLike | None = None,
    *,
    candidates: Mapping[str, GaussianPrior],
    rng: np.random.Generator,
    folds: int = 5,
    groups: ArrayLike | None = None,
) -> CrossValidation:
    """Score priors by the answers that their estimates have not seen.

    Args:
        options: features of the options, (n, K, d), or :class:`~edpbrl_gym.likelihood.Terms`.
        choices: index of the chosen option, (n,); None with Terms.
        candidates: priors by name, for example ``{f"{s:g}": base.scaled(s) for s in scales}``; the same folds for all.
        rng: assigns the groups to folds.
        folds: parts, from 2 to the number of groups.
        groups: (n,) integers; answers of one group are held out together, such as the terms of one ranking, whose
            likelihood is one thing, or the questions of one episode. None: each answer by itself.

    Raises:
        ValueError: no candidates, fewer groups than folds, a prior under which a fold's estimate does not exist, or
            data as for :func:`~edpbrl_gym.estimation.estimate`.
    """
    differences, offsets = answer_differences(options, choices)
    count = len(differences)
    if not candidates:
        raise ValueError("Expected at least one candidate prior, got none")
    folds = check_count(folds, "folds", minimum=2)
    labels = np.arange(count) if groups is None else check_integers(groups, "groups", shape=(count,))
    members, place = np.unique(labels, return_inverse=True)
    if len(members) < folds:
        raise ValueError(f"Expected at least as many groups of answers as folds ({folds}), got {len(members)}")
    fold = rng.permutation(np.arange(len(members)) % folds)[place]
    found = {name: _held_out(name, differences, offsets, prior, fold, folds) for name, prior in candidates.items()}
    scores = {name: float(values.mean()) for name, values in found.items()}
    errors = {}
    for name, values in found.items():
        means = np.array([values[fold == each].mean() for each in range(folds)])
        errors[name] = float(means.std(ddof=1) / np.sqrt(folds))
    return CrossValidation(
        best=max(scores, key=lambda name: scores[name]),
        scores=scores,
        standard_errors=errors,
        log_likelihoods=found,
        fold=fold,
    )


def _held_out(
    name: str, differences: Floats, offsets: Floats | None, prior: GaussianPrior, fold: NDArray[np.int64], folds: int
) -> Floats:
    """Log probability of each answer at the estimate from the other folds, (n,)."""
    if prior.dimension != differences.shape[2]:
        raise ValueError(
            f"Expected priors of dimension {differences.shape[2]} (the options'), got {prior.dimension} for {name!r}"
        )
    values = np.zeros(differences.shape[:2])
    start: Floats | None = None
    for each in range(folds):
        out = fold == each
        rest = None if offsets is None else offsets[~out]
        end = solve(differences[~out], rest, prior, tolerance=1e-6, max_iterations=100, start=start)
        if not end.converged:
            raise ValueError(f"Expected an estimate under the prior {name!r} in every fold, got none: {end.reason}")
        start = end.theta
        values[out] = differences[out] @ end.theta
    if offsets is not None:
        values = values + offsets
    logs = log_softmax(np.concatenate([np.zeros((len(values), 1)), values], axis=1))
    return np.asarray(logs[:, 0])
