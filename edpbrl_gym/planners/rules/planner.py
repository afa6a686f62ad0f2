"""Every rule of the literature as a planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.other_texts import OtherTexts
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.likelihood import AnswerFormat, BestOf
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.option_features import ComposedFeatures, OptionFeatures, mapped_options
from edpbrl_gym.planners.registry import make_rule
from edpbrl_gym.planners.rules.search import Rule
from edpbrl_gym.planners.rules.state import Lanes, PoolState
from edpbrl_gym.planners.tracking import ExactTaste, TasteTracker, TrackedPlanner, check_prefixes

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["RulePlanner", "sample_trajectories", "trajectory_features"]

_TASTE = "taste_"  # prefix of the taste's entries in a state


class RulePlanner(TrackedPlanner):
    """A rule of the literature that asks about the prompts of a vocabulary; one step makes it a pool of items.

    Before every question of an adaptive rule the estimate is updated with all answers: under a `GaussianPrior` the
    exact maximum a posteriori estimate and its Laplace posterior, as in the literature; under a `VocabularyPrior` or a
    `Population` the posterior of `TasteTracker`, which the default planner updates at the first step of an episode
    only. Designs that need no answers count every question asked, answered or not. Question i uses stream i of the
    seed, so that the same arguments and the same calls give the same questions, whether or not the estimate is read in
    between.

    The pool of a question is the tokens of its step. Where the options are partial prompts (`ComposedFeatures`), each
    option has its own prefix and so its own candidates, the lanes of the `PoolState`; options with the same prefix, and
    options that are tokens, differ.

    Rules that plan from samples ("thinning", "dopewolfe", "rollout_pool") choose K whole trajectories at the first step
    of an episode, among random ones that are drawn once, and the next steps play them. An option that would repeat
    another gets a random token instead. After prefixes that match none of the trajectories, the options continue with
    random tokens. "thinning" and "dopewolfe" plan ``episodes`` questions at once, and again when they run out.

    Args:
        vocabulary: The tokens.
        rule: Name of a rule, or a `Rule` of one's own.
        options: Features of options: `ComposedFeatures` for partial prompts, `TokenFeatures` for tokens and items.
        prior: Prior of theta.
        num_options: K, at least 2.
        seed: Seed of the draws and of the rule's randomness.
        episodes: Questions that batch rules plan at once (of trajectories, where there are several steps); None: one at
            a time.
        draws: M, posterior draws, at least 1.
        rule_options: Options of the rule, if it is given by name.
        rollouts: Trajectories to choose from, at least K; "rollout_pool" has its own ``size``.
        rollout_seed: Seed of these trajectories; None: ``seed``. Complete prompts take time to encode: planners with
            the same trajectories and an encoder with a memo share that time.
        model: Format of the answers.

    Raises:
        TypeError: The rule has no such option, or options are given for a rule that is made already.
        ValueError: Arguments out of range, an unknown rule, an improper prior, or features that don't fit.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        rule: str | Rule,
        options: OptionFeatures,
        prior: TastePrior,
        num_options: int = 4,
        seed: int = 0,
        episodes: int | None = None,
        draws: int = 32,
        rule_options: dict[str, Any] | None = None,
        rollouts: int = 2000,
        rollout_seed: int | None = None,
        model: AnswerFormat | None = None,
    ) -> None:
        self.sizes = tuple(vocabulary.sizes)
        if tuple(options.sizes) != self.sizes:
            raise ValueError(f"Expected features of steps with {self.sizes} tokens, got {tuple(options.sizes)}")
        self.rule = _as_rule(rule, rule_options)
        self.name, self.adaptive = self.rule.name, self.rule.adaptive
        self.options = options = mapped_options(options, prior)
        self.prior = prior
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        self.seed = check_count(seed, "seed", minimum=0)
        self.episodes = None if episodes is None else check_count(episodes, "episodes (T)")
        self.check_options(num_options=num_options, draws=draws, rollouts=rollouts)
        self.draws, self.rollouts = draws, rollouts
        self.rollout_seed = self.seed if rollout_seed is None else check_count(rollout_seed, "rollout_seed", minimum=0)
        self.model: AnswerFormat = BestOf() if model is None else model
        self._start = prior.started
        tracker = ExactTaste if prior.is_fixed else TasteTracker
        self._taste = tracker(prior, self.model, self.num_options)
        self.dimension = self._taste.dimension
        self._tokens = [
            check_array(options.tokens(step), "the options' features", shape=("n", self.dimension), hint="the prior's")
            for step in range(len(self.sizes))
        ]
        self._rollouts: tuple[Indices, Floats] | None = None  # trajectories and features, drawn on first use
        self.reset()

    @classmethod
    def default_prior(
        cls,
        token_features: NDArray[np.floating],
        blocks: Sequence[int] = (),
        *,
        pool: bool = False,
        others: OtherTexts | None = None,
    ) -> GaussianPrior:
        """N(0, I), as published."""
        return GaussianPrior.isotropic(token_features.shape[1], 1.0)

    @classmethod
    def check_options(cls, *, num_options: int, **options: Any) -> None:
        if "rule" in options:
            _as_rule(options["rule"], options.get("rule_options"))
        check_count(options.get("draws", 1), "draws (M)")
        check_count(options.get("rollouts", num_options), "rollouts", minimum=num_options)

    @classmethod
    def is_adaptive(cls, **options: Any) -> bool:
        """Whether the rule is adaptive."""
        return _as_rule(options["rule"], options.get("rule_options")).adaptive

    def reset(self) -> None:
        self.asked = 0
        self._past: list[Floats] = []
        self._asked_items: list[tuple[int, ...]] = []  # only where all questions are about the same pool
        self._agnostic: Floats = np.array(self._start.precision)
        self._plan: Indices = np.empty((0, self.num_options), dtype=np.int64)
        self._played: list[Indices] = []  # trajectories (K, H) that are being played, oldest first
        self._memory: dict[Any, Any] = {}
        self._taste.reset()

    def state(self) -> dict[str, Any]:
        """All that has changed since the planner was made; later calls don't change it. See ``restore``.

        Under a `GaussianPrior` these are arrays and values that JSON can hold.
        """
        return {**self.questions(), **{_TASTE + key: value for key, value in self._taste.state().items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state of a planner with the same arguments."""
        self.restore_questions(state)
        self._taste.restore({key.removeprefix(_TASTE): value for key, value in state.items() if key.startswith(_TASTE)})

    def questions(self) -> dict[str, Any]:
        size, horizon = self.num_options, len(self.sizes)
        return {
            "asked": self.asked,
            "past": np.array(self._past).reshape(-1, size, self.dimension),
            "items": np.array(self._asked_items, dtype=np.int64).reshape(-1, size),
            "plan": self._plan.copy(),
            "followed": np.array(self._played, dtype=np.int64).reshape(-1, size, horizon),
        }

    def restore_questions(self, questions: dict[str, Any]) -> None:
        """Go on from ``questions``; the answers are forgotten."""
        self.reset()
        for options in np.asarray(questions["past"], dtype=np.float64):
            self._remember(options)
        self._asked_items = [tuple(int(i) for i in row) for row in np.asarray(questions["items"])]
        self._plan = np.array(questions["plan"], dtype=np.int64)
        self._played = list(np.array(questions["followed"], dtype=np.int64))
        self.asked = int(questions["asked"])

    def ask(self, prefixes: ArrayLike) -> Indices:
        """Tokens (K,) of the step after the prompts ``prefixes``, (K, h).

        Raises:
            ValueError: Another number of lanes, tokens that don't exist, complete prompts, or fewer tokens than
                options.
        """
        before = check_prefixes(prefixes, self.sizes, self.num_options)
        step = before.shape[1]
        with one_blas_thread():
            self._taste.asked()
            offsets = self.options.offsets(before)
            if self.rule.kind in ("batch", "rollouts") and len(self.sizes) > 1:
                tokens = self._played_tokens(before) if step else self._begin()
                tokens = self._random(before) if tokens is None else tokens
            else:
                question = self._question(*self._pool(before, offsets))
                if len(self.sizes) == 1:
                    self._asked_items.append(tuple(int(i) for i in question))
                tokens = question % self.sizes[step]
        self._remember(self._tokens[step][tokens] + offsets)
        self.asked += 1
        return tokens

    def _begin(self) -> Indices:
        """First tokens of the trajectories that the rule chooses."""
        if self._rollouts is None:
            size = self.rule.options.get("size", 2000) if self.rule.kind == "rollouts" else self.rollouts
            rng = np.random.default_rng([self.rollout_seed, 0, 2])  # questions have [seed, i] and [seed, i, 1]
            drawn = sample_trajectories(self.sizes, size, rng)
            self._rollouts = drawn, trajectory_features(self.options, drawn)
        trajectories, features = self._rollouts
        tokens = trajectories[self._question(features, None)]
        rng = np.random.default_rng([self.seed, self.asked, 1])
        steps = 1 if isinstance(self.options, ComposedFeatures) else len(self.sizes)
        for step in range(steps):  # partial prompts with different first tokens differ
            tokens[:, step] = _different(tokens[:, step], self.sizes[step], rng)
        self._played.append(tokens)
        return tokens[:, 0].copy()

    def _played_tokens(self, before: Indices) -> Indices | None:
        """The tokens that follow ``before`` in the oldest trajectories that begin with it; None if none do."""
        step = before.shape[1]
        for index, tokens in enumerate(self._played):
            if np.array_equal(tokens[:, :step], before):
                if step + 1 == len(self.sizes):
                    del self._played[index]
                return tokens[:, step]
        return None

    def _random(self, before: Indices) -> Indices:
        rng = np.random.default_rng([self.seed, self.asked])
        tokens = rng.integers(self.sizes[before.shape[1]], size=self.num_options)
        return _different(tokens, self.sizes[before.shape[1]], rng)

    def _question(self, items: Floats, lanes: Lanes | None) -> Indices:
        """The rule's question about a pool, or its next planned question."""
        if not len(self._plan) and self.episodes is not None and self.rule.kind == "batch":
            self._plan = self.rule.plan(self._pool_state(items, lanes), self.episodes)
        if len(self._plan):
            question, self._plan = self._plan[0], self._plan[1:]
            return question
        return self.rule.propose(self._pool_state(items, lanes))

    def _pool_state(self, items: Floats, lanes: Lanes | None) -> PoolState:
        if self._taste.waiting and self.rule.adaptive:
            self._taste.refresh()
        planned = self._taste.planned
        rng = np.random.default_rng([self.seed, self.asked])
        return PoolState(
            items=items,
            mean=planned.mean,
            precision=planned.precision,
            draws=planned.draws(self.draws, rng),
            agnostic=self._agnostic,
            num_options=self.num_options,
            rng=rng,
            asked=tuple(self._asked_items),
            lanes=lanes,
            past=None if len(self.sizes) == 1 else np.array(self._past).reshape(-1, self.num_options, self.dimension),
            memory=self._memory,
        )

    def _pool(self, before: Indices, offsets: Floats) -> tuple[Floats, Lanes | None]:
        """Features of the tokens of a step after each distinct prefix, block by block, and the lanes of the blocks."""
        tokens = self._tokens[before.shape[1]]
        if not offsets.any():
            return tokens, None
        _, first, block = np.unique(before, axis=0, return_index=True, return_inverse=True)
        items = (offsets[first][:, None] + tokens).reshape(-1, self.dimension)
        if len(first) == 1:
            return items, None
        return items, Lanes(np.repeat(np.arange(len(first)), len(tokens)), block.ravel())

    def _remember(self, options: Floats) -> None:
        self._past.append(options)
        self._agnostic = self._agnostic + fisher_information(options[None])


def sample_trajectories(sizes: tuple[int, ...], size: int, rng: np.random.Generator) -> Indices:
    """Distinct prompts of uniformly drawn tokens, (n, H): ``size`` less the duplicates."""
    tokens = np.stack([rng.integers(step_size, size=size) for step_size in sizes], axis=1)
    _, first = np.unique(tokens, axis=0, return_index=True)
    return tokens[np.sort(first)]


def trajectory_features(options: OptionFeatures, tokens: Indices) -> Floats:
    """Features of whole trajectories, (n, d), of their tokens (n, H).

    For partial prompts those of the complete prompt, embedded by the encoder of `ComposedFeatures`; for tokens the sum
    over the steps.
    """
    last = tokens.shape[1] - 1
    if isinstance(options, ComposedFeatures):
        texts = [options.vocabulary.prompt(row) for row in tokens]
        return np.asarray(options.encoder.encode(texts), dtype=np.float64)
    offsets = options.offsets(tokens[:, :last])
    if offsets.any():
        return np.asarray(options.tokens(last)[tokens[:, last]] + offsets)
    return np.asarray(sum(options.tokens(step)[tokens[:, step]] for step in range(last + 1)))


def _different(tokens: Indices, size: int, rng: np.random.Generator) -> Indices:
    """The tokens, repeated ones replaced by random unused tokens."""
    result = tokens.copy()
    for index in range(len(result)):
        if (result[:index] == result[index]).any():
            free = np.setdiff1d(np.arange(size), result)
            if not len(free):
                raise ValueError(f"Expected at least {len(result)} tokens at every step, got {size}; ask with fewer")
            result[index] = rng.choice(free)
    return result


def _as_rule(rule: str | Rule, options: dict[str, Any] | None) -> Rule:
    if isinstance(rule, str):
        return make_rule(rule, **(options or {}))
    if options:
        raise TypeError(f"Expected rule_options only with the name of a rule, got them with {type(rule).__name__}")
    if not isinstance(rule, Rule):
        raise TypeError(f"Expected rule as a name or a Rule, got {type(rule).__name__}")
    return rule
