"""The adaptive planner: estimate, search the whole vocabulary for the most informative options, ask, repeat."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices, positive_semidefinite_factor
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_choice_of, check_count
from edpbrl_gym.design.questions.restrictions import Restrictions, TokenRules
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.likelihood import AnswerFormat, BestOf
from edpbrl_gym.planners.exchange import PlannedPrompts, drawn_token, exchange
from edpbrl_gym.planners.option_features import OptionFeatures, PromptFeatures, mapped_options
from edpbrl_gym.planners.scores import (
    ExpectedBest,
    ExpectedInformation,
    ExpectedVariance,
    MutualInformation,
    QuestionScore,
)
from edpbrl_gym.planners.separate import SeparateOptions
from edpbrl_gym.planners.sequences import SequentialChoices
from edpbrl_gym.planners.shortlist import Knowledge, Shortlists
from edpbrl_gym.planners.tracking import TasteTracker, TrackedPlanner, check_prefixes, endings

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["SCORES", "AdaptivePlanner", "Score"]

Score = Literal["information", "trace", "variance", "mutual"]

SCORES: tuple[Score, ...] = ("information", "trace", "variance", "mutual")
"""Acquisition functions to learn the taste; see `AdaptivePlanner`."""


_SWEEPS = 3  # in prompts of several steps; on a pool a search runs until it gains nothing
_POOL_SWEEPS = 50
_POOL_DRAWS = 64
_RIVALS = 128  # draws, of each of which an item is the best
_MOST_SETS = 16  # of options that may be left, whose probabilities value a question
_LARGE = 2000  # tokens of a step above which the search is among shortlists of them
_POOL_TOKENS = 20_000  # candidates of all starts together: bounds the time of a question on a large pool


class AdaptivePlanner(TrackedPlanner):
    """Chooses the next token of each option so that the answer is expected to be most informative about the taste.

    Before the first question of an episode it updates its posterior with all answers (`TasteTracker`,
    `VocabularyPrior`: the scale of the prior, and so the noise of the user, is estimated from the answers too). For
    every question it takes M draws from the posterior N(theta_hat, P) and searches for the K options with the largest
    acquisition value averaged over them, replacing the options one by one with the best token of the step (coordinate
    exchange). Averaging over draws keeps questions valuable whose answer seems certain at theta_hat, so early mistakes
    are corrected.

    The defaults were measured for two cases. On a pool of items (a vocabulary of one step) the acquisition function is
    the reduction of the posterior variance (A-optimality, classical; on development seeds the strongest of the
    literature's rules, docs/planner-comparison.md), under many draws, from several starts. In prompts of several steps
    it is the gain in log det of the posterior precision (D), from one start (docs/query-efficiency.md).

    Where questions compare complete prompts (`PromptFeatures`), the K prompts of an episode are planned together before
    its first step, by coordinate exchange over all their tokens (`search_prompts`); later steps follow the plan.

    An answer of several choices, such as a ranking, is worth the Fisher information of its own format; under "mutual"
    its first choice counts alone. Of a long ranking so many first choices count as 40 sets of options allow.

    Of a format whose answers are about each option by itself (ratings) K may be 1; its acquisition functions are those
    of `SeparateOptions`, by default the mutual information: the Fisher information takes the thresholds for known, and
    then asks about what all options have in common.

    ``mode="best"`` looks for the best prompt instead: options with the largest expected utility of the best of them
    under 16 draws, from one start; in development 64 draws and eight starts found worse items. Where items have
    deviations that stay (`ItemsPrior`) that rule asks about the same few items again and again, and real people's best
    ten are found later than by random questions; there the questions lower the variance of the differences among the
    items that may be the best.

    The same arguments and the same calls give the same questions, whether or not the estimate is read in between.

    Args:
        vocabulary: The tokens.
        options: Features of options: `ComposedFeatures` for partial prompts, `TokenFeatures` for tokens,
            `PromptFeatures` for complete prompts.
        prior: Prior of the vocabulary; a `GaussianPrior`, whose scale is kept; or a `Population`.
        num_options: K, at least 2, or what ``model`` needs.
        seed: Seed of the draws.
        mode: "learn" theta, or find the "best" prompt.
        score: Acquisition function of mode "learn": "information", the expected gain in log det of the posterior
            precision (D); "trace", the reduction of the sum of the posterior variances of theta's coordinates (A);
            "variance", that of the mean posterior variance of the differences in utility between tokens of a step (V);
            or "mutual" information. None: "mutual" for ratings, else "trace" on a pool ("variance" where items have
            deviations), "information" in prompts of several steps.
        draws: M; 0 takes theta_hat alone. None: 64 to learn on a pool, else 16.
        starts: Random starts of the search for each question, of which the best result counts. None: 32 / K to learn on
            a pool (one where K is 1, fewer for answers of several choices, and on one of over 625 K items), else one.
        model: Format of the answers.
        restrictions: Which tokens may appear together; None: options of a question are distinct. A base shared by all
            episodes is drawn with the first question unless it is fixed.
        memory: Estimate from so many of the latest answers, for a taste that drifts; None: from all. Questions are
            planned with up to a tenth more.

    Attributes:
        asked: Number of questions asked; question i uses stream i of the seed.

    Raises:
        ValueError: Arguments out of range, or features that don't fit the vocabulary.
    """

    name = "adaptive"

    _taste: TasteTracker

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        options: OptionFeatures,
        prior: TastePrior,
        num_options: int = 4,
        seed: int = 0,
        mode: Literal["learn", "best"] = "learn",
        score: Score | None = None,
        draws: int | None = None,
        starts: int | None = None,
        model: AnswerFormat | None = None,
        restrictions: Restrictions | None = None,
        memory: int | None = None,
    ) -> None:
        self.sizes = tuple(vocabulary.sizes)
        if tuple(options.sizes) != self.sizes:
            raise ValueError(f"Expected features of steps with {self.sizes} tokens, got {tuple(options.sizes)}")
        self.options = options = mapped_options(options, prior)
        self.prior = prior
        self.model: AnswerFormat = BestOf() if model is None else model
        self.num_options = check_count(num_options, "num_options (K)", minimum=self.model.least)
        self.seed = check_count(seed, "seed", minimum=0)
        self.check_options(num_options=num_options, mode=mode, score=score, draws=draws, starts=starts, memory=memory)
        self.mode = mode
        pool = len(self.sizes) == 1 and mode == "learn"
        self.score: Score = _default_score(prior, pool, draws, self.model) if score is None else score
        self.draws = (_POOL_DRAWS if pool else 16) if draws is None else draws
        self._picks = _told(self.model, self.num_options) if self.model.relative else ()
        many = (
            max(1, min(32 // self.num_options // max(1, len(self._picks)), _POOL_TOKENS // self.sizes[0]))
            if pool
            else 1
        )
        if not self.model.relative and self.num_options == 1:
            many = 1  # whose search tries every item
        self.starts = many if starts is None else starts
        self._sweeps = _POOL_SWEEPS if pool else _SWEEPS
        self.memory = memory
        self._initial_rules = _rules(vocabulary, restrictions)
        self._taste = TasteTracker(prior, self.model, self.num_options, self.memory)
        self.dimension = self._taste.dimension
        self._tokens, self._lists = _tables(options, self.dimension)
        self._prompts = None
        if isinstance(options, PromptFeatures):
            self._prompts = PlannedPrompts(options, self._tokens, self.num_options)
        self._contrasts = _contrasts(self._tokens, prior.own) if self.score == "variance" else None
        self._lowers_variance = self.score in ("trace", "variance")
        self.reset()

    @classmethod
    def check_options(cls, *, num_options: int, **options: Any) -> None:
        mode, score = options.get("mode", "learn"), options.get("score")
        check_choice_of(mode, "mode", ("learn", "best"))
        if score is not None:
            check_choice_of(score, "score", SCORES)
        minimum = {"draws": 0, "starts": 1, "memory": 1}
        for name, least in minimum.items():
            if options.get(name) is not None:
                check_count(options[name], "memory (answers)" if name == "memory" else name, minimum=least)
        draws = options.get("draws")
        if draws is not None and draws < 2 and (mode == "best" or score == "mutual"):
            raise ValueError(f"Expected at least 2 draws for mode='best' and score='mutual', got {draws}")

    def reset(self) -> None:
        self._rules = self._initial_rules
        self.asked = 0
        self._ends = False  # whether the last question was the last of an episode
        self._taste.reset()
        if self._prompts is not None:
            self._prompts.plans = []

    def state(self) -> dict[str, Any]:
        """All that has changed since the planner was made; later calls don't change it. See ``restore``."""
        return {
            "rules": self._rules,
            "asked": self.asked,
            "ends": self._ends,
            "plans": () if self._prompts is None else tuple(self._prompts.plans),
            "taste": self._taste.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state of a planner with the same arguments, in the same process."""
        self.reset()
        self._rules = state["rules"]
        self.asked = state["asked"]
        self._ends = state["ends"]
        if self._prompts is not None:
            self._prompts.plans = list(state["plans"])
        self._taste.restore(state["taste"])

    def ask(self, prefixes: ArrayLike) -> NDArray[np.int64]:
        """Tokens (K,) of the step after the prompts ``prefixes``, (K, h).

        Raises:
            ValueError: Another number of lanes, tokens that don't exist, complete prompts, or restrictions that leave
                no token.
        """
        with one_blas_thread():  # thousands of small products: twice the threads take four times as long
            return self._next(check_prefixes(prefixes, self.sizes, self.num_options))

    def follow(self, prefixes: ArrayLike, tokens: NDArray[np.int64]) -> None:
        """Go on as if ``ask(prefixes)`` had returned these tokens; nothing is computed.

        The plan of an episode of complete prompts isn't known: it is made anew if it has been followed in part.
        """
        before = check_prefixes(prefixes, self.sizes, self.num_options)
        self._count(before.shape[1])
        if self._rules.shared(before.shape[1]):
            self._fix_base(int(tokens[0]))
        elif self._prompts is not None:
            self._prompts.follow(np.concatenate([before, tokens[:, None]], axis=1))

    def _count(self, step: int) -> None:
        """Count a question, and decide which answers it is planned with."""
        if self._taste.waiting >= (1 if step == 0 else len(self.sizes)):
            self._taste.refresh()
        self._taste.asked()
        self._ends = step + 1 == len(self.sizes)
        self.asked += 1

    def _next(self, before: NDArray[np.int64]) -> NDArray[np.int64]:
        step = before.shape[1]
        rng = np.random.default_rng([self.seed, self.asked])
        self._count(step)
        if self._rules.shared(step):
            return self._shared_token(before, rng)
        if self._prompts is not None:
            return self._prompts.next_tokens(before, self._rules, lambda: self.question_score(rng), rng)
        score, offsets = self.question_score(rng), self.options.offsets(before)

        def allowed(lane: int, question: Indices, among: Indices | slice = slice(None)) -> Booleans:
            return self._allowed(before, question, lane, among)

        if self.sizes[step] > _LARGE and self.mode == "learn" and self.model.relative:
            if step not in self._lists:
                self._lists[step] = Shortlists(self._tokens[step])
            known = Knowledge(self._taste.planned, self._lowers_variance, self._contrasts)
            starts = [self._start(before, step, rng) for _ in range(self.starts)]
            return self._lists[step].search(score, known, offsets, allowed, starts, sweeps=self._sweeps, rng=rng)
        score.prepare(self._tokens[step], offsets)
        results = [
            exchange(score, allowed, self._start(before, step, rng), sweeps=self._sweeps, rng=rng)
            for _ in range(self.starts)
        ]
        return max(results, key=lambda result: result[1])[0]

    def replace_items(self, features: ArrayLike) -> None:
        """Ask the next questions about other items in the place of the vocabulary's; answers and posterior stay.

        For pools that change from question to question, such as the images that one noise can become. The items are
        no part of ``state``.

        Args:
            features: Features of the items, (n, d), as many as the vocabulary has tokens.

        Raises:
            ValueError: The vocabulary has several steps, or the features have another shape.
        """
        if len(self.sizes) != 1:
            raise ValueError(f"Expected a planner for a pool, a vocabulary of one step, got {len(self.sizes)} steps")
        shape = (self.sizes[0], self.dimension)
        rows = self.prior.feature_map(np.asarray(features))
        self._tokens = [check_array(rows, "features", shape=shape, hint="one row for each item").astype(np.float32)]
        self._lists = {}
        if self._contrasts is not None:
            self._contrasts = _contrasts(self._tokens, self.prior.own)

    def think(self) -> None:
        """Precompute while the person looks at the options.

        The questions are the same without it, but some take longer.
        """
        if self._ends:
            with one_blas_thread():
                self._taste.think()

    def question_score(self, rng: np.random.Generator) -> QuestionScore:
        """The acquisition function of the next question, with draws of ``rng``, not yet prepared for candidates."""
        posterior = self._taste.planned
        draws = posterior.draws(self.draws, rng) if self.draws else posterior.mean[None]
        if self.mode == "best":
            if self.prior.own is None or not self.model.relative:
                return ExpectedBest(draws)
            rivals = _rivals(self._tokens[0], posterior.draws(_RIVALS, rng), self.prior.own)
            return ExpectedVariance(draws, posterior, contrasts=rivals)
        if not self.model.relative:
            kind = "variance" if self._lowers_variance else self.score
            return SeparateOptions(draws, self._taste.format, posterior, score=kind, contrasts=self._contrasts)
        if self.score == "mutual":
            return MutualInformation(draws)
        if len(self._picks) > 1:
            kind, root = "variance" if self._lowers_variance else self.score, posterior.inverse_factor
            return SequentialChoices(draws, self._picks, root, score=kind, contrasts=self._contrasts)
        if self.score == "information":
            return ExpectedInformation(draws, posterior)
        return ExpectedVariance(draws, posterior, contrasts=self._contrasts)

    def _shared_token(self, before: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """One random first token for all lanes, fixed for later episodes where all share it."""
        token = int(self._start(before, 0, rng)[0])
        self._fix_base(token)
        return np.full(self.num_options, token)

    def _fix_base(self, token: int) -> None:
        if self._rules.restrictions.shared_base == "all" and self._rules.restrictions.base is None:
            self._rules = self._rules.with_base(token)

    def _allowed(self, before: Indices, question: Indices, lane: int, among: Indices | slice = slice(None)) -> Booleans:
        """Which tokens a lane may show, given its own prefix and the tokens of the other lanes.

        At a step with fewer than K tokens lanes may show the same one: so many as can still end differently.
        """
        step = before.shape[1]
        others = np.delete(np.concatenate([before, question[:, None]], axis=1), lane, axis=0)
        if self.sizes[step] >= self.num_options:
            return self._rules.allowed(step, before[lane], others, among)
        mask = self._rules.with_repeats().allowed(step, before[lane], others, among)
        alike = others[(others[:, :step] == before[lane]).all(axis=1), step]
        counts = np.bincount(alike[alike >= 0], minlength=self.sizes[step])
        return np.asarray(mask & (counts < endings(self.sizes, step))[among])

    def _start(self, before: NDArray[np.int64], step: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Random legal tokens, lane after lane."""
        question = np.full(self.num_options, -1, dtype=np.int64)
        for lane in range(self.num_options):
            question[lane] = drawn_token(self._allowed(before, question, lane), step, lane, rng)
        return question


def _default_score(prior: TastePrior, pool: bool, draws: int | None, model: AnswerFormat) -> Score:
    if not model.relative and (draws is None or draws > 1):
        return "mutual"
    if prior.own is not None:  # not the variances of deviations, which say nothing about other items
        return "variance"
    return "trace" if pool else "information"


def _told(model: AnswerFormat, num_options: int) -> tuple[int, ...]:
    """The first choices of an answer, as many as leave at most ``_MOST_SETS`` sets with a given option."""
    picks, sets = model.picks(num_options), np.cumsum([math.comb(num_options - 1, n) for n in range(num_options - 1)])
    return picks[: max(1, int(np.count_nonzero(sets <= _MOST_SETS)))]


_Lists = dict[int, Shortlists]
_shared_tables: WeakKeyDictionary[OptionFeatures, tuple[list[NDArray[np.float32]], _Lists]] = WeakKeyDictionary()


def _tables(options: OptionFeatures, dimension: int) -> tuple[list[NDArray[np.float32]], _Lists]:
    """Candidates of each step in float32, which halves the time of products, and the shortlists of large steps.

    All planners share those of one object; the shortlists are made when they are first needed.
    """
    shared = options.__hash__ is not None
    tables, lists = _shared_tables.get(options, (None, {})) if shared else (None, {})
    if tables is None:
        tables = [options.tokens(step).astype(np.float32) for step in range(len(options.sizes))]
        if shared:
            _shared_tables[options] = tables, lists
    for table in tables:
        check_array(table, "the options' features", shape=("n", dimension), keep=(np.float32,), hint="the prior's")
    return list(tables), lists


def _contrasts(tables: Sequence[NDArray[np.float32]], own: slice | None) -> Floats:
    """B with B B' the second moment of the difference of two random tokens of a random step, (d, r).

    What is about one item each (``TastePrior.own``, the last coordinates) is left out.
    """
    kept = tables[0].shape[1] if own is None else own.start
    moments = [
        2.0 * np.cov(table[:, :kept], rowvar=False, bias=True, dtype=np.float64).reshape(kept, kept) for table in tables
    ]
    factor = positive_semidefinite_factor(np.mean(moments, axis=0), "the tokens' second moment")
    return np.pad(factor, ((0, tables[0].shape[1] - kept), (0, 0)))


def _rivals(table: NDArray[np.float32], draws: Floats, own: slice) -> Floats:
    """B with B B' the covariance of the items that are best under draws of the taste (M, d), (d, M).

    Questions that lower the variance of differences among them look for the best item, and still explore, as long as
    different items may be the best (for choices among arms: Fiez et al., 2019). Deviations are left out.
    """
    rows = table[:, : own.start].astype(np.float64)
    best = rows[(rows @ draws[:, : own.start].T).argmax(axis=0)]
    factor = (best - best.mean(axis=0)).T / np.sqrt(len(best))
    return np.pad(factor, ((0, table.shape[1] - own.start), (0, 0)))


@functools.lru_cache(maxsize=4)
def _rules(vocabulary: Vocabulary, restrictions: Restrictions | None) -> TokenRules:
    ends = np.cumsum((0, *vocabulary.sizes)).tolist()
    rules = Restrictions.of_texts(vocabulary) if restrictions is None else restrictions
    return TokenRules(rules, ranges=list(zip(ends[:-1], ends[1:], strict=True)), num_rows=ends[-1])
