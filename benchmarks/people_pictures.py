"""What a population of real people looks like, and what it says about typical and atypical people: docs/people.md.

    OMP_NUM_THREADS=1 python -m benchmarks.people_pictures electricity.parquet --out docs     # a few minutes

The data are those of `edpbrl bench people`, with its folds and held-out answers. Draws people-population.png (how
tastes differ between all people of the data) and people-persons.png (typical and atypical people), and prints how the
predictions of atypical people's held-out answers compare with and without the population. Atypical people are the tenth
with the largest weight of the fallback after all answers that they were asked; a person's held-out answers have no part
in that. Attributes have unit standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser, show
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import GaussianPrior, fit_posterior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.experiments.people.data import People
from edpbrl_gym.experiments.people.estimators import Estimator, WithPopulation, make_estimator
from edpbrl_gym.experiments.people.loading import load_all
from edpbrl_gym.experiments.people.protocol import NewPerson, make_fold
from edpbrl_gym.experiments.people.replay import judge
from edpbrl_gym.features import load_encoder
from edpbrl_gym.reporting.figures import GREY, PALETTE, legend, new_figure, save_figure, set_title
from edpbrl_gym.reporting.statistics import interval
from edpbrl_gym.reporting.tables import TextTable

FOLDS, PEOPLE_PER_FOLD, HELD_OUT = 5, 70, 4
COUNTS = (0, 1, 2, 4, 6, 8)
ALONE = ("ridge1", "ridge-fit")
POPULATION = "population-gaussian"
_PERSONS = ("a typical person", "an atypical one")
_GROUPS = ("the more typical nine tenths", "the least typical tenth")
TITLES = {
    "ridge1": "alone: ridge, lambda = 1",
    "ridge-fit": "alone: ridge, lambda by evidence",
    POPULATION: "with the population",
}


@dataclass(frozen=True, eq=False)
class Judged:
    """A new person's predictions.

    Attributes:
        person: The person.
        population: Of the people of the other folds.
        weight: Weight of the fallback after all answers that the person was asked.
        logs: Estimator -> mean log probability of the held-out answers after each number of answers, (m,).
    """

    person: NewPerson
    population: Population
    weight: float
    logs: dict[str, Floats]


def judged(person: NewPerson, estimators: dict[str, Estimator], population: Population) -> Judged:
    """All predictions of a person's held-out answers, asked in random order."""
    parts = [person.asked.select(np.arange(count)).terms() for count in COUNTS]
    logs = {
        name: np.array([_mean_log(judge(estimator.fit(terms), person.held_out)) for terms in parts])
        for name, estimator in estimators.items()
    }
    return Judged(person, population, population.fit(person.asked.terms()).fallback_weight, logs)


def _mean_log(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([row["log_probability"] for row in rows]))


def judge_all(people: People) -> list[Judged]:
    """The new people of all folds who were asked often enough and whose questions have K options."""
    found = []
    for number in range(FOLDS):
        fold = make_fold(people, number, folds=FOLDS, most=PEOPLE_PER_FOLD, held_out=HELD_OUT)
        known = WithPopulation(fit_population([person.terms() for person in fold.known]))
        estimators = {name: make_estimator(name, fold.known, people.dimension) for name in ALONE}
        estimators[POPULATION] = known
        for person in fold.new:
            if len(person.asked) >= COUNTS[-1] and (person.held_out.sizes == people.num_options).all():
                found.append(judged(person, estimators, known.population))
        print(f"fold {number + 1} of {FOLDS}: {len(found)} people", flush=True)
    return found


def draw_population(people: People, population: Population) -> Any:
    """Mean and spread of the tastes, and which tastes go together."""
    part = population.parts[0]
    mean, deviation = part.mean, np.sqrt(np.diagonal(part.covariance))
    order = np.argsort(mean)
    names = [people.attributes[place] for place in order]
    with new_figure(8.6, 0.3 * len(names) + 2.2) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        rows = np.arange(len(names))
        left.axvline(0.0, color=GREY, linewidth=0.8)
        left.hlines(rows, (mean - deviation)[order], (mean + deviation)[order], color=PALETTE[0], linewidth=2)
        left.plot(mean[order], rows, "o", color=PALETTE[0])
        left.set_yticks(rows, names)
        left.set_xlabel("weight of one standard deviation of the attribute")
        left.set_title("mean over people, and one standard deviation")
        correlations = (part.covariance / np.outer(deviation, deviation))[np.ix_(order, order)]
        shown = right.imshow(correlations, cmap="PuOr", vmin=-1, vmax=1, origin="lower")
        right.set_xticks(rows, names, rotation=90)
        right.set_yticks(rows, names)
        right.grid(False)
        right.set_title("correlation between people")
        figure.colorbar(shown, ax=right, shrink=0.8)
        set_title(
            figure,
            f"How tastes differ between {population.people} people ({people.name})",
            "One Gaussian, fitted to all answers by EM; no person's own taste is shown.",
        )
    return figure


def draw_persons(people: People, found: list[Judged]) -> Any:
    """Above the tastes of a typical and an atypical person, below what is predicted of all such people.

    Args:
        people: The data.
        found: The new people, the typical ones first.
    """
    few = _few(found)
    names, rows = people.attributes, np.arange(people.dimension)
    with new_figure(8.6, 0.24 * len(names) + 5.2) as figure:
        axes = figure.subplots(2, 2, height_ratios=(0.24 * len(names) + 0.8, 3.0), sharey="row")
        for axis, one, title in zip(axes[0], (found[len(found) // 2], found[-1]), _PERSONS, strict=True):
            terms, part = one.person.asked.terms(), one.population.parts[0]
            alone = fit_posterior(terms, base=GaussianPrior.isotropic(people.dimension, 1.0), scale=1.0).posterior
            known = one.population.fit(terms).posterior
            spread = np.sqrt(np.diagonal(part.covariance))
            axis.hlines(rows, part.mean - spread, part.mean + spread, color="#d5d5d5", linewidth=9, label="others")
            for posterior, colour, label, shift in (
                (alone, PALETTE[0], TITLES["ridge1"], 0.15),
                (known, PALETTE[2], TITLES[POPULATION], -0.15),
            ):
                deviation = np.sqrt(np.diagonal(posterior.covariance()))
                axis.errorbar(
                    posterior.mean, rows + shift, xerr=deviation, fmt="o", color=colour, markersize=4, label=label
                )
            axis.axvline(0.0, color=GREY, linewidth=0.8)
            axis.set_yticks(rows, names)
            axis.set_title(f"{title}: weight of the fallback {one.weight:.0%} after {len(terms)} answers")
            axis.set_xlabel("weight of one standard deviation of the attribute")
        for axis, group, title in zip(axes[1], (found[:-few], found[-few:]), _GROUPS, strict=True):
            for colour, name in zip(PALETTE, (*ALONE, POPULATION), strict=False):
                values = np.array([one.logs[name] for one in group])
                low, high = np.array([interval(column) for column in values.T]).T
                line = "-" if name == POPULATION else "--"
                axis.plot(COUNTS, values.mean(axis=0), line, color=colour, marker="o", markersize=4, label=TITLES[name])
                axis.fill_between(COUNTS, low, high, color=colour, alpha=0.15, linewidth=0)
            axis.axhline(-np.log(people.num_options), color=GREY, linewidth=0.8, linestyle=":")
            axis.set_title(f"{title} ({len(group)})")
            axis.set_xlabel("answers of the person")
        axes[1, 0].set_ylabel("log-likelihood per held-out answer")
        legend(figure)
        set_title(
            figure,
            f"Typical and atypical people ({people.name})",
            "Above: bars of one standard deviation; grey, mean and spread of other people's tastes. Below: 95% "
            "intervals over people, random questions; dotted, guessing.",
        )
    return figure


def _few(found: list[Judged]) -> int:
    """How many people are the least typical tenth."""
    return max(2, len(found) // 10)


def table(found: list[Judged], title: str) -> TextTable:
    """With minus without the population in log-likelihood per answer, against the better way to do without."""
    rows = []
    for name in ALONE:
        leads = np.array([one.logs[POPULATION] - one.logs[name] for one in found])
        cells = []
        for column in leads.T:
            low, high = interval(column)
            cells.append(f"{column.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
        rows.append([TITLES[name], *cells])
    return TextTable(title, ["against", *map(str, COUNTS)], rows, words=1)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", help="a data set, as for `edpbrl bench people`")
    parser.add_argument("--out", type=Path, default=Path("runs/people-pictures"))
    options = parser.parse_args()
    people = load_all((options.data,), lambda: load_encoder("minilm"))[0].standardised()
    everyone = fit_population([person.terms() for person in people.people])
    options.out.mkdir(parents=True, exist_ok=True)
    save_figure(draw_population(people, everyone), options.out, "people-population")
    found = sorted(judge_all(people), key=lambda one: one.weight)
    save_figure(draw_persons(people, found), options.out, "people-persons")
    few = _few(found)
    show(table(found, f"{len(found)} people: log-likelihood with minus without the population, after so many answers"))
    show(
        table(
            found[-few:], f"the {few} least typical of them (weight of the fallback {found[-few].weight:.0%} and more)"
        )
    )


if __name__ == "__main__":
    main()
