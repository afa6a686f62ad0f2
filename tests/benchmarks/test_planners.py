"""The planners' benchmark: what is run, worlds and users, what is measured, and a small run of each study."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.kit.command import gather
from benchmarks.kit.sentences import SENTENCES
from benchmarks.kit.worlds import regret_of_the_best
from benchmarks.planners.__main__ import main
from benchmarks.planners.arms import fit, get_arm
from benchmarks.planners.asking import ask_questions, make_user
from benchmarks.planners.regimes import REGIMES, get_regime
from benchmarks.planners.run import PLANNERS
from benchmarks.planners.scoring import Scorer, score_estimators
from benchmarks.planners.settings import STUDIES, PlannerSettings, plan_units
from benchmarks.planners.tastes import TASTES, make_directions, taste_users, utilities
from benchmarks.planners.worlds import World, load_world, world_vocabulary
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.features.precomputed import PrecomputedEncoder
from edpbrl_gym.likelihood import BestOf
from edpbrl_gym.planners import ReplayPlanner
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.heads import head_word
from tests.helpers.encoders import CountingEncoder
from tests.helpers.small_vocabulary import write_embedded

FOUR, TWO = "items-d10-K4", "items-d10-K2"
TASTE = np.eye(5)[:1]


def test_what_the_pages_say_was_run():
    for name, study in STUDIES.items():
        units = plan_units(PlannerSettings(**study.settings), study=study)
        assert len({unit.part for unit in units}) == len(units)
        assert [unit.seed for unit in units] == sorted(unit.seed for unit in units)
        assert {(unit.regime, unit.arm) for unit in units} == set(study.seeds), name
    twenty = [name for seed in range(20) for name in PlannerSettings().users(REGIMES["argmax"], seed)]
    assert {twenty.count(name) for name in SENTENCES} == {4}
    study = STUDIES["first-answers"]
    units = plan_units(PlannerSettings(**study.settings), study=study)
    asked = [unit.user for unit in units if (unit.regime, unit.arm) == ("images-argmax", "adaptive")]
    assert len(asked) == len(set(asked)) == 12  # three seeds see every sentence once
    developed = plan_units(PlannerSettings(**study.settings, development=True), study=study, seeds=1)
    assert {unit.seed for unit in developed} == {1000}
    assert not {unit.user for unit in developed} & {unit.user for unit in units}


def test_checkpoints_are_answers_whatever_an_episode_is():
    settings = PlannerSettings(answers=(24, 6, 7), planned=7)
    assert settings.checkpoints(get_regime("images-argmax")) == (6, 7, 24)
    assert settings.checkpoints(get_regime("images-argmax-partial")) == (1, 4)
    assert settings.checkpoints(get_regime("images-argmax"), planned=True) == (6, 7)
    assert settings.checkpoints(get_regime("argmax")) == settings.episodes  # all others count episodes
    assert PlannerSettings(episodes=(5, 7)).prompt_episodes == (7,)


def test_arms_read_back():
    assert len({get_arm(arm).title for study in STUDIES.values() for _, arm in study.seeds}) > 20
    arm = get_arm("bald,prior=vocabulary")
    assert arm.options == {"prior": "vocabulary"} and arm.title == "BALD (prior vocabulary)"
    assert get_arm("adaptive").estimators(get_regime("argmax")) == ("vocabulary", "planner")
    assert get_arm("adaptive").estimators(get_regime("images-argmax")) == ("vocabulary",)
    assert [get_arm("rollouts-bald").runs_in(REGIMES[name]) for name in ("state-scale-20", FOUR)] == [True, False]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: get_arm("randon"), "begins with random, .*'randon'"),
        (lambda: get_arm("random+mine"), "best, best-worst, ranking"),
        (lambda: get_arm("random,prior=vocabulary"), "options of 'random' among none"),
        (lambda: get_arm("adaptive,prior=mine"), "prior among vocabulary, ridge1"),
        (lambda: get_regime("windy"), "argmax"),
        (lambda: PlannerSettings(episodes=()), "episodes >= 1"),
        (lambda: PlannerSettings(prompts=1), "prompts"),
        (lambda: PlannerSettings(encoder="nonsense"), "Expected an encoder"),
        (lambda: plan_units(PlannerSettings(), seeds=0), "seeds >= 1"),
        (lambda: plan_units(PlannerSettings(), regimes=[FOUR], arms=["rollouts-bald"]), r"'rollouts-bald'.*scale-20"),
        (lambda: plan_units(PlannerSettings(development=True)), "first answers for development"),
        (lambda: plan_units(PlannerSettings(vocabulary="interiors"), regimes=["images-argmax"]), "Expected no vocabul"),
        (lambda: plan_units(PlannerSettings(answers=(7,)), regimes=["images-argmax-partial"]), "multiple of 6"),
    ],
)  # fmt: skip
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_vocabularies():
    train, test = (world_vocabulary(PlannerSettings(), name) for name in ("interiors", "interiors-test"))
    for shown, held_out in zip(train.tokens, test.tokens, strict=True):
        assert held_out and not {head_word(token) for token in shown} & {head_word(token) for token in held_out}


def items(name: str, folder, seed: int) -> World:
    return load_world(PlannerSettings(), REGIMES[name], folder, "", seed=seed)


def test_items_and_taste_of_a_seed_do_not_depend_on_the_number_of_options(tmp_path):
    four, two, other = items(FOUR, tmp_path, 7), items(TWO, tmp_path, 7), items(FOUR, tmp_path, 8)
    np.testing.assert_array_equal(four.tokens, two.tokens)
    np.testing.assert_array_equal(four.tastes["drawn"], two.tastes["drawn"])
    assert (four.tokens != other.tokens).any() and four.held_out.shape == (600, 4, 10)
    np.testing.assert_allclose(np.linalg.norm(four.tokens, axis=1), 1.0, atol=1e-6)
    pools = (items("items-clusters-K4", tmp_path, 0).tokens, items("items-d32-K4", tmp_path, 0).tokens)
    nearest = [np.sort(rows @ rows.T - 2 * np.eye(len(rows)), axis=1)[:, -10:].mean() for rows in pools]
    assert nearest[0] > 0.8 and nearest[1] < 0.6  # centre + half a unit vector: cosine 1 / 1.25 within a cluster


@pytest.mark.parametrize("taste", list(TASTES))
def test_users_have_unit_tastes_that_differ(taste):
    vocabulary, encoder = load_vocabulary("images").subset(6, 0), CountingEncoder()
    made = make_directions(taste, "images", vocabulary, encoder)
    assert tuple(made) == taste_users(taste, "images")
    rows = np.stack(list(made.values()))
    assert rows.shape == (12, 2 if taste == "two-styles" else 1, 8)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=-1), 1.0)
    first, _, _, third, *_ = make_directions("sentence", "images", vocabulary, encoder).values()
    by_hand = {"mean": first + third, "not": first - third, "two-styles": np.concatenate([first, third])}
    if taste in by_hand:
        wanted = by_hand[taste] / np.linalg.norm(by_hand[taste], axis=-1, keepdims=True)
        np.testing.assert_allclose(next(iter(made.values())), wanted)


def tiny_world(feedback: str) -> World:
    vocabulary = Vocabulary(("a", "b"), (("red", "green", "blue"), ("cat", "dog", "owl")))
    rng = np.random.default_rng(0)
    texts = [*vocabulary.all_tokens, *(f"{a}, {b}" for a in vocabulary.tokens[0] for b in vocabulary.tokens[1])]
    encoder = PrecomputedEncoder.from_arrays(texts, rng.normal(size=(len(texts), 5)))
    rows = rng.normal(size=(6, 5)).astype(np.float32)
    pairs, tokens = np.array([[0, 1], [2, 3]]), encoder.encode(vocabulary.all_tokens)
    world = World("tiny", vocabulary, tokens, rows, pairs, rows[:4][None], {}, "", "", feedback)
    object.__setattr__(world, "encoder", lambda: encoder)
    return world


@pytest.mark.parametrize("feedback", ["truncated", "state", "prompt"])
def test_questions_asked_one_by_one_are_answered_as_all_at_once(feedback):
    world, asked_at = tiny_world(feedback), [1] if feedback == "prompt" else [0, 1]
    tokens = np.random.default_rng(1).integers(3, size=(5, 4, 2))
    words, encoder = world.vocabulary.tokens, world.encoder()

    def text(row, step):
        chosen = [tokens[index] for tokens, index in zip(words, row, strict=True)]
        return chosen[step] if feedback == "state" else ", ".join(chosen[: step + 1])

    rows = [encoder.encode([text(row, step) for row in question]) for question in tokens for step in asked_at]
    at_once = Queries(np.stack(rows), np.repeat(np.arange(5), len(asked_at)), np.tile(asked_at, 5))
    responses = make_user(get_regime("scale-20"), TASTE, "sunny", 7).answer(at_once).responses
    user = make_user(get_regime("scale-20"), TASTE, "sunny", 7)
    asked = list(ask_questions(ReplayPlanner(tokens), world, user, encoder, num_options=4, checkpoints=(1, 3, 5)))
    assert [one.episodes for one in asked] == [1, 3, 5]
    for one in asked:
        count = len(asked_at) * one.episodes
        assert one.responses == list(responses[:count])
        np.testing.assert_array_equal(one.queries.features, at_once.features[:count])
        np.testing.assert_array_equal(one.queries.step, at_once.step[:count])


def test_a_user_of_two_styles_takes_the_best_by_their_utility():
    styles = np.eye(5)[:2]
    rows = np.random.default_rng(0).normal(size=(30, 4, 5)).astype(np.float32)
    values = np.maximum(rows[..., 0], rows[..., 1]) - 0.5 * np.minimum(rows[..., 0], rows[..., 1])
    np.testing.assert_allclose(utilities(styles, rows), values, rtol=1e-6)
    user = make_user(get_regime("images-argmax-two-styles"), styles, "x-or-y", 0)
    answers = user.answer(Queries(rows, np.arange(30), np.zeros(30, dtype=int))).responses
    assert [answer.first for answer in answers] == values.argmax(axis=1).tolist()


def test_the_estimators_of_an_arm_are_rows():
    world = tiny_world("truncated")
    planner = ReplayPlanner(np.random.default_rng(1).integers(3, size=(5, 4, 2)))
    user, regime = make_user(get_regime("scale-20"), TASTE, "sunny", 7), get_regime("scale-20")
    (asked,) = ask_questions(planner, world, user, world.encoder(), num_options=4, checkpoints=(5,))
    rows = score_estimators(get_arm("random"), regime, planner, asked, Scorer(world, TASTE), None)
    terms = BestOf().terms(asked.queries.features.astype(float), asked.responses)
    truth = world.held_out @ TASTE[0]
    for row in rows:
        theta = fit(row["estimator"], terms, world, regime).theta
        assert row["cosine_error"] == pytest.approx(1 - theta[0] / np.linalg.norm(theta))
        wrong = np.mean((world.held_out @ theta).argmax(axis=1) != truth.argmax(axis=1))
        assert row["choice_error"] == pytest.approx(wrong) and np.isnan(row["regret"])  # no prompt was searched for
    assert len({row["cosine_error"] for row in rows}) == len(rows) == 3
    with pytest.raises(ValueError, match="Expected prior as one of .vocabulary."):
        fit("mine", terms, world, regime)


def test_regrets_by_hand(tmp_path):
    world = items(FOUR, tmp_path, 7)
    taste = world.tastes["drawn"]
    scorer, values = Scorer(world, taste), world.tokens @ taste[0]
    assert scorer.regret(taste[0], None) == 0.0 and scorer.regret(np.zeros(10), None) == 1.0
    worst = (values.max() - values.min()) / (values.max() - values.mean())
    assert scorer.regret(-taste[0], None) == pytest.approx(worst, rel=1e-5) == scorer.item_regret(int(values.argmin()))
    true = np.array([4.0, 3.0, 1.0, 0.0])
    assert regret_of_the_best(true, true, count=2) == 0.0
    assert regret_of_the_best([2.0, 0.0, 1.0, 0.0], true, count=2) == pytest.approx((3.5 - 2.5) / (3.5 - 2.0))
    pairs = [[float(place in pair) for place in range(4)] for pair in itertools.combinations(range(4), 2)]
    assert np.mean([regret_of_the_best(pair, true, count=2) for pair in pairs]) == pytest.approx(1.0)


def command(out, study: str, *arguments: str) -> int:
    return main([study, "--jobs", "1", "--out", str(out), *arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory, embedding_cache):
    """Designs, planners and Random in a prompt MDP and on a pool of items; in two calls, as arms may be added."""
    place = tmp_path_factory.mktemp("planners")
    words, encoder = write_embedded(place, SENTENCES.values())
    arguments = [
        *("--vocabulary", words, "--encoder", encoder, "--seeds", "2", "--regime", "scale-20", FOUR),
        *("--episodes", "1", "3", "--questions", "2", "5", "--prompts", "60", "--pairs", "100"),
        *("--held-out-questions", "12", "--sentences-per-seed", "1"),
    ]
    assert command(place / "run", "efficiency", *arguments, "--arm", "random", "ed-pbrl") == 0
    parts = {path.name: path.stat().st_mtime_ns for path in (place / "run" / "parts").iterdir()}
    assert command(place / "run", "efficiency", *arguments, "--arm", "random", "adaptive", "bald") == 0
    after = {path.name: path.stat().st_mtime_ns for path in (place / "run" / "parts").iterdir()}
    assert {name: after[name] for name in parts} == parts and len(after) == 2 * 2 * 4
    return place / "run"


def test_every_unit_has_its_rows(finished):
    table = read_results(finished).table
    assert len(table) == 2 * 2 * 2 * (3 + 2 + 2 + 2)  # regimes, seeds, checkpoints, estimators of the arms
    assert table["converged"].all() and table["cosine_error"].between(0, 2).all() and (table["skipped"] == 0).all()
    assert table[["preference_error", "choice_error"]].apply(lambda column: column.between(0, 1)).all(axis=None)
    prompts = table[table["regime"] == "scale-20"]
    assert (prompts["questions"] == 3 * prompts["episodes"]).all()
    searched = (prompts["episodes"] == 3) & prompts["estimator"].isin(["vocabulary", "ridge100", "planner"])
    assert prompts.loc[~searched, "regret"].isna().all() and (prompts.loc[searched, "regret"] >= -1e-6).all()
    last = table[table["episodes"] == 5].groupby("estimator")["cosine_error"].mean()
    first = table[table["episodes"] == 2].groupby("estimator")["cosine_error"].mean()
    assert last["vocabulary"] < first["vocabulary"]
    assert len(list((finished / "designs").iterdir())) == 1 and len(list((finished / "questions").iterdir())) == 8


def test_a_report_of_what_is_finished(finished, capsys):
    report = (finished / "REPORT.md").read_text()
    for text in ("against its marks", "Average ranks", "sunny", "BALD"):
        assert text in report, text
    next(finished.glob("parts/scale-20__ed-pbrl__*")).unlink()
    assert len(gather(PLANNERS, finished).table) == 68
    assert main(["efficiency", "--report", str(finished)]) == 0
    assert "against its marks" in capsys.readouterr().out
    assert main(["efficiency", "--report", str(finished / "none")]) == 1
    assert "run the experiment" in capsys.readouterr().err


def test_a_small_study_of_first_answers(tmp_path, capsys):
    regimes = ("interiors-argmax", "interiors-argmax-partial", "interiors-scale-20-not")
    small = [
        *("--answers", "6", "24", "36", "--planned", "6", "--sentences-per-seed", "1", "--prompts", "40"),
        *("--pairs", "60", "--pool", "50", "--seeds", "1", "--encoder", "tests.helpers.encoders:CountingEncoder"),
    ]
    assert command(tmp_path, "first-answers", *small, "--regime", *regimes) == 0
    results = read_results(tmp_path).table
    assert set(results["regime"]) == set(regimes)
    planned = results[results["arm"].str.startswith("adaptive")]
    assert set(planned["questions"]) == {6} and set(results["questions"]) == {6, 24, 36}
    assert set(results[results["arm"] == "random"]["estimator"]) == {"vocabulary", "alone", "ridge-fit"}
    assert results["preference_error"].between(0, 1).all() and (results["regret_ten"] >= 0).all()
    page = (tmp_path / "REPORT.md").read_text()
    for text in ("Answers needed", "planner minus Random", "Estimators by shape of taste"):
        assert text in page
    assert (tmp_path / "figures" / "first-answers.png").is_file() and "Answers needed" in capsys.readouterr().out
    assert command(tmp_path, "first-answers", "--answers", "0") == 2
