"""The benchmark's arms, studies, worlds and users, and how questions are asked."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.bench.arms import DESIGNS, ESTIMATORS, KERNELS, PRIORS, get_arm
from edpbrl_gym.experiments.bench.encoders import SharedEncoder, TimedEncoder, _large_batch
from edpbrl_gym.experiments.bench.estimators import fit
from edpbrl_gym.experiments.bench.item_worlds import load_items
from edpbrl_gym.experiments.bench.measuring import Scorer
from edpbrl_gym.experiments.bench.playing import ask_questions, make_user
from edpbrl_gym.experiments.bench.prompt_worlds import near_duplicates
from edpbrl_gym.experiments.bench.run import plan_units
from edpbrl_gym.experiments.bench.settings import REGIMES, SENTENCES, STUDY_SETTINGS, BenchSettings, get_regime
from edpbrl_gym.experiments.bench.studies import STUDIES
from edpbrl_gym.experiments.bench.unit import score_estimators
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.experiments.settings import PAPER_USERS
from edpbrl_gym.features.precomputed import PrecomputedEncoder
from edpbrl_gym.likelihood import BestOf
from edpbrl_gym.planners import ReplayPlanner
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

ITEMS = ("items-d10-K4", "items-d10-K2")
ARGMAX = get_regime("argmax")


# -- what is run -----------------------------------------------------------------------------------------------------


def test_what_the_pages_say_was_run():
    settings = BenchSettings()
    assert settings.episodes == (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 36, 45, 60)
    headline = [regime for regime in REGIMES.values() if regime.headline]
    assert [(r.mode, r.scale) for r in headline] == [
        ("argmax", 1.0), ("sampled", 50.0), ("sampled", 20.0), ("sampled", 5.0),
    ]  # fmt: skip
    assert all((r.vocabulary, r.feedback, r.num_options) == ("train", "truncated", 4) for r in headline)
    assert len(STUDIES["efficiency"].regimes) == 15 and len(STUDIES["comparison"].regimes) == 12
    assert set(STUDIES) == set(STUDY_SETTINGS)
    for name, changes in STUDY_SETTINGS.items():
        study = STUDIES[name]
        assert {unit.regime for unit in plan_units(BenchSettings(**changes), study=study)} == set(study.regimes)


def test_users_of_seeds():
    assert len(SENTENCES) == 10 and list(SENTENCES)[:3] == list(PAPER_USERS)
    assert len(set(SENTENCES.values())) == 10
    settings = BenchSettings()
    assert settings.users(ARGMAX, 3) == settings.users(ARGMAX, 13) == ("underwater", "minimal")
    twenty = [name for seed in range(20) for name in settings.users(ARGMAX, seed)]
    assert {twenty.count(name) for name in SENTENCES} == {4}
    assert set(BenchSettings(sentences_per_seed=10).users(ARGMAX, 7)) == set(SENTENCES)
    assert settings.users(get_regime("items-d10-K4"), 3) == ("drawn",)


def test_units_headline_with_all_seeds_the_rest_with_fewer():
    arms = ("random", "v-design")
    units = plan_units(BenchSettings(), regimes=("argmax", "state-argmax"), arms=arms, seeds=20)
    counts = pandas.Series([(unit.regime, unit.arm) for unit in units]).value_counts()
    assert counts["argmax", "random"] == 40 and counts["argmax", "v-design"] == 10
    assert counts["state-argmax", "random"] == counts["state-argmax", "v-design"] == 10
    assert [unit.seed for unit in units] == sorted(unit.seed for unit in units)
    assert len({unit.part for unit in units}) == len(units)
    # five seeds see every sentence once
    assert {unit.user for unit in units if unit.regime == "state-argmax"} == set(SENTENCES)


def test_units_come_seed_after_seed_where_arms_can_run():
    study, settings = STUDIES["comparison"], BenchSettings(sentences_per_seed=1)
    units = plan_units(settings, study=study, regimes=ITEMS, arms=["adaptive", "optuna"], seeds=2, first_seed=5)
    named = [(unit.seed, unit.regime, unit.arm) for unit in units]
    four, two = ITEMS
    assert named[:3] == [(5, four, "adaptive"), (5, two, "adaptive"), (5, two, "optuna")] and len(named) == 6
    assert len({unit.part for unit in plan_units(settings, study=study, seeds=1)}) > 200


def test_every_planner_and_paper_design_is_compared():
    arms = set(STUDIES["comparison"].arms)
    left_out = {name for name, entry in PLANNERS.items() if entry.family == "adaptive"} | {"rollout_pool"}
    assert (set(PLANNERS) - left_out) | {"adaptive", "adaptive-best", "ed-pbrl", "ed-pbrl-exact", "tuples"} == arms
    runs = {name: [arm for arm in arms if get_arm(arm).runs_in(get_regime(name))] for name in REGIMES}
    assert "botorch-bald" in runs["items-d10-K2"] and "botorch-bald" not in runs["items-d10-K4"]
    assert "botorch-bald" not in runs["items-d384-K2"] and "botorch-bald" not in runs["pairs-scale-20"]
    assert [name for name in runs if "optuna" in runs[name]] == ["items-d10-K2"]
    assert "rollouts-bald" in runs["state-scale-20"] and "rollouts-bald" not in runs["items-d10-K4"]


# -- arms ------------------------------------------------------------------------------------------------------------


def test_arms_read_back():
    names = {name for study in STUDIES.values() for name in (*study.arms, *study.fewer)}
    assert len({get_arm(name).title for name in names}) == len(names)
    arm = get_arm("tuples+best-worst")
    assert (arm.asker, arm.answers, arm.estimator) == ("tuples", "best-worst", "vocabulary") and arm.design is not None
    arm = get_arm("bald,prior=vocabulary")
    assert arm.options == {"prior": "vocabulary"} and arm.title == "BALD (prior vocabulary)"
    assert get_arm("adaptive,draws=0").options == {"draws": 0} and get_arm("adaptive").estimators == (
        "vocabulary",
        "planner",
    )
    assert set(get_arm("random").estimators) == set(ESTIMATORS) - {"planner", *KERNELS}
    assert {*PRIORS, *KERNELS} < set(ESTIMATORS)
    assert get_arm("ed-pbrl").estimators == ("vocabulary", "ridge100")
    families = {get_arm(name).family for name in STUDIES["comparison"].arms}
    assert families == {"adaptive", "design", "paper", "literature", "external", "baseline"}
    assert {entry.estimator for entry in DESIGNS.values()} <= set(ESTIMATORS)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("randon", "begins with random, "),
        ("random+mine", "best, best-worst, ranking"),
        ("random+ranking+best", "best, best-worst, ranking"),
        ("tuples,prior=vocabulary", "options of 'tuples' among none"),
        ("adaptive,prior=mine", "vocabulary, global, fixed"),
        ("bald,size=3", "draws"),
        ("optuna,prior=vocabulary", "options of 'optuna'"),
        ("optuna+ranking", "best options"),
    ],
)
def test_names_that_are_no_arm(name, part):
    with pytest.raises(ValueError, match="Expected") as error:
        get_arm(name)
    assert part in str(error.value) and name.partition("+")[0].partition(",")[0] in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [{"episodes": ()}, {"questions": ()}, {"episodes": (0,)}, {"prompt_episodes": (0,)}, {"sentences_per_seed": 11},
     {"prompts": 1}, {"split_seed": -1}, {"vocabulary": ""}],
)  # fmt: skip
def test_settings_out_of_range(changes):
    with pytest.raises(ValueError, match="Expected"):
        BenchSettings(**changes)


def test_prompts_are_searched_at_episodes_that_are_measured():
    assert BenchSettings(episodes=(5, 1, 5)).episodes == (1, 5)
    assert BenchSettings(episodes=(5, 10)).prompt_episodes == (10,)
    assert BenchSettings(episodes=(5, 7)).prompt_episodes == (7,)


# -- worlds ----------------------------------------------------------------------------------------------------------


def test_four_of_five_tokens_of_the_skewed_vocabulary_are_near_duplicates():
    skewed = near_duplicates(load_vocabulary(), 200, 0)
    assert skewed.sizes == (200,) * 6
    assert near_duplicates(load_vocabulary(), 200, 0) == skewed
    known = load_vocabulary().tokens
    for step, original in zip(skewed.tokens, known, strict=True):
        kept = [token for token in step if token in original]
        made = [token for token in step if token not in original]
        assert len(kept) == 40 and len(made) == 160
        sources = {max((token for token in kept if token in text), key=len, default="") for text in made}
        assert len(sources) == 4 and "" not in sources


def items(name: str, folder, seed: int) -> World:
    return load_items(BenchSettings(), REGIMES[name], folder, "", seed)


def test_items_and_taste_of_a_seed_do_not_depend_on_the_number_of_options(tmp_path):
    four, two = (items(name, tmp_path, 7) for name in ITEMS)
    other = items(ITEMS[0], tmp_path, 8)
    np.testing.assert_array_equal(four.tokens, two.tokens)
    np.testing.assert_array_equal(four.tastes["drawn"], two.tastes["drawn"])
    assert (four.tokens != other.tokens).any() and four.held_out.shape == (600, 4, 10)
    assert two.held_out.shape == (600, 2, 10) and four.tokens.shape == (100, 10)
    np.testing.assert_allclose(np.linalg.norm(four.tokens, axis=1), 1.0, atol=1e-6)
    assert len({tuple(pair) for pair in four.pairs.tolist()}) == 5000 and (four.pairs[:, 0] < four.pairs[:, 1]).all()


def test_items_in_clusters_are_near_their_centres(tmp_path):
    pools = (items("items-clusters-K4", tmp_path, 0).tokens, items("items-d32-K4", tmp_path, 0).tokens)
    nearest = [np.sort(rows @ rows.T - 2 * np.eye(len(rows)), axis=1)[:, -10:].mean() for rows in pools]
    # centre + half a unit vector: the cosine of two of a cluster is 1 / 1.25 on average
    assert nearest[0] > 0.8 and nearest[1] < 0.6


def test_regret_of_items_by_hand(tmp_path):
    world = items(ITEMS[0], tmp_path, 7)
    taste = world.tastes["drawn"]
    scorer = Scorer(world, taste)
    values = world.tokens @ taste
    assert scorer.regret(taste, None) == 0.0 and scorer.regret(np.zeros(10), None) == 1.0
    worst = scorer.regret(-taste, None)
    assert worst == pytest.approx((values.max() - values.min()) / (values.max() - values.mean()), rel=1e-5)
    assert scorer.item_regret(int(values.argmin())) == worst


def test_large_batches_are_embedded_once_for_all_units_of_a_process(tmp_path):
    world = items(ITEMS[0], tmp_path, 7)
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
    known = SharedEncoder(world, ["elsewhere"], np.full((1, 10), 2.0, dtype=np.float32))
    np.testing.assert_array_equal(known.encode([names[0], "elsewhere"])[1], np.full(10, 2.0))


# -- users and answers -----------------------------------------------------------------------------------------------


def test_users_answer_the_same_whatever_the_arm():
    taste = np.eye(8)[0]
    one, other = (make_user(get_regime("scale-20"), taste, "sunny", 3) for _ in range(2))
    assert one.describe() == other.describe() and one.scale == 20.0
    assert make_user(get_regime("scale-20"), taste, "sunny", 4).seed != one.seed
    assert make_user(get_regime("scale-20"), taste, "noir", 3).seed != one.seed
    assert make_user(get_regime("mistakes"), taste, "noir", 3).mistake_rate == 0.1
    assert make_user(ARGMAX, taste, "noir", 3, "best-worst").response == "best_worst"


def tiny_world(feedback: str) -> World:
    vocabulary = Vocabulary(("a", "b"), (("red", "green", "blue"), ("cat", "dog", "owl")))
    rng = np.random.default_rng(0)
    texts = [*vocabulary.all_tokens, *(f"{a}, {b}" for a in vocabulary.tokens[0] for b in vocabulary.tokens[1])]
    encoder = PrecomputedEncoder.from_arrays(texts, rng.normal(size=(len(texts), 5)))
    rows = rng.normal(size=(6, 5)).astype(np.float32)
    world = World(
        "tiny", vocabulary, encoder.encode(vocabulary.all_tokens), rows, np.array([[0, 1], [2, 3]]),
        rows[:4][None], {}, "", "", feedback,
    )  # fmt: skip
    object.__setattr__(world, "encoder", lambda: encoder)
    return world


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("regime", ["scale-20", "mistakes", "skips", "myopic"])
def test_questions_asked_one_by_one_are_answered_as_all_at_once(feedback, regime):
    world, taste = tiny_world(feedback), np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    tokens = np.random.default_rng(1).integers(3, size=(5, 4, 2))
    rows = [world.options(tokens[episode], step, world.encoder()) for episode in range(5) for step in range(2)]
    at_once = Queries(np.stack(rows), np.repeat(np.arange(5), 2), np.tile([0, 1], 5))
    responses = make_user(get_regime(regime), taste, "sunny", 7).answer(at_once).responses
    user, encoder = make_user(get_regime(regime), taste, "sunny", 7), TimedEncoder(world.encoder())
    asked = list(ask_questions(ReplayPlanner(tokens), world, user, encoder, num_options=4, checkpoints=(1, 3, 5)))
    assert [one.episodes for one in asked] == [1, 3, 5] and [len(one.seconds) for one in asked] == [2, 6, 10]
    for one in asked:
        count = 2 * one.episodes
        assert one.responses == list(responses[:count])
        np.testing.assert_array_equal(one.queries.features, at_once.features[:count])
        np.testing.assert_array_equal(one.queries.episode, at_once.episode[:count])


def test_the_estimators_of_an_arm_are_rows():
    world, taste = tiny_world("truncated"), np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    planner = ReplayPlanner(np.random.default_rng(1).integers(3, size=(5, 4, 2)))
    user, encoder = make_user(get_regime("scale-20"), taste, "sunny", 7), TimedEncoder(world.encoder())
    (asked,) = ask_questions(planner, world, user, encoder, num_options=4, checkpoints=(5,))
    rows = score_estimators(get_arm("random"), planner, asked, Scorer(world, taste), None)
    assert {row["estimator"] for row in rows} == set(ESTIMATORS) - {"planner", *KERNELS}
    terms = BestOf().terms(asked.queries.features.astype(float), asked.responses)
    for row in rows:
        assert row["theta_norm"] == pytest.approx(float(np.linalg.norm(fit(row["estimator"], terms, world).theta)))
        assert np.isnan(row["regret"])  # no prompt was searched for
    errors = {row["estimator"]: row["cosine_error"] for row in rows}
    assert len(set(errors.values())) == len(errors)
    with pytest.raises(ValueError, match="Expected prior as one of .vocabulary."):
        fit("mine", terms, world)
