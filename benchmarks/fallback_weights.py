"""How much prior weight a person unlike all others should have, on development communities: docs/priors.md.

    OMP_NUM_THREADS=1 python -m benchmarks.fallback_weights --jobs 3    # about ten minutes

The communities of ``edpbrl bench communities --development``: a population of factors is fitted to 300 people with 30
answers, with the prior of the vocabulary as its fallback. New people of each kind answer random questions. Preference
error, and log-likelihood of an answer to held-out questions, minus those of the vocabulary's prior alone: of the
population without a fallback, and by the prior weight of the fallback; and the fallback's posterior weight by its prior
prior weight. Means over people and regimes, with the standard error over people of the means over their regimes. Last
the CPU milliseconds of a person's fit, and of the posterior of the vocabulary's prior, which predictions take besides.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.experiments.communities.community import NewPerson, known_people, new_people
from edpbrl_gym.experiments.communities.run import measure
from edpbrl_gym.experiments.communities.settings import REGIMES, CommunitySettings, CommunityUnit
from edpbrl_gym.experiments.communities.worlds import CommunityWorld, load_world, prepare_world
from edpbrl_gym.experiments.people.estimators import Fit
from edpbrl_gym.features import load_encoder

COUNTS = (1, 2, 4, 10, 20, 40)
WEIGHTS = (0.03, 0.1, 0.2, 0.3, 0.5)
METRICS = {"preference_error": "preference error", "log_likelihood": "log-likelihood of an answer"}


def rows_of(person: NewPerson, population: Population, world: CommunityWorld, scale: float) -> list[dict[str, Any]]:
    """What is measured of a person: a row for each number of answers and each weight (0: without, 1: alone)."""
    rows = []
    for count in COUNTS:
        terms = person.candidates.select(list(range(count))).terms()
        begun = time.process_time()
        even = population.fit(terms, fallback_weight=0.5)
        fitted = time.process_time() - begun
        assert even.alone is not None and even.alone.posterior is not None
        seconds = {"fit": fitted, "posterior": time.process_time() - begun - fitted}
        own = population.fit(terms, fallback=None)
        sides = own.choice_probabilities(world.held_out), even.alone.posterior.choice_probabilities(world.held_out)
        for weight in (0.0, *WEIGHTS, 1.0):
            odds = np.array([even.memberships.sum() * (1.0 - weight), even.fallback_weight * weight])
            first, second = odds / odds.sum()
            probabilities: Floats = first * sides[0] + second * sides[1]
            mixed = Fit(first * own.theta + second * even.alone.theta, lambda _, found=probabilities: found)
            found = measure(mixed, world, person.taste, scale)
            facts = {"kind": person.kind, "answers": count, "weight": weight, "share": float(second)}
            rows.append({**facts, **found, **seconds})
    return rows


def run(regime: str, people: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of a regime."""
    settings, unit = CommunitySettings(development=True, new=people), CommunityUnit(regime, "population-factors")
    prepare_world(settings, unit.words, load_encoder(settings.encoder), folder / regime)
    world = load_world(settings, unit.words, folder / regime)
    with one_thread():
        prior, known = VocabularyPrior(world.judged.tokens), known_people(settings, unit, world)
        population = fit_population(known, kind="factors", factors=settings.factors, base=prior.base)
        falling = population.with_fallback(prior)
        facts = {"words": unit.words, "regime": regime}
        return [
            {**facts, "person": person.number, **row}
            for person in new_people(settings, unit, world)
            for row in rows_of(person, falling, world, unit.scale)
        ]


def table(rows: Any, metric: str) -> None:
    """Print differences to the vocabulary's prior alone."""
    print(f"\n| {METRICS[metric]} | n | alone | without |" + "".join(f" {weight} |" for weight in WEIGHTS))
    print("|" + "---|" * (4 + len(WEIGHTS)))
    for (kind, count), block in rows.groupby(["kind", "answers"], sort=False):
        wide = block.pivot_table(index=["words", "person"], columns="weight", values=metric)
        gaps = wide.sub(wide[1.0], axis=0)
        errors = gaps.std(ddof=1) / np.sqrt(len(gaps))
        cells = [f"{gaps[weight].mean():+.3f} ± {errors[weight]:.3f}" for weight in (0.0, *WEIGHTS)]
        print(f"| {kind} | {count} | {wide[1.0].mean():.3f} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print the tables."""
    import pandas as pd

    parser = make_parser(__doc__)
    parser.add_argument("--people", type=int, default=12, help="new people of each kind")
    parser.add_argument("--jobs", type=int, default=1)
    names = ["images-scale-20", "images-argmax", "interiors-scale-20"]
    parser.add_argument("--regimes", nargs="+", default=names, choices=REGIMES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(partial(run, people=options.people, folder=Path(folder)), options.regimes))
    rows = pd.DataFrame([row for part in found for row in part])
    for metric in METRICS:
        table(rows, metric)
    shares = rows[rows["weight"].isin(WEIGHTS)].pivot_table(
        index=["kind", "answers"], columns="weight", values="share", sort=False
    )
    print("\nposterior weight of the fallback\n\n" + shares.round(2).to_string())
    times = 1e3 * rows.groupby("answers")[["fit", "posterior"]].median()
    print("\nmedian CPU milliseconds\n\n" + times.round().to_string())


if __name__ == "__main__":
    main()
