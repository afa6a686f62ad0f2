"""First answers: what is run, what is measured, and the tables, against enumeration and numbers computed by hand."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from edpbrl_gym.cli import main
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.metrics import cosine_error
from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.encoders import TimedEncoder
from edpbrl_gym.experiments.bench.first_metrics import FIRST_METRICS, centred_cosine_error, regret_of_the_best
from edpbrl_gym.experiments.bench.first_runs import FirstRuns, Series, taps_of
from edpbrl_gym.experiments.bench.first_tables import differences_table, needed_table, shapes_table
from edpbrl_gym.experiments.bench.measuring import Scorer
from edpbrl_gym.experiments.bench.playing import ask_questions, make_user
from edpbrl_gym.experiments.bench.prompt_worlds import bench_vocabulary
from edpbrl_gym.experiments.bench.run import plan_units
from edpbrl_gym.experiments.bench.settings import REGIMES, STUDY_SETTINGS, BenchSettings, get_regime
from edpbrl_gym.experiments.bench.studies import STUDIES
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.planners import ReplayPlanner
from edpbrl_gym.reporting.statistics import nested_interval, nested_mean
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.heads import head_word
from tests.helpers.commands import refused
from tests.helpers.encoders import CountingEncoder

FIRST = [regime for regime in REGIMES.values() if regime.first]


# -- what is run -----------------------------------------------------------------------------------------------------


def test_regimes_of_first_answers():
    assert {regime.num_options for regime in FIRST} == {4, 6, 9} and not any(regime.headline for regime in FIRST)
    assert {(regime.mode, regime.scale) for regime in FIRST} == {
        ("argmax", 1.0), ("sampled", 50.0), ("sampled", 20.0), ("sampled", 5.0),
    }  # fmt: skip
    assert [name for name in REGIMES if name.endswith("-partial")] == [
        f"{words}-{mode}-partial" for words in ("images", "interiors") for mode in ("argmax", "scale-20")
    ]
    for regime in FIRST:
        assert regime.feedback == ("truncated" if regime.name.endswith("-partial") else "prompt")
        assert (regime.styles == 2) == (regime.taste == "two-styles")


def test_checkpoints_are_answers_whatever_an_episode_is():
    settings = BenchSettings(answers=(24, 6, 7), planned=7)
    assert settings.checkpoints(get_regime("images-argmax")) == (6, 7, 24)
    assert settings.checkpoints(get_regime("images-argmax-partial")) == (1, 4)
    assert settings.checkpoints(get_regime("images-argmax"), planned=True) == (6, 7)
    assert settings.checkpoints(get_regime("argmax")) == settings.episodes  # all others count episodes
    with pytest.raises(ValueError, match="multiple of 6"):
        BenchSettings(answers=(7,)).checkpoints(get_regime("images-argmax-partial"))


def test_held_out_prompts_share_no_head_word_with_questions():
    train, test = (bench_vocabulary(BenchSettings(), name) for name in ("interiors", "interiors-test"))
    for shown, held_out in zip(train.tokens, test.tokens, strict=True):
        assert held_out and not {head_word(token) for token in shown} & {head_word(token) for token in held_out}


def test_studies_of_first_answers():
    for name in ("first-answers", "first-answers-quick"):
        settings, study = BenchSettings(**STUDY_SETTINGS[name]), STUDIES[name]
        units = plan_units(settings, study=study)
        assert {unit.regime for unit in units} == set(study.regimes)
        assert all(unit.arm in study.regime_arms[unit.regime] for unit in units)
        assert len({unit.part for unit in units}) == len(units)
    full = plan_units(BenchSettings(**STUDY_SETTINGS["first-answers"]), study=STUDIES["first-answers"])
    asked = [unit.user for unit in full if (unit.regime, unit.arm) == ("images-argmax", "adaptive")]
    assert len(asked) == len(set(asked)) == 12  # three seeds see every sentence once
    assert {unit.seed for unit in full if unit.regime == "images-argmax-K6"} == {0, 1}
    assert not [unit for unit in full if not get_arm(unit.arm).runs_in(get_regime(unit.regime))]


def test_development_asks_other_users_with_other_seeds():
    study, settings = STUDIES["first-answers-quick"], BenchSettings(development=True)
    units = plan_units(settings, study=study, seeds=2)
    assert {unit.seed for unit in units} == {1000, 1001}
    reported = plan_units(BenchSettings(), study=study, seeds=20)
    assert not {unit.user for unit in units} & {unit.user for unit in reported}
    assert settings.as_config()["first_sentences"] != BenchSettings().as_config()["first_sentences"]
    with pytest.raises(ValueError, match="first answers for development"):
        plan_units(settings, study=STUDIES["efficiency-quick"])
    with pytest.raises(ValueError, match="Expected no vocabulary"):
        plan_units(BenchSettings(vocabulary="interiors"), study=study)


def test_a_user_sees_complete_prompts_once_an_episode():
    vocabulary = Vocabulary(("a", "b"), (("red", "green", "blue"), ("cat", "dog", "owl")))
    encoder = CountingEncoder(5)
    rows = encoder.encode(vocabulary.all_tokens)
    world = World("tiny", vocabulary, rows, rows, np.array([[0, 1]]), rows[:0, None], {}, "", "", "prompt")
    tokens = np.random.default_rng(0).integers(3, size=(4, 3, 2))
    user = make_user(get_regime("images-argmax"), np.eye(5)[0], "harbour", 0)
    asked = list(
        ask_questions(ReplayPlanner(tokens), world, user, TimedEncoder(encoder), num_options=3, checkpoints=(1, 4))
    )
    assert [one.episodes for one in asked] == [1, 4] and [len(one.responses) for one in asked] == [1, 4]
    texts = [[vocabulary.prompt(row) for row in question] for question in tokens]
    shown = np.stack([encoder.encode(question) for question in texts])
    np.testing.assert_array_equal(asked[1].queries.features, shown)
    assert [answer.first for answer in asked[1].responses] == shown[:, :, 0].argmax(axis=1).tolist()
    assert asked[1].queries.step.tolist() == [1] * 4 and asked[1].queries.episode.tolist() == [0, 1, 2, 3]
    assert len(asked[1].seconds) == 4


# -- what is measured ------------------------------------------------------------------------------------------------


def test_regret_of_the_ten_best_by_hand():
    true = np.array([4.0, 3.0, 1.0, 0.0])
    assert regret_of_the_best(true, true, count=2) == 0.0
    assert regret_of_the_best(-true, true, count=2) == pytest.approx((3.5 - 0.5) / (3.5 - 2.0))
    assert regret_of_the_best([2.0, 0.0, 1.0, 0.0], true, count=2) == pytest.approx((3.5 - 2.5) / (3.5 - 2.0))
    random = [
        regret_of_the_best([float(place in pair) for place in range(4)], true, count=2)
        for pair in itertools.combinations(range(4), 2)
    ]
    assert np.mean(random) == pytest.approx(1.0)  # any two prompts are as good as random ones on average


@given(st.integers(0, 1000))
def test_the_centred_cosine_does_not_see_the_direction_that_all_share(seed):
    rng = np.random.default_rng(seed)
    tokens, truth, guess = rng.normal(size=(20, 5)) + 2, rng.normal(size=5), rng.normal(size=5)
    shared = tokens.mean(axis=0)
    found = centred_cosine_error(guess + 3.0 * shared, truth - 7.0 * shared, tokens)
    assert found == pytest.approx(centred_cosine_error(guess, truth, tokens), abs=1e-9)
    basis = np.linalg.svd(shared[None])[2][1:]  # coordinates across the mean
    assert found == pytest.approx(cosine_error(basis @ guess, basis @ truth), abs=1e-9)


# -- intervals -------------------------------------------------------------------------------------------------------


def test_the_mean_is_over_groups():
    values, groups = [[0.0], [2.0], [10.0]], ["a", "a", "b"]
    assert nested_mean(values, groups)[0] == 5.5
    assert all(np.isnan(nested_interval(values, ["a", "a", "a"])))


def test_nested_intervals_are_those_of_the_groups_where_seeds_agree():
    """Three equal seeds of a group tell no more than one: resampling runs would make the interval too narrow."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=12)
    low, high = nested_interval(np.repeat(means, 3), np.repeat(np.arange(12), 3).tolist())
    assert high - low == pytest.approx(2 * 1.96 * means.std() / np.sqrt(12), rel=0.1)
    noise = rng.normal(size=(12, 3))
    noise -= noise.mean(axis=1, keepdims=True)  # groups that do not differ: only their seeds do
    low, high = nested_interval(noise.ravel(), np.repeat(np.arange(12), 3).tolist())
    assert high - low == pytest.approx(2 * 1.96 * noise.std() / np.sqrt(36), rel=0.1)


# -- tables ----------------------------------------------------------------------------------------------------------


def table(cells: dict[tuple[str, str, str], list[list[float]]], answers=(6, 12, 36)) -> pandas.DataFrame:
    """Results: (regime, arm, estimator) -> errors of each user (rows) after each number of answers."""
    rows = [
        {
            "regime": regime, "arm": arm, "estimator": estimator, "seed": 0, "user": f"user {user}",
            "questions": count, "seconds_question": 0.1, "seconds_longest": 0.2, "seconds_encoder": 0.0,
            "seconds_estimate": 0.0, "seconds_unit": 1.0, **dict.fromkeys(FIRST_METRICS, value),
        }
        for (regime, arm, estimator), runs in cells.items()
        for user, values in enumerate(runs)
        for count, value in zip(answers, values, strict=True)
    ]  # fmt: skip
    return pandas.DataFrame(rows)


CELLS = {
    ("images-argmax-partial", "random", "vocabulary"): [[0.4, 0.3, 0.2], [0.4, 0.3, 0.2]],
    ("images-argmax", "random", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-argmax", "random", "ridge-fit"): [[0.4, 0.4, 0.2], [0.4, 0.3, 0.2]],
    ("images-argmax", "adaptive", "vocabulary"): [[0.3, 0.2, 0.1], [0.2, 0.1, 0.1]],
    ("images-scale-20", "random", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-scale-20", "adaptive", "vocabulary"): [[0.4, 0.3, 0.1], [0.3, 0.2, 0.1]],
    ("images-argmax-K6", "random+ranking", "vocabulary"): [[0.3, 0.1, 0.0], [0.3, 0.1, 0.0]],
}


def test_answers_needed_by_hand():
    runs = FirstRuns(table(CELLS))
    reference = Series("images-argmax-partial", "random")
    adaptive = runs.needed(Series("images-argmax", "adaptive"), reference, "preference_error", 36)
    # the mean curve is 0.25, 0.15, 0.1: half way between 6 and 12; user 0 alone needs 12, user 1 alone 6
    assert adaptive is not None and adaptive.value == pytest.approx(9.0)
    assert (adaptive.low, adaptive.high) == pytest.approx((6.0, 12.0))
    late = runs.needed(reference, Series("images-argmax", "random"), "preference_error", 36)
    assert late is not None and late.value == late.high == float("inf")
    (row,) = [row for row in needed_table(runs).rows if row[0] == "K = 6, ranking"]
    assert row[:3] == ("K = 6, ranking", "random", "5") and row[3].startswith("9.0 [9.0, 9.0]")
    assert taps_of("random+best-worst", 6) == 2 and taps_of("random+partial", 9) == 3 == taps_of("random+ranking", 4)


def test_differences_are_paired_and_averaged_over_the_modes():
    found = differences_table(FirstRuns(table(CELLS)), "images", "preference_error")
    cells = {row[0]: row[3] for row in found.rows}
    assert cells["argmax"] == "-0.100 [-0.100, -0.100]*" and cells["scale 20"].startswith("+0.000")
    assert cells["mean of 2"] == "-0.050 [-0.050, -0.050]*"
    shapes = shapes_table(FirstRuns(table(CELLS, answers=(6, 24, 36))))
    assert shapes.rows[0][:5] == ("images", "argmax", "a sentence", "0.350", "-0.100 [-0.100, -0.100]*")


def test_calibration_of_a_posterior_that_is_known():
    """A posterior N(m, I) of two features: intervals of leads and the predicted accuracy by their formulas."""
    rng = np.random.default_rng(0)
    prompts, taste = rng.normal(size=(30, 2)), np.array([0.6, 0.8])
    pairs = np.array(list(itertools.combinations(range(30), 2)))
    vocabulary = Vocabulary(("a",), (("red", "green"),))
    world = World("tiny", vocabulary, prompts[:2], prompts, pairs, prompts[:0, None], {}, "", "", "prompt")
    mean = np.array([1.5, 1.0])
    fit = SimpleNamespace(theta=mean, posterior=Posterior(mean, np.eye(2)))
    found = Scorer(world, taste, scale=2.0).calibration(fit)
    leads = prompts[pairs[:, 0]] - prompts[pairs[:, 1]]
    lengths = np.linalg.norm(leads, axis=1)
    errors = np.abs(leads @ (2.0 * taste - mean)) / lengths
    assert found["covered"] == pytest.approx(np.mean(errors < norm.ppf(0.95)))
    right = np.mean((leads @ mean > 0) == (leads @ taste > 0))
    assert found["accuracy_gap"] == pytest.approx(norm.cdf(np.abs(leads @ mean) / lengths).mean() - right)
    assert np.isnan(Scorer(world, taste).calibration(fit)["covered"])  # without noise a lead has no unit


@pytest.mark.parametrize(("more", "name"), [((), "first-answers"), (("--quick",), "first-answers-quick")])
def test_the_command_takes_the_settings_of_the_study(monkeypatch, more, name):
    taken = []
    monkeypatch.setattr("edpbrl_gym.cli.bench.run", taken.append)
    assert main(["bench", "first-answers", *more]) == 0
    assert taken[0].settings == BenchSettings(**STUDY_SETTINGS[name])


# -- end to end ------------------------------------------------------------------------------------------------------


def test_a_small_study_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "out"
    regimes = ("interiors-argmax", "interiors-argmax-partial", "interiors-argmax-not")
    start = [
        *("bench", "first-answers", "--quick", "--encoder", "tests.helpers.encoders:CountingEncoder"),
        *("--answers", "6", "36", "--planned", "6", "--sentences-per-seed", "1", "--regime", *regimes),
        *("--prompts", "40", "--pairs", "60", "--pool", "50", "--jobs", "1", "--out", str(out)),
    ]
    assert main(start) == 0
    results = read_results(out).table
    assert set(results["regime"]) == set(regimes)
    planned = results[results["arm"] == "adaptive"]
    assert set(planned["questions"]) == {6} and set(results["questions"]) == {6, 36}
    assert (planned["estimator"] == "vocabulary").all()
    asked = set(results[results["arm"] == "random"]["estimator"])
    assert asked == {"vocabulary", "global", "ridge-fit", "ridge100"}
    assert np.isfinite(results[["preference_error", "regret_ten", "cosine_centred"]]).all(axis=None)
    assert results["preference_error"].between(0, 1).all() and (results["regret_ten"] >= 0).all()
    early = results[(results["estimator"] == "vocabulary") & (results["questions"] <= 36)]
    assert early["accuracy_gap"].between(-1, 1).all() and early["covered"].isna().all()  # nobody's answers are noisy
    page = (out / "REPORT.md").read_text()
    assert "Calibration of the posterior" in page
    assert "Answers needed for the level of 36 partial ones" in page and "Estimators by shape of taste" in page
    assert (out / "figures" / "first-answers.png").is_file()
    assert "Answers needed" in capsys.readouterr().out
    config = read_results(out).config
    assert (config["answers"], config["planned"], config["pool"]) == ([6, 36], 6, 50)
    refused(capsys, [*start, "--answers", "0"], 2, "answers >= 1")
    refused(capsys, [*start, "--planned", "3"], 2, "planned of at least 6")
