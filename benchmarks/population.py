"""Time, memory and accuracy of populations, on simulated people: docs/benchmarks.md.

    OMP_NUM_THREADS=1 python -m benchmarks.population times       # some minutes
    OMP_NUM_THREADS=1 python -m benchmarks.population accuracy    # some minutes

``times``: CPU seconds of the fits of each kind, with the peak memory of the process until then, smallest first; and
CPU milliseconds of a new person's fit, of the posterior that questions are planned with, and of ``estimate`` with the
same answers.

``accuracy``: new people from a Gaussian population, from types of people, and from populations whose tastes have heavy
tails (Student's t, or a log-normal strength). A Gaussian is fitted to 300 people with 12 answers each. After n answers
of a new person, four more are predicted: the log-likelihood of an answer minus that of exact Bayes under the true
population (by 20,000 draws from it), and the calibration error (ECE in ten bins, over all options).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np

from benchmarks.common import fastest, make_parser
from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.population import PersonFit, Population, fit_population

SEED = 3000
ANSWERS, HELD_OUT, DRAWS = (0, 1, 2, 4, 8), 4, 20_000
Person = tuple[Floats, Floats]
Sampler = Callable[[int, np.random.Generator], Floats]


def answered(thetas: Floats, questions: int, options: int, rng: np.random.Generator, size: float = 1.0) -> list[Person]:
    """Answers of people to random questions by the multinomial logit."""
    people = []
    for theta in thetas:
        shown = size * rng.normal(size=(questions, options, len(theta)))
        people.append((shown, (shown @ theta + rng.gumbel(size=shown.shape[:2])).argmax(axis=1)))
    return people


def communities(dimension: int) -> dict[str, Sampler]:
    """Populations of tastes by name."""
    fixed = np.random.default_rng([SEED, 1])
    root = fixed.normal(size=(dimension, dimension)) / np.sqrt(dimension)
    mean, types = fixed.normal(size=dimension), 1.5 * fixed.normal(size=(3, dimension))

    def gaussian(count: int, rng: np.random.Generator) -> Floats:
        return np.asarray(mean + rng.normal(size=(count, dimension)) @ root.T)

    def mixture(count: int, rng: np.random.Generator) -> Floats:
        return np.asarray(types[rng.integers(3, size=count)] + 0.5 * rng.normal(size=(count, dimension)) @ root.T)

    def student(count: int, rng: np.random.Generator) -> Floats:
        stretch = np.sqrt(3.0 / rng.chisquare(3.0, size=(count, 1)))
        return np.asarray(mean + stretch * (rng.normal(size=(count, dimension)) @ root.T))

    def log_normal(count: int, rng: np.random.Generator) -> Floats:
        return np.asarray(gaussian(count, rng) * np.exp(0.7 * rng.normal(size=(count, 1))))

    return {"gaussian": gaussian, "types": mixture, "student": student, "log-normal": log_normal}


def exact(draws: Floats, person: Person, count: int) -> Floats:
    """Probabilities of the held-out answers under the true population, (HELD_OUT, K)."""
    options, choices = person
    values = options @ draws.T
    values -= values.max(axis=1, keepdims=True)
    probabilities = np.exp(values)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    chosen = np.take_along_axis(probabilities, choices[:, None, None], axis=1)[:count, 0]
    logs = np.log(np.maximum(chosen, 1e-300)).sum(axis=0)
    weights = np.exp(logs - logs.max())
    return np.asarray(probabilities[-HELD_OUT:] @ weights / weights.sum())


def calibration_error(probabilities: Floats, chosen: Floats) -> float:
    """ECE over all options of all questions in ten bins of equal width; arrays (n, K)."""
    flat, hit = probabilities.ravel(), chosen.ravel()
    bins = np.minimum((10 * flat).astype(int), 9)
    return float(sum(abs((hit - flat)[bins == row].sum()) for row in range(10)) / len(flat))


def accuracy_of(
    fit: Callable[[Person], PersonFit], people: list[Person], draws: Floats
) -> dict[int, tuple[float, float, float]]:
    """After n answers: the mean lead over exact Bayes in nats, its standard error, and the calibration error."""
    found = {}
    for count in ANSWERS:
        told, best, hits = [], [], []
        for options, choices in people:
            asked = options[:count], choices[:count]
            told.append(fit(asked).choice_probabilities(options[-HELD_OUT:]))
            best.append(exact(draws, (options, choices), count))
            hits.append(np.eye(options.shape[1])[choices[-HELD_OUT:]])
        probabilities, chosen = np.array(told), np.array(hits)
        lead = ((np.log(probabilities) - np.log(np.array(best))) * chosen).sum(axis=2).mean(axis=1)
        error = float(lead.std() / np.sqrt(len(lead)))
        found[count] = float(lead.mean()), error, calibration_error(probabilities, chosen)
    return found


def accuracy(number: int, dimension: int, options: int) -> None:
    """Print the accuracy in each community, with and without the fallback."""
    print(f"d = {dimension}, K = {options}, {number} new people; nats from exact Bayes (standard error) / ECE")
    print(f"{'population':<12}{'fallback':<10}" + "".join(f"{f'n = {count}':>24}" for count in ANSWERS))
    for name, sampler in communities(dimension).items():
        rng = np.random.default_rng([SEED, 2])
        population = fit_population(answered(sampler(300, rng), 12, options, rng))
        people = answered(sampler(number, rng), max(ANSWERS) + HELD_OUT, options, rng)
        draws = sampler(DRAWS, rng)
        fits: dict[str, Callable[[Person], PersonFit]] = {
            "with": population.fit,
            "without": lambda data, known=population: known.fit(data, fallback=None),  # type: ignore[misc]
        }
        for label, fit in fits.items():
            found = accuracy_of(fit, people, draws).values()
            cells = "".join(f"{f'{lead:+.4f} ({error:.4f}) / {ece:.3f}':>24}" for lead, error, ece in found)
            print(f"{name:<12}{label:<10}{cells}", flush=True)


def factor_tastes(count: int, dimension: int, rng: np.random.Generator) -> Floats:
    """Tastes with four factors, for options of about unit norm."""
    loadings = 3.0 * np.random.default_rng([SEED, 3]).normal(size=(dimension, 4))
    mean = 3.0 * np.random.default_rng([SEED, 4]).normal(size=dimension)
    own = 2.0 * rng.normal(size=(count, dimension))
    return np.asarray(mean + rng.normal(size=(count, 4)) @ loadings.T + own)


def time_fits(wanted: list[str], dimensions: list[int]) -> list[tuple[Population, int, float]]:
    """Print the time of each fit; the populations, with the number of options and the size of the features."""
    print(f"{'kind':<10}{'people':>8}{'d':>5}{'K':>3}{'answers':>9}{'seconds':>9}{'peak GB':>9}")
    kept = []
    for number, dimension, options, questions, kinds in (
        (300, 6, 4, 12, ("gaussian", "types")),
        (760, 14, 2, 12, ("gaussian", "types")),
        (1000, 384, 4, 30, ("factors", "types")),
    ):
        if dimension not in dimensions:
            continue
        rng = np.random.default_rng([SEED, dimension])
        size = 1.0 if dimension < 100 else dimension**-0.5
        tastes = communities(dimension)["gaussian"] if dimension < 100 else None
        thetas = factor_tastes(number, dimension, rng) if tastes is None else tastes(number, rng)
        people = answered(thetas, questions, options, rng, size)
        for kind in [kind for kind in kinds if kind in wanted]:
            begun = time.process_time()
            population = fit_population(
                people,
                kind=kind,  # type: ignore[arg-type]
                factors=4 if kind == "factors" else None,
                types=6 if kind == "types" and dimension > 100 else None,
            )
            seconds = time.process_time() - begun
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{kind:<10}{number:>8}{dimension:>5}{options:>3}{questions:>9}{seconds:>9.1f}{peak:>9.2f}", flush=True
            )
            if kind != "types":
                kept.append((population, options, size))
    return kept


def time_people(kept: list[tuple[Population, int, float]]) -> None:
    """Print the times of a new person."""
    print(
        f"\nmedians of 9 people, ms\n{'d':>5}{'K':>3}{'answers':>9}{'fit':>8}{'planned':>9}{'estimate':>10}{'ratio':>7}"
    )
    for population, options, size in kept:
        rng = np.random.default_rng([SEED, 5])
        tastes = (
            population.gaussian.mean
            + rng.normal(size=(9, population.dimension)) @ np.linalg.cholesky(population.gaussian.covariance).T
        )
        for count in (1, 5, 20):
            rows = []
            for data in answered(tastes, count, options, rng, size):
                whole = 1e3 * fastest(lambda: population.fit(data).planned)  # noqa: B023
                alone = 1e3 * fastest(lambda: population.fit(data))  # noqa: B023
                prior = population.gaussian
                rows.append((alone, whole, 1e3 * fastest(lambda: estimate(data, prior=prior))))  # noqa: B023
            alone, whole, single = np.median(rows, axis=0)
            print(
                f"{population.dimension:>5}{options:>3}{count:>9}{alone:>8.1f}{whole:>9.1f}{single:>10.2f}"
                f"{whole / single:>7.1f}",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("part", choices=("times", "accuracy"))
    parser.add_argument("--people", type=int, default=300, help="new people of each population (accuracy)")
    parser.add_argument("--dimension", type=int, default=6, help="number of features (accuracy)")
    parser.add_argument("--options", type=int, default=4, help="K (accuracy)")
    parser.add_argument("--kinds", nargs="+", default=["gaussian", "types", "factors"], help="only these (times)")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[6, 14, 384], help="only these (times)")
    given = parser.parse_args()
    with one_blas_thread():
        if given.part == "times":
            time_people(time_fits(given.kinds, given.dimensions))
        else:
            accuracy(given.people, given.dimension, given.options)


if __name__ == "__main__":
    main()
