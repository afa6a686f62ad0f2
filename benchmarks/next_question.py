"""How long a person waits for the adaptive planner's next question, without the encoder's time: docs/adaptive.md.

    OMP_NUM_THREADS=1 python -m benchmarks.next_question            # about a minute on a free core
    OMP_NUM_THREADS=2 python -m benchmarks.next_question

A measured question covers everything between an answer and the next options: ``tell``, the update of the estimate (only
before the first question of an episode) and ``ask``. ``think`` is called while the person looks at the options; its CPU
time is a column of its own. With ``--no-think`` the same work falls into the waiting time. K = 4 unless it is said,
d = 384, as with MiniLM. Six settings:

* "one step": 5,000 random tokens in one step, so that every question sees all of them and a new estimate;
* "built-in": the built-in vocabulary (six steps, MiniLM) and partial prompts;
* "prompts", "prompts K9": the same vocabulary and complete prompts, four or nine of them;
* "pool", "pool K9": 900 items with joined features (384 and 1,280), whose effects are known from 500 people, each of
  whom chose the best of four 25 times.

Timing starts after N = 0, 60, 180 or 360 answers to random questions, told without asking, and, if N > 0, one untimed
question: it searches the scales from the beginning, which happens once, when a session is resumed. For each N: median,
99th percentile and worst of the wall clock, and of the CPU time of all threads, which a busy machine changes less.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import clustered_items, make_parser
from edpbrl_gym._arrays import AnyFloats, Floats
from edpbrl_gym._validation import Feedback
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population.items import fit_crowd
from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.planners import AdaptivePlanner, PromptFeatures, TokenFeatures
from edpbrl_gym.planners.option_features import option_features
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

K, D, TOKENS = 4, 384, 5000
BLOCKS, ITEMS, PEOPLE, EACH = (384, 1280), 900, 500, 25
ANSWERS = (0, 60, 180, 360)


class TimedEncoder(MemoEncoder):
    """Counts the seconds spent in it: of the wall clock and of the CPU."""

    spent: Floats = np.zeros(2)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As the base class."""
        start = _clocks()
        embeddings = super().encode(texts, progress=progress)
        self.spent = self.spent + _clocks() - start
        return embeddings


# planner, vocabulary, true features of prompts (K, h), encoder, true taste
Setting = tuple[AdaptivePlanner, Vocabulary, Callable[[NDArray[np.int64]], Floats], TimedEncoder | None, AnyFloats]


def _clocks() -> Floats:
    return np.array([time.perf_counter(), time.process_time()])


def one_step(seed: int) -> Setting:
    """5,000 tokens of one step."""
    tokens = clustered_items(TOKENS, D)
    vocabulary = Vocabulary(("token",), (tuple(map(str, range(TOKENS))),))
    planner = AdaptivePlanner(
        vocabulary, options=TokenFeatures(vocabulary, tokens), prior=VocabularyPrior(tokens), num_options=K, seed=seed
    )
    return planner, vocabulary, lambda prompts: tokens[prompts[:, -1]], None, np.random.default_rng(1001).normal(size=D)


def built_in(seed: int, *, feedback: Feedback = "truncated", num_options: int = K) -> Setting:
    """The built-in vocabulary with MiniLM."""
    vocabulary = load_vocabulary()
    encoder = TimedEncoder(load_encoder("minilm"))
    tokens = encoder.encode(vocabulary.all_tokens)
    options = option_features(feedback, vocabulary, tokens, encoder)
    prior = VocabularyPrior(tokens)
    planner = AdaptivePlanner(vocabulary, options=options, prior=prior, num_options=num_options, seed=seed)

    def features(prompts: NDArray[np.int64]) -> Floats:
        return encoder.encode([vocabulary.prompt(row) for row in prompts.tolist()]).astype(np.float64)

    return planner, vocabulary, features, encoder, encoder.encode(["a cosy cabin"])[0]


@functools.cache
def known_pool() -> tuple[Floats, ItemsPrior, Floats]:
    """The pool's features, its prior with simulated other people, and the utilities of one more person."""
    rows = np.concatenate([clustered_items(ITEMS, width) for width in BLOCKS], axis=1)
    prior = ItemsPrior(rows, blocks=BLOCKS)
    mapped, rng = prior.feature_map(rows), np.random.default_rng(1002)
    effects, people = rng.normal(size=ITEMS), []
    for _ in range(PEOPLE + 1):
        utilities = effects + prior.components @ rng.normal(size=prior.own.start) + rng.normal(size=ITEMS)
        shown = np.array([rng.choice(ITEMS, K, replace=False) for _ in range(EACH)])
        people.append((mapped[shown], (utilities[shown] + rng.gumbel(size=shown.shape)).argmax(axis=1)))
    return rows, prior.with_crowd(fit_crowd(people[:-1], prior)), utilities


def pool(seed: int, *, num_options: int = K) -> Setting:
    """A pool of pictures about which other people were asked."""
    rows, prior, utilities = known_pool()
    vocabulary = Vocabulary(("item",), (tuple(map(str, range(ITEMS))),))
    options = TokenFeatures(vocabulary, rows)
    planner = AdaptivePlanner(vocabulary, options=options, prior=prior, num_options=num_options, seed=seed)
    theta = np.linalg.lstsq(rows, utilities, rcond=None)[0]  # more features than items
    return planner, vocabulary, lambda prompts: rows[prompts[:, -1]], None, theta


SETTINGS = {
    "one step": one_step,
    "built-in": built_in,
    "prompts": functools.partial(built_in, feedback="prompt"),
    "prompts K9": functools.partial(built_in, feedback="prompt", num_options=9),
    "pool": pool,
    "pool K9": functools.partial(pool, num_options=9),
}


def measure(setting: Setting, answers: int, questions: int, think: bool) -> Floats:
    """Seconds of each question by both clocks, and of thinking, (questions, 3), after ``answers`` answers."""
    planner, vocabulary, features, encoder, theta = setting
    planner.reset()
    complete = isinstance(planner.options, PromptFeatures)  # one question an episode
    horizon = len(vocabulary.sizes)
    rng = np.random.default_rng(1000 + answers)
    start_lanes = lanes = np.empty((planner.num_options, 0), dtype=np.int64)

    def answered() -> tuple[Floats, list[int]]:
        options = features(lanes)
        return options[None], [int((options @ theta).argmax())]

    for _ in range(answers):
        for _ in range(horizon if complete else 1):
            drawn = rng.integers(vocabulary.sizes[lanes.shape[1]], size=(len(lanes), 1))
            lanes = np.concatenate([lanes, drawn], axis=1)
        planner.tell(*answered())
        if lanes.shape[1] == horizon:
            lanes = start_lanes
    if answers:
        planner.ask(lanes)
    seconds, answer = [], None
    while len(seconds) < questions:
        start, encoding = _clocks(), np.zeros(2) if encoder is None else encoder.spent
        if answer is not None:
            planner.tell(*answer)
        for _ in range(horizon if complete else 1):
            lanes = np.concatenate([lanes, planner.ask(lanes)[:, None]], axis=1)
        spent = _clocks() - start
        if encoder is not None:
            spent -= encoder.spent - encoding
        start = _clocks()
        if think:
            planner.think()
        seconds.append(np.append(spent, _clocks()[1] - start[1]))
        answer = answered()
        if lanes.shape[1] == horizon:
            lanes = start_lanes
    return np.array(seconds)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--questions", type=int, default=48, help="measured questions of each row")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--no-think", action="store_true", help="do all work between answer and question")
    parser.add_argument("--answers", nargs="+", type=int, default=list(ANSWERS))
    arguments = parser.parse_args()
    print(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}, milliseconds")
    print("| setting | answers before | wall: median | 99% | worst | CPU: median | 99% | worst | thinking: worst CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.settings:
        setting = SETTINGS[name](0)
        for answers in arguments.answers:
            seconds = 1e3 * measure(setting, answers, arguments.questions, not arguments.no_think)
            statistics = (np.median, lambda column: np.quantile(column, 0.99), np.max)
            cells = [statistic(column) for column in seconds[:, :2].T for statistic in statistics]
            cells.append(seconds[:, 2].max())
            print(f"| {name} | {answers} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
