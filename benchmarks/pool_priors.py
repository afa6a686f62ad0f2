"""What the prior from the embeddings costs where they say nothing, on random directions: docs/priors.md.

    OMP_NUM_THREADS=1 python -m benchmarks.pool_priors    # a minute

Random questions about n random unit vectors, a taste of norm 5 in a random direction, answers by the multinomial logit.
Mean cosine error after 5, 10, 15, 25, 40 and 60 answers, over development seeds from 1100 on; in brackets the paired
difference to the ridge lambda = 1 (nearly the true prior there) and its standard error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation import GaussianPrior, estimate, fit_prior
from edpbrl_gym.estimation.metrics import cosine_error
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior

COUNTS = (5, 10, 15, 25, 40, 60)
POOLS = ((100, 10, 4, 30), (100, 10, 2, 30), (1000, 32, 4, 20))  # n, d, K, seeds
SCALE, FIRST_SEED = 5.0, 1100

Estimator = Callable[[Floats, NDArray[np.int64]], Floats]


def estimators(items: Floats) -> dict[str, Estimator]:
    """The estimators of the table."""
    size = items.shape[1]
    ridge, vocabulary = GaussianPrior.isotropic(size, 1.0), VocabularyPrior(items)
    plain, shrunk = (
        GaussianPrior.from_embeddings(items, power=0.75, centred=False, shrunk=shrunk) for shrunk in (False, True)
    )
    return {
        "ridge 1": lambda options, choices: estimate((options, choices), prior=ridge).theta,
        "ridge, auto": lambda options, choices: fit_prior((options, choices), base=ridge).estimate.theta,
        "embeddings, auto": lambda options, choices: fit_prior((options, choices), base=plain).estimate.theta,
        "embeddings, shrunk, auto": lambda options, choices: fit_prior((options, choices), base=shrunk).estimate.theta,
        "VocabularyPrior": lambda options, choices: vocabulary.fit((options, choices)).theta,
    }


def errors(count: int, dimension: int, num_options: int, seed: int) -> dict[str, float]:
    """Mean cosine error of each estimator for one pool and taste."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(count, dimension))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    taste = rng.normal(size=dimension)
    taste *= SCALE / np.linalg.norm(taste)
    options = items[[rng.choice(count, num_options, replace=False) for _ in range(COUNTS[-1])]]
    choices = (options @ taste + rng.gumbel(size=options.shape[:2])).argmax(axis=1)
    return {
        name: float(np.mean([cosine_error(found(options[:t], choices[:t]), taste) for t in COUNTS]))
        for name, found in estimators(items).items()
    }


def main() -> None:
    """Measure and print."""
    for count, dimension, num_options, seeds in POOLS:
        with one_blas_thread():
            rows = [errors(count, dimension, num_options, FIRST_SEED + seed) for seed in range(seeds)]
        print(f"{count} items, d = {dimension}, K = {num_options}, {seeds} seeds")
        base = np.array([row["ridge 1"] for row in rows])
        for name in rows[0]:
            values = np.array([row[name] for row in rows])
            behind = values - base
            error = behind.std(ddof=1) / np.sqrt(seeds)
            print(f"  {name:<26}{values.mean():.3f}  ({behind.mean():+.4f} +- {error:.4f})")


if __name__ == "__main__":
    main()
