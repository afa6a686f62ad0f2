"""``edpbrl bench race`` on small pools and a tiny vocabulary: ranks, resuming, determinism, mistakes."""

from __future__ import annotations

import itertools

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.query_bench.settings import SENTENCES
from edpbrl_gym.experiments.race.contenders import CONTENDERS, FAMILIES, default_contenders, get_contender
from edpbrl_gym.experiments.race.planners import SharedEncoder, _large_batch
from edpbrl_gym.experiments.race.run import plan_units
from edpbrl_gym.experiments.race.settings import REGIMES, RaceSettings
from edpbrl_gym.experiments.race.worlds import PoolScorer, load_world
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.planners import ReplayPlanner
from edpbrl_gym.planners.registry import RULES
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.killing import kill_when_two_parts_are_done, part_times
from tests.helpers.small_vocabulary import write_vocabulary

ITEMS = ("items-d10-K4", "items-d10-K2")
ARMS = ("random", "greedy_d", "bald", "qeubo@ours", "ours", "ours-best", "tuples", "paper-text", "paper-scripts")
SEEDS = 2


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A vocabulary folder and embeddings of all its partial prompts: sums of token vectors, bent a little."""
    place = tmp_path_factory.mktemp("race")
    folder = write_vocabulary(place / "vocabulary")
    vocabulary = load_vocabulary(folder)
    rng = np.random.default_rng(0)
    vectors = {token: rng.normal(size=10) for token in vocabulary.all_tokens}
    rows = dict(vectors)
    for length in (2, 3):
        for tokens in itertools.product(*vocabulary.tokens[:length]):
            rows[", ".join(tokens)] = np.sum([vectors[t] for t in tokens], axis=0) + 0.3 * rng.normal(size=10)
    rows |= {sentence: rng.normal(size=10) for sentence in SENTENCES.values()}
    file = place / "embeddings.npz"
    save_precomputed(file, list(rows), np.stack(list(rows.values())))
    return folder, file


def arguments(words, out, *more: str, regimes=ITEMS, arms=ARMS, jobs: str = "1") -> list[str]:
    folder, file = words
    return [
        "bench", "race", "--vocabulary", str(folder), "--encoder", f"precomputed:{file}", "--questions", "2", "8",
        "--episodes", "1", "2", "--seeds", str(SEEDS), "--first-seed", "1000", "--regime", *regimes, "--arm", *arms,
        "--jobs", jobs, "--out", str(out), *more,
    ]  # fmt: skip


def numbers(out) -> pandas.DataFrame:
    """The results without the times, which no two runs share, and the version of the code, which is being written."""
    table = read_results(out).table
    return table.drop(columns=[name for name in table.columns if name.startswith("seconds") or name == "code"])


@pytest.fixture(scope="module")
def finished(words, tmp_path_factory, embedding_cache):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(words, out)) == 0
    return out


def test_every_unit_has_its_rows(finished):
    table = read_results(finished).table
    assert len(table) == len(ITEMS) * len(ARMS) * SEEDS * 2 * 2  # T, scores
    assert set(table["arm"]) == set(ARMS) and set(table["regime"]) == set(ITEMS) and set(table["seed"]) == {1000, 1001}
    assert table["converged"].all() and (table["questions"] == table["episodes"]).all()
    assert table["cosine_error"].between(0, 2).all() and (table["regret"] >= 0).all()
    assert table[["preference_error", "choice_error"]].apply(lambda column: column.between(0, 1)).all(axis=None)
    assert (table.filter(like="seconds").drop(columns="seconds_setup") >= 0).all(axis=None)
    own = table[table["episodes"] == 8].set_index(["regime", "seed", "arm", "score"])["cosine_error"]
    for regime, seed in itertools.product(ITEMS, (1000, 1001)):
        assert own[regime, seed, "random", "ours"] != own[regime, seed, "random", "own"]
        assert own[regime, seed, "ours", "ours"] == pytest.approx(own[regime, seed, "ours", "own"], abs=0.02)


def test_report_figures_and_page(finished, tmp_path, capsys):
    report = (finished / "REPORT.md").read_text()
    for text in ("What ours loses at", "End to end", "Milliseconds per question", "Friedman", "first is", "BALD"):
        assert text in report, text
    names = {path.name for path in (finished / "figures").iterdir()}
    for name in ("ranks", "regimes", "curves", "regret", "own"):
        assert {f"{name}.png", f"{name}.pdf"} <= names
        image = Image.open(finished / "figures" / f"{name}.png").convert("L")
        assert np.count_nonzero(image.histogram()) > 50, name
    page = tmp_path / "docs" / "race.md"
    page.parent.mkdir()
    assert main(["bench", "race", "--report", str(finished), "--page", str(page)]) == 0
    assert (finished / "REPORT.md").read_text() == report
    assert "(race-ranks.png)" in page.read_text() and (page.parent / "race-ranks.png").is_file()
    assert "Average ranks" in capsys.readouterr().out


def test_prompt_mdps_and_the_same_numbers_in_any_number_of_processes(words, tmp_path, embedding_cache):
    regimes = ("mdp-truncated-K2", "mdp-state-K4")
    arms = ("random", "adaptive_d", "ours", "paper-text", "rollouts-bald")
    first, second = tmp_path / "one", tmp_path / "two"
    assert main(arguments(words, first, regimes=regimes, arms=arms)) == 0
    assert main(arguments(words, second, regimes=regimes, arms=arms, jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(second), numbers(first), rtol=0, atol=1e-9)
    table = numbers(first)
    assert len(table) == 2 * 5 * SEEDS * 2 * 2 and (table["questions"] == 3 * table["episodes"]).all()
    last = table["episodes"] == 2
    assert table.loc[~last, "regret"].isna().all() and (table.loc[last, "regret"] >= -1e-6).all()
    assert len(list((first / "designs").iterdir())) == 2  # one for all seeds


def test_a_killed_run_goes_on_and_ends_with_the_same_table(finished, words, tmp_path):
    out = tmp_path / "killed"
    done = kill_when_two_parts_are_done(arguments(words, out), out)
    total = len(ITEMS) * len(ARMS) * SEEDS
    assert 2 <= len(done) < total and not (out / "results.parquet").exists()
    assert main(["bench", "race", "--report", str(out)]) == 0  # an unfinished run can be looked at
    assert main(arguments(words, out)) == 0
    after = part_times(out)
    assert len(after) == total and {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)


# -- pieces ----------------------------------------------------------------------------------------------------------


def test_items_and_taste_of_a_seed_do_not_depend_on_the_number_of_options(tmp_path):
    settings = RaceSettings()
    four, two = (load_world(settings, REGIMES[name], tmp_path, "", seed=7) for name in ITEMS)
    other = load_world(settings, REGIMES[ITEMS[0]], tmp_path, "", seed=8)
    np.testing.assert_array_equal(four.tokens, two.tokens)
    np.testing.assert_array_equal(four.tastes["drawn"], two.tastes["drawn"])
    assert (four.tokens != other.tokens).any() and four.held_out.shape == (600, 4, 10)
    assert two.held_out.shape == (600, 2, 10) and four.tokens.shape == (100, 10)
    np.testing.assert_allclose(np.linalg.norm(four.tokens, axis=1), 1.0, atol=1e-6)
    assert len({tuple(pair) for pair in four.pairs.tolist()}) == 5000 and (four.pairs[:, 0] < four.pairs[:, 1]).all()


def test_items_in_clusters_are_near_their_centres(tmp_path):
    items = load_world(RaceSettings(), REGIMES["items-clusters-K4"], tmp_path, "", seed=0).tokens
    on_sphere = load_world(RaceSettings(), REGIMES["items-d32-K4"], tmp_path, "", seed=0).tokens
    nearest = [np.sort(rows @ rows.T - 2 * np.eye(len(rows)), axis=1)[:, -10:].mean() for rows in (items, on_sphere)]
    # centre + half a unit vector: the cosine of two of a cluster is 1 / 1.25 on average
    assert nearest[0] > 0.8 and nearest[1] < 0.6


def test_regret_of_items_by_hand(tmp_path):
    world = load_world(RaceSettings(), REGIMES[ITEMS[0]], tmp_path, "", seed=7)
    taste = world.tastes["drawn"]
    scorer = PoolScorer(world, taste, float("nan"))
    values = world.tokens @ taste
    assert scorer.regret(taste) == 0.0 and scorer.regret(np.zeros(10)) == 1.0
    worst = scorer.regret(-taste)
    assert worst == pytest.approx((values.max() - values.min()) / (values.max() - values.mean()), rel=1e-5)
    assert scorer.regret_of(int(values.argmin())) == worst


def test_replayed_questions_come_in_their_order():
    tokens = np.arange(2 * 3 * 2).reshape(2, 3, 2)
    planner = ReplayPlanner(tokens)
    for episode in range(2):
        for step in range(2):
            asked = planner.ask(tokens[episode, :, :step])
            assert asked.tolist() == tokens[episode, :, step].tolist()
            planner.tell(np.zeros((1, 3, 4), dtype=np.float32), [])


def test_large_batches_are_embedded_once_for_all_contenders(tmp_path):
    world = load_world(RaceSettings(), REGIMES[ITEMS[0]], tmp_path, "", seed=7)
    names = world.vocabulary.all_tokens
    first, second = SharedEncoder(world), SharedEncoder(world)
    before = _large_batch.cache_info()
    rows = first.encode(names * 10)
    rows[:] = 0  # who changes a copy changes nobody else's
    np.testing.assert_array_equal(second.encode(names * 10), np.tile(world.tokens, (10, 1)))
    after = _large_batch.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)
    np.testing.assert_array_equal(first.encode(names[:3]), world.tokens[:3])  # small ones are its own
    assert _large_batch.cache_info() == after


def test_every_rule_takes_part():
    assert set(RULES) - {"rollout_pool", "random_distinct"} | {"random"} <= set(CONTENDERS)
    assert CONTENDERS["random"].options["rule"] == "random_distinct"
    assert {contender.family for contender in CONTENDERS.values()} == set(FAMILIES)
    assert "botorch-bald" in default_contenders(REGIMES["items-d10-K2"])
    assert "botorch-bald" not in default_contenders(REGIMES["items-d10-K4"])
    assert "rollouts-bald" in default_contenders(REGIMES["mdp-state-K4"])
    assert "rollouts-bald" not in default_contenders(REGIMES["items-d10-K4"])
    assert get_contender("bald@ours").title == "BALD + our posterior"


def test_units_come_seed_after_seed_where_contenders_can_run():
    units = plan_units(RaceSettings(), regimes=ITEMS, arms=["ours", "optuna"], seeds=2, first_seed=5)
    named = [(unit.seed, unit.regime, unit.arm) for unit in units]
    four, two = ITEMS
    assert named[:3] == [(5, four, "ours"), (5, two, "ours"), (5, two, "optuna")] and len(named) == 6
    assert len({unit.part for unit in plan_units(RaceSettings(), regimes=None, arms=None, seeds=1)}) > 200


# -- mistakes --------------------------------------------------------------------------------------------------------


def refused(capsys, arguments, code, *said: str) -> None:
    """Run the command; expect the exit code and one line on stderr that holds the texts."""
    assert main([str(argument) for argument in arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("edpbrl: error: "), lines
    for text in said:
        assert text in lines[0], lines[0]


def test_arguments_that_make_no_sense(capsys, tmp_path):
    given = ["bench", "race", "--out", tmp_path / "out"]
    refused(capsys, [*given, "--arm", "bold"], 2, "'bold'", "ours, ours-best", "qeubo", "bald@ours")
    refused(capsys, [*given, "--arm", "greedy_d@ours"], 2, "adaptive rule", "adaptive_a", "greedy_d@ours")
    refused(capsys, [*given, "--regime", "windy"], 2, "items-d10-K4", "mdp-truncated-K4", "windy")
    refused(capsys, [*given, "--regime", "items-d10-K4", "--arm", "optuna"], 2, "'optuna'", "(items-d10-K2)")
    refused(capsys, [*given, "--seeds", "0"], 2, "seeds >= 1")
    refused(capsys, [*given, "--first-seed", "-1"], 2, "first_seed >= 0")
    refused(capsys, [*given, "--jobs", "0"], 2, "jobs >= 1")
    refused(capsys, [*given, "--questions", "0"], 2, "questions >= 1")
    refused(capsys, [*given, "--full"], 2, "no --full")
    refused(capsys, ["bench", "queries", "--questions", "5"], 2, "no --questions")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_race(capsys, tmp_path, words, finished):
    refused(capsys, ["bench", "race", "--report", tmp_path / "none"], 1, "none", "run the experiment")
    refused(capsys, ["bench", "queries", "--report", finished], 1, "bench queries", "'race'")
    other = arguments(words, finished)
    other[other.index("8")] = "9"
    refused(capsys, other, 1, "questions was [2, 8], now [2, 9]", "another --out")
