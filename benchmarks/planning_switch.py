"""From which weight of the fallback questions should be planned with it, on development communities: docs/people.md.

    OMP_NUM_THREADS=1 python -m benchmarks.planning_switch --jobs 3    # about 25 minutes of one core in all

The communities of ``edpbrl bench communities --development``: a population of factors is fitted to 300 people with 30
answers, with the prior of the vocabulary as its fallback. New people are asked the adaptive questions of that study,
planned with the population until the fallback's weight exceeds a share, or with the mixture of both; estimates and
predictions are the same. All differences are to the library's default without other people, which plans its own
questions, in brackets the standard error over people of the means over their regimes. "share 0" always plans without
other people. The last table has the number of questions that were planned with the fallback.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import PersonFit, Population, fit_population
from edpbrl_gym.experiments.communities.community import NewPerson, known_people, new_people
from edpbrl_gym.experiments.communities.estimators import Alone
from edpbrl_gym.experiments.communities.run import measure
from edpbrl_gym.experiments.communities.settings import REGIMES, CommunitySettings, CommunityUnit
from edpbrl_gym.experiments.communities.worlds import CommunityWorld, load_world, prepare_world
from edpbrl_gym.experiments.people.asking import choose_question
from edpbrl_gym.experiments.people.estimators import Fit
from edpbrl_gym.features import load_encoder

COUNTS = (4, 10, 20)
SHARES = (0.0, 0.2, 0.35, 0.5)
METRICS = {"preference_error": "preference error", "log_likelihood": "log-likelihood of an answer"}
DRAWS = 64

Asked = tuple[int, ...]


@dataclass
class Course:
    """The questions of one person under all ways of planning; what several of them share is computed once."""

    person: NewPerson
    population: Population
    world: CommunityWorld
    scale: float
    fits: dict[Asked, PersonFit] = field(default_factory=dict)
    chosen: dict[tuple[Asked, str], int] = field(default_factory=dict)
    measured: dict[Asked, dict[str, float]] = field(default_factory=dict)

    def fit(self, asked: Asked) -> PersonFit:
        """The person's fit after these questions."""
        if asked not in self.fits:
            self.fits[asked] = self.population.fit(self.person.candidates.select(list(asked)).terms())
        return self.fits[asked]

    def next(self, asked: Asked, source: str) -> int:
        """The next question, planned with the population, the fallback or the mixture."""
        key = asked, source
        if key not in self.chosen:
            left = [row for row in range(len(self.person.candidates)) if row not in asked]
            rng = generator(0, "communities", "adaptive", self.person.kind, self.person.number, len(asked))
            planned = partial(self._planned, asked, source)
            rows = self.person.candidates.select(left)
            self.chosen[key] = left[choose_question("adaptive", planned, rows, rng, draws=DRAWS)]
        return self.chosen[key]

    def _planned(self, asked: Asked, source: str) -> Posterior:
        fit = self.fit(asked)
        if source == "mixture":
            return fit.posterior
        if source == "population":
            return fit._mixed(slice(0, fit.size))
        assert fit.alone is not None
        return fit.alone.planned

    def measure(self, asked: Asked) -> dict[str, float]:
        """What is known after these questions, with the population."""
        if asked not in self.measured:
            fit = self.fit(asked)
            found = Fit(fit.theta, fit.choice_probabilities)
            self.measured[asked] = measure(found, self.world, self.person.taste, self.scale)
        return self.measured[asked]

    def rows(self, share: float | None) -> list[dict[str, Any]]:
        """What is measured where the fallback plans from this weight on; None: the mixture plans."""
        asked: Asked = ()
        switched, rows = 0, []
        for count in range(1, COUNTS[-1] + 1):
            source = "mixture"
            if share is not None:
                source = "fallback" if self.fit(asked).fallback_weight > share else "population"
            switched += source == "fallback"
            asked = (*asked, self.next(asked, source))
            if count in COUNTS:
                facts = {"answers": count, "planned": "mixture" if share is None else share, "switched": switched}
                rows.append({**facts, **self.measure(asked)})
        return rows

    def rows_alone(self, alone: Alone) -> list[dict[str, Any]]:
        """What is measured without other people."""
        asked: list[int] = []
        rows = []
        for count in range(1, COUNTS[-1] + 1):
            left = [row for row in range(len(self.person.candidates)) if row not in asked]
            rng = generator(0, "communities", "adaptive", self.person.kind, self.person.number, len(asked))
            planned = partial(alone.plan, self.person.candidates.select(asked).terms())
            place = choose_question("adaptive", planned, self.person.candidates.select(left), rng, draws=DRAWS)
            asked.append(left[place])
            if count in COUNTS:
                fit = alone.fit(self.person.candidates.select(asked).terms())
                found = measure(fit, self.world, self.person.taste, self.scale)
                rows.append({"answers": count, "planned": "alone", "switched": count, **found})
        return rows


def run(regime: str, people: int, folder: Path) -> Any:
    """The rows of a regime, as a frame; those that are in the folder are read."""
    import pandas as pd

    kept = folder / f"{regime}-{people}.parquet"
    if kept.is_file():
        return pd.read_parquet(kept)
    settings, unit = CommunitySettings(development=True, new=people), CommunityUnit(regime, "population-factors")
    prepare_world(settings, unit.words, load_encoder(settings.encoder), folder / regime)
    world = load_world(settings, unit.words, folder / regime)
    rows = []
    with one_thread():
        prior, known = VocabularyPrior(world.judged.tokens), known_people(settings, unit, world)
        population = fit_population(known, kind="factors", factors=settings.factors, base=prior.base)
        falling = population.with_fallback(prior)
        for person in new_people(settings, unit, world):
            facts = {"words": unit.words, "regime": regime, "kind": person.kind, "person": person.number}
            course = Course(person, falling, world, unit.scale)
            found = course.rows_alone(Alone(prior))
            for share in (*SHARES, None):
                found += course.rows(share)
            rows += [{**facts, **row, "planned": str(row["planned"])} for row in found]
    frame = pd.DataFrame(rows)
    frame.to_parquet(kept)
    return frame


def show_table(rows: Any, metric: str) -> None:
    """Print differences to the library's default without other people."""
    names = [*(f"share {share:g}" for share in SHARES), "mixture"]
    print(f"\n| {METRICS[metric]} | n | alone | " + " | ".join(names) + " |\n" + "|---" * (3 + len(names)) + "|")
    for (kind, count), block in rows.groupby(["kind", "answers"], sort=False):
        wide = block.pivot_table(index=["words", "person"], columns="planned", values=metric)
        gaps = wide.sub(wide["alone"], axis=0)
        errors = gaps.std(ddof=1) / np.sqrt(len(gaps))
        cells = [f"{gaps[one].mean():+.3f} ({errors[one]:.3f})" for one in (*map(str, SHARES), "mixture")]
        print(f"| {kind} | {count} | {wide['alone'].mean():.3f} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print the tables."""
    import pandas as pd

    parser = make_parser(__doc__)
    parser.add_argument("--people", type=int, default=8, help="new people of each kind")
    parser.add_argument("--jobs", type=int, default=1)
    names = ["images-scale-20", "images-argmax", "interiors-scale-20", "interiors-argmax"]
    parser.add_argument("--regimes", nargs="+", default=names, choices=REGIMES)
    parser.add_argument("--out", type=Path, help="folder for the rows of finished regimes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(options.jobs) as pool:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = pd.concat(pool.map(partial(run, people=options.people, folder=folder), options.regimes))
    for metric in METRICS:
        show_table(rows, metric)
    switched = rows.pivot_table(index=["kind", "answers"], columns="planned", values="switched", sort=False)
    print("\nquestions planned without other people\n\n" + switched.round(1).to_string())


if __name__ == "__main__":
    main()
