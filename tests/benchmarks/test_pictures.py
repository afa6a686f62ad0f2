"""Real people's ratings replayed: data, answers, measures, contenders, and a small run."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from scipy.special import softmax

from benchmarks.kit.command import parse
from benchmarks.pictures.__main__ import Options, start
from benchmarks.pictures.data import Source, find_sets, load_ratings
from benchmarks.pictures.estimators import ESTIMATORS, Simplex, choices_of
from benchmarks.pictures.planners import PLANNERS
from benchmarks.pictures.replay import FORMS, Asked, Belief, answer, judge, replay
from benchmarks.pictures.run import PicturesSettings, plan_units
from edpbrl_gym.estimation import estimate
from edpbrl_gym.experiments.runs import read_results

PEOPLE, ITEMS = 40, 36


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sets of 40 people and 36 items with effects: "made" with pictures, "said" with texts alone."""
    place, rng = tmp_path_factory.mktemp("ratings"), np.random.default_rng(0)
    features, effects = rng.standard_normal((ITEMS, 5)), rng.standard_normal(ITEMS)
    rows = []
    for person in range(PEOPLE):
        liking = features @ rng.standard_normal(5) + 2.0 * effects
        for block in range(2):
            noisy = 4.0 + liking + 0.5 * rng.standard_normal(ITEMS)
            levels = np.clip(np.round(noisy), 1, 7).astype(int)
            rows += [(f"p{person:02}", 10 + item, level, 1.5 + block) for item, level in enumerate(levels)]
    table = pandas.DataFrame(rows, columns=["person", "item", "rating", "seconds"])
    table.to_parquet(place / "made-ratings.parquet")
    (names := pandas.DataFrame({"item": np.arange(10, 10 + ITEMS)})).to_parquet(place / "made-items.parquet")
    order = rng.permutation(ITEMS)  # the files may differ in it
    np.savez(place / "made-efficientnet.npz", item=10 + order, features=features[order].astype("f2"))
    table.assign(rating=table["rating"] * 2.5 - 10.0).drop(columns="seconds").to_parquet(place / "said-ratings.parquet")
    names.assign(text=[f"joke {number}" for number in range(ITEMS)]).to_parquet(place / "said-items.parquet")
    return place


@pytest.fixture(scope="module")
def ratings(folder):
    return load_ratings(Source("made", folder), components=5)


@pytest.fixture(scope="module")
def fold(ratings):
    return ratings.fold(0, folds=4, group="all", most=3)


def test_ratings_are_read(folder, ratings):
    table = pandas.read_parquet(folder / "made-ratings.parquet")
    own = table[table["person"] == "p03"].groupby("item")["rating"].mean()
    rater = ratings.raters[3]
    np.testing.assert_allclose(rater.ratings, own)
    assert rater.seconds == 2.0 and rater.levels.tolist() == [int(value - 1 + 0.5) for value in own]
    assert len(rater.held_out) == 11 and sorted([*rater.held_out, *rater.askable]) == list(range(ITEMS))
    assert (np.diff(rater.ratings[np.array(rater.pairs)], axis=0) < 0).all() and {*rater.pairs[0]} < {*rater.held_out}
    with np.load(folder / "made-efficientnet.npz") as stored:
        rows = stored["features"][np.argsort(stored["item"])].astype(float)
    rows -= rows.mean(axis=0)  # all components: the same distances, scaled together
    expected = rows @ rows.T / np.square(rows).sum(axis=1).mean()
    np.testing.assert_allclose(ratings.features @ ratings.features.T, expected, atol=1e-9)
    scaled = load_ratings(Source("said", folder), "text", components=5)
    assert scaled.features.shape == (ITEMS, 5) and np.isnan(scaled.raters[0].seconds)
    assert (scaled.raters[0].levels.min(), scaled.raters[0].levels.max()) == (0, 6)


def test_people_are_divided(ratings):
    groups = {which: ratings.group(which) for which in ("development", "reported", "all")}
    assert len(groups["development"]) == 16 and groups["development"].isdisjoint(groups["reported"])
    assert groups["development"] | groups["reported"] == groups["all"] == set(range(PEOPLE))
    folds = [ratings.fold(number, folds=4, group="reported", most=99) for number in range(4)]
    assert sorted(one.place for new, _ in folds for one in new) == sorted(groups["reported"])
    for new, known in folds:
        assert {one.place for one in new}.isdisjoint(one.place for one in known) and len(known) == 30


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda place: find_sets([]), "got none"),
        (lambda place: find_sets([place / "nowhere"]), "found none"),
        (lambda place: find_sets([place, place]), "different names"),
        (lambda place: load_ratings(Source("said", place), "picture"), "text.*'picture'"),
        (lambda place: plan_units(PicturesSettings((str(place),), features=("both",))), "features of (made|said)"),
        (lambda place: PicturesSettings(contender=("random/best",)), "ridge1.*'best'"),
        (lambda place: PicturesSettings(form=("best3",)), "best4.*'best3'"),
    ],
)
def test_what_is_refused(folder, call, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        call(folder)


def test_answers_are_those_of_the_ratings(ratings):
    rater, rng = ratings.raters[5], np.random.default_rng(1)
    for name, form in FORMS.items():
        for _ in range(20):
            question = rng.choice(rater.askable, form.options, replace=False)
            given, values = answer(rater, form, question, rng), rater.ratings[question]
            if name == "rate":
                assert given.levels == tuple(rater.levels[question])
            elif name == "like":
                assert given.levels == (int(values[0] > np.median(rater.ratings)),)
            elif name == "rank4":
                assert (np.diff(values[list(given.order)]) <= 0).all()
            else:
                assert values[given.order[0]] == values.max()
                assert name != "best-worst4" or values[given.order[1]] == values.min()
    equal = np.flatnonzero(rater.ratings == rater.ratings[rater.askable[0]])[:2]
    assert len({answer(rater, FORMS["best2"], equal, rng).order for _ in range(50)}) == len(equal)  # ties at random


def test_measures_are_those_of_plain_loops(ratings):
    rater, rng = ratings.raters[7], np.random.default_rng(2)
    scores, root = rng.standard_normal(ITEMS), rng.standard_normal((ITEMS, ITEMS))
    found = judge(Belief(scores, root @ root.T), rater)
    right, answered, predicted, logs, leads = [], [], [], [], []
    noise, held = rng.standard_normal((200_000, 1)), rater.held_out
    for place, one in enumerate(held):
        for other in held[place + 1 :]:
            lead, truth = scores[one] - scores[other], rater.ratings[one] - rater.ratings[other]
            chance = (1.0 / (1.0 + np.exp(-(lead + np.linalg.norm(root[one] - root[other]) * noise)))).mean()
            predicted.append(max(chance, 1.0 - chance))
            if truth == 0.0:
                answered.append(0.5)
                logs.append(0.5 * np.log(chance) + 0.5 * np.log(1.0 - chance))
            else:
                right.append((lead > 0) == (truth > 0))
                answered.append(right[-1])
                logs.append(np.log(chance if truth > 0 else 1.0 - chance))
            leads.append((one, other, truth / rater.ratings[held].std()))
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["answered"] == pytest.approx(np.mean(answered))
    assert found["predicted"] == pytest.approx(np.mean(predicted), abs=0.01)  # MacKay's approximation
    assert found["log_probability"] == pytest.approx(np.mean(logs), abs=0.03)
    draws = scores + rng.standard_normal((4000, ITEMS)) @ root.T
    draws /= draws[:, held].std(axis=1, keepdims=True)
    inside = [
        np.quantile(draws[:, one] - draws[:, other], 0.05) <= lead <= np.quantile(draws[:, one] - draws[:, other], 0.95)
        for one, other, lead in leads
    ]
    assert found["covered"] == pytest.approx(np.mean(inside), abs=0.03)
    chosen = rater.held_out[np.argsort(-scores[rater.held_out])[:10]]
    lost = np.sort(rater.ratings[rater.held_out])[-10:].mean() - rater.ratings[chosen].mean()
    assert found["regret"] == pytest.approx(lost / rater.ratings.std())
    assert (perfect := judge(Belief(rater.ratings), rater))["accuracy"] == 1.0 and perfect["regret"] == 0.0
    assert judge(Belief(np.zeros(ITEMS)), rater)["accuracy"] == 0.5


def test_a_replay_estimates_from_its_own_questions(ratings, fold):
    seen, inner = [], ESTIMATORS["ridge1"](ratings, [])
    spy = SimpleNamespace(fit=lambda asked: seen.append((asked, [*asked.questions])) or inner.fit(asked))
    rows = replay(ratings, fold[0][:1], PLANNERS["random"], spy, FORMS["best4"], answers=(0, 5), repeats=2)
    assert [(row["repeat"], row["answers"]) for row in rows] == [(0, 0), (0, 5), (1, 0), (1, 5)]
    asked, shown = seen[1][0], np.array(seen[1][1])
    assert set(shown.ravel()) <= set(asked.rater.askable) and len({*shown[0]}) == 4
    assert (rows[1]["pictures"], rows[1]["different"]) == (20, len(np.unique(shown))) and rows[1]["seconds"] == 40.0
    options = ratings.features[asked.rater.items][shown]
    found = estimate((options, [one.order[0] for one in asked.responses]), regularization=1.0)
    belief, every = inner.fit(asked), ratings.features[asked.rater.items]
    np.testing.assert_allclose(belief.scores, every @ found.theta, atol=1e-6)
    np.testing.assert_allclose(belief.covariance, every @ found.covariance() @ every.T, atol=1e-6)
    assert [*seen[1][1][0]] != [*seen[3][1][0]]  # another repeat, other questions


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_asked_adaptively(ratings, fold, form):
    rows = replay(
        ratings, fold[0][:1], PLANNERS["adaptive"], ESTIMATORS["ridge1"](ratings, []), FORMS[form], answers=(4,)
    )
    assert 0.0 <= rows[0]["accuracy"] <= 1.0 and rows[0]["predicted"] >= 0.5


@pytest.mark.parametrize("name", ESTIMATORS)
def test_others_help_where_items_have_effects(ratings, fold, name):
    new, known = ratings.fold(0, folds=4, group="all", most=6)
    rows = replay(ratings, new, PLANNERS["random"], ESTIMATORS[name](ratings, known), FORMS["best4"], answers=(0, 12))
    found = pandas.DataFrame(rows).groupby("answers")["accuracy"].mean()
    assert found[12] > 0.55 and (found[0] == 0.5) == (name in ("ridge1", "ridge-fit", "words", "items", "gp"))
    assert name not in ("item-means", "item-choices", "factorisation") or found[0] > 0.65
    shown, values = choices_of(known), pandas.Series(known[3].ratings, known[3].items)
    assert shown.shape == (30, 25, 4) and all(values[row[0]] == values[row].max() for row in shown[3])


def test_weights_on_a_simplex_have_the_largest_penalised_likelihood(ratings, fold):
    rater, rng = fold[0][0], np.random.default_rng(3)
    asked = Asked(rater, ratings.features[rater.items], FORMS["best4"])
    for _ in range(30):
        asked.questions.append(rng.choice(rater.askable, 4, replace=False))
        asked.responses.append(answer(rater, asked.form, asked.questions[-1], rng))
    features = 3.0 * ratings.features[:, :2]
    rows, grid = features[rater.items], np.linspace(-3.0, 3.0, 2001)  # of half the difference of two logits
    values = [asked.terms(rows).log_likelihood(softmax([x, -x])) - 3.0 * x * x for x in grid]
    best = grid[int(np.argmax(values))]
    np.testing.assert_allclose(Simplex(features).fit(asked).scores, rows @ softmax([best, -best]), atol=0.02)


def test_a_small_run(folder, tmp_path, capsys):
    made = str(folder / "made-ratings.parquet")
    command = [made, "--people-per-fold=2", "--folds=2", "--jobs=1", "--answers", "0", "2", f"--out={tmp_path}"]
    assert parse(Options, start, "benchmark", [*command, "--contender", "random/ridge1"]) == 0
    more = ["--contender", "random/ridge1", "adaptive/ridge1", "bald/ridge1", "--form", "best4", "best2"]
    assert parse(Options, start, "benchmark", [*command, *more]) == 0  # contenders and forms may be added
    assert len(read_results(tmp_path).table) == 3 * 2 * 4 * 2  # contenders, forms, people, numbers of answers
    assert "after so many pictures" in (tmp_path / "REPORT.md").read_text()
    assert "less random questions" in capsys.readouterr().out
    assert parse(Options, start, "benchmark", [*command, "--components=3"]) != 0  # other settings, the same folder
