"""The benchmark of questions: the summary against numbers computed by hand, and the pieces of a run."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.kit.statistics import episodes_to_reach, interval
from edpbrl_gym.experiments.query_bench import unit
from edpbrl_gym.experiments.query_bench.arms import ABLATION_ARMS, HEADLINE_ARMS, SIDE_ARMS, get_arm
from edpbrl_gym.experiments.query_bench.asking import Questions, check_available, make_user
from edpbrl_gym.experiments.query_bench.estimators import our_prior
from edpbrl_gym.experiments.query_bench.run import plan_units
from edpbrl_gym.experiments.query_bench.settings import EPISODES, REGIMES, SENTENCES, BenchSettings, get_regime
from edpbrl_gym.experiments.query_bench.summary import RunIndex, compare, curves_of, needed, piece
from edpbrl_gym.experiments.query_bench.tables import TARGETS_A, headline_tables, summarise
from edpbrl_gym.experiments.query_bench.worlds import World, near_duplicates
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.settings import PAPER_USERS
from edpbrl_gym.features.precomputed import PrecomputedEncoder
from edpbrl_gym.likelihood import BestOf
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary


def table(**arms: list[list[float]]) -> pandas.DataFrame:
    """Results of the regime argmax: cosine errors of each run (rows) at T = 1, 2, 4, by arm ("_" for "+")."""
    rows = [
        {
            "regime": "argmax", "arm": arm.replace("__", "-").replace("_", "+"), "seed": run, "sentence": "sunny",
            "episodes": episodes, "cosine_error": value, "preference_error": value / 2, "choice_error": value / 2,
            "prompt_regret": np.nan if episodes == 1 else value / 10, "converged": True, "skipped": 0.0,
            "seconds_question": 0.01, "seconds_encoder": 0.02, "seconds_think": 0.03,
            "seconds_estimate": 0.1,
        }
        for arm, runs in arms.items()
        for run, values in enumerate(runs)
        for episodes, value in zip((1, 2, 4), values, strict=True)
    ]  # fmt: skip
    return pandas.DataFrame(rows)


def index(**arms: list[list[float]]) -> RunIndex:
    return RunIndex(table(**arms))


# -- how many episodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curve", "level", "start", "wanted"),
    [
        ([0.8, 0.5, 0.3], 0.4, 1.0, 3.0),  # half way between T = 2 and T = 4
        ([0.8, 0.5, 0.3], 0.3, 1.0, 4.0),  # exactly the last value
        ([0.8, 0.5, 0.3], 0.9, 1.0, 0.5),  # half way between T = 0 and T = 1
        ([0.8, 0.5, 0.3], 0.9, float("nan"), 1.0),  # what was before is unknown
        ([0.8, 0.5, 0.3], 0.2, 1.0, float("inf")),  # not reached
        ([0.3, 0.5, 0.3], 0.4, 1.0, 3.0),  # from which T on it stays there, not when it first was
        ([0.8, 0.3, 0.5], 0.4, 1.0, float("inf")),  # it was there, and left again
        ([0.8, 0.5, 0.3], 1.0, 1.0, 0.0),  # no question is needed
    ],
)
def test_episodes_to_reach_by_hand(curve, level, start, wanted):
    assert float(episodes_to_reach(curve, [1, 2, 4], level, start)) == pytest.approx(wanted)


@given(st.lists(st.floats(0.01, 0.2), min_size=3, max_size=8), st.floats(0.0, 1.0))
def test_on_falling_curves_it_is_the_inverse_of_the_interpolation(drops, share):
    values = 1.0 - np.cumsum(drops) / (sum(drops) + 0.1)
    places = np.cumsum(np.arange(1, len(values) + 1))
    level = values[-1] + share * (1.0 - values[-1])
    wanted = np.interp(-level, -np.concatenate([[1.0], values]), np.concatenate([[0], places]))
    assert float(episodes_to_reach(values, places, level, 1.0)) == pytest.approx(wanted, abs=1e-9)


def test_many_curves_at_once_equal_one_by_one():
    rng = np.random.default_rng(0)
    curves, levels = rng.random((20, 5)), rng.random(20)
    at_once = episodes_to_reach(curves, [1, 2, 3, 5, 8], levels, 1.0)
    single = [float(episodes_to_reach(c, [1, 2, 3, 5, 8], v, 1.0)) for c, v in zip(curves, levels, strict=True)]
    assert at_once.tolist() == single


# -- comparisons of arms ---------------------------------------------------------------------------------------------


def test_needed_by_hand_with_an_interval_over_runs():
    """Means 0.6, 0.4, 0.2 for the arm; the reference ends at a mean of 0.5: half way between T = 1 and T = 2."""
    given_ = index(random_ridge100=[[0.9, 0.7, 0.6], [0.9, 0.7, 0.4]], adaptive=[[0.7, 0.4, 0.2], [0.5, 0.4, 0.2]])
    found = needed(given_, "argmax", "adaptive", "random+ridge100", "cosine_error")
    assert found is not None and found.level == pytest.approx(0.5) and found.runs == 2
    assert found.episodes == pytest.approx(1.5) and found.share == pytest.approx(1.5 / 4)
    # resampled runs: only run 0 (0.6 from 0.7: T = 4/3), only run 1 (0.4: T = 2), or both (1.5)
    assert found.low == pytest.approx(4 / 3) and found.high == pytest.approx(2.0)
    back = needed(given_, "argmax", "random+ridge100", "adaptive", "cosine_error")
    assert back is not None and back.episodes == back.high == back.low == float("inf")
    assert needed(given_, "argmax", "adaptive", "random+ours", "cosine_error") is None
    regret = needed(given_, "argmax", "adaptive", "random+ridge100", "prompt_regret")
    assert regret is not None and regret.level == pytest.approx(0.05)  # measured at T = 2 and 4 only
    assert regret.episodes == 2.0


def test_arms_are_compared_on_the_runs_that_both_have():
    given_ = index(random_ours=[[0.9, 0.7, 0.5], [0.9, 0.7, 0.3]], adaptive=[[0.8, 0.6, 0.4]])
    found = curves_of(given_, "argmax", ("random+ours", "adaptive"), "cosine_error")
    assert found is not None and found.runs == [(0, "sunny")]
    assert found.values["random+ours"].tolist() == [[0.9, 0.7, 0.5]]
    compared = compare(given_, "argmax", "adaptive", "random+ours", "cosine_error", 2)
    assert compared is not None and compared.difference.mean == pytest.approx(-0.1) and compared.difference.runs == 1
    assert compared.outcome == "tie" and np.isnan(compared.difference.interval[0])  # one run proves nothing
    assert compare(given_, "argmax", "adaptive", "random+ours", "cosine_error", 3) is None


@pytest.mark.parametrize(("gap", "outcome"), [(-0.1, "win"), (0.1, "loss"), (0.0, "tie")])
def test_an_arm_wins_where_the_interval_excludes_zero(gap, outcome):
    noise = np.random.default_rng(1).normal(scale=0.02, size=(12, 3))
    noise -= noise.mean(axis=0)
    base = np.random.default_rng(2).random((12, 3))  # runs differ far more than arms: only pairing shows the gap
    given_ = index(random_ours=base.tolist(), adaptive=(base + gap + noise).tolist())
    compared = compare(given_, "argmax", "adaptive", "random+ours", "cosine_error", 4)
    assert compared is not None and compared.outcome == outcome
    assert compared.difference.mean == pytest.approx(gap)
    deviation = noise[:, 2].std() / np.sqrt(12)  # of the mean under the bootstrap
    low, high = compared.difference.interval
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.15)


def test_a_piece_is_the_ratio_of_questions_and_turns_around():
    """The better arm reaches 0.4 at T = 2, the other at T = 4."""
    given_ = index(random_ours=[[0.9, 0.6, 0.4]] * 3, adaptive=[[0.7, 0.4, 0.2]] * 3)
    bought = piece(given_, "argmax", "adaptive", "random+ours", "adaptive")
    cost = piece(given_, "argmax", "adaptive", "adaptive", "random+ours")
    assert bought is not None and cost is not None
    assert bought.factor == pytest.approx(2.0) and bought.low == bought.high == pytest.approx(2.0)
    assert cost.factor == pytest.approx(0.5)
    assert piece(given_, "argmax", "", "adaptive", "exact+ours") is None
    lost = index(random_ours=[[1.1, 1.2, 1.3]] * 3, adaptive=[[1.1, 1.2, 1.2]] * 3)  # nobody has learnt anything
    equal = piece(lost, "argmax", "", "random+ours", "adaptive")
    assert equal is not None and equal.factor == equal.low == equal.high == 1.0


def test_intervals_of_one_run_are_unknown_and_of_equal_runs_a_point():
    assert all(np.isnan(interval([0.3])))
    assert interval([3.0] * 5) == (3.0, 3.0)
    assert interval([[1.0, 2.0], [3.0, 0.0]], lambda means: means.sum(axis=-1)) == (3.0, 3.0)


def test_the_marks_are_judged_against_the_aims():
    falling = [[0.9, 0.7, 0.5], [0.9, 0.7, 0.5]]
    results = Results(
        table(random_ridge100=falling, random_ours=[[0.8, 0.5, 0.2]] * 2, adaptive=[[0.2, 0.1, 0.1]] * 2),
        kind="queries", config={}, provenance={"steps": ["a", "b", "c"]},
    )  # fmt: skip
    marks, asked = headline_tables(results)
    # (a) 0.5 is reached at T = 0.625 (from 1 at T = 0), a share of 0.156 > 1/8; (b) 0.2 at T = 1, a share of 0.25
    assert marks.rows[0][1].startswith("0.156") and marks.rows[0][2] == "0.125: missed"
    assert marks.rows[0][3].startswith("0.250") and marks.rows[0][4] == "0.6: reached" and marks.rows[0][5] == "no"
    row = next(row for row in asked.rows if row[1] == "adaptive")
    assert row[2] == "2" and row[4] == "3" and row[6] == "2"  # questions of 3 a episode, and two runs
    assert TARGETS_A == {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
    worse = table(random_ours=[[0.8, 0.5, 0.2]] * 3, adaptive=[[0.9, 0.6, 0.3]] * 3)
    assert {one.outcome for one in summarise(worse).comparisons} == {"loss"}


# -- what is run -----------------------------------------------------------------------------------------------------


def test_the_study_is_the_one_of_the_issue():
    assert EPISODES == (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 36, 45, 60)
    headline = [regime for regime in REGIMES.values() if regime.headline]
    assert [(r.mode, r.scale) for r in headline] == [
        ("argmax", 1.0), ("sampled", 50.0), ("sampled", 20.0), ("sampled", 5.0),
    ]  # fmt: skip
    assert all((r.vocabulary, r.feedback, r.num_options) == ("train", "truncated", 4) for r in headline)
    assert len(SENTENCES) == 10 and list(SENTENCES)[:3] == list(PAPER_USERS)
    assert len(set(SENTENCES.values())) == 10
    settings = BenchSettings()
    assert settings.sentences_of(3) == ("underwater", "minimal") and settings.sentences_of(13) == settings.sentences_of(
        3
    )
    twenty = [name for seed in range(20) for name in settings.sentences_of(seed)]
    assert {twenty.count(name) for name in SENTENCES} == {4}
    assert set(BenchSettings(sentences_per_seed=10).sentences_of(7)) == set(SENTENCES)


def test_units_headline_with_all_seeds_the_rest_with_fewer():
    arms = ("random+ours", "random+ridge1")
    units = plan_units(BenchSettings(), regimes=("argmax", "state-argmax"), arms=arms, seeds=20)
    counts = pandas.Series([(unit.regime, unit.arm) for unit in units]).value_counts()
    assert counts["argmax", "random+ours"] == 40 and counts["argmax", "random+ridge1"] == 10
    assert counts["state-argmax", "random+ours"] == counts["state-argmax", "random+ridge1"] == 10
    assert [unit.seed for unit in units] == sorted(unit.seed for unit in units)
    assert len({unit.part for unit in units}) == len(units)
    # five seeds see every sentence once
    assert {unit.user for unit in units if unit.regime == "state-argmax"} == set(SENTENCES)


def test_every_arm_of_the_study_has_a_name_that_reads_back():
    titles = [get_arm(name).title for name in (*HEADLINE_ARMS, *ABLATION_ARMS)]
    assert len(set(titles)) == len(titles) and set(SIDE_ARMS) <= {*HEADLINE_ARMS, *ABLATION_ARMS}
    arm = get_arm("tuples+ours+best-worst")
    assert (arm.rule, arm.estimator, arm.answers, arm.adaptive) == ("tuples", "ours", "best-worst", False)
    assert get_arm("adaptive+ranking").answers == "ranking" and get_arm("adaptive").estimator == "own"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("randon+ours", "begins with random, "),
        ("random", "'random+ours'"),
        ("random+mine", "ridge100"),
        ("random+ours+gold", "best-worst, ranking"),
        ("adaptive+ours", "estimate by themselves"),
    ],
)
def test_names_that_are_no_arm(name, said):
    with pytest.raises(ValueError, match="Expected") as error:
        get_arm(name)
    assert said in str(error.value) and name in str(error.value)


def test_an_arm_whose_agent_is_missing_says_so(monkeypatch):
    monkeypatch.delitem(check_available.__globals__["AGENTS"], "newton")
    with pytest.raises(ValueError, match="no agent 'newton' is registered"):
        check_available(get_arm("static-D+ours"))


@pytest.mark.parametrize(
    "changes",
    [{"episodes": ()}, {"episodes": (0,)}, {"sentences_per_seed": 11}, {"prompts": 1}, {"split_seed": -1}],
)
def test_settings_out_of_range(changes):
    with pytest.raises(ValueError, match="Expected"):
        BenchSettings(**changes)


def test_prompts_are_searched_at_episodes_that_are_measured():
    assert BenchSettings(episodes=(5, 1, 5)).episodes == (1, 5)
    assert BenchSettings(episodes=(5, 10)).prompt_episodes == (10,)
    assert BenchSettings(episodes=(5, 7)).prompt_episodes == (7,)


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


def test_users_answer_the_same_whatever_the_arm():
    taste = np.eye(8)[0]
    one, other = (make_user(get_regime("scale-20"), taste, "sunny", 3) for _ in range(2))
    assert one.describe() == other.describe() and one.scale == 20.0
    assert make_user(get_regime("scale-20"), taste, "sunny", 4).seed != one.seed
    assert make_user(get_regime("scale-20"), taste, "noir", 3).seed != one.seed
    assert make_user(get_regime("mistakes"), taste, "noir", 3).mistake_rate == 0.1
    assert make_user(get_regime("argmax"), taste, "noir", 3, "best-worst").response == "best_worst"


# -- adaptive arms ---------------------------------------------------------------------------------------------------


class Replay:
    """A planner that asks given questions and estimates as "ours" does, to be compared with the static arm."""

    def __init__(self, tokens, world) -> None:
        self.tokens, self.world, self.asked = tokens, world, 0
        self.features, self.responses = [], []

    def ask(self, prefixes):
        episode, step = divmod(self.asked, self.tokens.shape[2])
        assert prefixes.tolist() == self.tokens[episode, :, :step].tolist()
        self.asked += 1
        return self.tokens[episode, :, step]

    def tell(self, options, responses):
        assert options.shape[0] == len(responses) == 1
        self.features.append(options[0])
        self.responses += responses

    def think(self) -> None:
        assert len(self.responses) == self.asked - 1  # called between a question and its answer

    @property
    def estimate(self):
        terms = BestOf().terms(np.stack(self.features).astype(float), self.responses)
        return our_prior(self.world).fit(terms).estimate


def tiny_world(feedback: str) -> World:
    vocabulary = Vocabulary(("a", "b"), (("red", "green", "blue"), ("cat", "dog", "owl")))
    rng = np.random.default_rng(0)
    texts = [*vocabulary.all_tokens, *(f"{a}, {b}" for a in vocabulary.tokens[0] for b in vocabulary.tokens[1])]
    encoder = PrecomputedEncoder.from_arrays(texts, rng.normal(size=(len(texts), 5)))
    world = World(
        "tiny", vocabulary, encoder.encode(vocabulary.all_tokens), np.zeros((0, 5)), np.zeros((0, 2)),
        np.zeros((0, 4, 5)), {}, "", "", feedback,
    )  # fmt: skip
    object.__setattr__(world, "encoder", lambda: encoder)
    return world


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("regime", ["scale-20", "mistakes", "skips"])
def test_an_adaptive_arm_that_asks_what_a_static_one_asks_learns_the_same(feedback, regime, monkeypatch, tmp_path):
    world, settings = tiny_world(feedback), BenchSettings(episodes=(1, 3, 5))
    tokens = np.random.default_rng(1).integers(3, size=(5, 4, 2))
    taste = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    rows = [world.options(tokens[episode], step, world.encoder()) for episode in range(5) for step in range(2)]
    asked = Questions(Queries(np.stack(rows), np.repeat(np.arange(5), 2), np.tile([0, 1], 5)), tokens, 1.0, 2.0)
    monkeypatch.setattr(unit, "load_questions", lambda *place: asked)
    monkeypatch.setattr(unit, "make_planner", lambda world, arm, **options: Replay(tokens, world))
    given_regime = get_regime(regime)
    users = [make_user(given_regime, taste, "sunny", 7) for _ in range(2)]
    static = unit.static_snapshots(settings, given_regime, get_arm("random+ours"), 7, world, users[0], tmp_path)
    adaptive = unit.adaptive_snapshots(settings, given_regime, get_arm("adaptive"), 7, world, users[1])
    pairs = list(zip(static, adaptive, strict=True))
    assert [one.episodes for one, _ in pairs] == [1, 3, 5]
    for one, other in pairs:
        assert one.responses == other.responses and len(one.responses) == 2 * one.episodes
        assert np.array_equal(one.queries.features, other.queries.features)
        assert np.array_equal(one.queries.episode, other.queries.episode)
        assert one.theta == pytest.approx(other.theta, abs=1e-6)
