"""Folds, held-out accuracy and sentences of the experiment with a language model, against computations of our own."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.designs import check_agents
from edpbrl_gym.experiments.llm.measuring import GUIDANCE, WORDS, AnsweredArm, agreement, estimator_names, measure
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.llm.settings import LLMSettings, make_folds
from edpbrl_gym.experiments.llm.summary import Summary, accounts
from edpbrl_gym.experiments.sections import compared, difference


def test_the_test_windows_are_the_papers():
    folds = make_folds(60, 10, 3)
    assert [sorted(fold.test) for fold in folds] == [list(range(first, first + 10)) for first in (50, 40, 30)]
    for fold in folds:
        assert sorted([*fold.test, *fold.train]) == list(range(60))
        assert sorted(fold.training(50)) == sorted(set(range(60)) - set(fold.test))
        for size in (10, 20, 30, 40):
            assert fold.training(size) == fold.training(50)[:size]
    assert [fold.training(10) for fold in folds] == [tuple(range(10)), tuple(range(50, 60)), tuple(range(40, 50))]


def test_the_defaults_are_the_papers_numbers():
    settings = LLMSettings()
    assert list(settings.styles) == [
        "futuristic", "sunny", "forest", "landscape", "ancient", "noir", "watercolor", "cyberpunk", "minimalist",
        "medieval",
    ]  # fmt: skip
    assert settings.styles["futuristic"] == "Futuristic style with advanced technologies"
    assert (settings.episodes, settings.test_episodes, settings.folds) == (60, 10, 3)
    assert settings.train_sizes == (10, 20, 30, 40, 50) and settings.lambdas == (0.1, 1.0, 10.0, 100.0)
    assert (settings.num_options, settings.criterion) == (4, "V")
    assert settings.regularization == settings.iterations == 100
    assert settings.agents == ("frank_wolfe", "random")
    assert settings.planned(settings.parsed_agents[0]) == ((60, (60,)),) and settings.environment["split"] == "train"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"styles": {"sunny": " "}}, "guidance text"),
        ({"train_sizes": (10, 51)}, "at most 50"),
        ({"agents": ("random", "random")}, "its own label"),
        ({"test_episodes": 25}, "test windows"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        LLMSettings(**wrong)
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
        scores = {text: float(row.astype(float) @ theta) for text, row in zip(texts, rows, strict=True)}
        right += texts[choice] == max(scores, key=scores.get)
    assert agreement(theta, arm.features, choices, arm.first_equal) == (asked, right)


def test_either_of_two_equal_options_counts_as_predicted():
    arm = random_arm(np.random.default_rng(1001))
    theta = arm.features[0, 0].astype(float)
    same = arm.features[:1], arm.first_equal[:1]
    assert agreement(theta, same[0], np.array([0]), same[1]) == agreement(theta, same[0], np.array([1]), same[1])
    assert arm.first_equal[0].tolist() == [0, 0, 2] and arm.with_equal_options == 4


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
                    _, found = agreement(taste, other.features[held], theirs[held], other.first_equal[held])
                    assert row.loc[name, "correct"] == found, (name, arm.arm, other.arm, fold)
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
    gap = difference(Summary(table, CONFIG).cell("ridge (lambda = 100)"), "ED-PBRL", "Random")
    gaps = np.array([20.0, 15.0, 10.0])
    assert gap.mean == pytest.approx(15.0) and gap.error == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert gap.runs == 3 and gap.clear
    told = compared(Summary(table, CONFIG).cell(WORDS, None, 10), ["Random"], [("ED-PBRL", "Random")], ".2f")
    assert told == ["45.00 ± 5.00", f"+15.00 ± {gap.error:.2f}"]


def test_sentences_name_whoever_is_clearly_higher():
    said = " ".join(Summary(full_table([0.7, 0.51, 0.6], [0.5, 0.3, 0.41]), CONFIG).findings())
    assert "ED-PBRL is clearly higher" in said and "Random is clearly higher" not in said
    said = " ".join(Summary(full_table([0.5, 0.3, 0.41], [0.7, 0.51, 0.6]), CONFIG).findings())
    assert "Random is clearly higher" in said and "ED-PBRL is clearly higher" not in said
    said = " ".join(Summary(full_table([0.5, 0.6, 0.4], [0.6, 0.5, 0.4]), CONFIG).findings())
    assert "clearly" not in said and "too close to call" in said


def test_arms_are_also_compared_on_the_same_questions():
    table = full_table([0.6, 0.6], [0.5, 0.5])
    easier = (table["arm"] == "Random") & (table["tested_on"] == "ED-PBRL")
    table.loc[easier, "accuracy"] += 0.13  # what Random taught is worth more on the other's questions
    (said,) = Summary(table, CONFIG).findings()
    for text in (
        "each its own questions: +10.0 ± 0.0",
        "Random questions: +10.0 ± 0.0",
        "ED-PBRL questions: -3.0 ± 0.0",
    ):
        assert f"ridge (lambda = 100), {text}" in said


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
            shares[which, name] = agreement(theta, features, choices, equal)[1] / 2000
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
