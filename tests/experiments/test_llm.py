"""Folds, held-out accuracy and sentences of the experiment with a language model, against computations of our own."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.llm.folds import make_folds
from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS, AnsweredArm, agreement, estimator_names, measure
from edpbrl_gym.experiments.llm.questions import ArmQuestions, check_agents
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.llm.styles import PAPER_AVERAGE, PAPER_RESULTS, STYLES
from edpbrl_gym.experiments.llm.summary import accounts, by_style, curves, difference, findings, headline


def test_the_test_windows_are_the_papers():
    folds = make_folds(60, 10, 3)
    assert [(min(fold.test), max(fold.test), len(fold.test)) for fold in folds] == [
        (50, 59, 10),
        (40, 49, 10),
        (30, 39, 10),
    ]
    for fold in folds:
        assert sorted([*fold.test, *fold.train]) == list(range(60))
        assert sorted(fold.training(50)) == sorted(set(range(60)) - set(fold.test))
        for size in (10, 20, 30, 40):
            assert fold.training(size) == fold.training(50)[:size]


def test_small_training_sets_begin_after_the_test_window():
    folds = make_folds(60, 10, 3)
    assert [fold.training(10) for fold in folds] == [tuple(range(10)), tuple(range(50, 60)), tuple(range(40, 50))]
    assert set(folds[2].training(30)) == {*range(40, 60), *range(10)}


def test_masks_pick_questions_by_their_episode():
    fold = make_folds(4, 1, 2)[1]  # tests on episode 2
    train, test = fold.masks(np.array([0, 0, 1, 2, 2, 3]), 2)
    assert test.tolist() == [False, False, False, True, True, False]
    assert train.tolist() == [True, True, False, False, False, True]  # episodes 3 and 0


@pytest.mark.parametrize("given", [(60, 10, 7), (10, 10, 1), (1, 1, 1)])
def test_windows_that_do_not_fit_are_refused(given):
    with pytest.raises(ValueError, match="test windows|episodes"):
        make_folds(*given)


def test_the_defaults_are_the_papers_numbers():
    settings = LLMSettings()
    assert list(settings.styles) == [
        "futuristic", "sunny", "forest", "landscape", "ancient", "noir", "watercolor", "cyberpunk", "minimalist",
        "medieval",
    ]  # fmt: skip
    assert settings.styles["futuristic"] == "Futuristic style with advanced technologies"
    assert (settings.episodes, settings.test_episodes, settings.folds) == (60, 10, 3)
    assert settings.train_sizes == (10, 20, 30, 40, 50) and settings.lambdas == (0.1, 1.0, 10.0, 100.0)
    assert (settings.num_options, settings.criterion, settings.regularization, settings.iterations) == (
        4,
        "V",
        100,
        100,
    )
    assert settings.agents == ("frank_wolfe", "random") and headline(settings.as_config()) == "ridge (lambda = 100)"
    assert settings.design.episodes == (60,) and settings.design.environment["split"] == "train"


def test_the_papers_table_agrees_with_itself():
    assert list(PAPER_RESULTS) == list(STYLES)
    for result in PAPER_RESULTS.values():
        assert abs(result.design - result.random - result.difference) < 0.151  # rounded thrice
    for name in ("design", "random", "difference"):
        mean = np.mean([getattr(result, name) for result in PAPER_RESULTS.values()])
        assert abs(mean - getattr(PAPER_AVERAGE, name)) < 0.1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"styles": {}}, "at least one style"),
        ({"styles": {"sunny": " "}}, "guidance text"),
        ({"train_sizes": (10, 51)}, "at most 50"),
        ({"lambdas": ()}, "at least one lambda"),
        ({"lambdas": (0.0,)}, "lambdas"),
        ({"agents": ("random", "random")}, "its own label"),
        ({"test_episodes": 25}, "test windows"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        LLMSettings(**wrong)


def test_agents_that_adapt_their_questions_are_refused():
    with pytest.raises(ValueError, match="don't depend on the answers"):
        check_agents(LLMSettings(agents=("adaptive", "random")))


def random_arm(rng, *, name="ED", episodes=6, steps=2, options=3, dimension=5) -> ArmQuestions:
    """Questions with features of their own; the first two options of every third question are the same."""
    count = episodes * steps
    texts = [[f"{name} {number} {option}" for option in range(options)] for number in range(count)]
    features = rng.standard_normal((count, options, dimension)).astype(np.float32)
    for number in range(0, count, 3):
        texts[number][1] = texts[number][0]
        features[number, 1] = features[number, 0]
    episode, step = np.divmod(np.arange(count), steps)
    return ArmQuestions(name, texts, features, episode, step)


def test_agreement_is_the_share_of_predicted_choices():
    rng = np.random.default_rng(1000)
    arm, theta = random_arm(rng), rng.standard_normal(5)
    choices = rng.integers(-1, 3, size=len(arm))
    right = asked = 0
    for texts, rows, choice in zip(arm.texts, arm.features, choices, strict=True):
        if choice < 0:
            continue
        asked += 1
        scores = {
            text: sum(float(a) * b for a, b in zip(row, theta, strict=True))
            for text, row in zip(texts, rows, strict=True)
        }
        right += texts[choice] == max(scores, key=scores.get)
    found = agreement(theta, arm.features, choices, arm.first_equal)
    assert (found.answered, found.correct) == (asked, right) and found.accuracy == right / asked


def test_either_of_two_equal_options_counts_as_predicted():
    arm = random_arm(np.random.default_rng(1001))
    theta = arm.features[0, 0].astype(float)
    same = arm.features[:1], arm.first_equal[:1]
    assert agreement(theta, same[0], np.array([0]), same[1]) == agreement(theta, same[0], np.array([1]), same[1])
    assert arm.first_equal[0].tolist() == [0, 0, 2] and arm.with_equal_options == 4


def test_without_an_answer_there_is_no_accuracy():
    arm = random_arm(np.random.default_rng(1002))
    found = agreement(np.ones(5), arm.features, np.full(len(arm), -1), arm.first_equal)
    assert found.answered == 0 and np.isnan(found.accuracy)


def ridge(features, choices, lam):
    """MAP of the multinomial logit by plain gradient steps."""
    theta = np.zeros(features.shape[2])
    for _ in range(4000):
        scores = features @ theta
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        chosen = features[np.arange(len(features)), choices]
        theta += 0.02 * ((chosen - np.einsum("nk,nkd->nd", weights, features)).sum(0) - lam * theta)
    return theta


def test_estimates_see_answered_training_questions_only_and_are_tested_on_every_arm():
    rng = np.random.default_rng(1003)
    settings = LLMSettings(
        styles={"s": "any"}, episodes=6, train_sizes=(3,), test_episodes=1, folds=2, lambdas=(1.0,), num_options=3
    )
    arms = [random_arm(rng, name=name) for name in ("ED", "Random")]
    choices = [rng.integers(-1, 3, size=len(arm)) for arm in arms]
    guidance = rng.standard_normal(5)
    answered = [AnsweredArm(arm, given) for arm, given in zip(arms, choices, strict=True)]
    tokens = rng.standard_normal((30, 5)).astype(np.float32)
    table = pandas.DataFrame(measure(settings, "s", answered, tokens, guidance))
    assert len(table) == 2 * 3 * 2 * 2  # arms x estimators x folds x tested arms
    for fold, test, train in ((0, 5, (0, 1, 2)), (1, 4, (5, 0, 1))):
        for arm, given in zip(arms, choices, strict=True):
            used = np.isin(arm.episode, train) & (given >= 0)
            theta = ridge(arm.features[used].astype(float), given[used], 1.0)
            for other, theirs in zip(arms, choices, strict=True):
                row = table[(table["arm"] == arm.arm) & (table["tested_on"] == other.arm) & (table["fold"] == fold)]
                row = row.set_index("estimator")
                held = other.episode == test
                for name, taste in (("ridge (lambda = 1)", theta), (GUIDANCE, guidance)):
                    found = agreement(taste, other.features[held], theirs[held], other.first_equal[held])
                    assert row.loc[name, "correct"] == found.correct, (name, arm.arm, other.arm, fold)
                assert row.loc[WORDS, "train_answered"] == used.sum()
                assert row.loc[WORDS, "test_answered"] == (theirs[held] >= 0).sum()


def made_up(values) -> pandas.DataFrame:
    """Results with given accuracies: {(estimator, arm, tested_on, episodes): one for each style}."""
    rows = []
    for (estimator, arm, tested, episodes), accuracies in values.items():
        for number, value in enumerate(accuracies):
            for fold, shift in enumerate((-0.1, 0.1)):
                rows.append(
                    {
                        "part": "accuracy", "estimator": estimator, "arm": arm, "tested_on": tested,
                        "episodes": episodes, "style": f"style {number}", "fold": fold, "accuracy": value + shift,
                    }
                )  # fmt: skip
    return pandas.DataFrame(rows)


CONFIG = {
    "agents": ["frank_wolfe", "random"], "lambdas": [1.0, 100.0], "regularization": 100.0,
    "styles": {"style 0": "a", "style 1": "b"},
}  # fmt: skip


def full_table(designed, plain):
    """The same accuracies for every estimator, size and set of questions."""
    values = {}
    for estimator in estimator_names(CONFIG["lambdas"]):
        for episodes in (10, 50):
            for tested in ("ED-PBRL", "Random"):
                values[estimator, "ED-PBRL", tested, episodes] = designed
                values[estimator, "Random", tested, episodes] = plain
    return made_up(values)


def test_differences_are_paired_by_style():
    table = full_table([0.7, 0.5, 0.6], [0.5, 0.35, 0.5])
    gap = difference(by_style(table), "ridge (lambda = 100)", "ED-PBRL", "Random", episodes=50)
    gaps = np.array([20.0, 15.0, 10.0])
    assert gap.mean == pytest.approx(15.0) and gap.error == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert gap.above == gap.runs == 3 and gap.clear
    mean = curves(table).set_index(["estimator", "arm", "tested_on", "episodes"]).loc[(WORDS, "Random", "Random", 10)]
    assert mean["mean"] == pytest.approx(45.0) and mean["sem"] == pytest.approx(5.0)


def test_sentences_name_whoever_is_clearly_higher():
    assert headline(CONFIG) == "ridge (lambda = 100)"
    said = " ".join(findings(full_table([0.7, 0.51, 0.6], [0.5, 0.3, 0.41]), CONFIG))
    assert "ED-PBRL is clearly higher" in said and "Random is clearly higher" not in said
    said = " ".join(findings(full_table([0.5, 0.3, 0.41], [0.7, 0.51, 0.6]), CONFIG))
    assert "Random is clearly higher" in said and "ED-PBRL is clearly higher" not in said
    said = " ".join(findings(full_table([0.5, 0.6, 0.4], [0.6, 0.5, 0.4]), CONFIG))
    assert "clearly" not in said and "too close to call" in said
    assert "The paper has" not in said  # other styles than the paper's


def test_the_difference_is_split_into_easier_questions_and_what_was_learnt():
    table = full_table([0.6, 0.6], [0.5, 0.5])
    easier = (table["arm"] == "Random") & (table["tested_on"] == "ED-PBRL")
    table.loc[easier, "accuracy"] += 0.13  # what Random taught is worth more on the other's questions
    (said,) = [line for line in findings(table, CONFIG) if "two parts" in line]
    assert f"{headline(CONFIG)}: +10.0 = +13.0 (ED-PBRL's questions are easier" in said and "63.0%" in said
    assert "-3.0 (what was learnt" in said


def test_f12_accuracy_on_own_questions_also_measures_how_easy_they_are():
    """The worse of two estimates wins where each is tested on questions of its own, and its own are easier."""
    rng = np.random.default_rng(1012)
    taste, equal = rng.standard_normal(8), np.tile(np.arange(4), (2000, 1))
    better, worse = taste + 0.2 * rng.standard_normal(8), taste + 0.6 * rng.standard_normal(8)
    shares = {}
    for name, spread in (("easy", 2.0), ("hard", 0.3)):
        features = (spread * rng.standard_normal((2000, 4, 8))).astype(np.float32)
        choices = np.argmax(features @ taste + rng.gumbel(size=(2000, 4)), axis=1)
        for which, theta in (("better", better), ("worse", worse)):
            shares[which, name] = agreement(theta, features, choices, equal).accuracy
    assert shares["worse", "easy"] > shares["better", "hard"] + 0.1
    assert all(shares["better", name] > shares["worse", name] for name in ("easy", "hard"))


def test_the_account_adds_up():
    rows = [
        {"part": "answer", "style": "a", "choice": choice, "reason": reason, "label": label, "retries": retries,
         "consistent": same, "input_tokens": 10, "output_tokens": 1}
        for choice, reason, label, retries, same in (
            (0, "answered", 1, 0, 1.0), (2, "answered", 1, 2, 0.0), (1, "answered", 3, 0, None),
            (-1, "invalid", -1, 0, None), (-1, "failed", -1, 5, None),
        )
    ]  # fmt: skip
    (entry,) = accounts(pandas.DataFrame(rows))
    assert entry["questions"] == 5 == entry["answered"] + entry["invalid"] + entry["failed"]
    assert entry["retried"] == 2 and entry["consistent"] == 0.5 and entry["tokens"] == 55
    assert entry["labels"] == pytest.approx([0, 2 / 3, 0, 1 / 3])
