"""Coordinate exchange: replace the options of a question one by one with the best token of the whole vocabulary.

The K complete prompts of a question are planned together, by an exchange over options and steps.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans
from edpbrl_gym.design.questions.restrictions import TokenRules
from edpbrl_gym.planners.option_features import PromptFeatures
from edpbrl_gym.planners.scores import QuestionScore

__all__ = ["PlannedPrompts", "ReplacementScore", "drawn_token", "exchange", "search_prompts"]

_ROUNDING = 1e-9  # relative gain of a sweep below which an exchange ends
_SWEEPS, _CANDIDATES = 2, 200  # candidates of a step
_MANY, _FEWER = 6, 60  # from so many options on fewer candidates, which in development find questions as good
_GAIN = 1e-3  # relative gain of a sweep below which the search ends
_MOST_DRAWS = 100  # of a random prompt that differs from the others
_MOST_PLANS = 1024  # episodes side by side


class ReplacementScore(Protocol):
    """A score of questions that can try all candidates in the place of one option."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> NDArray[np.float64]:
        """The values of the question with each candidate in place of option ``lane``, (n,)."""


def exchange(
    score: ReplacementScore,
    allowed: Callable[[int, NDArray[np.int64]], Booleans],
    start: NDArray[np.int64],
    *,
    sweeps: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], float]:
    """Improve a question option by option until a sweep gains nothing.

    Args:
        score: Prepared for the candidates of the step.
        allowed: Called with a lane and the candidates of all lanes (K,), returns which candidates the lane may take,
            (n,). The lane's current candidate must be allowed.
        start: First candidates, (K,), allowed.
        sweeps: Sweeps over the lanes at most, >= 1.
        rng: Draws the order of the lanes.

    Returns:
        The candidates, (K,), and the value of the question, never below that of the start.
    """
    question = np.array(start, dtype=np.int64)
    value = -np.inf
    searched: dict[int, tuple[bytes, float]] = {}  # the question that each lane's last search left, and its value
    for _ in range(sweeps):
        before = value
        for lane in rng.permutation(len(question)).tolist():
            left, known = searched.get(lane, (b"", value))
            if left == question.tobytes():  # no other option has changed: the same values again
                value = known
                continue
            values = score.replacements(question, lane)
            values = np.where(allowed(lane, question), values, -np.inf)
            best = int(values.argmax())
            if values[best] > values[question[lane]]:
                question[lane] = best
            value = float(values[question[lane]])
            searched[lane] = question.tobytes(), value
        if value <= before + _ROUNDING * abs(before):
            break
    return question, value


class PlannedPrompts:
    """Plans the K prompts of an episode before its first step, and gives their tokens step by step.

    Args:
        options: The additive model of complete prompts.
        tables: Its candidates of each step, (V_h, d).
        num_options: K.

    Attributes:
        plans: Prompts (K, H) of episodes that are not yet over.
    """

    def __init__(self, options: PromptFeatures, tables: list[NDArray[np.float32]], num_options: int) -> None:
        self.options, self.tables, self.num_options = options, tables, num_options
        self.plans: list[NDArray[np.int64]] = []

    def next_tokens(
        self,
        before: NDArray[np.int64],
        rules: TokenRules,
        make_score: Callable[[], QuestionScore],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Tokens (K,) of the step after the prompts ``before``, (K, h): those of their plan, or of a new one.

        Raises:
            ValueError: The rules leave a lane no token.
        """
        step = before.shape[1]
        ours = [plan for plan in self.plans if step and np.array_equal(plan[:, :step], before)]
        if not ours:  # a new episode, or prompts that began otherwise
            ours = [self._plan(before, rules, make_score(), rng)]
            self.plans = [*self.plans[1 - _MOST_PLANS :], ours[0]]
        if step + 1 == len(self.tables):
            self.plans = [plan for plan in self.plans if plan is not ours[0]]
        return np.array(ours[0][:, step])

    def follow(self, prompts: NDArray[np.int64]) -> None:
        """Forget the plan that ends with these prompts, (K, h)."""
        if prompts.shape[1] == len(self.tables):
            self.plans = [plan for plan in self.plans if not np.array_equal(plan, prompts)]

    def _plan(
        self, before: NDArray[np.int64], rules: TokenRules, score: QuestionScore, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """K complete prompts that begin with ``before``, (K, H)."""
        step, horizon = before.shape[1], len(self.tables)
        allowed = _Legal(rules, self.num_options)
        prompts = np.full((self.num_options, horizon), -1, dtype=np.int64)
        prompts[:, :step] = before
        for lane in range(self.num_options):
            _draw_prompt(prompts, lane, step, allowed, rng)
        return search_prompts(
            score, self.options, self.tables, allowed, prompts,
            steps=np.arange(step, horizon), sweeps=_SWEEPS, rng=rng,
            candidates=_FEWER if self.num_options >= _MANY else _CANDIDATES,
        )  # fmt: skip


class _Legal:
    """Which tokens a lane may show in complete prompts.

    The options of a question are different prompts. Their tokens of a step differ where the rules ask for distinct
    options and the step has K tokens.
    """

    def __init__(self, rules: TokenRules, num_options: int) -> None:
        self._rules, self._num_options = rules, num_options
        self._others = [np.delete(np.arange(num_options), lane) for lane in range(num_options)]
        # for steps with fewer than K tokens, if there are any: making the rules takes milliseconds
        self._few = rules.with_repeats() if min(rules.sizes) < num_options else rules

    def __call__(self, step: int, lane: int, prompts: NDArray[np.int64]) -> Booleans:
        """Allowed tokens of a step, given all other known tokens (K, H), -1 where unknown."""
        rules = self._few if self._rules.sizes[step] < self._num_options else self._rules
        ids = rules.ids(prompts)
        mask = rules.allowed_ids(step, ids[lane], ids[self._others[lane]])
        if rules.differ(step):
            return mask
        others = prompts[self._others[lane]]
        same = (others == prompts[lane]) & (others >= 0)
        same[:, step] = True
        equal = same.all(axis=1)
        mask[others[equal & (others[:, step] >= 0), step]] = False
        return mask


def _draw_prompt(prompts: NDArray[np.int64], lane: int, first: int, allowed: _Legal, rng: np.random.Generator) -> None:
    """Fill in random legal tokens of a lane from step ``first`` on; where they lead to a dead end, draw again."""
    for attempt in range(_MOST_DRAWS):
        prompts[lane, first:] = -1
        for step in range(first, prompts.shape[1]):
            tokens = allowed(step, lane, prompts)
            if not tokens.any() and attempt + 1 < _MOST_DRAWS:
                break
            prompts[lane, step] = drawn_token(tokens, step, lane, rng)
        else:
            return


def drawn_token(allowed: Booleans, step: int, lane: int, rng: np.random.Generator) -> int:
    """A random one of the tokens that a lane may show at a step.

    Raises:
        ValueError: There is none.
    """
    usable = np.flatnonzero(allowed)
    if not usable.size:
        raise ValueError(
            f"Expected a token that lane {lane} may show at step {step}, the restrictions and the tokens of "
            "the other lanes leave none; allow more, or ask with fewer options"
        )
    return int(usable[rng.integers(usable.size)])  # the same draw as rng.choice(usable), faster


def search_prompts(
    score: QuestionScore,
    options: PromptFeatures,
    tables: list[NDArray[np.float32]],
    allowed: Callable[[int, int, NDArray[np.int64]], Booleans],
    start: NDArray[np.int64],
    *,
    steps: NDArray[np.int64],
    candidates: int,
    sweeps: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Improve K complete prompts token by token.

    In a sweep, at one step after the other, the token of one lane after the other is replaced by the best of a random
    part of the step's tokens, drawn once for the search. A part suffices, and more than that is no better: the features
    of the options come from an additive model, whose errors an exhaustive search would seek.

    Args:
        score: Acquisition function, which is copied for each step.
        options: The additive model.
        tables: Its candidates of each step, (V_h, d).
        allowed: Called with a step, a lane and the prompts (K, H); returns which tokens of the step the lane may show.
            The present one must be allowed.
        start: First prompts, (K, H), allowed.
        steps: Steps whose tokens may be replaced.
        candidates: Tokens of a step that are tried, beside the present ones.
        sweeps: Sweeps over the steps at most, >= 1.
        rng: Draws the candidates and the order.
    """
    prompts = np.array(start, dtype=np.int64)
    drawn = {
        step: rng.choice(len(tables[step]), size=min(candidates, len(tables[step])), replace=False)
        for step in steps.tolist()
    }
    parts: dict[int, _Candidates] = {}
    value = -np.inf
    for _ in range(sweeps):
        before = value
        for step in rng.permutation(steps).tolist():
            # a single option is compared with the best of all prepared candidates, so none may be one of before
            if step not in parts or len(prompts) == 1:
                score = copy(score)  # that of the step before, which knows the posterior
                parts[step] = _Candidates(score, tables[step], drawn[step], prompts[:, step])
            part = parts[step]
            part.score.prepare(part.features, options.others(prompts, step))
            places = np.searchsorted(part.tokens, prompts[:, step])
            places, value = exchange(part.score, part.legal(allowed, prompts, step, places), places, sweeps=1, rng=rng)
            prompts[:, step] = part.tokens[places]
        if value <= before + _GAIN * abs(before):
            break
    return prompts


class _Candidates:
    """The tokens of a step that a search tries, in order, and a score that is prepared for no others.

    Args:
        score: For these tokens alone.
        table: All tokens of the step, (V, d).
        drawn: Those that may always be tried.
        first: Those of the first prompts, (K,), which may be tried as long as a prompt has them.
    """

    def __init__(
        self, score: QuestionScore, table: NDArray[np.float32], drawn: NDArray[np.int64], first: NDArray[np.int64]
    ) -> None:
        self.score, self.tokens = score, np.unique(np.concatenate([drawn, first]))
        self.features = table[self.tokens]
        self._are_drawn = np.isin(self.tokens, drawn)

    def legal(
        self,
        allowed: Callable[[int, int, NDArray[np.int64]], Booleans],
        prompts: NDArray[np.int64],
        step: int,
        places: NDArray[np.int64],
    ) -> Callable[[int, NDArray[np.int64]], Booleans]:
        """Which candidates a lane may take, given those of all lanes; ``places`` are those of the prompts."""
        tried = self._are_drawn.copy()
        tried[places] = True

        def legal(lane: int, question: NDArray[np.int64]) -> Booleans:
            shown = prompts.copy()
            shown[:, step] = self.tokens[question]
            return np.asarray(allowed(step, lane, shown)[self.tokens] & tried)

        return legal
