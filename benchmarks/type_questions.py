"""How to choose questions where people come in types: docs/priors.md.

    OMP_NUM_THREADS=1 python -m benchmarks.type_questions    # about 5 minutes

Four types of people, their tastes N(m_j, spread^2 I) in d = 8 with |m_j| = 5 in random directions, and a population
with four types fitted to 300 of them, who answered 12 random questions each. New people answer 8 questions with K = 4
options about one pool of 60 items, or about the 3 steps of 12 tokens, all random unit vectors, by the multinomial
logit. After 1, 2, 4 and 8 answers `Population.fit` predicts 200 random held-out questions of the same pool: the
expected log-likelihood of an answer, and its paired difference to "information" with a standard error, over people.
"One Gaussian" plans with the population's mean and covariance alone; estimates are under its types for all.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from benchmarks.common import make_parser
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import Planner, TokenFeatures, make_planner
from edpbrl_gym.vocabulary import Vocabulary

DIMENSION, TYPES, OPTIONS, NORM = 8, 4, 4, 5.0
COUNTS = (1, 2, 4, 8)
WORLDS = {"60 items": (60,), "3 steps of 12 tokens": (12, 12, 12)}
ARMS: dict[str, tuple[str, dict[str, object], bool]] = {  # planner, its options, whether it knows the types
    "random": ("random", {}, True),
    "information": ("adaptive", {"score": "information"}, True),
    "trace": ("adaptive", {"score": "trace"}, True),
    "mutual": ("adaptive", {"score": "mutual"}, True),
    "information, one Gaussian": ("adaptive", {"score": "information"}, False),
    "mutual, one Gaussian": ("adaptive", {"score": "mutual"}, False),
}


def unit(rng: np.random.Generator, *shape: int) -> Floats:
    """Random unit vectors."""
    rows = rng.standard_normal((*shape, DIMENSION))
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def answer(rng: np.random.Generator, options: Floats, theta: Floats) -> np.ndarray:
    """Choices by the multinomial logit."""
    utilities = options @ theta
    return np.asarray((utilities + rng.gumbel(size=utilities.shape)).argmax(axis=-1))


def community(spread: float) -> tuple[Floats, Population]:
    """The means of the types, and the population fitted to people of them."""
    rng = generator(0, "type questions", "community", round(100 * spread))
    means = NORM * unit(rng, TYPES)
    people = []
    for _ in range(300):
        theta = means[rng.integers(TYPES)] + spread * rng.standard_normal(DIMENSION)
        options = unit(rng, 12, OPTIONS)
        people.append((options, answer(rng, options, theta)))
    return means, fit_population(people, kind="types", types=TYPES)


def curve(planner: Planner, population: Population, tokens: Floats, theta: Floats, seed: int) -> list[float]:
    """Expected log-likelihood of held-out answers after each number of answers."""
    rng = generator(0, "type questions", "person", seed)
    held_out = tokens[[rng.choice(len(tokens), OPTIONS, replace=False) for _ in range(200)]]
    truth = log_softmax(held_out @ theta, axis=1)
    steps, asked, choices, found = planner.sizes, [], [], []  # type: ignore[attr-defined]
    starts = np.cumsum((0, *steps))
    prefixes = np.empty((OPTIONS, 0), dtype=np.int64)
    for number in range(1, max(COUNTS) + 1):
        step = prefixes.shape[1]
        question = planner.ask(prefixes)
        prefixes = np.column_stack([prefixes, question]) if step + 1 < len(steps) else prefixes[:, :0]
        options = tokens[starts[step] + question]
        choice = int(answer(rng, options, theta))
        planner.tell(options[None].astype(np.float32), [Response.best(choice)])
        asked.append(options)
        choices.append(choice)
        if number in COUNTS:
            fit = population.fit((np.array(asked), np.array(choices)))
            found.append(float((np.exp(truth) * np.log(fit.choice_probabilities(held_out))).sum(axis=1).mean()))
    return found


@one_blas_thread()
def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--people", type=int, default=24)
    parser.add_argument("--first", type=int, default=1000, help="first seed of the people; development: below 1000")
    parser.add_argument("--spreads", type=float, nargs="+", default=[0.5])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    arguments = parser.parse_args()
    for spread in arguments.spreads:
        means, population = community(spread)
        for world, sizes in WORLDS.items():
            results: dict[str, list[list[float]]] = {arm: [] for arm in arguments.arms}
            for seed in range(arguments.first, arguments.first + arguments.people):
                rng = generator(0, "type questions", "new person", seed)
                tokens = unit(rng, sum(sizes))
                theta = means[rng.integers(TYPES)] + spread * rng.standard_normal(DIMENSION)
                names = tuple(tuple(f"{step} {token}" for token in range(size)) for step, size in enumerate(sizes))
                words = Vocabulary(tuple(map(str, range(len(sizes)))), names)
                for arm in arguments.arms:
                    name, options, types = ARMS[arm]
                    prior = population if types else population.gaussian
                    features = TokenFeatures(words, tokens.astype(np.float32))
                    planner = make_planner(
                        name, words, features, prior=prior, num_options=OPTIONS, seed=seed, **options
                    )
                    results[arm].append(curve(planner, population, tokens, theta, seed))
            print(f"\n{world}, spread {spread:g}, {arguments.people} people; weights {population.weights.round(2)}\n")
            print(f"| questions | {' | '.join(map(str, COUNTS))} |")
            print("|---" * (len(COUNTS) + 1) + "|")
            base = np.array(results.get("information", next(iter(results.values()))))
            for arm, rows in results.items():
                values = np.array(rows)
                gain = values - base
                errors = gain.std(axis=0) / np.sqrt(len(gain))
                columns = zip(values.mean(axis=0), gain.mean(axis=0), errors, strict=True)
                cells = [f"{value:.3f} ({more:+.3f} ± {error:.3f})" for value, more, error in columns]
                print(f"| {arm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
