"""How often the test of arms errs, and whether it finds differences as often as planned: docs/study-results.md.

    OMP_NUM_THREADS=1 python -m benchmarks.study_arms --studies 500

Each study has its own seed, so its own test questions, people and questions. A small vocabulary (three steps of six
tokens, d = 10) and estimates by the prior "ridge" make people cheap; all else is what a study does: its schedule,
planners, estimates and tables, with answers by the multinomial logit at tastes of the prior of `edpbrl estimate`, 8
questions and 4 test questions a person. In studies without a difference all arms ask random questions; the share of
them in which the test finds one at p < .05 is its type I error, in brackets with Wilson's 95% interval. In studies with
a difference the second arm asks fixed questions about one step; the functions of `edpbrl study power` predict their
power from simulated people of its own before the studies are made, in brackets at the difference two errors smaller
and larger. The last table is of made values, skewed like log-likelihoods, where arms do differ from question to
question but not on average.
"""

from __future__ import annotations

import csv
import itertools
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, show
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.reporting.statistics import bracket
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.export import Predictor, comparisons_of
from edpbrl_gym.study.export_tables import StudyTables, facts_of, pseudonym, tables_of
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import Participant, Record, StoredAnswer, StoredQuestion, Timing
from edpbrl_gym.study.reporting.arm_test import arm_tests, compare_values, power_of, values_of
from edpbrl_gym.study.reporting.power import expected_differences
from edpbrl_gym.study.reporting.statistics import wilson
from edpbrl_gym.study.schedule import arm_of, choose, schedule
from edpbrl_gym.study.simulated import SimulatedPeople, simulate, simulated_config
from edpbrl_gym.study.template import write_template
from edpbrl_gym.study.visits import Visit

STEPS, TOKENS, DIMENSION = 3, 6, 10
NUMBER = 8
SIMULATED_TEST = 32  # test questions of the people from whom power is predicted, as `edpbrl study power` asks
LEVEL = 0.05
_STUDY = f"""
title = "Arms"
[consent]
version = "1"
[questions]
vocabulary = "words"
encoder = "precomputed:{{encoder}}"
options = 4
number = {NUMBER}
[practice]
questions = 0
[checks]
attention = 0
repeated = 0
test = {{test}}
"""
_ARM = '[[arms]]\nname = "{name}"\nplanner = "{planner}"\nprior = "ridge"\n'
_PARTS = ("two", "power", "three", "made")


def write_study(folder: Path, arms: str, test: int) -> StudyConfig:
    """Write a study about a small vocabulary with these arms, and its embeddings."""
    write_template(folder)
    (folder / "words").mkdir()
    rng = np.random.default_rng(0)
    words = [[f"{'abc'[step]}{token}" for token in range(TOKENS)] for step in range(STEPS)]
    vectors = {word: rng.normal(size=DIMENSION) for step in words for word in step}
    for step, tokens in enumerate(words):
        (folder / "words" / f"{step}.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    rows = dict(vectors)
    for tokens in itertools.product(*words):
        rows[", ".join(tokens)] = np.sum([vectors[word] for word in tokens], axis=0) + 0.3 * rng.normal(size=DIMENSION)
    save_precomputed(folder / "rows.npz", list(rows), np.stack([row / np.linalg.norm(row) for row in rows.values()]))
    with (folder / "fixed.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "step", *(f"option_{option}" for option in range(1, 5)), "choice"])
        for question in range(NUMBER):
            options = [f"a0, b0, c{token}" for token in rng.permutation(TOKENS)[:4].tolist()]
            writer.writerow([question, STEPS - 1, *options, ""])
    text = _STUDY.format(encoder=folder / "rows.npz", test=test) + arms
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return read_config(folder)


def study_of(materials: Materials, people: int) -> StudyTables:
    """The tables of a study in which so many people of each arm finish."""
    config = materials.config
    prior = materials.once("benchmark prior", lambda: materials.estimate_prior(materials.tokens, materials.others))
    start = materials.once("benchmark tastes", prior.start)
    predictor, records, predictions = Predictor(materials), [], []
    for number in range(people * len(config.arms)):
        arm = arm_of(config.arms, number, config.seed)
        who = Participant(number, number, str(number), {}, arm.name, "en", "1", None, "finished", "", number, False)
        theta = start.draws(1, generator(config.seed, "taste", number))[0]
        rng, visit, history = generator(config.seed, "answers", number), Visit(materials, who, arm), []
        for slot in schedule(config, number):
            chosen = choose(materials, who, slot, history, visit.choose)
            row = number * 1000 + len(history)
            question = StoredQuestion(
                row, len(history), chosen.kind, chosen.tokens, chosen.texts, chosen.positions, "", None, None, "", None,
                False,
            )  # fmt: skip
            options = prior.feature_map(materials.encoder.encode(chosen.texts))[None]
            told = materials.model.sample(options, theta, rng.random(1))[0]
            history.append((question, StoredAnswer(row, row, told, "", Timing(), "", "")))
        records.append(record := Record(who, history, []))
        name = pseudonym("", who)
        predictions += predictor.rows(name, record, comparisons_of(name, record, materials))
    return tables_of(records, "", facts_of(config, deleted=0), predictions=predictions)


def values_of_studies(config: StudyConfig, seeds: range, people: int, workers: int) -> list[dict[str, Floats]]:
    """What the test looks at, of a study for each seed; in worker processes."""
    with ProcessPoolExecutor(workers, initializer=_start, initargs=(config.folder,)) as pool:
        return list(pool.map(_values, seeds, [people] * len(seeds), chunksize=5))


def _start(folder: Path) -> None:
    global _materials
    _materials = Materials(read_config(folder))


def _values(seed: int, people: int) -> dict[str, Floats]:
    return values_of(study_of(_materials.copied(replace(_materials.config, seed=seed)), people))


def share(found: list[bool]) -> str:
    """A share with Wilson's interval."""
    return f"{np.mean(found):.3f} {bracket(*wilson(sum(found), len(found)), '.3f')}"


def errors(folder: Path, seeds: range, people: int, test: int, arms: int, workers: int) -> list[str]:
    """A row: the type I error of studies with so many arms alike; the first p where there are three is corrected."""
    text = "".join(_ARM.format(name=f"random {arm}", planner="random") for arm in range(arms))
    config = write_study(folder, text, test)
    names = [arm.name for arm in config.arms]
    tested = [arm_tests(values, names) for values in values_of_studies(config, seeds, people, workers)]
    alone = [one[0].p < LEVEL for one in tested]
    together = [min(found.corrected for found in one) < LEVEL for one in tested]
    return [f"{arms} arms", str(people), str(test), share(together), share(alone)]


def power(folder: Path, seeds: range, people: list[int], test: int, simulated: int, workers: int) -> list[list[str]]:
    """Rows: the power that was predicted, and that of the studies."""
    text = _ARM.format(name="random", planner="random")
    text += _ARM.format(name="fixed", planner="questions") + 'file = "fixed.csv"\n'
    config = write_study(folder, text, test)
    planned = simulated_config(config, folder / "simulated.db", test=SIMULATED_TEST)
    tables, tastes = simulate(Materials(planned), SimulatedPeople(simulated))
    expected = expected_differences(tables, tastes)[NUMBER][0]
    print(f"Expected difference {expected.difference:+.3f}, error {expected.error:.3f}; {expected.parts}", flush=True)
    studies = values_of_studies(config, seeds, max(people), workers)
    differences = [arm_tests(values, ["random", "fixed"])[0].difference for values in studies]
    print(f"In the studies: {np.mean(differences):+.3f}, error {np.std(differences) / len(seeds) ** 0.5:.3f}")
    rows = []
    for number in people:
        ends = [
            power_of(expected.parts, expected.difference + side * expected.error, number, test) for side in (0, -2, 2)
        ]
        found = [compare_values(one["random"][:number], one["fixed"][:number]).p < LEVEL for one in studies]
        predicted = f"{ends[0]:.3f} {bracket(*sorted(ends[1:]), '.3f')}"
        rows.append(["random, fixed", str(number), str(test), predicted, share(found)])
    return rows


def made(count: int, seed: int) -> list[list[str]]:
    """Rows: the type I error on made values, exponential around people, questions and the arms' questions."""
    rng, rows = np.random.default_rng(seed), []
    for people, questions, varying in itertools.product((15, 60), (4, 12), (0.0, 0.1, 0.2, 0.3)):
        found = []
        for _ in range(count):
            first, other = (
                0.1 * (1 - rng.exponential(size=(people, 1)))
                + varying * rng.normal(size=questions)
                + 1 - rng.exponential(size=(people, questions))
                for _ in range(2)
            )  # fmt: skip
            found.append(compare_values(first, other).p < LEVEL)
        rows.append([str(people), str(questions), f"{varying:g}", share(found)])
    return rows


def main() -> None:
    """Make the studies and print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--with-difference", type=int, default=200, help="studies with a difference")
    parser.add_argument("--people", type=int, nargs="+", default=[15, 30], help="of each arm; the fewest without one")
    parser.add_argument("--test", type=int, default=4, help="test questions of a study")
    parser.add_argument("--simulated", type=int, default=60, help="people of each arm from whom power is predicted")
    parser.add_argument("--seed", type=int, default=4500, help="seed of the first study; each has its own")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.studies)
    with tempfile.TemporaryDirectory() as place:
        for part in options.parts:
            if part == "made":
                header = ["people an arm", "test questions", "deviation of arms by question", "type I error"]
                rows, title, words = made(4 * options.studies, options.seed), "Made values without a difference", 0
            elif part == "power":
                header = ["arms", "people an arm", "test questions", "predicted power", "power found"]
                title, words = "Studies with a difference", 1
                others = range(seeds.stop, seeds.stop + options.with_difference)
                rows = power(
                    Path(place) / part, others, options.people, options.test, options.simulated, options.workers
                )
            else:
                header = ["study", "people an arm", "test questions", "type I error", "of the first comparison alone"]
                arms, title, words = {"two": 2, "three": 3}[part], f"{part.title()} arms without a difference", 1
                rows = [errors(Path(place) / part, seeds, min(options.people), options.test, arms, options.workers)]
            table = TextTable(title, header, rows, words=words)
            show(table)
            print(*table.markdown(), sep="\n", flush=True)


if __name__ == "__main__":
    main()
