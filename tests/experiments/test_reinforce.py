"""The vocabulary-free experiment, end to end on a tiny model; its measures against brute force."""

import itertools
import re

import numpy as np
import pandas
import pytest
import torch

from edpbrl_gym.experiments.registry import write_report
from edpbrl_gym.experiments.reinforce.measuring import ESTIMATORS, between_policy_similarity, map_prompts, perplexity
from edpbrl_gym.experiments.reinforce.report import PAPER_SIMILARITY, findings, make_report, similarity_change
from edpbrl_gym.experiments.reinforce.run import run_reinforce
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
from edpbrl_gym.experiments.runs import RunFolderError, read_results
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.sampling import sample_prompts
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.reporting.tables import TextTable
from tests.helpers.tiny_language_model import write_tiny_model


def test_similarity_is_the_mean_over_all_pairs_of_prompts_of_two_policies():
    rows = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    unit = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    for repeat, found in enumerate(between_policy_similarity(rows)):
        pairs = [
            unit[repeat, q, i] @ unit[repeat, p, j]
            for q, p in itertools.permutations(range(3), 2)
            for i, j in itertools.product(range(4), repeat=2)
        ]
        assert found == pytest.approx(np.mean(pairs), abs=1e-12)


def test_perplexity_equals_that_of_the_probabilities_at_sampling(tmp_path):
    gpt2 = load_language_model(write_tiny_model(tmp_path))
    samples = sample_prompts(gpt2, 20, words=3, max_tokens=9, generator=torch.Generator().manual_seed(1))
    chosen = samples.log_probabilities[samples.mask]
    assert perplexity(gpt2, samples, batch_size=7) == pytest.approx(float(torch.exp(-chosen.mean())), rel=1e-5)
    other = load_language_model(write_tiny_model(tmp_path / "other", seed=1))
    assert perplexity(other, samples) > perplexity(gpt2, samples)  # it did not write them


def test_the_map_keeps_clusters_together():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 20))
    rows = (centres[:, None] + 0.05 * rng.normal(size=(3, 15, 20))).reshape(-1, 20)
    places = map_prompts(rows, seed=0)
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.diag(np.full(45, np.inf))
    assert (distances.argmin(axis=1) // 15 == np.arange(45) // 15).all()
    np.testing.assert_array_equal(places, map_prompts(rows, seed=0))


def experiment(gpt2, words, **changes):
    training = ReinforceSettings(
        iterations=2, meta_samples=2, episodes=2, words=3, max_tokens=8, evaluation_samples=2, learning_rate=1e-2
    )
    given = {
        "training": training, "model": gpt2, "num_options": 2, "vocabulary": words, "map_prompts": 4, "repeats": 2,
        "counts": (3, 6), "taste_seeds": 2, "prompts": 4, "pairs": 6, "users": {"fox": "a red fox at dawn"}, "rank": 2,
    }  # fmt: skip
    return ReinforceExperiment(**{**given, **changes})


@pytest.fixture(scope="module")
def finished(gpt2, words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    said = []
    results = run_reinforce(experiment(gpt2, words), folder, say=said.append)
    assert said == ["training", "similarity", "map", "perplexity", "tastes"]
    return folder, results


def test_the_experiment_ends_with_all_parts_and_a_report(finished):
    folder, results = finished
    table = results.table
    assert (table["part"] == "train").sum() == 2
    assert list(table[table["part"] == "evaluation"]["iteration"]) == [0, 2]
    assert (table["part"] == "base").sum() == 1
    assert len(table[table["part"] == "similarity"]) == 2 * 2
    assert len(table[table["part"] == "map"]) == 2 * 2 * 4 and table[table["part"] == "map"]["prompt"].notna().all()
    assert len(table[table["part"] == "perplexity"]) == 2 * 2
    tastes = table[table["part"] == "taste"]
    assert len(tastes) == 3 * 2 * 1 * 2 * 2 * 2  # arms, sets, users, answerings, estimators, counts
    assert tastes["cosine_error"].between(0, 2).all() and tastes["preference_error"].between(0, 1).all()
    files = write_report(read_results(folder), folder)
    text = (folder / "REPORT.md").read_text()
    for name in ("objective", "prompts-map", "tastes"):
        assert (folder / "figures" / f"{name}.png") in files and f"figures/{name}.png" in text
    assert "policy 2" in text and "lambda = 100" in text and not re.search(r"\bnan\b", text)


def test_what_is_said_follows_from_the_numbers(finished):
    _, results = finished
    table = results.table
    values = {part: table[table["part"] == part].iloc[-1]["values"] for part in ("evaluation", "base")}
    difference = np.mean(np.subtract(values["evaluation"], values["base"]))
    told = findings(results)
    assert float(re.search(r"difference of ([+-][\d.]+)", told[0])[1]) == pytest.approx(difference, abs=0.006)
    for arm, values in table[table["part"] == "similarity"].groupby("arm")["similarity"]:
        assert f"{values.mean():.3f} ± {values.std(ddof=1):.3f} (the paper: {PAPER_SIMILARITY[arm]})" in told[1]
    (tastes,) = [one for one in make_report(results).sections if isinstance(one, TextTable)]
    most = table[(table["part"] == "taste") & (table["questions"] == 6) & (table["estimator"] == "words")]
    by_set = most.groupby(["set", "arm"])["cosine_error"].mean().unstack("arm")
    (row,) = [row for row in tastes.rows if row[:3] == (ESTIMATORS["words"], "cosine error", "6")]
    for cell, arm in zip(row[-2:], ("base", "random"), strict=True):
        difference = by_set["trained"] - by_set[arm]
        assert cell == f"{difference.mean():+.3f} ± {difference.std(ddof=1) / 2**0.5:.3f}"


def test_the_change_of_similarity_has_the_error_of_paired_repeats():
    rng = np.random.default_rng(0)
    rows, found = [], []
    for _ in range(300):  # base and trained share what varies between repeats
        shared = rng.normal(size=10)
        base, trained = 0.2 + 0.02 * shared, 0.15 + 0.015 * shared + 0.004 * rng.normal(size=10)
        rows = [("base", i, v) for i, v in enumerate(base)] + [("trained", i, v) for i, v in enumerate(trained)]
        table = pandas.DataFrame(rows, columns=["arm", "repeat", "similarity"]).assign(part="similarity")
        found.append(similarity_change(table))
    changes, errors = np.array(found).T
    assert changes.mean() == pytest.approx(-0.25, abs=0.005)
    assert np.mean(errors) == pytest.approx(changes.std(), rel=0.15)


def test_the_tastes_are_kept_for_personalize(finished, gpt2):
    folder, results = finished
    table = results.table
    row = table[
        (table["part"] == "taste") & (table["arm"] == "trained") & (table["set"] == 0) & (table["questions"] == 6)
        & (table["estimator"] == "words") & (table["mode"] == "argmax")
    ].iloc[0]  # fmt: skip
    taste = load_taste(folder / "tastes" / "fox-argmax.safetensors")
    assert taste.theta.tolist() == list(row["theta"]) and taste.provenance["encoder"] == "minilm"
    assert table[(table["part"] == "taste") & (table["questions"] == 3)]["theta"].isna().all()


def test_a_run_goes_on_where_it_stopped_and_refuses_other_settings(finished, gpt2, words, tmp_path):
    folder, results = finished

    class Stop(Exception):
        pass

    def stop(step):
        if step == "map":
            raise Stop

    with pytest.raises(Stop):
        run_reinforce(experiment(gpt2, words), tmp_path / "run", say=stop)
    assert (tmp_path / "run" / "parts" / "similarity.parquet").is_file()
    again = run_reinforce(experiment(gpt2, words), tmp_path / "run")
    drop = ["seconds"]  # wall-clock time
    pandas.testing.assert_frame_equal(
        again.table.drop(columns=drop), results.table.drop(columns=drop), check_exact=True
    )
    with pytest.raises(RunFolderError, match="rank was 2, now 3"):
        run_reinforce(experiment(gpt2, words, rank=3), folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_options": 1}, "policies"),
        ({"kind": "images"}, "kind of policies"),
        ({"training": ReinforceSettings(iterations=0)}, "iterations"),
    ],
)
def test_bad_settings_say_what_was_expected(gpt2, words, changes, message):
    with pytest.raises(ValueError, match=message):
        experiment(gpt2, words, **changes)
