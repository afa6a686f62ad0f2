"""The adaptive planner: what it promises to sessions, what restricts it, and that nothing traps it."""

import functools
import itertools

import numpy as np
import pytest

from edpbrl_gym.design.questions.restrictions import Restrictions
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import BestWorst, Ranking, Response, WithTies
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, TokenFeatures
from edpbrl_gym.planners.option_features import option_features
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
from tests.helpers.clustered_words import ToyEncoder, clustered_rows, cosine_error, make_words
from tests.helpers.communities import known_population

SIZES, D, K = (70, 70, 60), 16, 4
WORDS = make_words(SIZES)
ROWS = clustered_rows(1, tokens=sum(SIZES), d=D, clusters=20)
ENCODER = ToyEncoder(WORDS, ROWS)
COMPOSED = ComposedFeatures(WORDS, ROWS, ENCODER)
PRIOR = VocabularyPrior(ROWS)
TASTE = 10.0 * ROWS[3]


def make(**options):
    return AdaptivePlanner(WORDS, **{"options": COMPOSED, "prior": PRIOR, "num_options": K, "seed": 5, **options})


def texts(lanes, words=WORDS):
    return [SEPARATOR.join(own[token] for own, token in zip(words.tokens, lane, strict=False)) for lane in lanes]


def shown(lanes):
    return ENCODER.encode(texts(lanes)).astype(np.float64)


def best_of(options):
    return int((options @ TASTE).argmax())


def play(planner, episodes, *, answer=best_of, features=shown, between=None):
    """Ask and tell for some episodes; all lanes (episodes, K, H)."""
    found = []
    for _ in range(episodes):
        lanes = np.empty((planner.num_options, 0), dtype=np.int64)
        for _ in planner.sizes:
            lanes = np.concatenate([lanes, planner.ask(lanes)[:, None]], axis=1)
            options = features(lanes)
            if between is not None:
                between(planner)
            planner.tell(options[None], [answer(options)])
        found.append(lanes)
    return np.array(found)


def test_planners_of_one_prior_share_what_it_says_at_first_whatever_its_class_compares():
    class Compared(VocabularyPrior):
        def __eq__(self, other):  # so that it can't be hashed
            raise AssertionError("priors hold arrays")

        __hash__ = None

    prior = Compared(ROWS)
    first, other = make(prior=prior), make(prior=prior)
    assert first._taste.start is other._taste.start
    assert play(first, 2).tolist() == play(make(), 2).tolist()


def test_composed_features_are_exact_where_embeddings_are_linear():
    assert COMPOSED.sizes == SIZES
    lanes = np.array([[3, 60, 7], [0, 0, 59], [69, 5, 5], [8, 9, 10]])
    for step in range(3):
        rows = COMPOSED.tokens(step)[lanes[:, step]] + COMPOSED.offsets(lanes[:, :step])
        np.testing.assert_allclose(rows, shown(lanes[:, : step + 1]), atol=2e-6)


@pytest.mark.parametrize("mode", ["learn", "best"])
def test_the_same_calls_give_the_same_questions(mode):
    first, second = play(make(mode=mode), 4), play(make(mode=mode), 4)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, play(make(mode=mode, seed=6), 4))


@pytest.mark.parametrize("prior", [PRIOR, GaussianPrior.isotropic(D, 0.2)])
def test_looking_and_thinking_change_nothing(prior):
    plain = make(prior=prior)
    expected = play(plain, 4)
    for look in (lambda p: p.estimate.theta, lambda p: p.posterior.mean, lambda p: p.think()):
        watched = make(prior=prior)
        np.testing.assert_array_equal(play(watched, 4, between=look), expected)
        np.testing.assert_array_equal(watched.estimate.theta, plain.estimate.theta)


@pytest.mark.parametrize(
    ("kind", "prior", "episodes", "steps"),
    [
        ("truncated", PRIOR, 1, 0),
        ("truncated", PRIOR, 4, 2),
        ("truncated", GaussianPrior.isotropic(D, 0.2), 15, 2),
        ("state", PRIOR, 15, 0),
        ("state", GaussianPrior.isotropic(D, 0.2), 4, 2),
        ("prompt", PRIOR, 4, 0),
        ("prompt", GaussianPrior.isotropic(D, 0.2), 15, 0),
    ],
)
def test_after_a_record_it_goes_on_as_if_it_had_asked(monkeypatch, kind, prior, episodes, steps):
    """And costs one fit, however long the record is; the last episode may have begun."""
    options = option_features(kind, WORDS, ROWS, ENCODER)
    asked, followed = (make(options=options, prior=prior) for _ in range(2))
    complete = kind == "prompt"
    begun = 0 if complete else steps
    fits = []
    fit = VocabularyPrior.fit_planned
    for episode in range(episodes + 1):
        lanes = np.empty((K, 0), dtype=np.int64)
        for step in range(len(SIZES) if episode < episodes else begun):
            tokens = asked.ask(lanes)
            followed.follow(lanes, tokens)
            lanes = np.concatenate([lanes, tokens[:, None]], axis=1)
            if not complete or step + 1 == len(SIZES):
                rows = shown(lanes)
                for planner in (asked, followed):
                    planner.tell(rows[None], [best_of(rows)])
    monkeypatch.setattr(VocabularyPrior, "fit_planned", lambda *given: fits.append(0) or fit(*given))
    np.testing.assert_array_equal(followed.ask(lanes), asked.ask(lanes))
    assert len(fits) <= 2 and followed.asked == asked.asked  # one for each planner at most
    np.testing.assert_array_equal(followed.posterior.mean, asked.posterior.mean)


def test_a_shared_base_is_taken_over_from_a_record():
    restrictions = Restrictions.of_texts(WORDS, shared_base="all")
    asked, followed = make(restrictions=restrictions), make(restrictions=restrictions, seed=6)
    lanes = np.empty((K, 0), dtype=np.int64)
    base = asked.ask(lanes)
    followed.follow(lanes, base)
    for _ in range(2):
        np.testing.assert_array_equal(followed.ask(lanes), base)


@pytest.mark.parametrize("restrictions", [None, Restrictions(shared_base="all")])
def test_reset_forgets_everything(restrictions):
    planner = make(restrictions=restrictions)
    first = play(planner, 3)
    planner.reset()
    np.testing.assert_array_equal(planner.estimate.theta, np.zeros(D))
    np.testing.assert_array_equal(play(planner, 3), first)


@pytest.mark.parametrize("prior", [PRIOR, known_population(4.0 * np.eye(D)[0])])
def test_restore_goes_back_and_later_calls_leave_a_state_alone(prior):
    planner = make(prior=prior)
    play(planner, 5)
    state = planner.state()
    first = play(planner, 3)
    again = make(prior=prior)  # what it was told itself goes
    play(again, 4, answer=lambda options: int((options @ TASTE).argmin()))
    for other in (planner, again):
        other.restore(state)
        np.testing.assert_array_equal(play(other, 3), first)


def test_all_answers_count_however_they_come_and_a_memory_keeps_the_latest():
    options = shown(np.random.default_rng(0).integers(60, size=(4 * 20, 2))).reshape(20, K, D)
    choices = (options @ TASTE).argmax(axis=1).tolist()
    at_once, one_by_one, latest = make(), make(), make(memory=8)
    for planner in (at_once, latest):
        planner.tell(options, choices)
    for question, choice in zip(options, choices, strict=True):
        one_by_one.tell(question[None], [Response.best(choice)])
    np.testing.assert_array_equal(at_once.estimate.theta, one_by_one.estimate.theta)
    np.testing.assert_allclose(at_once.estimate.theta, PRIOR.fit((options, choices)).theta)
    np.testing.assert_allclose(at_once.posterior.precision, PRIOR.fit((options, choices)).posterior.precision)
    np.testing.assert_allclose(latest.estimate.theta, PRIOR.fit((options[-8:], choices[-8:])).theta)


def test_the_callers_arrays_may_be_used_again():
    planner, other = make(), make()
    buffer = np.empty((1, K, D))
    for seed in range(6):
        buffer[:] = np.random.default_rng(seed).normal(size=(K, D))
        planner.tell(buffer, [0])
        other.tell(buffer.copy(), [0])
    np.testing.assert_array_equal(planner.estimate.theta, other.estimate.theta)


def test_a_refused_answer_does_not_stay():
    planner = make()
    options = shown(np.zeros((K, 1), int))[None]
    for wrong, given in ((options, [4]), (options[..., :3], [0]), (options[:, :2], [0]), (options, [0, 1])):
        with pytest.raises(ValueError, match="Expected"):
            planner.tell(wrong, given)
    with pytest.raises(ValueError, match="takes only 'best' or 'skip', got 'tie'"):
        planner.tell(options, [Response.tie()])
    np.testing.assert_array_equal(planner.estimate.theta, np.zeros(D))
    play(planner, 1)


MODELS = {
    "best_worst": (BestWorst(), lambda u: Response.best_worst(int(u.argmax()), int(u.argmin()))),
    "ranking": (Ranking(), lambda u: Response.ranking(np.argsort(-u).tolist())),
    "ties": (WithTies(1.0), lambda u: Response.tie() if np.ptp(u) < 3.0 else Response.best(int(u.argmax()))),
    "skips": (None, lambda u: Response.skip() if np.ptp(u) < 3.0 else Response.best(int(u.argmax()))),
}


@pytest.mark.parametrize("name", MODELS)
def test_other_answers(name):
    model, respond = MODELS[name]
    planner = make(model=model)
    play(planner, 12, answer=lambda options: respond(options @ TASTE))
    assert cosine_error(planner.estimate.theta, TASTE) < 0.15


@pytest.mark.parametrize(
    "options",
    [
        {"score": "trace"},
        {"score": "variance"},
        {"score": "variance", "draws": 0},
        {"score": "mutual"},
        {"draws": 0},
        {"draws": 1},
        {"mode": "best"},
    ],
)
def test_every_way_of_asking_learns(options):
    planner = make(**options)
    play(planner, 12)
    assert cosine_error(planner.estimate.theta, TASTE) < 0.25


@pytest.mark.parametrize("score", ["trace", "variance"])
def test_the_variance_scores_ask_what_lowers_their_variance_most(score):
    planner = make(score=score, options=TokenFeatures(WORDS, ROWS), draws=0, num_options=2)
    steps = np.split(ROWS, np.cumsum(SIZES)[:-1])
    pairs = np.concatenate([(table[:, None] - table[None]).reshape(-1, D) for table in steps])
    counts = np.repeat(1.0 / np.square(SIZES), np.square(SIZES)) / len(SIZES)
    weights = np.eye(D) if score == "trace" else (pairs * counts[:, None]).T @ pairs
    precision = planner.posterior.precision
    covariance = np.linalg.inv(precision)

    def taken_off(pair):
        data = 0.25 * np.outer(pair, pair)  # at theta = 0
        return np.trace(weights @ (covariance - np.linalg.inv(precision + data)))

    best = max(taken_off(one - other) for one in steps[0] for other in steps[0])
    first, second = planner.ask(np.empty((2, 0), dtype=int))
    # the search starts from one pair and changes one option at a time
    assert taken_off(steps[0][first] - steps[0][second]) > 0.95 * best


POOL = make_words((60,))


def pool_planner(**options):
    given = {"options": TokenFeatures(POOL, ROWS[:60]), "prior": GaussianPrior.isotropic(D, 1.0), "num_options": 2}
    return AdaptivePlanner(POOL, **{**given, "seed": 5, **options})


def test_pools_and_prompts_have_defaults_of_their_own():
    pool, prompts = pool_planner(num_options=4), make()
    assert (pool.score, pool.draws, pool.starts) == ("trace", 64, 8)
    assert (prompts.score, prompts.draws, prompts.starts) == ("information", 16, 1)
    seeking = pool_planner(mode="best")
    assert (seeking.draws, seeking.starts) == (16, 1)
    chosen = make(score="trace", draws=0, starts=3)
    assert (chosen.score, chosen.draws, chosen.starts) == ("trace", 0, 3)
    wide = make_words((6000,))
    rows = np.random.default_rng(0).normal(size=(6000, 3))
    large = AdaptivePlanner(
        wide, options=TokenFeatures(wide, rows), prior=GaussianPrior.isotropic(3, 1.0), num_options=2
    )
    assert large.starts == 3  # not 16: a question must not take long


@pytest.mark.parametrize("score", ["trace", "information", "variance", "mutual"])
def test_other_items_are_asked_about_under_the_same_posterior(score):
    """As if the planner had been made with the new items and told the same answers."""
    answered = ROWS[np.array([[3, 9], [20, 41], [7, 58]])]
    others = ROWS[60:120]
    moved, made = pool_planner(score=score), pool_planner(score=score, options=TokenFeatures(POOL, others))
    for planner in (moved, made):
        planner.tell(answered, [0, 1, 1])
    start = np.empty((2, 0), dtype=int)
    unmoved = pool_planner(score=score)
    unmoved.tell(answered, [0, 1, 1])
    moved.replace_items(others)
    question = moved.ask(start)
    np.testing.assert_array_equal(question, made.ask(start))
    assert not np.array_equal(question, unmoved.ask(start))
    np.testing.assert_array_equal(moved.posterior.mean, unmoved.posterior.mean)


def test_mode_best_shows_better_prompts():
    finds = {
        mode: np.array([shown(play(make(mode=mode, seed=seed), 12)[-3:].reshape(-1, 3)) @ TASTE for seed in range(3)])
        for mode in ("learn", "best")
    }
    assert finds["best"].mean() > finds["learn"].mean() + 1.0
    rng = np.random.default_rng(0)
    at_random = shown(np.stack([rng.integers(size, size=2000) for size in SIZES], axis=1)) @ TASTE
    assert finds["best"].max(axis=1).mean() > np.quantile(at_random, 0.99)


@pytest.mark.parametrize(
    "restrictions",
    [
        None,
        Restrictions(no_overlap=True),
        Restrictions(forbidden=tuple((row, 70 + other) for row in range(70) for other in range(70) if other != row)),
        Restrictions(shared_base="episode"),
        Restrictions(shared_base="all", base=12),
        Restrictions(shared_base="all"),
    ],
)
def test_restrictions_are_honoured(restrictions):
    planner = make(restrictions=restrictions)
    lanes = play(planner, 4)
    assert planner._initial_rules.violations(lanes) == []
    if restrictions is not None and restrictions.base is not None:
        assert (lanes[:, :, 0] == restrictions.base).all()
    if restrictions is not None and restrictions.shared_base == "episode":
        assert len(np.unique(lanes[:, 0, 0])) > 1


def test_options_are_distinct_where_tokens_repeat_in_two_steps():
    words = Vocabulary(("a", "b"), (("red", "blue", "green", "grey"), ("blue", "Red", "gold", "pink", "teal")))
    rows = np.random.default_rng(0).normal(size=(9, 4))
    planner = AdaptivePlanner(
        words,
        options=TokenFeatures(words, rows),
        prior=GaussianPrior.isotropic(4, 1.0),
        num_options=2,
        restrictions=Restrictions.of_texts(words, no_overlap=True),
    )
    for seed in range(20):
        planner.seed = seed
        first = planner.ask(np.empty((2, 0), int))
        second = planner.ask(first[:, None])
        tokens = [words.tokens[0][token].lower() for token in first] + [words.tokens[1][t].lower() for t in second]
        other = [(one, two) for one, two in itertools.combinations(range(4), 2) if (two - one) != 2]
        assert all(tokens[one] != tokens[two] for one, two in other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(**{"num_options": 1}), r"num_options \(K\) >= 2, got 1"),
        (lambda: make(**{"seed": -1}), "seed >= 0"),
        (lambda: make(**{"mode": "win"}), "Expected mode as one of 'learn', 'best', got 'win'"),
        (lambda: make(**{"score": "A"}), "Expected score as one of"),
        (lambda: make(**{"draws": -1}), "draws >= 0"),
        (lambda: make(**{"starts": 0}), "starts >= 1"),
        (lambda: make(**{"draws": 1, "mode": "best"}), "Expected at least 2 draws for mode='best'"),
        (lambda: make(**{"draws": 0, "score": "mutual"}), "Expected at least 2 draws"),
        (lambda: make(**{"memory": 0}), "memory .*>= 1"),
        (lambda: make(**{"prior": GaussianPrior.isotropic(D, 0.0)}), "Expected a proper prior"),
        (
            lambda: make(**{"prior": GaussianPrior.isotropic(3, 1.0)}),
            r"Expected the options' features of shape \(n, 3\)",
        ),
        (lambda: make(**{"options": TokenFeatures(make_words((5, 5)), ROWS[:10])}), "Expected features of steps with"),
        (lambda: make(**{"restrictions": Restrictions(identity=(1, 2))}), "Expected an identity for each of the 200"),
        (lambda: TokenFeatures(WORDS, ROWS[:-1]), r"Expected token_features of shape \(200, d\).*one row for each"),
        (lambda: ComposedFeatures(WORDS, ROWS[:-1], ENCODER), r"token_features of shape \(200, d\).*one row for each"),
        (lambda: make().replace_items(ROWS[:70]), "a vocabulary of one step, got 3 steps"),
        (lambda: pool_planner().replace_items(ROWS[:59]), "one row for each item"),
        (lambda: make().ask(np.zeros((3, 1), int)), r"Expected prefixes of shape \(4, h\)"),
        (
            lambda: make().ask(np.zeros((4, 3), int)),
            "Expected prompts of fewer than 3 tokens, got 3; they are complete",
        ),
        (lambda: make().ask(np.full((4, 1), -1)), "Expected prefixes in 0..inf, got -1"),
        (lambda: make().ask(np.full((4, 2), 70)), r"Expected prefixes\[:, 0\] in -inf..69, got 70"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class RandomQuestions:
    """Uniform questions and the same estimator: the level to hold."""

    def __init__(self, seed, memory):
        self.rng, self.memory = np.random.default_rng(seed), memory
        self.num_options, self.sizes = K, SIZES
        self.options, self.choices = [], []

    def ask(self, lanes):
        return self.rng.integers(SIZES[lanes.shape[1]], size=K)

    def tell(self, options, choices):
        self.options += list(options)
        self.choices += choices

    @property
    def estimate(self):
        kept = len(self.options) if self.memory is None else self.memory
        return PRIOR.fit((np.array(self.options[-kept:]), np.array(self.choices[-kept:]))).estimate


EPISODES = 20
VALUES, VECTORS = np.linalg.eigh(ROWS.T @ ROWS)  # ascending


def mistaken(rng):
    """A taste as the prior expects it; the first four of the twenty episodes are answered with the worst option."""
    return np.tile(VECTORS @ (np.sqrt(VALUES) * rng.normal(size=D)), (3 * EPISODES, 1)), 4


def orthogonal(rng):
    """A taste in the five directions that the prior favours least."""
    return np.tile(VECTORS[:, :5] @ rng.normal(size=5), (3 * EPISODES, 1)), 0


def drifting(rng):
    """A taste that turns by 90 degrees while it is asked about."""
    first, last = np.linalg.qr(VECTORS @ (np.sqrt(VALUES)[:, None] * rng.normal(size=(D, 2))))[0].T
    angle = np.linspace(0.0, np.pi / 2, 3 * EPISODES)[:, None]
    return np.cos(angle) * first + np.sin(angle) * last, 0


def final_error(planner, thetas, wrong):
    told = itertools.count()

    def answer(options):
        number = next(told)
        utilities = options @ thetas[number]
        return int(utilities.argmin() if number < 3 * wrong else utilities.argmax())

    play(planner, EPISODES, answer=answer)
    return cosine_error(planner.estimate.theta, thetas[-1])


@functools.cache
def mean_errors(user, memory):
    """Of the planner and of random questions, over eight users."""
    errors = []
    for seed in range(8):
        thetas, wrong = user(np.random.default_rng(seed))
        planners = make(seed=seed, memory=memory), RandomQuestions(seed, memory)
        errors.append([final_error(planner, thetas, wrong) for planner in planners])
    return np.mean(errors, axis=0)


@pytest.mark.parametrize(("user", "memory"), [(mistaken, None), (orthogonal, None), (drifting, None), (drifting, 30)])
def test_nothing_traps_it(user, memory):
    adaptive, at_random = mean_errors(user, memory)
    assert adaptive < at_random + 0.02
    assert adaptive < 0.45


def test_a_short_memory_follows_a_drift():
    assert mean_errors(drifting, 30)[0] < 0.7 * mean_errors(drifting, None)[0]
