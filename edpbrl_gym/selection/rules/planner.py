"""Every rule of the literature as a planner: it asks, is told the answers, and estimates."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._threads import single_thread
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.choice import check_options, fisher_information
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.responses import BestOf, Response, ResponseModel
from edpbrl_gym.selection.composed import OptionFeatures
from edpbrl_gym.selection.rules.base import Rule
from edpbrl_gym.selection.rules.batches import DopeWolfe, Thinning
from edpbrl_gym.selection.rules.registry import make_rule
from edpbrl_gym.selection.rules.state import PoolState
from edpbrl_gym.selection.rules.taste import ExactTaste
from edpbrl_gym.selection.tracking import TasteTracker

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["RulePlanner"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class RulePlanner:
    """A rule of the literature that asks about the prompts of a vocabulary of one step, the items of a pool.

    Before every question the estimate takes in all answers: under a `GaussianPrior` the exact maximum a posteriori
    estimate and its Laplace posterior, as in the literature; under a `VocabularyPrior` the posterior of `TasteTracker`,
    as the default planner has it. Designs that need no answers count every question asked, answered or not. Question i
    uses stream i of the seed, so that the same arguments and the same calls give the same questions, whether or not the
    estimate is looked at in between.

    Batch rules (`Thinning`, `DopeWolfe`) plan ``episodes`` questions at once, and again when they run out.

    Args:
        vocabulary: The items, as the tokens of one step.
        rule: Name of a rule, or the rule itself, of which the planner takes a copy.
        options: Features of the items, `TokenFeatures`.
        prior: Of theta.
        num_options: K, at least 2.
        seed: Of the draws and of the rule's own randomness.
        episodes: Questions that batch rules plan at once; None: one at a time.
        draws: M, of the posterior, at least 1.
        rule_options: Of the rule, where it is given by name.
        model: Format of the answers.

    Attributes:
        name: The rule's.
        asked: Number of questions asked.

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
        prior: GaussianPrior | VocabularyPrior,
        num_options: int = 4,
        seed: int = 0,
        episodes: int | None = None,
        draws: int = 32,
        rule_options: dict[str, Any] | None = None,
        model: ResponseModel | None = None,
    ) -> None:
        self.sizes = tuple(vocabulary.sizes)
        if tuple(options.sizes) != self.sizes:
            raise ValueError(f"Expected features of steps with {self.sizes} tokens, got {tuple(options.sizes)}")
        if len(self.sizes) != 1:
            raise ValueError(f"Expected a vocabulary of one step, got {len(self.sizes)}")
        self._given_rule = _made(rule, rule_options)
        self.name = self._given_rule.name
        self.options = options
        self.prior = prior
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        self.seed = check_count(seed, "seed", minimum=0)
        self.episodes = None if episodes is None else check_count(episodes, "episodes (T)")
        self.draws = check_count(draws, "draws (M)")
        self.model: ResponseModel = BestOf() if model is None else model
        self._taste: ExactTaste | TasteTracker
        if isinstance(prior, VocabularyPrior):
            self._taste = TasteTracker(prior, self.model, self.num_options)
        else:
            self._taste = ExactTaste(prior, self.model, self.num_options)
        self.dimension = self._taste.dimension
        self._items = check_array(options.tokens(0), "the options' features", shape=("n", self.dimension))
        self.reset()

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.rule = copy.deepcopy(self._given_rule)
        self.asked = 0
        self._questions: list[tuple[int, ...]] = []
        base = self.prior.base if isinstance(self.prior, VocabularyPrior) else self.prior
        self._agnostic: Floats = np.array(base.precision)
        self._plan: Indices = np.empty((0, self.num_options), dtype=np.int64)
        self._taste.reset()

    def ask(self, prefixes: ArrayLike) -> Indices:
        """The next question: an item for each lane, (K,).

        Args:
            prefixes: (K, 0).

        Raises:
            ValueError: Prefixes of another shape.
        """
        check_integers(np.asarray(prefixes).astype(np.int64), "prefixes", shape=(self.num_options, 0))
        with single_thread():
            if self._taste.waiting:
                self._taste.refresh()
            self._taste.asked()
            chosen = self._next()
        self.asked += 1
        self._questions.append(tuple(int(i) for i in chosen))
        self._agnostic = self._agnostic + fisher_information(self._items[chosen[None]])
        return chosen

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from answered questions.

        Args:
            options: What was compared, (n, K, d).
            responses: The answers, (n,); an integer is the best option.

        Raises:
            ValueError: Shapes that don't fit, or answers that the model does not know.
        """
        shape = ("n", self.num_options, self.dimension)
        features = np.array(check_array(check_options(options), "options", shape=shape))  # a copy: callers reuse theirs
        self._taste.tell(features, [one if isinstance(one, Response) else Response.best(one) for one in responses])

    @property
    def estimate(self) -> Estimate:
        """The taste from all answers told so far."""
        return self._taste.estimate

    @property
    def posterior(self) -> Posterior:
        """The Gaussian posterior from the same answers."""
        return self._taste.posterior

    def _next(self) -> Indices:
        if not len(self._plan) and self.episodes is not None and isinstance(self.rule, Thinning | DopeWolfe):
            self._plan = self.rule.plan(self._state(), self.episodes)
        if len(self._plan):
            chosen, self._plan = self._plan[0], self._plan[1:]
            return chosen
        return self.rule.propose(self._state())

    def _state(self) -> PoolState:
        rng = np.random.default_rng([self.seed, self.asked])
        planned = self._taste.planned
        return PoolState(
            items=self._items,
            mean=planned.mean,
            precision=planned.precision,
            draws=planned.draws(self.draws, rng),
            agnostic=self._agnostic,
            num_options=self.num_options,
            rng=rng,
            asked=tuple(self._questions),
        )


def _made(rule: str | Rule, options: dict[str, Any] | None) -> Rule:
    if isinstance(rule, str):
        return make_rule(rule, **(options or {}))
    if options:
        raise TypeError(f"Expected rule_options only with the name of a rule, got them with {type(rule).__name__}")
    if not isinstance(rule, Rule):
        raise TypeError(f"Expected rule as a name or a Rule, got {type(rule).__name__}")
    return rule
