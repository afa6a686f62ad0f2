"""`edpbrl report` over every kind of run folder that there is: a small real run of each."""

from __future__ import annotations

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.bench.run import BENCH
from edpbrl_gym.experiments.bench.settings import BenchSettings
from edpbrl_gym.experiments.communities.run import COMMUNITIES
from edpbrl_gym.experiments.communities.settings import plan_units as plan_communities
from edpbrl_gym.experiments.demo import run_demo
from edpbrl_gym.experiments.demo_settings import DemoSettings
from edpbrl_gym.experiments.framework import run_experiment
from edpbrl_gym.experiments.llm.run import run_llm
from edpbrl_gym.experiments.people.run import PEOPLE, plan_units
from edpbrl_gym.experiments.people.settings import PeopleSettings
from edpbrl_gym.experiments.registry import EXPERIMENTS, get_experiment, write_report
from edpbrl_gym.experiments.reinforce.run import run_reinforce
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
from edpbrl_gym.experiments.runs import Results, RunFolderError, read_results
from edpbrl_gym.experiments.settings import PAPER_USERS, SyntheticSettings
from edpbrl_gym.experiments.synthetic import SYNTHETIC
from edpbrl_gym.features import load_encoder
from edpbrl_gym.language.settings import ReinforceSettings
from examples.local_judge import LocalJudge
from tests.helpers.made_people import long_table, made_people
from tests.helpers.small_communities import small_communities
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_llm import STYLES, judge_settings, small_settings

TASTE = "a bright sunny day"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> tuple[str, str]:
    return write_embedded(tmp_path_factory.mktemp("inputs"), [TASTE, *PAPER_USERS.values(), *STYLES.values()])


def synthetic(inputs, out):
    users = {"sunny": PAPER_USERS["sunny"]}
    small = {"episodes": (2,), "runs": 1, "prompts": 8, "pairs": 28, "iterations": 2, "users": users}
    run_experiment(SYNTHETIC, SyntheticSettings(vocabulary=inputs[0], encoder=inputs[1], **small), out, jobs=1)


def demo(inputs, out):
    run_demo(DemoSettings(text=TASTE, vocabulary=inputs[0], encoder=inputs[1], questions=2, num_options=3), out)


def bench(inputs, out):
    settings = BenchSettings(vocabulary=inputs[0], encoder=inputs[1], episodes=(1, 2), questions=(2, 4))
    units = BENCH.plan(settings, regimes=["argmax", "items-d10-K4"], arms=["random", "greedy_d"], seeds=1)
    run_experiment(BENCH, settings, out, units=units, jobs=1)


def reinforce(inputs, out):
    training = ReinforceSettings(
        iterations=1, meta_samples=2, episodes=2, words=2, max_tokens=6, evaluation_samples=2, learning_rate=1e-2
    )
    small = ReinforceExperiment(
        training=training, model=write_tiny_model(out.parent / "model"), num_options=2, vocabulary=inputs[0],
        map_prompts=4, repeats=2, repeat_prompts=2, likely_prompts=2, counts=(2, 4), taste_seeds=1, prompts=4, pairs=6,
        users={"sunny": TASTE}, rank=2,
    )  # fmt: skip
    run_reinforce(small, out)


def llm(inputs, out):
    words, embeddings = inputs[0], inputs[1].removeprefix("precomputed:")
    with LocalJudge(encoder=load_encoder(inputs[1])) as server:
        small = small_settings(words, embeddings, agents=("random",), lambdas=(1.0,))
        run_llm(small, judge_settings(server.base_url), out, jobs=1)


def people(inputs, out):
    data = out.parent / "made.csv"
    long_table(made_people(14, 8)).to_csv(data, index=False)
    settings = PeopleSettings(data=(str(data),), answers=(0, 2), folds=2, people_per_fold=3)
    run_experiment(PEOPLE, settings, out, units=plan_units(settings, estimators=("ridge1",)), jobs=1)


def communities(inputs, out):
    settings = small_communities(answers=(0, 2))
    units = plan_communities(settings, ("interiors-argmax",), ("pref",))
    run_experiment(COMMUNITIES, settings, out, units=units, jobs=1)


RUNS = {run.__name__: run for run in (synthetic, demo, bench, people, communities, reinforce, llm)}


def test_every_kind_has_a_run_here():
    assert set(RUNS) == set(EXPERIMENTS)


@pytest.mark.parametrize("kind", EXPERIMENTS)
def test_report_works_on_every_kind_of_run(kind, inputs, tmp_path):
    """From the results alone: the file lies in a folder of its own."""
    RUNS[kind](inputs, tmp_path / "run")
    assert read_results(tmp_path / "run").kind == kind
    (tmp_path / "copy").mkdir()
    (tmp_path / "run" / "results.parquet").rename(tmp_path / "copy" / "results.parquet")
    assert main(["report", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy" / "REPORT.md").read_text(encoding="utf-8").startswith("# ")
    figures = list((tmp_path / "copy" / "figures").iterdir())
    assert figures and all(path.stat().st_size > 1000 for path in figures)


def test_every_kind_is_registered_under_its_name_and_an_unknown_one_is_refused(tmp_path):
    for kind in EXPERIMENTS:
        experiment = get_experiment(kind)
        assert experiment.kind == kind and experiment.command.startswith("edpbrl ")
    with pytest.raises(RunFolderError, match=r"synthetic, .*people, communities, got 'thesis'; use a newer"):
        write_report(Results(None, kind="thesis", config={}, provenance={}), tmp_path)
